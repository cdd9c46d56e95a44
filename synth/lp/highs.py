"""Linear programs for HiGHS: solve one in floats, with its prices.

Large programs are solved in the process of solvers (:mod:`..solvers.pool`): there they can be cut
off at once, their memory can be limited, and an abort costs no schedule. The answer has the same
bits. To hand one over takes 1 % of the time to solve it, but the process takes 0.2 CPU seconds to
start, and thousands of small programs would wait for each other's switches.

HiGHS is called as by SciPy's ``linprog``, with the same options, and so gives the same answers.

It can also request the optimum of a PuLP model, within a number of steps of work.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from typing import Any

import numpy as np

from weft.dsl.base.arrays import Floats
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.matrix import SparseMatrix, vstack

from ..solvers.highs import (
    INFEASIBLE,
    METHODS,
    OPTIMAL,
    UNFINISHED,
    RowProgram,
    RowSolution,
    asked,
    unpacked,
)
from ..solvers.pool import SILENT, Listener, solvers

__all__ = [
    "INFEASIBLE",
    "METHODS",
    "OPTIMAL",
    "Solved",
    "iteration_steps",
    "solve_lp",
]

STEPS_PER_ITERATION, ENTRIES_PER_STEP = 15, 400
"""Work of an iteration of the simplex method: of any, and for passing over the matrix.

Calibrated on programs of 60 to 20,000 columns, HiGHS of SciPy 1.17.
"""

PROCESS_ENTRIES = 30_000
"""Entries of the matrix from which a program goes to the process of solvers.

Programs of 5,000 entries take 0.05 CPU seconds; those of 30,000 are the first that take longer than
that process needs to start.
"""


def iteration_steps(entries: int) -> int:
    """Return the work of an iteration on a matrix of ``entries``, in steps."""
    return STEPS_PER_ITERATION + entries // ENTRIES_PER_STEP


@dataclass(frozen=True, eq=False)
class Solved:
    """Result of a solver; without a solution ``x`` is None, and prices are missing.

    ``ub_prices`` are at most 0: the change of the optimum per unit of a right-hand side.
    ``iterations`` are those of the method, by which its work is counted.
    """

    status: int
    message: str
    x: Floats | None
    value: float
    ub_prices: Floats
    eq_prices: Floats
    iterations: int = 0

    @property
    def unfinished(self) -> bool:
        """True if it was ended by the limit on iterations, or stopped."""
        return self.status == UNFINISHED


def solve_lp(
    cost: Floats,
    *,
    a_ub: Any = None,
    b_ub: Floats | None = None,
    a_eq: Any = None,
    b_eq: Floats | None = None,
    bounds: Any = (0, None),
    method: str = "highs",
    iterations: int | None = None,
    listener: Listener = SILENT,
) -> Solved:
    """Minimise cost·x subject to a_ub x <= b_ub, a_eq x = b_eq and bounds on x.

    ``bounds`` is one pair for all columns, or one for each; ``method`` is ``highs`` (HiGHS picks),
    ``highs-ds`` (dual simplex: the answer is a vertex) or ``highs-ipm``. Which of several optima
    is found depends on the order of rows and columns: callers that keep it keep their answers.
    After ``iterations`` the solver gives up, with status 1; so it does where ``listener`` stops
    it, or it dies twice.
    """
    columns, nothing = len(cost), np.zeros(0)
    right = nothing if b_ub is None else np.asarray(b_ub, float)
    equal = nothing if b_eq is None else np.asarray(b_eq, float)
    none = SparseMatrix.empty(0, columns)
    matrix = vstack(*(none if x is None else SparseMatrix.given(x) for x in (a_ub, a_eq)))
    limits = np.empty((columns, 2))
    limits[:] = np.array(bounds, float)
    program = RowProgram.of(
        cost,
        matrix,
        np.concatenate([np.full(len(right), -np.inf), equal]),
        np.concatenate([right, equal]),
        np.where(np.isnan(limits), [-np.inf, np.inf], limits),
    )
    if matrix.nnz < PROCESS_ENTRIES:
        found = program.solve(METHODS[method], iterations)
    else:
        found = _elsewhere(program, METHODS[method], iterations, listener)
    prices = found.prices[: len(right)], found.prices[len(right) :]
    return Solved(found.end, found.message, found.x, found.value, *prices, found.iterations)


def _elsewhere(
    program: RowProgram, method: str, iterations: int | None, listener: Listener
) -> RowSolution:
    question = asked(program, method, iterations)
    answer: Any = solvers().ask(question, listener)
    if answer is None:
        return RowSolution(UNFINISHED, "its solver was stopped", None, np.zeros(0), np.inf, 0)
    return RowSolution(**unpacked(answer))


@dataclass(frozen=True, slots=True)
class SolverAnswer:
    """Answer of a solver, in its floats: the values that are not 0 or None, a bound on the
    objective or None, whether it proved infeasibility, and the steps it took."""

    values: Mapping[str, float] | None = None
    bound: float | None = None
    infeasible: bool = False
    steps: int = 0


def solve(model: Any, solver: str, *, steps: int, listener: Listener = SILENT) -> SolverAnswer:
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
