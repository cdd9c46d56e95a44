"""The master program: how much each tree of the pool carries, and what the rows are worth.

    min U:   sum of x over a family = 1,   sum of loads · inc · x <= U in every row orbit

in units of the bound (``inc`` is congestion per use). For allreduce the shares w of the roots
are variables: both families of a root carry w, all w sum to 1. The prices of the rows (they sum
to 1) bound U from below by the cheapest tree of every family (Lagrange), whatever they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.dsl.base.arrays import Floats, Ints
from weft.dsl.base.errors import NothingFound

from .pool import Columns


@dataclass(frozen=True, eq=False)
class Weights:
    """A float solution: weights of the columns, congestion, prices of rows and families."""

    x: Floats
    congestion: float
    prices: Floats
    worth: Floats


@dataclass(frozen=True, eq=False)
class Master:
    """What stays the same while columns come and go.

    Attributes:
        families: the families that are served; allreduce: both halves, equally many.
        joint: the shares are free.
        inc: congestion per use of each row orbit.
    """

    families: Ints
    joint: bool
    inc: Floats

    def best(self, columns: Columns) -> Weights:
        """The least congestion that these trees attain.

        Raises:
            NothingFound: the solver gave up, or a family has no tree.
        """
        n, shares = len(columns), self._shares
        cost = np.zeros(n + shares + 1)
        cost[-1] = 1
        a_ub = self._stack(self._loads(columns), shares, -1.0)
        a_eq, b_eq = self._demands(columns, 1)
        found = _solve(cost, a_ub, np.zeros(a_ub.shape[0]), a_eq, b_eq)
        prices = np.maximum(-found.ineqlin.marginals, 0)
        worth = np.zeros(int(self.families.max()) + 1)
        worth[self._order] = found.eqlin.marginals[: len(self._order)]
        return Weights(found.x[:n], float(found.fun), prices / prices.sum(), worth)

    def cheapest(self, columns: Columns, cost: Floats, congestion: float) -> Floats | None:
        """Weights of the least total cost within a congestion, a vertex; None if there are none."""
        shares = self._shares
        a_ub = self._stack(self._loads(columns), shares, None)
        a_eq, b_eq = self._demands(columns, 0)
        try:
            found = _solve(
                np.concatenate([cost, np.zeros(shares)]),
                a_ub,
                np.full(a_ub.shape[0], congestion),
                a_eq,
                b_eq,
            )
        except NothingFound:
            return None
        x: Floats = found.x[: len(columns)]
        return x

    @property
    def _order(self) -> Ints:
        return np.unique(self.families)

    @property
    def _shares(self) -> int:
        return len(self._order) // 2 if self.joint else 0

    def _loads(self, columns: Columns) -> Any:
        from scipy.sparse import csr_array

        used = csr_array(columns.trees.loads.T.astype(float))
        used.data *= np.repeat(self.inc, np.diff(used.indptr))
        return used

    def _stack(self, loads: Any, shares: int, last: float | None) -> Any:
        from scipy.sparse import csr_array, hstack

        rows = loads.shape[0]
        blocks = [loads, csr_array((rows, shares))]
        if last is not None:
            blocks.append(csr_array(np.full((rows, 1), last)))
        return hstack(blocks).tocsr()

    def _demands(self, columns: Columns, free: int) -> tuple[Any, Floats]:
        """Rows of the families, then that of the shares; ``free`` empty columns at the end."""
        from scipy.sparse import coo_array

        n, order, shares = len(columns), self._order, self._shares
        times = np.bincount(self.families, minlength=int(order.max()) + 1)
        i = [np.searchsorted(order, columns.family)]
        j = [np.arange(n)]
        a = [np.ones(n)]
        right = times[order].astype(float)
        if self.joint:
            share = np.arange(shares)
            i += [share, share + shares, np.full(shares, len(order))]
            j += [n + share] * 3
            a += [-np.ones(shares), -np.ones(shares), np.ones(shares)]
            right = np.append(np.zeros(len(order)), 1.0)
        cells = (np.concatenate(a), (np.concatenate(i), np.concatenate(j)))
        return coo_array(cells, shape=(len(right), n + shares + free)).tocsr(), right


def _solve(cost: Floats, a_ub: Any, b_ub: Floats, a_eq: Any, b_eq: Floats) -> Any:
    from scipy import optimize

    linprog: Any = optimize.linprog
    found = linprog(
        cost, A_ub=a_ub, b_ub=b_ub, A_eq=a_eq, b_eq=b_eq, bounds=(0, None), method="highs-ds"
    )
    if found.status != 0 or found.x is None:
        raise NothingFound(f"packing trees: the linear program was not solved: {found.message}")
    return found
