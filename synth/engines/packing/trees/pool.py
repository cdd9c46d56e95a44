"""Candidate trees: found by multiplicative weights and by pricing, kept once each.

A *family* is the set of trees of one representative in one direction: family k has the out-trees
of representative k, family k + (number of representatives) the in-trees of a reduction. The
weights of a family sum to one share.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from weft.dsl.base.arrays import Floats, Ints, distinct_values
from weft.dsl.base.errors import NothingFound
from weft.dsl.base.lazy_dataclass import dataclass

from ....base.meter import Meter
from ....lp.congestion import Congestion
from ....lp.highs import OPTIMAL
from .machine import TreeMachine


@dataclass(frozen=True, eq=False)
class Batch:
    """Trees of one direction as the kernels leave them.

    Attributes:
        arcs: the arc into every rank, -1 at the root, shape (trees, ranks).
        links: the route of that arc in the frame of its cell, -1 after its end, shape
            (trees, ranks, width).
        loads: how often each resource orbit is used, shape (trees, resource orbits).
    """

    arcs: Ints
    links: Ints
    loads: Ints

    @staticmethod
    def empty(machine: TreeMachine, trees: int, resources: int) -> Batch:
        """Room for so many trees."""
        n, width = machine.net.ranks, machine.net.width
        return Batch(
            np.full((trees, n), -1),
            np.full((trees, n, width), -1),
            np.zeros((trees, resources), np.int64),
        )

    def take(self, index: Any) -> Batch:
        """Some of the trees."""
        return Batch(self.arcs[index], self.links[index], self.loads[index])

    def depths(self, machine: TreeMachine) -> Ints:
        """Hops from the root to each rank, shape (trees, ranks)."""
        tail = np.append(machine.net.arc_tail, 0)
        trees, n = self.arcs.shape
        parent = np.where(self.arcs >= 0, tail[self.arcs], np.arange(n))
        depth = np.zeros((trees, n), np.int64)
        at = np.broadcast_to(np.arange(n), (trees, n))
        while True:
            up = np.take_along_axis(parent, at, axis=1)
            if (up == at).all():
                return depth
            depth += up != at
            at = up

    def heights(self, machine: TreeMachine) -> Ints:
        """Hops from the root to the farthest rank, per tree."""
        return self.depths(machine).max(axis=1)


class TreePool:
    """Columns of the master program, each load vector of a family once (the lowest tree)."""

    def __init__(self, machines: tuple[TreeMachine, ...], resources: int) -> None:
        self.machines = machines
        self.resources = resources
        self._batches: list[Batch] = []
        self._family: list[Ints] = []
        self._height: list[Ints] = []
        self._seen: set[bytes] = set()

    def __len__(self) -> int:
        return len(self._seen)

    @property
    def representatives(self) -> int:
        """Number of rank orbits: families from here on reduce."""
        return len(self.machines[0].net.sources)

    def machine_of(self, family: int) -> TreeMachine:
        """The machine (forwards or turned) that the trees of a family grow on."""
        return self.machines[family // self.representatives]

    def add(self, batch: Batch, family: Ints) -> int:
        """Add trees of one direction; return the number of new ones."""
        if not len(family):
            return 0
        height = batch.heights(self.machine_of(int(family[0])))
        loads = batch.loads.astype(np.int32)
        fresh = []
        for t in np.argsort(height, kind="stable").tolist():
            key = int(family[t]).to_bytes(4, "little") + loads[t].tobytes()
            if key not in self._seen:
                self._seen.add(key)
                fresh.append(t)
        if fresh:
            self._batches.append(batch.take(fresh))
            self._family.append(family[fresh])
            self._height.append(height[fresh])
        return len(fresh)

    def columns(self) -> Columns:
        """All trees so far, in order of insertion."""
        if len(self._batches) > 1:
            whole = [
                np.concatenate([getattr(b, name) for b in self._batches])
                for name in ("arcs", "links", "loads")
            ]
            self._batches = [Batch(*whole)]
            self._family = [np.concatenate(self._family)]
            self._height = [np.concatenate(self._height)]
        return Columns(self._batches[0], self._family[0], self._height[0])


@dataclass(frozen=True, eq=False)
class Columns:
    """Trees with their families and heights."""

    trees: Batch
    family: Ints
    height: Ints

    def __len__(self) -> int:
        return len(self.family)

    def take(self, index: Any) -> Columns:
        """Some of the columns."""
        return Columns(self.trees.take(index), self.family[index], self.height[index])


@dataclass(frozen=True, eq=False)
class Weights:
    """A float solution: weights of the columns, congestion, prices of resources and families."""

    x: Floats
    congestion: float
    prices: Floats
    worth: Floats


@dataclass(frozen=True, eq=False)
class Master:
    """The master program of trees (:mod:`weft.synth.lp.congestion`), in units of the bound.

    For allreduce the shares w of the roots are variables: both families of a root carry w, all w
    sum to 1.

    Attributes:
        families: the families that are served; allreduce: both halves, equally many.
        joint: the shares are free.
        inc: congestion per use of each resource orbit.
        meter: counts the work of solving.
    """

    families: Ints
    joint: bool
    inc: Floats
    meter: Meter

    def best(self, columns: Columns) -> Weights:
        """The least congestion that these trees attain; prices of resources sum to 1.

        Raises:
            NothingFound: the solver gave up, or a family has no tree.
        """
        found = self._least(columns, Meter(sys.maxsize, self.meter.stopped, self.meter))
        if isinstance(found, str):
            raise NothingFound(f"packing trees: the linear program was not solved: {found}")
        return found

    def affordable(self, columns: Columns) -> Weights | None:
        """The same, or None where it takes more work than is left."""
        found = self._least(columns, self.meter)
        return None if isinstance(found, str) else found

    def cheapest(self, columns: Columns, cost: Floats, congestion: float) -> Floats | None:
        """Weights of the least total cost within a congestion, a vertex; None if there are none,
        or if they take more work than is left."""
        found = self._program(columns).cheapest(cost, congestion, self.meter)
        if found.status != OPTIMAL or found.x is None:
            return None
        return found.x[: len(columns)]

    def _least(self, columns: Columns, meter: Meter) -> Weights | str:
        """The best weights, or why there are none."""
        found = self._program(columns).least(method="highs-ds", meter=meter)
        if found.status != OPTIMAL or found.x is None:
            return found.message
        prices = np.maximum(-found.ub_prices, 0)
        order = self._order
        worth = np.zeros(int(order.max()) + 1)
        worth[order] = found.eq_prices[: len(order)]
        return Weights(found.x[: len(columns)], found.value, prices / prices.sum(), worth)

    @property
    def _order(self) -> Ints:
        return distinct_values(self.families)

    def _program(self, columns: Columns) -> Congestion:
        from scipy.sparse import csr_array  # takes 100 ms to load

        used = csr_array(columns.trees.loads.T.astype(float))
        used.data *= np.repeat(self.inc, np.diff(used.indptr))
        order = self._order
        family = np.searchsorted(order, columns.family)
        if self.joint:
            share = np.arange(len(order)) % (len(order) // 2)
            return Congestion(used, family, np.zeros(len(order)), share=share)
        return Congestion(used, family, np.bincount(self.families)[order].astype(float))
