"""Rounds of direct messages without contention: pairs and their routes are chosen together.

A transfer occupies all resources of its route at once. Where several saturated resources are in
series (uplink, spine, downlink), balanced loads are not enough: the transfers must split into
*rounds*, sets that share no resource and together fill all resources. For routes chosen by load
alone there may be no such rounds (a fat tree's alltoall then loses a seventh in any order). So
endpoints are coloured first, which always succeeds (König), then each round is routed like a Clos
network, and where that fails transfers change rounds as well.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import islice

import numpy as np

from weft.dsl.base.arrays import Ints
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.topology import Topology

from ....fabric.fabric import fabric_of
from ..order.plan_quick import as_tree, identity, neighbours
from ..trees.demands import pairs_of
from ..trees.model import PackedTree, Packing
from .net import PATH_EFFORT, PathEffort

Way = tuple[int, ...]


def in_rounds(packing: Packing, seed: int = 0, effort: PathEffort = PATH_EFFORT) -> Packing | None:
    """The same messages without relays, in rounds: its trees are listed round by round.

    None where ranks lack ways through switches alone, messages are too many, or such ways
    load some resource by a tenth more than the packing does.
    """
    table = _MessageRoutes.of(packing, effort) if packing.us_per_byte else None
    found = None if table is None else _fewest_conflicts(packing, table, seed, effort)
    if found is None:
        return None
    messages, pieces, meetings = found
    ends, share = packing.topology.links, Fraction(1, pieces)
    trees: list[PackedTree] = []
    for _, chunk, way in sorted(messages, key=lambda one: one[0]):
        hop = (ends[way[0]].src, ends[way[-1]].dst, way)
        trees.append(as_tree(chunk, [(hop, False)], share))
    nodes, links = identity(packing.topology)
    made = replace(
        packing,
        trees=tuple(trees),
        images=nodes,
        link_images=links,
        remark="messages in rounds in which no two meet" if not meetings else "",
    ).rated()
    return made if made.us_per_byte <= effort.worth * packing.us_per_byte else None


@dataclass(frozen=True, eq=False)
class _MessageRoutes:
    """Chunks to be moved, with the routes that each may take."""

    # src, dst, chunk: of each message
    src: Ints
    dst: Ints
    chunk: Ints
    # For each message, those of fewest links and among them the widest
    ways: tuple[tuple[Way, ...], ...]
    # For each message µs per byte of M that it holds the narrowest link of a way
    hold: tuple[Fraction, ...]

    @staticmethod
    def of(packing: Packing, effort: PathEffort) -> _MessageRoutes | None:
        """None where some pair lacks a direct way, or messages are too many."""
        pairs = pairs_of(packing.collective)
        if not 0 < len(pairs.chunks) <= effort.most_messages:
            return None
        finder = _Finder.of(packing.topology, effort.most_ways)
        ends = zip(pairs.src.tolist(), pairs.dst.tolist(), strict=True)
        each = [finder.ways(src, dst) for src, dst in ends]
        if not all(ways for ways, _ in each):
            return None
        pair = np.repeat(np.arange(len(pairs)), pairs.count)
        plain = packing.collective.message_chunks
        return _MessageRoutes(
            pairs.src[pair],
            pairs.dst[pair],
            pairs.chunks,
            tuple(each[k][0] for k in pair.tolist()),
            tuple(each[k][1] / plain for k in pair.tolist()),
        )


@dataclass(frozen=True, eq=False)
class _Finder:
    """Routes from rank to rank through switches only."""

    ranks: int
    out: list[list[tuple[int, int]]]
    slowness: tuple[Fraction, ...]
    most: int

    @staticmethod
    def of(topology: Topology, most: int) -> _Finder:
        fabric = fabric_of(topology)
        worst = tuple(max(fabric.us_per_byte[r] for r in held) for held in fabric.loaded)
        return _Finder(topology.ranks, neighbours(topology), worst, most)

    def ways(self, src: int, dst: int) -> tuple[tuple[Way, ...], Fraction]:
        """Return the widest routes of fewest links, and their µs per byte."""
        found: list[Way] = []
        front: list[tuple[Way, int]] = [((), src)]
        seen = {src}
        while front and not found:
            found = [(*way, i) for way, at in front for i, to in self.out[at] if to == dst]
            further = (
                ((*way, i), to)
                for way, at in front
                for i, to in self.out[at]
                if to >= self.ranks and to not in seen
            )
            front = list(islice(further, self.most * self.most))
            seen.update(at for _, at in front)
        if not found:
            return (), Fraction(0)
        slow = [max(self.slowness[i] for i in way) for way in found]
        kept = [way for way, s in zip(found, slow, strict=True) if s == min(slow)]
        return tuple(kept[: self.most]), min(slow)


def _fewest_conflicts(
    packing: Packing, table: _MessageRoutes, seed: int, effort: PathEffort
) -> tuple[list[tuple[int, int, Way]], int, int] | None:
    """Messages as (round from 0, chunk, links); cuts of every chunk, of which each carries one;
    pairs of one round that share a resource, 0 if all is well.

    As few rounds as the rate demands. Messages that hold their resources for at most half a round
    fill the gaps: they are in the last one, and not counted as pairs.
    """
    longest = max(table.hold)
    rate = packing.us_per_byte
    # The cost of rounding the time up to a whole number of rounds.
    loss = {p: -(-rate * p // longest) * longest / p / rate for p in effort.pieces}
    pieces = next((p for p in effort.pieces if loss[p] <= effort.rounded), None)
    if pieces is None:
        return None
    heavy = np.flatnonzero([2 * hold > longest for hold in table.hold])
    jobs = np.repeat(heavy, pieces)
    if len(jobs) > effort.most_messages:
        return None
    busiest = max(np.bincount(table.src[jobs]).max(), np.bincount(table.dst[jobs]).max())
    least = max(int(busiest), -(-packing.us_per_byte * pieces // longest))
    colour, way, meetings = _colour(packing.topology, table, jobs, int(least), seed, effort)
    light = np.repeat(np.setdiff1d(np.arange(len(table.chunk)), heavy), pieces)
    ways = [table.ways[j][w] for j, w in zip(jobs.tolist(), way.tolist(), strict=True)]
    ways += [table.ways[j][k % len(table.ways[j])] for k, j in enumerate(light.tolist())]
    rounds = [*colour.tolist(), *[int(least)] * len(light)]
    chunks = table.chunk[np.concatenate([jobs, light])].tolist()
    return list(zip(rounds, chunks, ways, strict=True)), pieces, meetings


def _colour(
    topology: Topology,
    table: _MessageRoutes,
    jobs: Ints,
    rounds: int,
    seed: int,
    effort: PathEffort,
) -> tuple[Ints, Ints, int]:
    """Return a round and a route for each job, and the number of conflicts."""
    from .matching_kernel import Choices, edge_colouring, settle

    options = [table.ways[j] for j in jobs.tolist()]
    first = np.cumsum([0, *map(len, options)])
    flat = [way for ways in options for way in ways]
    links = np.array([i for way in flat for i in way], np.int64)
    fabric = fabric_of(topology)
    position, resources = fabric.resources_of(links)
    of_way = np.repeat(np.arange(len(flat)), [len(way) for way in flat])[position]
    first_resource = np.searchsorted(of_way, np.arange(len(flat) + 1))
    choices = Choices(first, first_resource, resources.astype(np.int64), fabric.resources)
    best: tuple[Ints, Ints, int] | None = None
    for tried in range(effort.tries):
        rng = np.random.default_rng((seed, tried))
        mixed = rng.permutation(len(jobs))
        colour = np.empty(len(jobs), np.int64)
        colour[mixed] = edge_colouring(
            table.src[jobs[mixed]], table.dst[jobs[mixed]], topology.ranks, rounds
        )
        route = first[:-1] + rng.integers(np.diff(first))
        for moves, steps in ((False, effort.route_steps), (True, effort.move_steps)):
            wide = len(flat) * (rounds if moves else 1) // len(jobs)
            most = min(effort.most_work // wide, steps * len(jobs))
            meetings = settle(
                choices, rounds, colour, route, moves, most, max(1, effort.tenure), tried
            )
            if not meetings:
                return colour, route - first[:-1], 0
        if best is None or meetings < best[2]:
            best = colour, route - first[:-1], meetings
    assert best is not None
    return best
