"""Machine arrays for path searches: links, the resources they load, both per symmetry orbit."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from weft.dsl.base.arrays import Ints
from weft.dsl.base.lazy_dataclass import dataclass
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
