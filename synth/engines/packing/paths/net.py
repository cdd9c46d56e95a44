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
from weft.dsl.base.matrix import SparseMatrix
from weft.dsl.base.unique_rows import rows_of
from weft.dsl.nouns.topology import Topology
from weft.dsl.symmetry.orbits import Orbits, orbits_of, without_symmetry

from ....base.effort import Effort, setting
from ....fabric.fabric import ResourceOrbits, as_integers, fabric_of


@dataclass(frozen=True, slots=True)
class PathEffort(Effort):
    """Limits of the search for paths and for messages in rounds."""

    latency_weight: float = setting(
        0.3,
        "what a detour of mean α costs, in terms of a full resource, while pairs are re-routed",
    )
    compromise: Fraction = field(
        default=Fraction(5, 4),
        metadata={"doc": "paths of less α may take this many times the best rate's time"},
    )
    small: int = setting(1500, "pairs that a linear program takes at once")
    large: int = setting(20_000, "pairs that a linear program takes at all; memory grows with it")
    crowded: float = setting(
        0.9,
        "resources loaded by more than this part of their room are split in a second try",
    )
    better: Fraction = field(
        default=Fraction(9, 10),
        metadata={"doc": "equal parts aim at this part of the time of whole paths"},
    )
    nearly: Fraction = field(
        default=Fraction(201, 200),
        metadata={"doc": "the time that prices prove is aimed at, times this for slack"},
    )
    misses: tuple[Fraction, ...] = field(
        default=tuple(Fraction(x, 1000) for x in (1005, 1010, 1020, 1030)),
        metadata={
            "doc": "times, in terms of the best rate's, that whole paths of very many pairs may "
            "take instead, ascending: a linear program over all of them takes longer"
        },
    )
    settling: tuple[float, ...] = setting(
        (40, 100, 200, 300, 400, 500, 600, 700),
        "steepness of prices, ascending, with which chunks change to other trees of a flow",
    )
    least_settling: int = setting(3, "how many of these turns are made whatever work is left")
    missed: Fraction = field(
        default=Fraction(102, 100),
        metadata={"doc": "the same for paths that are made of a known flow: not tried to mend"},
    )
    few_parts: int = setting(
        12,
        "common denominators beyond this are worth looking for a smaller one",
    )
    parts: tuple[int, ...] = setting((2, 3, 4, 5, 6, 8), "numbers of equal parts that are tried")
    reroutes: int = setting(60, "rounds of re-routing, at most")
    stale: int = setting(12, "rounds without progress that end the re-routing")
    rounds: int = setting(80, "rounds of pricing paths, at most; each solves a linear program")
    later_rounds: int = setting(6, "rounds of pricing for α, once the best rate is known")
    copies: int = setting(
        3, "variants of each missing path that are added, with prices that differ by noise"
    )
    noise: float = setting(0.05, "part of a price by which it differs at random in these variants")
    phases: int = setting(60, "phases of multiplicative weights, where the best rate is not known")
    kept_phases: int = setting(5, "last phases whose paths are kept: a program over more is slow")
    steepness: tuple[float, float] = setting(
        (4.0, 40.0),
        "how fast prices grow with congestion in the first phase and in the last",
    )
    pieces: tuple[int, ...] = setting(
        (1, 2, 3, 4, 6, 8),
        "numbers of equal cuts of a chunk that may make a whole number of rounds, ascending",
    )
    rounded: Fraction = field(
        default=Fraction(101, 100),
        metadata={"doc": "a whole number of rounds may take this many times the packing's time"},
    )
    worth: Fraction = field(
        default=Fraction(11, 10),
        metadata={"doc": "rounds that take this many times the packing's time do not win"},
    )
    most_messages: int = setting(5_000, "messages up to which rounds are made")
    most_ways: int = setting(16, "paths of one pair that are looked at")
    tries: int = setting(4, "colourings, each from other random numbers")
    route_steps: int = setting(200, "steps for each message and try in which only ways change")
    move_steps: int = setting(
        1_000,
        "steps for each message and try in which rounds change as well",
    )
    tenure: int = setting(
        10, "steps for which a message does not return to a round and way, and as many by chance"
    )
    most_work: int = setting(100_000_000, "steps of one try times the choices of each, at most")


PATH_EFFORT = PathEffort()
"""Default limits."""


_FINE = 1 << 20  # steps of α between nothing and the longest link


@dataclass(frozen=True, eq=False)
class PathNet:
    """Arrays for the kernels."""

    topology: Topology
    orbits: Orbits  # the group; resource orbits below are those of orbits.row_orbit
    # GB/s that one template may count on in each resource orbit: a path of one template loads every
    # resource of an orbit by (uses · elements / resources of the orbit), so the width is bandwidth
    # · resources / elements
    width: tuple[Fraction, ...]
    # Links by node, heads, resource orbits by link, α and storing nodes, as kernels want them
    graph: Any
    tail: Ints  # the source of every link
    # α of every link in whole units, then links, then GPUs, so that sums compare first by α, then
    # by length
    delay: Ints
    longest: int  # links that a path may have

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

    def uses(self) -> SparseMatrix:
        """Number of times that each path loads each resource orbit: (resources, paths)."""
        column, links = entries(self.links, self.length)
        resource_start, resources = self.net.graph[3], self.net.graph[4]
        start, at = rows_of(resource_start, links)
        paths = np.repeat(column, np.diff(start))
        shape = (self.net.resource_orbits, len(self.pair))
        return SparseMatrix.of(shape, resources[at], paths, np.ones(len(at), np.int64))


def entries(links: Ints32, length: Ints) -> tuple[Ints, Ints]:
    """Return the (path, link) pairs of all paths, in order."""
    column, at = np.nonzero(np.arange(links.shape[1]) < length[:, None])
    return column, links[column, at].astype(np.int64)
