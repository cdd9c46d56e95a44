"""New routings of broken chunks: other routes through switches, or a repaired tree.

If only links inside one hop have failed, the hop gets another route through switches. Else the cut
branches of the chunk's tree are connected again, one by one, by the cheapest path (Dijkstra,
Numerische Mathematik 1, 1959) from the connected part, with links priced by their load; so
branches stay unchanged, and new hops spread over links with spare capacity. Sums use the same tree
on reversed links, from the rank where they meet.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from heapq import heapify, heappop, heappush
from itertools import pairwise
from typing import Any

import numpy as np

from weft.dsl.base.arrays import Bools, Ints, distinct_values
from weft.dsl.base.errors import BadTopology, UserError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.unique_rows import rows_of
from weft.dsl.base.units import BYTES_PER_US_PER_GBPS
from weft.dsl.machines.failures import Degraded
from weft.dsl.nouns.collective import Collective
from weft.dsl.nouns.schedule import Schedule, Transfer
from weft.dsl.nouns.topology import Topology

from ..fabric.fabric import Fabric, fabric_of, grouped


def require_ranks(left: Degraded) -> None:
    """Raises:
    UserError: ranks are gone, so that it would be another collective.
    """
    if left.dead_ranks:
        raise UserError("ranks are gone, so this is another collective", hint="synthesize it anew")


@dataclass(frozen=True, slots=True, eq=False)
class Damage:
    """A schedule for ``left.whole``, seen from ``left.topology``."""

    # schedule, left: as they are given
    schedule: Schedule
    left: Degraded
    moved: Ints  # the links of all routes by their numbers in left.topology, -1 for failed links
    hit: Bools  # mask of the transfers that use a failed link
    # order, start: order[start[c]:start[c+1]] are the transfers of chunk c
    order: Ints
    start: Ints
    chunks: tuple[int, ...]  # the broken chunks, ascending

    @staticmethod
    def of(schedule: Schedule, left: Degraded) -> Damage:
        """Return the damage; raises as :func:`require_ranks` does."""
        require_ranks(left)
        moved = left.link_image[schedule.route_links]
        hit = np.zeros(len(schedule), bool)
        hit[np.repeat(np.arange(len(schedule)), np.diff(schedule.route_start))[moved < 0]] = True
        broken = distinct_values(schedule.chunk[hit]).tolist()
        start, order = grouped(schedule.chunk.astype(np.int64), schedule.collective.chunks)
        return Damage(schedule, left, moved, hit, order, start, tuple(broken))

    def of_chunk(self, chunk: int) -> Ints:
        """The transfers of a chunk, in their order."""
        rows: Ints = self.order[self.start[chunk] : self.start[chunk + 1]]
        return rows

    def route(self, row: int) -> tuple[int, ...]:
        """The links of a transfer as they are numbered now."""
        start = self.schedule.route_start
        return tuple(self.moved[start[row] : start[row + 1]].tolist())


@dataclass(slots=True, eq=False)
class CongestionPrices:
    """Load of every resource of the machine, and prices of links derived from it.

    ``out`` and ``back`` list, for each node, the links that leave and enter it, with their other
    ends. ``load`` is µs on each resource of ``fabric`` for the whole message,
    ``per_grain`` the µs that a grain adds; ``busiest`` is the largest load at the start, in µs.
    ``idle`` is the least price of a link, as a part of ``busiest``; ``hop`` the factor on α in the
    price, without unit: large values give trees of small depth.
    """

    topology: Topology
    fabric: Fabric
    out: list[list[tuple[int, int]]]
    back: list[list[tuple[int, int]]]
    per_grain: list[float]
    load: list[float]
    alpha: list[float]
    busiest: float
    idle: float
    hop: float = 1.0

    @staticmethod
    def of(damage: Damage, kept: Bools, size: int, idle: float) -> CongestionPrices:
        """Loaded with the transfers ``kept``, of which nothing is dead, for M of a size."""
        schedule, topology = damage.schedule, damage.left.topology
        fabric, lengths = fabric_of(topology), np.diff(schedule.route_start)
        flat = np.repeat(kept, lengths)
        grains = np.repeat(schedule.collective.grains[schedule.chunk], lengths)[flat]
        carried = np.bincount(damage.moved[flat], weights=grains, minlength=fabric.links)
        row, at = fabric.pairs
        grain_bytes = size / schedule.collective.message_chunks
        per_grain = grain_bytes / (fabric.GBps * BYTES_PER_US_PER_GBPS)
        load = np.bincount(row, weights=carried[at], minlength=fabric.resources) * per_grain
        busiest = max(float(load.max(initial=0.0)), float(per_grain.max(initial=0.0)))
        alpha = [float(x) for x in fabric.latency]
        out, back = _beside(fabric.leaving, fabric.dst), _beside(fabric.entering, fabric.src)
        return CongestionPrices(
            topology, fabric, out, back, per_grain.tolist(), load.tolist(), alpha, busiest, idle
        )

    def price(self, link: int, grains: float) -> float:
        """Return the price of a link in µs: its α, plus the square of its largest load with
        ``grains`` more over the largest load at the start, so that loads spread."""
        worst = max(self.load[r] + grains * self.per_grain[r] for r in self.fabric.loaded[link])
        return self.hop * self.alpha[link] + worst * worst / self.busiest + self.idle * self.busiest

    def take(self, route: Iterable[int], grains: float) -> None:
        """Add the load of ``grains`` to the resources of a route."""
        for link in route:
            for row in self.fabric.loaded[link]:
                self.load[row] += grains * self.per_grain[row]

    def delay(self, route: Iterable[int]) -> float:
        """Return the price of the α of a route, in µs."""
        return self.hop * sum(self.alpha[link] for link in route)


def _beside(links: tuple[Ints, Ints], ends: Ints) -> list[list[tuple[int, int]]]:
    """(Link, other end) for the links of each node; ``links`` as :attr:`.Fabric.leaving`."""
    first, order = (column.tolist() for column in links)
    far = ends.tolist()
    return [[(i, far[i]) for i in order[a:b]] for a, b in pairwise(first)]


@dataclass(frozen=True, slots=True)
class New:
    """A transfer that replaces another one; ``heir`` is the one whose priority it takes, or -1."""

    transfer: Transfer
    heir: int


@dataclass(frozen=True, slots=True, eq=False)
class Way:
    """Routing of one chunk: kept transfers, as positions in the old schedule, and new ones."""

    chunk: int
    kept: Ints
    fresh: tuple[New, ...] = ()


def other_way(damage: Damage, chunk: int, prices: CongestionPrices, grains: float) -> Way:
    """Return a routing of a broken chunk around failed links, and add its load of ``grains``.

    Raises:
        BadTopology: some rank cannot get what it wants any more.
        UserError: the chunk is neither copied from where it is whole nor summed of single parts.
    """
    mine = damage.of_chunk(chunk)
    alive = mine[~damage.hit[mine]]
    found = _bent(damage, mine, prices, grains)
    if found is not None:
        return Way(chunk, alive, tuple(found))
    for row in alive.tolist():
        prices.take(damage.route(row), -grains)
    return Way(chunk, alive[:0], tuple(_grown(damage, mine, prices, chunk, grains)))


def _bent(damage: Damage, mine: Ints, prices: CongestionPrices, grains: float) -> list[New] | None:
    """New routes through switches for the chunk's broken hops; None if some hop lacks another."""
    found = []
    for row in mine[damage.hit[mine]].tolist():
        one = damage.schedule[row]
        tree, end = _dijkstra(
            prices, {one.src: 0.0}, {one.dst}, grains, turned=False, through=False
        )
        if end is None:
            return None
        route = _route(prices, tree, one.dst, turned=False)[1]
        found.append(New(replace(one, route=route), row))
    for new in found:
        prices.take(new.transfer.route, grains)
    return found


def _grown(
    damage: Damage, mine: Ints, prices: CongestionPrices, chunk: int, grains: float
) -> list[New]:
    """The repaired tree of a chunk, or of its sums and their copies, built from its live hops."""
    schedule = damage.schedule
    holders, wanted, parts = _ends(schedule.collective, chunk)
    alive = mine[~damage.hit[mine]]
    copies, sums = alive[~schedule.reduce[alive]], alive[schedule.reduce[alive]]
    fresh: list[New] = []
    first = 0
    if parts:
        # Sums meet at the source of the chunk's first copy, or at its destination.
        first_copy = mine[~schedule.reduce[mine]][:1]
        meets = len(wanted) > 1 and len(first_copy) > 0
        centre = int(schedule.src[first_copy[0]]) if meets else wanted[0]
        into = _tree(damage, sums, prices, [centre], holders, grains, turned=True)
        fresh += _summed(schedule, mine, chunk, into)
        first = 1 + max((new.transfer.step for new in fresh), default=-1)
        holders = [centre]
    out = _tree(damage, copies, prices, holders, wanted, grains, turned=False)
    return fresh + _copied(schedule, mine, chunk, out, holders, first)


_Hop = tuple[int, tuple[int, ...]]
"""The rank at the other end, nearer to the root, and the links between, as data goes."""


def _ends(c: Collective, chunk: int) -> tuple[list[int], list[int], bool]:
    """Return the holders of a chunk, the ranks that want it, and whether it is summed.

    Raises:
        UserError: parts of sums are held or wanted.
    """
    pre, post = c.pre, c.post
    here, there = np.flatnonzero(pre.chunks == chunk), np.flatnonzero(post.chunks == chunk)
    held = [c.contributions[i] for i in pre.sets[here].tolist()]
    asked = {c.contributions[i] for i in post.sets[there].tolist()}
    holders, wanted = pre.ranks[here].tolist(), post.ranks[there].tolist()
    if not asked or (len(asked) == 1 and set(held) == asked):
        return holders, wanted, False
    whole = frozenset().union(*held)
    if asked == {whole} and sum(map(len, held)) == len(whole):
        return holders, wanted, True
    raise UserError(
        f"chunk {chunk} is neither copied whole nor summed of single parts",
        hint="synthesize it anew",
    )


def _tree(
    damage: Damage,
    alive: Ints,
    prices: CongestionPrices,
    roots: list[int],
    leaves: list[int],
    grains: float,
    *,
    turned: bool,
) -> dict[int, _Hop]:
    """Return for every rank of a tree but the roots the hop that joins it; adds the loads.

    First what hangs together by hops that are alive, then the cut branches one by one, so that
    each sees what those before it have taken.
    """
    kept: dict[int, list[_Hop]] = defaultdict(list)
    heads = set(leaves)
    for row in alive.tolist():
        near, far = int(damage.schedule.src[row]), int(damage.schedule.dst[row])
        near, far = (far, near) if turned else (near, far)
        kept[near].append((far, damage.route(row)))
        heads.discard(far)
    hops: dict[int, _Hop] = {}
    reached = dict.fromkeys(roots, 0.0)
    _spread(prices, kept, roots, hops, reached)
    for _, route in hops.values():
        prices.take(route, grains)
    while missing := {leaf for leaf in leaves if leaf not in reached}:
        loose = (missing & heads) or missing
        found, end = _dijkstra(prices, reached, loose, grains, turned=turned, through=True)
        if end is None:
            name = prices.topology.nodes[min(loose)].name
            raise BadTopology(
                f"{prices.topology.name}: {name} is cut off",
                hint="leave out what is cut off: --down-rank",
            )
        fresh, at = [], end
        while at not in reached:
            hops[at] = _route(prices, found, at, turned=turned)
            prices.take(hops[at][1], grains)
            fresh.append(at)
            at = hops[at][0]
        for at in reversed(fresh):
            reached[at] = reached[hops[at][0]] + prices.delay(hops[at][1])
        _spread(prices, kept, fresh, hops, reached)
    return _needed(hops, leaves)


def _spread(
    prices: CongestionPrices,
    kept: dict[int, list[_Hop]],
    fresh: list[int],
    hops: dict[int, _Hop],
    reached: dict[int, float],
) -> None:
    """Add the ranks that live hops connect to ``fresh``; ``reached`` is the µs of α to each."""
    queue = list(fresh)
    for near in queue:
        for far, route in kept.get(near, ()):
            if far not in reached:
                reached[far] = reached[near] + prices.delay(route)
                hops[far] = (near, route)
                queue.append(far)


def _needed(hops: dict[int, _Hop], leaves: list[int]) -> dict[int, _Hop]:
    found: dict[int, _Hop] = {}
    for leaf in leaves:
        at = leaf
        while at in hops and at not in found:
            found[at] = hops[at]
            at = hops[at][0]
    return found


_Found = dict[int, tuple[int, int]]
"""For every node that was reached, the node before it and the link between."""


def _dijkstra(
    prices: CongestionPrices,
    roots: dict[int, float],
    ends: set[int],
    grains: float,
    *,
    turned: bool,
    through: bool,
) -> tuple[_Found, int | None]:
    """Return the predecessors on cheapest paths from ``roots``, and the first of ``ends`` that is
    reached, or None; GPUs forward only if ``through``."""
    ranks, links = prices.topology.ranks, prices.back if turned else prices.out
    found: _Found = {}
    heap: list[tuple[float, int, int, int]] = [(cost, r, -1, -1) for r, cost in roots.items()]
    heapify(heap)
    least = dict(roots)
    while heap:
        cost, node, before, way = heappop(heap)
        if node in found:
            continue
        found[node] = (before, way)
        if node in ends:
            return found, node
        if node < ranks and before >= 0 and not through:
            continue
        for i, far in links[node]:
            new = cost + prices.price(i, grains)
            if far not in found and new < least.get(far, float("inf")):
                least[far] = new
                heappush(heap, (new, far, node, i))
    return found, None


def _route(prices: CongestionPrices, found: _Found, node: int, *, turned: bool) -> _Hop:
    at, link = found[node]
    links = [link]
    while at >= prices.topology.ranks:
        at, link = found[at]
        links.append(link)
    return at, tuple(links if turned else reversed(links))


def _copied(
    schedule: Schedule, mine: Ints, chunk: int, hops: dict[int, _Hop], roots: list[int], first: int
) -> list[New]:
    heirs = {int(schedule.dst[r]): r for r in mine[~schedule.reduce[mine]].tolist()}
    depth = dict.fromkeys(roots, first)
    for rank in hops:
        chain = []
        while rank not in depth:
            chain.append(rank)
            rank = hops[rank][0]
        for at in reversed(chain):
            depth[at] = depth[hops[at][0]] + 1
    heir = mine[0] if len(mine) else -1
    return [
        New(Transfer(chunk, near, rank, route, depth[near]), int(heirs.get(rank, heir)))
        for rank, (near, route) in hops.items()
    ]


def _summed(schedule: Schedule, mine: Ints, chunk: int, hops: dict[int, _Hop]) -> list[New]:
    heirs = {int(schedule.src[r]): r for r in mine[schedule.reduce[mine]].tolist()}
    height: dict[int, int] = defaultdict(int)
    for rank in hops:
        at, up = rank, height[rank]
        while at in hops:
            at, up = hops[at][0], up + 1
            if height[at] >= up:
                break
            height[at] = up
    heir = mine[0] if len(mine) else -1
    return [
        New(
            Transfer(chunk, rank, near, route, height[rank], reduce=True),
            int(heirs.get(rank, heir)),
        )
        for rank, (near, route) in hops.items()
    ]


def load_matrix(damage: Damage, ways: Sequence[Way]) -> Any:
    """Loads of resources (links, then shared ones) by one grain on each routing, in grains per
    GB/s: a sparse matrix, shape (resources, routings)."""
    from scipy.sparse import csc_matrix

    topology, start = damage.left.topology, damage.schedule.route_start
    links = [
        np.concatenate(
            [
                damage.moved[rows_of(start, way.kept)[1]],
                np.array([i for new in way.fresh for i in new.transfer.route], np.int64),
            ]
        )
        for way in ways
    ]
    way = np.repeat(np.arange(len(ways)), [len(x) for x in links])
    fabric = fabric_of(topology)
    position, row = fabric.resources_of(np.concatenate([np.zeros(0, np.int64), *links]))
    shape = (fabric.resources, len(ways))
    return csc_matrix((1 / fabric.GBps[row], (row, way[position])), shape=shape)
