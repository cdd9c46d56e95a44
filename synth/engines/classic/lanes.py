"""Algorithms in lanes: several rings or trees at once, each with a share of the data, as NCCL's.

How many lanes there are is the machine's: one ring for each rail between hosts, as many as share no
cable in one host, two trees for each rail. So these algorithms need a machine, and a search in it.

==================  ==============  ===============  ========
algorithm           steps           share of M       source
==================  ==============  ===============  ========
rings allgather     n-1             (n-1)/nk         NCCL
rings r.scatter     n-1             (n-1)/nk         "
rings allreduce     2(n-1)          2(n-1)/nk        "
rings broadcast     n-2+c           (n-2+c)/ck       "
rail_tree           2(g-1+h)+c-1    2/k              NCCL 2.4
==================  ==============  ===============  ========

n ranks in hosts of g; k rings; h = the height of the trees between hosts; c pieces in a pipeline.
One ring crosses hosts by one NIC, and uses one of a rank's direct cables. NCCL takes as many as
there are NICs (ring r enters and leaves hosts on rails of its own) or cables (rings that share no
lane: six on a DGX-1, seven on eight MI300X).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np

from weft.dsl.author.builder import Builder
from weft.dsl.base.assignment import best_assignment
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.collective import Kind
from weft.dsl.nouns.topology import Topology

from ...base.meter import Meter
from .double_tree import pair
from .grid import RankGrid
from .model import HockneyCost
from .phases import (
    MoveHints,
    Writer,
    blocks_in_order,
    ring_allgather,
    ring_reduce_scatter,
    runs,
)
from .phases import (
    broadcast as down,
)
from .phases import (
    reduce as up,
)

Ring = tuple[int, ...]


# --- rings of a machine ---------------------------------------------------------------------------


def rail_path(g: int, start: int, end: int) -> Ring:
    """The numbers 0 … g-1, each once, from one to another.

    From r to r + g/2 it goes r, r+1, r-1, r+2, …: the paths from all r then use every ordered pair
    once (the columns of a complete Latin square; Williams 1949), as direct cables need.
    """
    half, odd = divmod(g, 2)
    if not odd and end == (start + half) % g:
        steps = [0, *(sign * k for k in range(1, half + 1) for sign in (1, -1))][:g]
        return tuple((start + step) % g for step in steps)
    between = [(start + k) % g for k in range(1, g) if (start + k) % g != end]
    return (start, *between, end)


def rail_rings(grid: RankGrid, paths: Sequence[Ring] = ()) -> tuple[Ring, ...]:
    """A ring for each local rank: every host is entered on one rail and left on another.

    ``paths``: of :func:`host_paths`; every second host goes its path back.
    """
    g, hosts = grid.shape
    if paths:
        ways = [[path if b % 2 == 0 else path[::-1] for b in range(hosts)] for path in paths]
        return tuple(
            tuple(grid.ranks[b * g + local] for b, one in enumerate(way) for local in one)
            for way in ways
        )
    found = []
    for rail in range(g):
        # Ring r enters host b on rail doors[b], and leaves it on that of the next host.
        doors = [(rail + (g // 2 or 1) * (b % 2)) % g for b in range(hosts)]
        if hosts % 2 and hosts > 1:
            doors[-1] = (
                next(d % g for d in range(rail + 1, rail + 1 + g) if d % g not in {rail, doors[-2]})
                if g > 2
                else doors[-1]
            )
        ring: list[int] = []
        for b, (enter, leave) in enumerate(zip(doors, [*doors[1:], doors[0]], strict=True)):
            ring += [grid.ranks[b * g + local] for local in rail_path(g, enter, leave)]
        found.append(tuple(ring))
    return tuple(found)


def host_paths(
    topology: Topology, grid: RankGrid, steps: int, meter: Meter | None = None
) -> tuple[Ring, ...]:
    """A path through a host from each local rank, over direct cables, as NCCL's rings have them.

    Through hives, GPUs of which every two are cabled, one after the other where no ring of cables
    joins all. Empty where every two GPUs of a host are cabled or on a switch, so that any path will
    do; where there is neither; and where hosts are cabled in different ways.
    """
    g, hosts = grid.shape
    place = {rank: divmod(at, g) for at, rank in enumerate(grid.ranks)}
    cabled: list[dict[tuple[int, int], int]] = [{} for _ in range(hosts)]
    for x in topology.links:
        if max(x.src, x.dst) < topology.ranks and place[x.src][0] == place[x.dst][0]:
            pair_of = (place[x.src][1], place[x.dst][1])
            own = cabled[place[x.src][0]]
            own[pair_of] = own.get(pair_of, 0) + x.lanes
    if len(cabled[0]) in (0, g * (g - 1)) or any(one != cabled[0] for one in cabled):
        return ()
    free: list[dict[int, int]] = [{} for _ in range(g)]
    for (a, b), lanes in sorted(cabled[0].items()):
        free[a][b] = lanes
    found = _disjoint_rings(free, steps, meter)
    if any((b, a) not in cabled[0] for a, b in cabled[0]):
        return ()
    return _with_own_ends(found, g) if found else _through_hives(free)


def _through_hives(cabled: Sequence[Mapping[int, int]]) -> tuple[Ring, ...]:
    """A path from each rank through its hive, then the others, each with an end of its own.

    Empty where not all are hives of one size, or there is one only.
    """
    hives = sorted({tuple(sorted({rank, *near})) for rank, near in enumerate(cabled)})
    size = len(hives[0])
    if any(len(hive) != size for hive in hives) or len(hives) * size != len(cabled) or size < 2:
        return ()
    paths: dict[int, Ring] = {}
    for at, hive in enumerate(hives):
        for place, rank in enumerate(hive):
            path = hive[place:] + hive[:place]
            for other in (*hives[at + 1 :], *hives[:at]):
                path += other[place + 1 :] + other[: place + 1]
            paths[rank] = path
    return tuple(paths[rank] for rank in range(len(cabled)))


def _with_own_ends(found: Sequence[Ring], g: int) -> tuple[Ring, ...]:
    """A path along one of the rings from each rank, no two with the same end, as NICs need.

    Rings take turns as far as that allows; along any one of them all ends are different.
    """
    worth = np.full((g, g), -float(g * len(found)))
    ways: dict[tuple[int, int], Ring] = {}
    for rank in range(g):
        for turn in range(len(found)):
            path = _from(rank, found[(rank + turn) % len(found)])
            if ways.setdefault((rank, path[-1]), path) is path:
                worth[rank, path[-1]] = -turn
    ranks, ends = best_assignment(worth)
    return tuple(ways[pair] for pair in zip(ranks.tolist(), ends.tolist(), strict=True))


def _from(rank: int, ring: Ring) -> Ring:
    at = ring.index(rank)
    return ring[at:] + ring[:at]


def lane_rings(topology: Topology, steps: int, meter: Meter | None = None) -> tuple[Ring, ...]:
    """Rings over direct cables that share no lane; as many as were found in ``steps`` of search.

    A lane has the bandwidth of the narrowest cable; ``meter`` counts the search. Empty where the
    GPUs have switches between them, or without a ring.
    """
    cables = [x for x in topology.links if max(x.src, x.dst) < topology.ranks]
    if len(cables) < len(topology.links) or not cables:
        return ()
    lane = min(x.bandwidth for x in cables)
    free: list[dict[int, int]] = [{} for _ in range(topology.ranks)]
    for x in sorted(cables, key=lambda x: (x.src, x.dst)):
        free[x.src][x.dst] = free[x.src].get(x.dst, 0) + int(x.bandwidth / lane)
    return tuple(_disjoint_rings(free, steps, meter))


def _disjoint_rings(free: list[dict[int, int]], steps: int, meter: Meter | None) -> list[Ring]:
    search = _LaneSearch(free, steps)
    found = search.find()
    if meter is not None:
        meter.spend(STEPS_PER_HOP * (steps - search.steps))
    return found


STEPS_PER_HOP = 5
"""Steps of work for a hop of the search with ten ways on, each about 1 µs."""


@dataclass(slots=True)
class _LaneSearch:
    """Depth-first search for rings from rank 0, one after another, the widest pairs first.

    ``free``: lanes of each ordered pair that no ring has, by source. ``steps``: hops that may still
    be tried. A trail holds rings of ``len(free)`` ranks one behind the other, each from rank 0; so
    the search needs no recursion, which would be as deep as all its rings are long.
    """

    free: list[dict[int, int]]
    steps: int

    def find(self) -> list[Ring]:
        ranks, trail, best = len(self.free), [0], 0
        rings: list[Ring] = []
        frames: list[Iterator[int]] = []
        seen = _only_first(ranks)
        while True:
            if len(frames) < len(trail):  # at a new place
                self.steps -= 1
                if self.steps < 0:
                    return rings
                frames.append(iter(self._ways((len(trail) - 1) % ranks, trail[-1], seen)))
            here, there = trail[-1], next(frames[-1], None)
            if there is None:
                frames.pop()
                trail.pop()
                if not frames:
                    return rings
                self.free[trail[-1]][here] += 1
                if len(trail) % ranks:
                    seen[here] = False
                else:  # the ring before it is open again
                    seen = bytearray(b"\1" * ranks)
                continue
            self.free[here][there] -= 1
            trail.append(there)
            seen[there] = True
            if len(trail) % ranks == 1:  # a ring is closed, the next one begins
                seen = _only_first(ranks)
                if len(trail) // ranks > best:
                    best = len(trail) // ranks
                    rings = [tuple(trail[k * ranks : (k + 1) * ranks]) for k in range(best)]
                if not any(self.free[0].values()):
                    return rings

    def _ways(self, hops: int, here: int, seen: bytearray) -> list[int]:
        """Next ranks of a ring after ``hops`` hops, the most promising first."""
        ranks, free = len(self.free), self.free[here]
        if hops == ranks - 1:
            return [0] if free.get(0) else []
        ways = [v for v, lanes in free.items() if lanes and not seen[v]]
        if not hops:  # rings are unordered: one of them has the first of these hops
            return ways[:1]
        return sorted(ways, key=lambda v: (-free[v], self._ways_on(v, seen), (v - here) % ranks))

    def _ways_on(self, rank: int, seen: bytearray) -> int:
        return sum(lanes > 0 and not seen[w] for w, lanes in self.free[rank].items())


def _only_first(ranks: int) -> bytearray:
    seen = bytearray(ranks)
    seen[0] = True
    return seen


# --- algorithms on rings --------------------------------------------------------------------------


def _lane(p: Builder, lane: int) -> Writer:
    hints: MoveHints = {"channel": lane, "send_block": lane, "recv_block": lane}
    return Writer(p, lambda src, dst, chunks: hints)


def _around(p: Builder, rings: Sequence[Ring], *, sums: bool, copies: bool) -> None:
    """Once round every ring to add, once more to send; once for each piece that a ring has of a
    block."""
    for lane, ring in enumerate(rings):
        owned = blocks_in_order(p, ring)
        share = slice(*(k * len(owned[0]) // len(rings) for k in (lane, lane + 1)))
        for piece in zip(*(block[share] for block in owned), strict=True):
            blocks = [[chunk] for chunk in piece]
            if sums:
                ring_reduce_scatter(_lane(p, lane), ring, blocks)
            if copies:
                ring_allgather(_lane(p, lane), ring, blocks)


def allreduce(p: Builder, rings: Sequence[Ring]) -> None:
    """Sums once round every ring, results once more."""
    _around(p, rings, sums=True, copies=True)


def allgather(p: Builder, rings: Sequence[Ring]) -> None:
    """A piece of every block once round every ring."""
    _around(p, rings, sums=False, copies=True)


def reduce_scatter(p: Builder, rings: Sequence[Ring]) -> None:
    """A piece of every block once round every ring, to its owner."""
    _around(p, rings, sums=True, copies=False)


def broadcast(p: Builder, rings: Sequence[Ring]) -> None:
    """A share of the message along every ring, from the root to the rank before it."""
    for lane, (ring, share) in enumerate(zip(rings, runs(p, len(rings)), strict=True)):
        order = _from(p.collective.roots[0], ring)
        down(_lane(p, lane), order, [[chunk] for chunk in share])


def reduce(p: Builder, rings: Sequence[Ring]) -> None:
    """A share of the message along every ring, summed, to the root."""
    for lane, (ring, share) in enumerate(zip(rings, runs(p, len(rings)), strict=True)):
        order = _from(p.collective.roots[0], ring[::-1])
        up(_lane(p, lane), order, [[chunk] for chunk in share])


# --- NCCL's trees ---------------------------------------------------------------------------------


def rail_tree(p: Builder, grid: RankGrid, paths: Sequence[Ring] = ()) -> None:
    """Chains in the hosts to the GPU of a rail, two trees between these; back the same way.

    Every rail has two trees, each with half of its share. ``paths``: of :func:`host_paths`.
    """
    g, hosts = grid.shape
    trees = pair(hosts)
    for lane, share in enumerate(runs(p, g * len(trees))):
        tree, rail = trees[lane % len(trees)], lane // len(trees)
        end = (rail + g // 2) % g if g % 2 == 0 else (rail - 1) % g
        chain = paths[rail] if paths else rail_path(g, rail, end)
        rank = [[grid.ranks[b * g + local] for local in chain] for b in range(hosts)]
        inside = [edge for members in rank for edge in pairwise(members)]
        between = [(rank[tree.parent[b]][0], rank[b][0]) for b in tree.down if tree.parent[b] >= 0]
        for chunk in share:
            for members in rank:
                for here, there in pairwise(members[::-1]):
                    p.chunk(here, chunk).reduce_into(rank=there, channel=2 * lane)
            for parent, child in reversed(between):
                p.chunk(child, chunk).reduce_into(rank=parent, channel=2 * lane)
            for parent, child in (*between, *inside):
                p.chunk(parent, chunk).copy_to(rank=child, channel=2 * lane + 1)


# --- costs, and the table -------------------------------------------------------------------------


def _pieces(times: int) -> Callable[..., HockneyCost]:
    """Once or twice round rings that share nothing."""
    return lambda n, rings: HockneyCost(n - 1, Fraction(n - 1, n * rings)).times(times)


def _rooted_cost(n: int, rings: int, chunks: int = 1) -> HockneyCost:
    """A pipeline of n-1 hops along every ring."""
    steps = n - 2 + chunks
    return HockneyCost(steps, Fraction(steps, chunks * rings), chained=chunks == 1)


def _tree_cost(ranks: int, count: int, chunks: int = 1) -> HockneyCost:
    """Allreduce by two trees a rail, in two hosts.

    A rank inside one tree of a rail is a leaf of the other: its NIC sends four messages of 1/2g.
    """
    g = ranks // 2
    steps = 2 * (g - 1 + max(tree.height for tree in pair(2)))
    return HockneyCost(steps + chunks - 1, Fraction(2, g), chained=chunks == 1)


class LaneStructure(StrEnum):
    """Structure that an algorithm in lanes is written for."""

    RINGS = "rings"  #: rings with cables or rails of their own
    RAILS = "rails"  #: hosts of equal size with a rail for each local rank


@dataclass(frozen=True, slots=True)
class Laned:
    """One algorithm in lanes for one collective."""

    # name, kind: such as rings for allreduce
    name: str
    kind: Kind
    structure: LaneStructure  # input of write: rings, or a grid of local ranks and hosts
    write: Callable[..., None]  # write(p, structure)
    lanes: Callable[[Any], int]  # into how many lanes the structure divides the message
    # Of a number of ranks, of lanes that share nothing, and of chunks of a pipeline; a tree is that
    # of the ranks in two hosts
    cost: Callable[..., HockneyCost]
    source: str  # its publication
    each_rank: bool = False  # a lane has a piece of the unit for each rank
    pipelined: bool = False  # more pieces make a pipeline

    def parts(self, ranks: int, structure: Any) -> int:
        """Into how many chunks each unit of the collective is cut, at least."""
        return self.lanes(structure) * (ranks if self.each_rank else 1)


NCCL_RINGS = "NVIDIA, NCCL (src/graph/search.cc)"
NCCL_TREES = "NVIDIA, NCCL 2.4 (src/graph/trees.cc)"

_RINGS, _RAILS = LaneStructure.RINGS, LaneStructure.RAILS

LANED = (
    Laned("rings", Kind.ALLREDUCE, _RINGS, allreduce, len, _pieces(2), NCCL_RINGS, each_rank=True),
    Laned("rings", Kind.ALLGATHER, _RINGS, allgather, len, _pieces(1), NCCL_RINGS),
    Laned("rings", Kind.REDUCE_SCATTER, _RINGS, reduce_scatter, len, _pieces(1), NCCL_RINGS),
    Laned(
        "rings", Kind.BROADCAST, _RINGS, broadcast, len, _rooted_cost, NCCL_RINGS, pipelined=True
    ),
    Laned("rings", Kind.REDUCE, _RINGS, reduce, len, _rooted_cost, NCCL_RINGS, pipelined=True),
    Laned(
        "rail_tree",
        Kind.ALLREDUCE,
        _RAILS,
        rail_tree,
        lambda grid: grid.shape[0] * len(pair(grid.shape[1])),
        _tree_cost,
        NCCL_TREES,
        pipelined=True,
    ),
)
"""All of them, by name, then collective."""
