"""A topology as arrays: its links and shared resources with their bandwidths, numbered once.

A *resource* here is all that a transfer may occupy: every link is one (resource i is link i), then
the shared resources follow in their order (:meth:`Topology.usage` numbers its rows so, too). Here
the relation is sparse, so that a thousand ranks stay practical.

>>> from weft.dsl.nouns.topology import Resource, gpu, link
>>> pair = Topology("pair", (gpu(0), gpu(1)), (link(0, 1, 25), link(1, 0, 25)),
...     (Resource("nic", (1,), Fraction(10)),))
>>> one = fabric_of(pair)
>>> one.links, one.resources, one.loaded[1], one.bandwidth[2]
(2, 3, (1, 2), Fraction(10, 1))
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import cached_property

import numpy as np

from weft.dsl.base.arrays import Floats, Ints
from weft.dsl.base.kept import kept
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.units import BYTES_PER_US_PER_GBPS
from weft.dsl.nouns.topology import Topology
from weft.dsl.symmetry.orbits import Orbits


@dataclass(frozen=True, eq=False)
class Fabric:
    """Links and resources of a topology; made by :func:`fabric_of`, which keeps it.

    It is shared by all callers: its arrays must not be written.
    """

    # ranks, nodes: how many; ranks come first among the nodes
    ranks: int
    nodes: int
    # src, dst: the ends of each link
    src: Ints
    dst: Ints
    # first, resource: link i loads resource[first[i]:first[i+1]]: itself, then the shared resources
    # that it belongs to, ascending
    first: Ints
    resource: Ints
    # The same relation by resource, columns (resource, link): the entries of Topology.usage
    pairs: tuple[Ints, Ints]
    bandwidth: tuple[Fraction, ...]  # GB/s of every resource
    latency: tuple[Fraction, ...]  # α of every link in µs

    @property
    def links(self) -> int:
        """Number of links."""
        return len(self.src)

    @property
    def resources(self) -> int:
        """Number of resources, the links among them."""
        return len(self.bandwidth)

    @cached_property
    def GBps(self) -> Floats:
        """The bandwidths as floats."""
        return np.array([float(b) for b in self.bandwidth])

    @cached_property
    def byte_us(self) -> Floats:
        """The µs that a byte takes on each resource, as floats."""
        return 1 / self.GBps / BYTES_PER_US_PER_GBPS

    @cached_property
    def bandwidths(self) -> tuple[tuple[Fraction, ...], Ints]:
        """The distinct bandwidths, and which one each resource has: exact times of few numbers."""
        return _distinct(self.bandwidth)

    @cached_property
    def latencies(self) -> tuple[tuple[Fraction, ...], Ints]:
        """The distinct α, and which one each link has."""
        return _distinct(self.latency)

    @cached_property
    def us_per_byte(self) -> tuple[Fraction, ...]:
        """µs that a byte occupies each resource."""
        made: dict[int, Fraction] = {}  # links share the objects of few bandwidths
        return tuple(
            made.get(id(b)) or made.setdefault(id(b), Fraction(1) / (b * BYTES_PER_US_PER_GBPS))
            for b in self.bandwidth
        )

    @cached_property
    def loaded(self) -> tuple[tuple[int, ...], ...]:
        """The resources of each link as numbers: itself, then the shared ones."""
        flat, first = self.resource.tolist(), self.first.tolist()
        return tuple(tuple(flat[first[i] : first[i + 1]]) for i in range(self.links))

    @cached_property
    def members(self) -> tuple[tuple[int, ...], ...]:
        """The links of each resource: a link itself, then those of the shared resources."""
        first, order = grouped(self.pairs[0], self.resources)
        flat, start = self.pairs[1][order].tolist(), first.tolist()
        return tuple(tuple(flat[start[r] : start[r + 1]]) for r in range(self.resources))

    @cached_property
    def leaving(self) -> tuple[Ints, Ints]:
        """(first, link): ``link[first[v]:first[v+1]]`` leave node v, ascending."""
        return grouped(self.src, self.nodes)

    @cached_property
    def entering(self) -> tuple[Ints, Ints]:
        """(first, link): ``link[first[v]:first[v+1]]`` enter node v, ascending."""
        return grouped(self.dst, self.nodes)

    def resources_of(self, links: Ints) -> tuple[Ints, Ints]:
        """For a column of links: (position in the column, resource) of everything they load."""
        counts = self.first[links + 1] - self.first[links]
        position = np.repeat(np.arange(len(links)), counts)
        ends = np.cumsum(counts)
        inside = np.arange(len(position)) - np.repeat(ends - counts, counts)
        return position, self.resource[self.first[links][position] + inside]

    def times_held(self, route: Iterable[int]) -> dict[int, int]:
        """The resources of a route in the order in which it meets them, and how many of its links
        load each: a message holds one that has two of them twice as long."""
        times: dict[int, int] = {}
        for link in route:
            for one in self.loaded[link]:
                times[one] = times.get(one, 0) + 1
        return times


def _distinct(values: Sequence[Fraction]) -> tuple[tuple[Fraction, ...], Ints]:
    index: dict[Fraction, int] = {}
    which = np.array([index.setdefault(x, len(index)) for x in values], np.int64)
    return tuple(index), which


@kept()
def fabric_of(topology: Topology) -> Fabric:
    """The arrays of a topology, computed once for each topology object."""
    links, shared = len(topology.links), topology.resources
    numbers = np.repeat(np.arange(len(shared)) + links, [len(x.links) for x in shared])
    members = np.array([i for x in shared for i in x.links], np.int64)
    own = np.arange(links)
    pairs = np.concatenate([own, numbers]), np.concatenate([own, members])
    first, by_link = grouped(pairs[1], links)
    ends = np.ascontiguousarray(topology.link_ends().T)
    return Fabric(
        topology.ranks,
        len(topology.nodes),
        ends[0],
        ends[1],
        first,
        pairs[0][by_link],
        pairs,
        topology.capacities(),
        tuple(x.latency for x in topology.links),
    )


@dataclass(frozen=True, eq=False)
class ResourceOrbits:
    """Orbits of resources under a group: how many each has, and the bandwidth of one, in GB/s."""

    size: Ints
    bandwidth: tuple[Fraction, ...]

    @staticmethod
    def of(topology: Topology, orbits: Orbits) -> ResourceOrbits:
        """The resource orbits of a topology."""
        first = np.unique(orbits.row_orbit, return_index=True)[1]
        bandwidth = fabric_of(topology).bandwidth
        return ResourceOrbits(
            np.bincount(orbits.row_orbit), tuple(bandwidth[i] for i in first.tolist())
        )

    @cached_property
    def room(self) -> Floats:
        """GB/s of all resources of an orbit together."""
        found: Floats = self.size * np.array([float(b) for b in self.bandwidth])
        return found


def grouped(keys: Ints, groups: int) -> tuple[Ints, Ints]:
    """(first, order): ``order[first[k]:first[k+1]]`` are the places of key k, ascending."""
    first = np.zeros(groups + 1, np.int64)
    np.cumsum(np.bincount(keys, minlength=groups), out=first[1:])
    return first, np.argsort(keys, kind="stable").astype(np.int64)


# --- rationals as integers ------------------------------------------------------------------------

_SOLVABLE = 1 << 20
_ROOM = 1 << 40  # products with numbers of chunks still fit into 64 bits


def as_integers(values: Sequence[Fraction], room: int = _ROOM) -> tuple[Ints, Fraction]:
    """Integers and a unit such that ``integer * unit`` is the value, or just above it.

    Exact unless the common denominator is absurd; then values are rounded *up*, which for
    bandwidths keeps every lower bound on time valid. ``room`` is the largest integer wanted.

    >>> as_integers([Fraction(25), Fraction(25, 2)])
    (array([2, 1]), Fraction(25, 2))
    """
    scale = math.lcm(*(v.denominator for v in values)) if values else 1
    numerators = [int(v * scale) for v in values]
    unit = math.gcd(*numerators) or 1
    largest = max(numerators, default=0)
    if largest <= unit * room:
        return np.array([n // unit for n in numerators], np.int64), Fraction(unit, scale)
    coarse = Fraction(largest, scale * room)
    return np.array([math.ceil(v / coarse) for v in values], np.int64), coarse


def as_small_integers(values: Sequence[Fraction]) -> tuple[Ints, Fraction, bool]:
    """As :func:`as_integers` for a float solver: at most a million apart; and if that is exact."""
    sizes, unit = as_integers(values, _SOLVABLE)
    return sizes, unit, all(int(s) * unit == v for s, v in zip(sizes, values, strict=True))
