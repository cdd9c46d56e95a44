"""Ask a solver for the optimum of a PuLP model, within so many steps of work."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from typing import Any

from weft.dsl.base.lazy_dataclass import dataclass

from ..solvers.pool import NOBODY, Listener, solvers


@dataclass(frozen=True, slots=True)
class SolverAnswer:
    """Answer of a solver, in its floats: the values that are not 0 or None, a bound on the
    objective or None, whether it proved that there is no solution, and the steps it took."""

    values: Mapping[str, float] | None = None
    bound: float | None = None
    infeasible: bool = False
    steps: int = 0


def solve(model: Any, solver: str, *, steps: int, listener: Listener = NOBODY) -> SolverAnswer:
    """Return the answer of a solver: ``highs``, ``cbc`` or a name PuLP knows.

    HiGHS and CBC count their work, other solvers are limited by seconds, one for a million steps.
    Where it is stopped or its process dies, the best solution of HiGHS until then is the answer.

    Raises:
        Missing: the solver does not run here.
    """
    best: dict[str, Any] = {}
    # Solvers that are started as commands leave their files there where they are killed.
    with tempfile.TemporaryDirectory(prefix="weft-flow-") as folder:
        question = {
            "solver": "mip",
            "model": model.toDict(),
            "by": solver,
            "steps": steps,
            "folder": folder,
        }
        answer = solvers().ask(question, listener, best.update)
    if answer is None:
        return SolverAnswer(best.get("values"), best.get("bound"), steps=steps)
    return SolverAnswer(**answer)
