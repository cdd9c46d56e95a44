"""Process in which solvers run, one question after the other; see :mod:`.pool`."""

from __future__ import annotations

import os
import resource
from typing import Any

from weft.dsl.base.answering import Say, serve
from weft.dsl.base.environment import SOLVER_MEMORY
from weft.dsl.base.errors import Missing


def main() -> None:
    """Answer questions ``{solver, …}`` with ``{answer}`` or ``{missing, hint}``."""
    serve({"pid": os.getpid()}, _answer)


def _limit_memory(most: int) -> None:
    """Let allocations fail beyond ``most`` bytes of data, files and libraries apart; 0: beyond what
    the system allows."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    least = hard if not most or 0 <= hard < most else most
    resource.setrlimit(resource.RLIMIT_DATA, (least, hard))


def _answer(question: Any, say: Say) -> None:
    try:
        say({"answer": _solve(question, lambda found: say({"found": found}))})
    except Missing as error:
        say({"missing": error.message, "hint": error.hint})


def _solve(question: Any, found: Say) -> Any:
    """Call the solver named; only its own package is loaded.

    It is loaded without the limit of memory: where OpenBLAS cannot allocate meanwhile it tries for
    ever, and keeps Python's lock, so that not even the end of the owner would be noticed.
    """
    _limit_memory(0)
    if question["solver"] == "cp-sat":
        from .cp_sat_child import solve  # loads OR-Tools
    elif question["solver"] == "z3":
        from .smt_child import solve
    elif question["solver"] == "mip":
        from .mip_child import solve
    elif question["solver"] == "lp":
        from .highs import highs_core, solve

        highs_core()
    else:
        raise AssertionError(question["solver"])
    _limit_memory(int(os.environ.get(SOLVER_MEMORY, "0")))
    return solve(question, found)


if __name__ == "__main__":
    main()
