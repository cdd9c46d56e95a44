"""Hops of a machine in columns: the resources that each occupies for one chunk, in whole ticks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np

from weft.dsl.base.arrays import Ints, distinct_values
from weft.dsl.base.errors import UserError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.hops import find_hops
from weft.dsl.nouns.topology import Hop, Topology

from .fabric import fabric_of

ROUTES = 4
"""Ways that are looked at between two GPUs, where nodes that only forward lie between."""

FINEST = 1 << 40
"""Ticks in a µs, at most; where exact times need more, they are rounded to 2^-20 of the
shortest."""


@dataclass(frozen=True, eq=False)
class HopTable:
    """Hops and the resources (links, then shared ones) that they occupy for one chunk."""

    ranks: int
    resources: int
    src: Ints  # rank, by hop
    dst: Ints  # rank, by hop
    route: Ints  # (hops + 1,): of links, those of hop h, in their order
    links: Ints  # links, by hop
    first: Ints  # (hops + 1,): of resource and hold, those of hop h
    resource: Ints  # resources, by hop
    hold: Ints  # ticks from the start of the hop for which each is held
    alpha: Ints  # ticks, by hop: the route's α
    arrives: Ints  # ticks from the start to the arrival: the longest hold and α
    unit: int  # ticks in a µs

    @property
    def hops(self) -> int:
        """Number of hops."""
        return len(self.src)

    @property
    def leaves(self) -> Ints:
        """Ticks until a hop has freed all its resources."""
        return self.arrives - self.alpha

    @property
    def uniform(self) -> bool:
        """True if every hop has its own resource and all times are equal: starts are on a grid."""
        alone = len(self.resource) == self.hops and len(distinct_values(self.resource)) == self.hops
        return bool(
            alone and len(set(self.hold.tolist())) <= 1 and len(set(self.alpha.tolist())) <= 1
        )

    def each_hop(self) -> Iterator[Hop]:
        """The hops with their routes, in order."""
        for h in range(self.hops):
            route = tuple(self.links[self.route[h] : self.route[h + 1]].tolist())
            yield Hop(int(self.src[h]), int(self.dst[h]), route)

    def us(self, ticks: int | Fraction) -> float:
        """Ticks in µs."""
        return float(Fraction(ticks) / self.unit)


def hop_table_of(topology: Topology, chunk_bytes: Fraction, *, down: bool = False) -> HopTable:
    """The hops of a topology for chunks of a size; ``down``: times are not rounded up but down.

    Hops are the links where all nodes are GPUs, else the quickest ``ROUTES`` routes of each pair.
    """
    if len(topology.nodes) == topology.ranks:
        routes: Sequence[tuple[int, ...]] = [(i,) for i in range(len(topology.links))]
    else:
        routes = [hop.route for hop in find_hops(topology, routes_per_pair=ROUTES).hops]
    fabric = fabric_of(topology)
    times = [chunk_bytes * slow for slow in fabric.us_per_byte]
    unit = 1  # ticks per µs such that all times are integers, or nearly
    for value in {*times, *fabric.latency}:
        unit = math.lcm(unit, value.denominator)
        if unit > FINEST:
            unit = max(1, math.ceil((1 << 20) / min(times)))
            break
    whole = math.floor if down else math.ceil
    ticks, alphas = ([whole(x * unit) for x in some] for some in (times, fabric.latency))
    return _tables(topology, routes, ticks, alphas, unit)


def _tables(
    topology: Topology,
    routes: Sequence[tuple[int, ...]],
    times: Sequence[int],
    alphas: Sequence[int],
    unit: int,
) -> HopTable:
    fabric = fabric_of(topology)
    first, alpha, arrives = [0], [], []
    resource: list[int] = []
    hold: list[int] = []
    for route in routes:
        held = {r: n * times[r] for r, n in fabric.times_held(route).items()}
        resource += held
        hold += held.values()
        first.append(len(resource))
        alpha.append(sum(alphas[i] for i in route))
        arrives.append(max(held.values()) + alpha[-1])
    if max(arrives, default=0) * max(1, len(routes)) >= 1 << 62:
        raise UserError(
            f"{topology.name}: the times of one chunk are too far apart to be counted",
            hint="the slowest link is many orders slower than the fastest",
        )
    ends = [(topology.links[r[0]].src, topology.links[r[-1]].dst) for r in routes]
    src, dst = np.array(ends, np.int64).reshape(-1, 2).T
    return HopTable(
        topology.ranks,
        fabric.resources,
        np.ascontiguousarray(src),
        np.ascontiguousarray(dst),
        np.cumsum([0, *map(len, routes)], dtype=np.int64),
        np.array([i for r in routes for i in r], np.int64),
        np.array(first, np.int64),
        np.array(resource, np.int64),
        np.array(hold, np.int64),
        np.array(alpha, np.int64),
        np.array(arrives, np.int64),
        unit,
    )
