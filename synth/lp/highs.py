"""Solve a linear program in floats, with its prices: by SciPy's HiGHS.

Large programs are solved in the process of solvers (:mod:`..solvers.pool`): there they can be cut
off at once, their memory can be limited, and an abort costs no schedule. The answer has the same
bits. To hand one over takes 1 % of the time to solve it, but the process takes 0.5 CPU seconds to
start, and thousands of small programs would wait for each other's switches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.dsl.base.arrays import Floats

from ..base.meter import Meter
from ..solvers.lp_child import pack, run, unpack
from ..solvers.pool import NOBODY, Listener, solvers

OPTIMAL, UNFINISHED, INFEASIBLE = 0, 1, 2
"""SciPy's numbers for these ends of a solver."""

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
    """Return the work of an iteration on a matrix of so many entries, in steps."""
    return STEPS_PER_ITERATION + entries // ENTRIES_PER_STEP


@dataclass(frozen=True, eq=False)
class Solved:
    """Result of a solver; without a solution ``x`` is None and there are no prices.

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
    listener: Listener = NOBODY,
) -> Solved:
    """Minimise cost·x subject to a_ub x <= b_ub, a_eq x = b_eq and bounds on x.

    ``bounds`` is one pair for all columns, or one for each; ``method`` is ``highs`` (HiGHS picks),
    ``highs-ds`` (dual simplex: the answer is a vertex) or ``highs-ipm``. Which of several optima
    is found depends on the order of rows and columns: callers that keep it keep their answers.
    After ``iterations`` the solver gives up, with status 1; so it does where ``listener`` stops
    it, or it dies twice.
    """
    options: dict[str, Any] = {}
    if iterations is not None:
        options["maxiter"] = min(iterations, np.iinfo(np.int32).max)  # HiGHS takes no more
    program = {"c": cost, "A_ub": a_ub, "b_ub": b_ub, "A_eq": a_eq, "b_eq": b_eq, "bounds": bounds}
    if _entries(a_ub) + _entries(a_eq) < PROCESS_ENTRIES:
        return Solved(**run(program, method, options))
    program["bounds"] = np.array(bounds, float)
    question = {
        "solver": "lp",
        "program": {name: pack(value) for name, value in program.items()},
        "method": method,
        "options": options,
    }
    answer: Any = solvers().ask(question, listener)
    if answer is None:
        nothing = np.zeros(0)
        return Solved(UNFINISHED, "its solver was stopped", None, np.inf, nothing, nothing)
    return Solved(**{name: unpack(value) for name, value in answer.items()})


def _entries(matrix: Any) -> int:
    """Return the entries of a matrix, sparse or not; 0 of None."""
    return 0 if matrix is None else getattr(matrix, "nnz", np.size(matrix))


def listener_of(meter: Meter | None) -> Listener:
    """Return the callbacks of a question within the work that a meter counts."""
    return NOBODY if meter is None else Listener(meter.stop_asked, meter.tell)
