"""The master of every packing: the least congestion at which columns carry the demands.

A column (a tree, a path) belongs to a *family* (a root, a pair of ranks) and loads resources.

    min  cost·x + U:   sum of x over family k = demand[k],
                       loads x <= width · U + room    in every resource,   x, U >= 0

Where the parts of families are free (allreduce: it is open how much goes over which root), each
family carries a *share* that is a variable, and all shares add up to 1. The prices of the
resources bound U from below by the cheapest column of every family (Lagrange), whatever they are;
finding cheaper columns is left to the callers (Ford and Fulkerson 1958).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.dsl.base.arrays import Floats, Ints
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.matrix import SparseMatrix, hstack

from ..base.meter import Meter
from ..solvers.pool import listener_of
from .certified import ENTRY_STEPS, LinearProgram
from .highs import Solved, iteration_steps, solve_lp


@dataclass(frozen=True, eq=False)
class Congestion:
    """The program. Rows and columns keep the order in which they are given here."""

    loads: Any  # sparse, (resources, columns)
    family: Ints  # of each column
    demand: Floats  # of each family; with shares 0 everywhere
    width: Floats | None = None  # of each resource; None: 1
    room: Floats | None = None  # of each resource; None: 0; negative where it is loaded anyway
    share: Ints | None = None  # which free share each family carries; None: demands are given

    @property
    def columns(self) -> int:
        """Number of columns, without shares and U."""
        return len(self.family)

    @property
    def shares(self) -> int:
        """Number of free shares."""
        return 0 if self.share is None else int(self.share.max()) + 1

    def least(
        self,
        cost: Floats | None = None,
        *,
        price: float = 1.0,
        fixed: float | None = None,
        method: str = "highs",
        meter: Meter | None = None,
    ) -> Solved:
        """The least ``cost·x + price · U``: columns x, then shares, then U.

        Without ``cost`` columns are free; with ``fixed`` that is U. ``meter`` limits and counts
        the iterations; without an answer before its end the status is not OPTIMAL.
        """
        n = self.columns + self.shares + 1
        objective, bounds = np.zeros(n), np.zeros((n, 2))
        objective[: self.columns] = 0.0 if cost is None else cost
        objective[-1] = price
        bounds[:, 1] = np.inf
        if fixed is not None:
            bounds[-1] = fixed
        return self._solve(objective, self.room, method, meter, bounds)

    def cheapest(self, cost: Floats, congestion: float, meter: Meter) -> Solved:
        """The least ``cost·x`` at a congestion, a vertex: columns x, then shares. Width 1 only.

        ``meter`` as for :meth:`least`.
        """
        assert self.width is None
        assert self.room is None
        room = np.full(self.loads.shape[0], congestion)
        return self._solve(np.append(cost, np.zeros(self.shares)), room, "highs-ds", meter)

    def exactly(self) -> LinearProgram:
        """The program of :meth:`least` in integers: loads, widths and demands are."""
        cost = np.zeros(self.columns + self.shares + 1, np.int64)
        cost[-1] = 1
        a_ub, a_eq, right = self._rows(1)
        none = np.zeros(a_ub.shape[0], np.int64)
        return LinearProgram(cost, a_ub, none, a_eq, right.astype(np.int64))

    def _solve(
        self,
        objective: Floats,
        room: Floats | None,
        method: str,
        meter: Meter | None,
        bounds: Any = (0, None),
    ) -> Solved:
        """Solve the program with as many columns as the objective has; counted."""
        a_ub, a_eq, b_eq = self._rows(len(objective) - self.columns - self.shares)
        entries = a_ub.nnz + a_eq.nnz
        each = iteration_steps(entries)
        found = solve_lp(
            objective,
            a_ub=a_ub,
            b_ub=np.zeros(a_ub.shape[0]) if room is None else room,
            a_eq=a_eq,
            b_eq=b_eq,
            bounds=bounds,
            method=method,
            iterations=None if meter is None else meter.left // each,
            listener=listener_of(meter),
        )
        if meter is not None:
            meter.spend(entries * ENTRY_STEPS + each * found.iterations)
            if found.unfinished:
                meter.cut_short()
        return found

    def _rows(self, free: int) -> tuple[SparseMatrix, SparseMatrix, Floats]:
        """Rows of the resources; of the families, then of the shares, with their sums.

        ``free``: 1 with the column of U, else 0.
        """
        loads = SparseMatrix.given(self.loads)
        resources = loads.shape[0]
        width = np.ones(resources) if self.width is None else self.width
        own = [SparseMatrix.given(-width[:, None])] * free
        a_ub = hstack(loads, SparseMatrix.empty(resources, self.shares), *own)
        n, shares, families = self.columns, self.shares, len(self.demand)
        row, column, value = [self.family], [np.arange(n)], [np.ones(n)]
        right = self.demand
        if self.share is not None:
            row += [np.arange(families), np.full(shares, families)]
            column += [n + self.share, n + np.arange(shares)]
            value += [-np.ones(families), np.ones(shares)]
            right = np.append(right, 1.0)
        shape = (len(right), n + shares + free)
        cells = (np.concatenate(x) for x in (row, column, value))
        return a_ub, SparseMatrix.of(shape, *cells), right
