"""Packings of least latency: every rank by the route of least α, over links in turn.

For small messages. One tree per chunk, by Dijkstra's algorithm on α; among routes of equal α the
one whose links carry less so far. The rate is not optimized, but computed exactly.

Low-load trees: every rank is attached by the cheapest links, so inner links stay half empty.

At the best rate some resource is always saturated. But where *many* resources are nearly saturated,
as when all ranks send to all others through a fabric, transfers that need several resources at once
wait for each other, and no order keeps all resources busy. Trees that cross the fabric once and are
copied behind it leave slack. Rip-up and re-route with exponential prices, one tree per root.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from heapq import heappop, heappush
from math import exp

import numpy as np

from weft.dsl.base.arrays import Ints32
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.collective import Collective, Kind
from weft.dsl.nouns.topology import Topology

from ....base.engine import Certificate
from ....base.meter import Meter
from ..trees.model import PackedTree, Packing

Route = tuple[int, int, tuple[int, ...]]
"""Source rank, destination rank, links."""

STEPS_PER_LOOK = 1
"""Work of looking at a link in Dijkstra's algorithm."""

_BALANCE = 1e-6  # of the mean α: what a link that is as loaded as all others costs more


Group = tuple[Ints32, Ints32]
"""Images of all nodes and of all links, as :class:`Packing` holds them."""


def identity(topology: Topology) -> Group:
    """The group where nothing is symmetric."""
    nodes, links = len(topology.nodes), len(topology.links)
    return np.arange(nodes, dtype=np.int32)[None], np.arange(links, dtype=np.int32)[None]


def quick_packing(
    topology: Topology,
    collective: Collective,
    bound: Fraction,
    certificate: Certificate,
    group: Group | None = None,
    meter: Meter | None = None,
) -> Packing:
    """One tree or path of least α per chunk; ``bound`` and ``certificate`` are passed on;
    ``meter`` counts the work."""
    images, link_images = group or identity(topology)
    ways = _LoadedRoutes(topology, images, link_images)
    trees = tuple(_tree(collective, chunk, ways) for chunk in _representatives(collective, images))
    if meter is not None:
        meter.spend(STEPS_PER_LOOK * ways.looks)
    if collective.kind is Kind.ALLREDUCE:
        share = Fraction(1, len(images))
        trees = tuple(replace(t, weight=share) for t in trees)
    return Packing(
        topology,
        collective,
        trees,
        images,
        link_images,
        Fraction(0),
        bound,
        certificate,
        "the quickest routes, for small messages",
    ).rated()


def _representatives(collective: Collective, images: Ints32) -> list[int]:
    images, n = images[:, : collective.ranks], collective.ranks
    chunk = np.arange(collective.chunks)
    if len(images) == 1 or collective.kind is Kind.ALLREDUCE:
        return chunk.tolist()
    # No element but the identity fixes a rank, so that only one brings a sender to the least one.
    sender = chunk // n if collective.kind is Kind.ALLTOALL else chunk
    return np.flatnonzero(images.min(axis=0)[sender] == sender).tolist()


def _tree(collective: Collective, chunk: int, ways: _LoadedRoutes) -> PackedTree:
    """Lowest-latency tree of one chunk (reversed for reductions)."""
    pre, post = collective.pre, collective.post
    holders = pre.ranks[pre.chunks == chunk].tolist()
    wanted = post.ranks[post.chunks == chunk].tolist()
    if len(holders) > 1 and collective.kind is Kind.ALLREDUCE:
        root = ways.centre()
        gathered = _reverse(ways.tree([root], holders, backward=True))
        spread = ways.tree([root], wanted)
        return as_tree(chunk, [(r, True) for r in gathered] + [(r, False) for r in spread])
    if collective.combining:
        gathered = _reverse(ways.tree(wanted, holders, backward=True))
        return as_tree(chunk, [(r, True) for r in gathered])
    return as_tree(chunk, [(r, False) for r in ways.tree(holders, wanted)])


def _reverse(hops: list[Route]) -> list[Route]:
    """Reverse hops found against the links, into the order in which sums flow: leaves first."""
    return [(dst, src, links[::-1]) for src, dst, links in reversed(hops)]


def as_tree(
    chunk: int, hops: Iterable[tuple[Route, bool]], weight: Fraction | int = 1
) -> PackedTree:
    """A tree from (route, whether it reduces) in an order of dependence."""
    rows = list(hops)
    return PackedTree.of(
        chunk,
        Fraction(weight),
        [src for (src, _, _), _ in rows],
        [dst for (_, dst, _), _ in rows],
        [reduce for _, reduce in rows],
        [len(links) for (_, _, links), _ in rows],
        [i for (_, _, links), _ in rows for i in links],
    )


def neighbours(topology: Topology, backward: bool = False) -> list[list[tuple[int, int]]]:
    """Of each node the links that leave it, with their ends; ``backward``: that enter it."""
    near: list[list[tuple[int, int]]] = [[] for _ in topology.nodes]
    for i, x in enumerate(topology.links):
        src, dst = (x.dst, x.src) if backward else (x.src, x.dst)
        near[src].append((i, dst))
    return near


class _LoadedRoutes:
    """Routes by Dijkstra's algorithm, with the load of the links so far."""

    def __init__(self, topology: Topology, images: Ints32, link_images: Ints32) -> None:
        self._topology = topology
        self.looks = 0  # at links, so far
        least = images[:, : topology.ranks].min(axis=0)
        # one rank of each orbit
        self._alone = np.flatnonzero(least == np.arange(topology.ranks)).tolist()
        self._orbit = link_images.min(axis=0).tolist()  # of each link: the least of its images
        size = np.bincount(self._orbit, minlength=len(self._orbit))
        bandwidth = np.array([float(x.bandwidth) for x in topology.links])
        self._alpha = [float(x.latency) for x in topology.links]
        mean = sum(self._alpha) / max(1, len(self._alpha)) or 1.0
        # The cost of one more use of a link: the less, the wider it is and the more stand for it.
        each = _BALANCE * mean * bandwidth.mean() / bandwidth / np.maximum(1, size)
        self._each = each.tolist()
        self._price = [0.0] * len(self._orbit)  # of each orbit, at its least link
        self._near = [neighbours(topology, backward) for backward in (False, True)]

    def tree(self, roots: list[int], leaves: list[int], backward: bool = False) -> list[Route]:
        """Return the hops from one of the roots to all leaves, roots first."""
        order, came = self._search(roots, backward)
        wanted, hops = set(leaves) - set(roots), {}
        for node in reversed(order):
            if node not in wanted:
                continue
            links, at = [], node
            while True:
                link, at = came[at]
                links.append(link)
                if at < self._topology.ranks:
                    break
            if at not in roots:
                wanted.add(at)
            hops[node] = (at, node, tuple(reversed(links)))
        for _, _, links_of in hops.values():
            for i in links_of:
                self._price[self._orbit[i]] += self._each[self._orbit[i]]
        return [hops[node] for node in order if node in hops]

    def centre(self) -> int:
        """Return the rank of least eccentricity, distances counted both ways.

        Called before any tree is built, so that images of a rank are as far from all as it is.
        """

        def radius(rank: int) -> float:
            return sum(self._reach(rank, way) for way in (False, True))

        return min(self._alone, key=radius)

    def _reach(self, rank: int, backward: bool) -> float:
        order, came = self._search([rank], backward)
        far = {rank: 0.0}
        for node in order[1:]:
            link, at = came[node]
            far[node] = far[at] + self._alpha[link]
        return max(far[v] for v in range(self._topology.ranks))

    def _search(
        self, roots: list[int], backward: bool
    ) -> tuple[list[int], dict[int, tuple[int, int]]]:
        """Return nodes by distance, with the link and the node from which each was reached."""
        agenda: list[tuple[float, int, int, int]] = [(0.0, root, -1, -1) for root in roots]
        came: dict[int, tuple[int, int]] = {}
        order: list[int] = []
        best: dict[int, float] = {}
        while agenda:
            far, node, link, at = heappop(agenda)
            if node in came:
                continue
            came[node] = (link, at)
            order.append(node)
            self.looks += len(self._near[backward][node])
            for i, to in self._near[backward][node]:
                there = far + self._alpha[i] + self._price[self._orbit[i]] + self._each[i]
                if to not in came and there < best.get(to, float("inf")):
                    best[to] = there
                    heappush(agenda, (there, to, i, node))
        return order, came


STEPS_PER_LOOK2 = 1
"""Work of looking at a link on the way to other ranks."""

_STALE = 1.0001  # a price that has risen by more than this since it was noted is looked at again


def low_load_packing(packing: Packing, rounds: int, meter: Meter) -> Packing | None:
    """Return one tree of least load per root, under the symmetry group of a packing.

    None for other collectives than allgather and reduce_scatter. About a ms per tree and round
    on a hundred nodes.
    """
    kind = packing.collective.kind
    if kind not in (Kind.ALLGATHER, Kind.REDUCE_SCATTER) or not packing.us_per_byte:
        return None
    backward = kind is Kind.REDUCE_SCATTER
    least = packing.images.min(axis=0)
    roots = [r for r in range(packing.topology.ranks) if least[r] == r]
    market = _Market(packing, backward)
    trees: dict[int, list[Route]] = {}
    best: tuple[float, dict[int, list[Route]]] | None = None
    for turn in range(rounds):
        eta = 2.0 * (20.0 / 2.0) ** (turn / max(1, rounds - 1))  # ever steeper prices
        if best is not None and meter.over():
            break
        for root in roots:
            market.count(trees.pop(root, []), -1)
            trees[root] = market.grow(root, eta)
        worst = market.worst()
        if best is None or worst < best[0] * (1 - 1e-9):
            best = worst, dict(trees)
        meter.spend(STEPS_PER_LOOK2 * market.looks)
        market.looks = 0
    if best is None:
        return None
    return replace(
        packing,
        trees=tuple(
            as_tree(root, [(hop, backward) for hop in (_reverse(hops) if backward else hops)])
            for root, hops in sorted(best[1].items())
        ),
        remark="trees that load inner links little",
    ).rated()


@dataclass(slots=True, init=False)
class _Market:
    """Congestion prices: load of each orbit of links, relative to its capacity at the rate."""

    ranks: int
    orbit: list[int]  # of each link: the least of its images
    share: list[float]  # of each link: what one use by a template adds to the load of its orbit
    load: list[float]  # of each orbit, at its least link; 1: full at the rate
    near: list[list[tuple[int, int]]]  # of each node: links that go on, and their other ends
    looks: int  # at links, so far

    def __init__(self, packing: Packing, backward: bool) -> None:
        topology = packing.topology
        orbit = packing.link_images.min(axis=0)
        size = np.bincount(orbit, minlength=len(orbit))
        per_chunk = float(packing.us_per_byte) * packing.collective.message_chunks * 1000
        self.ranks, self.orbit = topology.ranks, orbit.tolist()
        self.share = [
            len(packing.images) / int(size[o]) / float(x.bandwidth) / per_chunk
            for o, x in zip(self.orbit, topology.links, strict=True)
        ]
        self.load = [0.0] * len(orbit)
        self.looks = 0
        self.near = neighbours(topology, backward)

    def count(self, hops: list[Route], sign: int) -> None:
        """Add the load of a tree, or remove it."""
        for _, _, links in hops:
            for i in links:
                self.load[self.orbit[i]] += sign * self.share[i]

    def worst(self) -> float:
        return max(self.load)

    def _price(self, link: int, eta: float) -> float:
        over = eta * (self.load[self.orbit[link]] + self.share[link] - 1)
        return self.share[link] * exp(min(over, 60.0))

    def grow(self, root: int, eta: float) -> list[Route]:
        """Return a tree by Prim's algorithm; prices rise as it grows."""
        hops: list[Route] = []
        joined = {root}
        agenda: list[tuple[float, int, int, tuple[int, ...]]] = []
        self._offer(agenda, root, eta)
        while agenda:
            # noted: the price when it was put there; prices have risen since
            noted, node, origin, links = heappop(agenda)
            if node in joined:
                continue
            now = sum(self._price(i, eta) for i in links)
            if now > noted * _STALE:
                heappush(agenda, (now, node, origin, links))
                continue
            joined.add(node)
            hops.append((origin, node, links))
            self.count(hops[-1:], 1)
            self._offer(agenda, node, eta)
        return hops

    def _offer(
        self, agenda: list[tuple[float, int, int, tuple[int, ...]]], rank: int, eta: float
    ) -> None:
        """Put the cheapest route from a rank to each other on the agenda, if no GPU lies on it."""
        ways: list[tuple[float, int, tuple[int, ...]]] = [(0.0, rank, ())]
        done: set[int] = set()
        while ways:
            cost, node, links = heappop(ways)
            if node in done:
                continue
            done.add(node)
            if node < self.ranks and node != rank:
                heappush(agenda, (cost, node, rank, links))
                continue
            self.looks += len(self.near[node])
            for i, to in self.near[node]:
                if to not in done:
                    heappush(ways, (cost + self._price(i, eta), to, (*links, i)))
