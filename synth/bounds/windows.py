"""Time windows of links: the α before a chunk can cross a link, and the α after it has crossed.

A chunk that crosses a link has come from a holder and goes on to destinations, so a link serves a
collective that ends at T only from its *head* to T less its *tail*. Two machines are meant at
once, and a bound must hold on both. *Store and forward*: the link is passed when the data is
there, so its head is the α on the way to it, its tail its own α and that behind it. *Cut through*
(the simulator's rule): a transfer occupies its whole route at once and arrives the route's α
later, so its head is the α to the GPU that starts the transfer, and its tail has all of the
route's α. Any other division of a route's α lies between the two.

Run backwards (reductions, on the reversed machine) a transfer's α belongs to its head.
All α are integers over one unit, rounded down; unreachable is -1.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property

import numpy as np

from weft.dsl.base.arrays import Bools, Ints
from weft.dsl.base.integers import FLOAT_EXACT
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.topology import Topology

from ..fabric.paths import distances
from .distance import floored


@dataclass(frozen=True, eq=False)
class Lengths:
    """The α of a machine's links as integers, and shortest paths over them."""

    nodes: int
    stores: Bools
    src: Ints
    dst: Ints
    alpha: Ints
    unit: Fraction

    @staticmethod
    def of(topology: Topology) -> Lengths:
        """The α of a topology; rounded down if their common denominator is too large."""
        room = FLOAT_EXACT // (2 * len(topology.nodes) + 4) ** 2
        alpha, unit = floored([x.latency for x in topology.links], room)
        ends = topology.link_ends().T
        stores = np.array([x.stores for x in topology.nodes])
        return Lengths(len(topology.nodes), stores, ends[0], ends[1], alpha, unit)

    def least(
        self, links: Ints | Bools, starts: Sequence[int] | Ints, offset: Ints | None = None
    ) -> Ints:
        """Least α from any of the starts to every node over some links, -1 where there is none.

        ``offset`` is what each start costs already.
        """
        origin = self.nodes
        at = np.asarray(starts, np.int64)
        cost = np.zeros(len(at), np.int64) if offset is None else offset
        tail = np.concatenate([self.src[links], np.full(len(at), origin)])
        head = np.concatenate([self.dst[links], at])
        return _dijkstra(
            origin + 1, tail, head, np.concatenate([self.alpha[links], cost]), [origin]
        )[0, :origin]

    def from_each(self, links: Ints | Bools, starts: Ints) -> Ints:
        """Least α from each start to every node over some links, shape (starts, nodes)."""
        return _dijkstra(
            self.nodes, self.src[links], self.dst[links], self.alpha[links], starts.tolist()
        )

    @cached_property
    def from_gpus(self) -> Ints:
        """Least α from any GPU to every node."""
        return self.least(np.ones(len(self.alpha), bool), np.flatnonzero(self.stores))

    @cached_property
    def to_gpus(self) -> Ints:
        """Least α from every node to any GPU."""
        return self.turned().from_gpus

    def turned(self) -> Lengths:
        """The same with all links reversed."""
        return Lengths(self.nodes, self.stores, self.dst, self.src, self.alpha, self.unit)

    def before_transfers(self, starts: Ints) -> Ints:
        """Least α from any start to a GPU that can send over each node without a stop.

        A GPU's own entry is the α to itself; for a forwarding node the last stretch from a GPU
        to it is free.
        """
        n = self.nodes
        forwards = ~self.stores[self.dst]
        # Layer 0: at rest or on the way; layer 1: on the last stretch, over forwarding nodes.
        tail = np.where(self.stores[self.src], self.src, n + self.src)[forwards]
        weight = np.concatenate([self.alpha, np.zeros(len(tail), np.int64)])
        both = np.concatenate([self.src, tail]), np.concatenate([self.dst, n + self.dst[forwards]])
        origin = 2 * n
        reach = _dijkstra(
            origin + 1,
            np.concatenate([both[0], np.full(len(starts), origin)]),
            np.concatenate([both[1], starts]),
            np.concatenate([weight, np.zeros(len(starts), np.int64)]),
            [origin],
        )[0]
        return np.asarray(np.where(self.stores, reach[:n], reach[n : 2 * n]))


def _dijkstra(count: int, tail: Ints, head: Ints, length: Ints, starts: list[int]) -> Ints:
    """Shortest distances in integers; -1 if there is no path."""
    base = count + 1  # arcs weigh length·base + 1, so that none is free
    reach = distances(count, tail, head, length * base + 1, np.array(starts))
    return np.where(np.isinf(reach), -1, np.floor(reach / base)).astype(np.int64)
