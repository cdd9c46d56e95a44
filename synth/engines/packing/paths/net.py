"""Machine arrays for path searches: links, the resources they load, both per symmetry orbit.

Pool of the paths found so far, each once, and the resources that they load.
"""

from __future__ import annotations

from dataclasses import field
from fractions import Fraction
from typing import Any

import numpy as np

from weft.dsl.base.arrays import Bools, Ints, Ints32
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.unique_rows import rows_of
from weft.dsl.nouns.topology import Topology
from weft.dsl.symmetry.orbits import Orbits, orbits_of, without_symmetry

from ....fabric.fabric import ResourceOrbits, as_integers, fabric_of

_FINE = 1 << 20  # steps of α between nothing and the longest link


@dataclass(frozen=True, eq=False)
class PathNet:
    """Arrays for the kernels.

    Attributes:
        orbits: the group; resource orbits below are those of ``orbits.row_orbit``.
        width: GB/s that one template may count on in each resource orbit: a path of one template
            loads every resource of an orbit by (uses · elements / resources of the orbit), so the
            width is bandwidth · resources / elements.
        graph: links by node, heads, resource orbits by link, α and what stores, as kernels want
            them.
        tail: the source of every link.
        delay: α of every link in whole units, then links, then GPUs, so that sums compare first
            by α, then by length.
        longest: links that a path may have.
    """

    topology: Topology
    orbits: Orbits
    width: tuple[Fraction, ...]
    graph: Any
    tail: Ints
    delay: Ints
    longest: int

    @property
    def resource_orbits(self) -> int:
        """Number of resource orbits."""
        return len(self.width)

    @property
    def sources(self) -> Ints:
        """The lowest rank of each orbit: templates start here."""
        return self.orbits.representatives


def net_of(topology: Topology, *, symmetric: bool) -> PathNet:
    """Return the arrays of a topology; with ``symmetric``, per orbit of its symmetries."""
    found = orbits_of(topology) if symmetric else without_symmetry(topology)
    row_of, each = found.row_orbit.astype(np.int64), ResourceOrbits.of(topology, found)
    width = tuple(
        bandwidth * n / found.order
        for bandwidth, n in zip(each.bandwidth, each.size.tolist(), strict=True)
    )
    fabric = fabric_of(topology)
    start, out = fabric.leaving
    delay = _delay(topology)
    stores = np.array([node.stores for node in topology.nodes], np.int64)
    graph = (start, out, fabric.dst, fabric.first, row_of[fabric.resource], delay, stores)
    return PathNet(
        topology,
        found,
        width,
        tuple(np.ascontiguousarray(x, np.int64) for x in graph),
        fabric.src,
        delay,
        min(len(topology.links), len(topology.nodes)),
    )


def _delay(topology: Topology) -> Ints:
    """α of links as integers over a fine unit, times a base that leaves room for ties."""
    base = 4 * (len(topology.nodes) + 1)
    size, _ = as_integers(fabric_of(topology).latency, _FINE)
    into_gpu = np.array([topology.nodes[x.dst].stores for x in topology.links], np.int64)
    return np.asarray(size * base + 1 + into_gpu, np.int64)


@dataclass(eq=False)
class PathPool:
    """Columns found so far: paths of pairs, each once."""

    net: PathNet
    pair: Ints
    links: Ints32
    length: Ints
    seen: set[tuple[int, bytes]] = field(default_factory=set)

    @classmethod
    def empty(cls, net: PathNet) -> PathPool:
        """Return an empty pool."""
        none = np.zeros(0, np.int64)
        return cls(net, none, np.zeros((0, net.longest), np.int32), none)

    @classmethod
    def of(cls, net: PathNet, pair: Ints, links: Ints32, length: Ints) -> PathPool:
        """Return a pool of the given paths; equal ones are kept once."""
        pool = cls.empty(net)
        pool.add(pair, links, length)
        return pool

    def add(self, pair: Ints, links: Ints32, length: Ints) -> int:
        """Add paths; return the number of new ones."""
        fresh = []
        for i, (k, n) in enumerate(zip(pair.tolist(), length.tolist(), strict=True)):
            key = k, links[i, :n].tobytes()
            if n > 0 and key not in self.seen:
                self.seen.add(key)
                fresh.append(i)
        if fresh:
            self.pair = np.concatenate([self.pair, pair[fresh]])
            self.links = np.concatenate([self.links, links[fresh]])
            self.length = np.concatenate([self.length, length[fresh]])
        return len(fresh)

    def among(self, free: Bools) -> PathPool:
        """Return the paths of the marked pairs; pairs are renumbered."""
        kept = free[self.pair]
        number = np.cumsum(free) - 1
        return PathPool.of(self.net, number[self.pair[kept]], self.links[kept], self.length[kept])

    def uses(self) -> Any:
        """How often each path loads each resource orbit: a sparse matrix (resources, paths)."""
        from scipy.sparse import coo_array

        column, links = entries(self.links, self.length)
        resource_start, resources = self.net.graph[3], self.net.graph[4]
        start, at = rows_of(resource_start, links)
        cells = resources[at], np.repeat(column, np.diff(start))
        shape = (self.net.resource_orbits, len(self.pair))
        return coo_array((np.ones(len(at), np.int64), cells), shape=shape).tocsr()


def entries(links: Ints32, length: Ints) -> tuple[Ints, Ints]:
    """Return the (path, link) pairs of all paths, in order."""
    column, at = np.nonzero(np.arange(links.shape[1]) < length[:, None])
    return column, links[column, at].astype(np.int64)
