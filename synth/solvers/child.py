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
    _limit_memory(int(os.environ.get(SOLVER_MEMORY, "0")))
    serve({"pid": os.getpid()}, _answer)


def _limit_memory(most: int) -> None:
    """Let allocations fail beyond so many bytes of data (0: never), files and libraries apart."""
    if most:
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        least = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (least, hard))


def _answer(question: Any, say: Say) -> None:
    """Answer one question. Other errors end the process: its owner sees the last line of them."""
    try:
        say({"answer": _solve(question, lambda found: say({"found": found}))})
    except Missing as error:
        say({"missing": error.message, "hint": error.hint})


def _solve(question: Any, found: Say) -> Any:
    """Ask the solver named; only its own package is loaded."""
    if question["solver"] == "cp-sat":
        from .cp_sat_child import solve  # loads OR-Tools
    elif question["solver"] == "z3":
        from .smt_child import solve
    elif question["solver"] == "mip":
        from .mip_child import solve
    elif question["solver"] == "lp":
        from .lp_child import solve
    else:
        raise AssertionError(question["solver"])
    return solve(question, found)


if __name__ == "__main__":
    main()
