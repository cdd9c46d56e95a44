"""SciPy's HiGHS, called only here: solve a linear program in floats, with its prices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.dsl.base.arrays import Floats
from weft.dsl.base.shallow import on_new_stack

OPTIMAL, INFEASIBLE = 0, 2
"""SciPy's numbers for these ends of a solver."""

STEPS_PER_ITERATION, ENTRIES_PER_STEP = 15, 400
"""Work of an iteration of the simplex method: of any, and for passing over the matrix.

Calibrated on programs of 60 to 20,000 columns, HiGHS of SciPy 1.17.
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
        """True if it was ended by the limit on iterations, SciPy's status 1."""
        return self.status == 1


def solve_lp(
    cost: Floats,
    *,
    a_ub: Any = None,
    b_ub: Floats | None = None,
    a_eq: Any = None,
    b_eq: Floats | None = None,
    bounds: Any = (0, None),
    method: str = "highs",
    seconds: float | None = None,
    iterations: int | None = None,
) -> Solved:
    """Minimise cost·x subject to a_ub x <= b_ub, a_eq x = b_eq and bounds on x.

    ``bounds`` is one pair for all columns, or one for each; ``method`` is ``highs`` (HiGHS picks),
    ``highs-ds`` (dual simplex: the answer is a vertex) or ``highs-ipm``. Which of several optima
    is found depends on the order of rows and columns: callers that keep it keep their answers.
    After ``iterations`` the solver gives up, with status 1.
    """
    options: dict[str, Any] = {} if seconds is None else {"time_limit": seconds}
    if iterations is not None:
        options["maxiter"] = min(iterations, np.iinfo(np.int32).max)  # HiGHS takes no more
    linprog = on_new_stack(_linprog)
    found = linprog(
        cost,
        A_ub=a_ub,
        b_ub=b_ub,
        A_eq=a_eq,
        b_eq=b_eq,
        bounds=bounds,
        method=method,
        options=options,
    )
    if found.x is None:
        nothing = np.zeros(0)
        return Solved(found.status, found.message, None, np.inf, nothing, nothing, int(found.nit))
    return Solved(
        found.status,
        found.message,
        found.x,
        float(found.fun),
        found.ineqlin.marginals,
        found.eqlin.marginals,
        int(found.nit),
    )


def _linprog() -> Any:
    """SciPy's function; its stubs know no variable method."""
    from scipy import optimize  # takes 100 ms to load

    return optimize.linprog
