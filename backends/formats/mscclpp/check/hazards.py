"""Find unordered accesses, and remote accesses that may begin too early or end too late.

Every access to the buffers of a rank is a bit, and moments know the accesses that have ended before
them (:mod:`.past`): O(edges · accesses / 64), for as many ranks at a time as fit in a table.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence

from weft.dsl.nouns.program import Buffer

from ....check.findings import Finding, Severity
from ..plan.model import ExecutionPlan
from .graph import Access, PlanGraph, at
from .past import Past, batches

MOST_WORK = 10_000_000_000
"""Edges × words of accesses beyond which the proof is not attempted (a minute or so)."""


def hazards(plan: ExecutionPlan, graph: PlanGraph) -> Iterator[Finding]:
    """Races, missing handshakes, and what is unfinished at the end; the graph has no cycle."""
    strong = Past.of(len(graph), graph.strong)
    by_owner: dict[int, list[Access]] = defaultdict(list)
    for a in graph.accesses:
        by_owner[a.place.rank].append(a)
    work = strong.edges * sum(1 + len(mine) // 64 for mine in by_owner.values())
    if work > MOST_WORK:
        text = f"too large for the race proof here ({len(graph)} moments)"
        yield Finding("races", Severity.WARNING, text)
        return
    far = [a for a in graph.accesses if a.place.rank != a.by.rank]
    begun = _begun(graph, far)
    done = [0] * len(plan.gpus)
    for rank, moments in enumerate(graph.finish):
        for m in moments:
            done[rank] |= begun[m]
    for a in far:
        yield from _handshake(plan, a, begun, done)
    for ranks in batches(
        range(len(plan.gpus)), lambda rank: len(by_owner[rank]), 64 * strong.words
    ):
        yield from _together(plan, graph, strong, ranks, by_owner)


def _together(
    plan: ExecutionPlan,
    graph: PlanGraph,
    strong: Past,
    ranks: list[int],
    by_owner: dict[int, list[Access]],
) -> Iterator[Finding]:
    """Judge the buffers of some ranks: what has ended before each of their accesses and the end."""
    accesses = [a for rank in ranks for a in by_owner[rank]]
    marks = [(a.end, k) for k, a in enumerate(accesses)]
    finish = [m for rank in ranks for m in graph.finish[rank]]
    bits = strong.bits(marks, [*(a.start for a in accesses), *finish])
    first = 0
    for rank in ranks:
        mine = by_owner[rank]
        mask = (1 << len(mine)) - 1
        wanted = {*(a.start for a in mine), *graph.finish[rank]}
        ended = {m: bits[m] >> first & mask for m in wanted}
        first += len(mine)
        yield from _rank(plan, graph, rank, mine, ended)


# --- who has begun --------------------------------------------------------------------------------


def _begun(graph: PlanGraph, far: list[Access]) -> dict[int, int]:
    """For starts of remote accesses and for ends, as bits, the ranks whose launch has begun."""
    past = Past.of(len(graph), graph.strong, graph.weak)
    marks = [(m, rank) for rank, moments in enumerate(graph.begin) for m in moments]
    return past.bits(marks, [*(a.start for a in far), *(m for f in graph.finish for m in f)])


def _handshake(
    plan: ExecutionPlan, a: Access, begun: dict[int, int], done: list[int]
) -> Iterator[Finding]:
    """Yield a finding if an access may precede its peer's launch; packets may be a launch early."""
    owner = a.place.rank
    if begun[a.start] >> owner & 1:
        return
    if not a.place.packets:
        yield at(
            "handshake",
            f"nothing tells that the launch of rank {owner} has begun: its buffers may be in use",
            a.by,
        )
    elif not plan.double_scratch or not done[a.by.rank] >> owner & 1:
        yield at(
            "handshake",
            f"packets to rank {owner} may overwrite those of an earlier "
            "launch that it has not read",
            a.by,
        )


# --- one rank's buffers --------------------------------------------------------------------------

Span = tuple[Hashable, int, int]
"""A range of a space."""


def cells(spans: Sequence[Span]) -> dict[tuple[Hashable, int], list[int]]:
    """Return which spans cover each cell: all between two neighbouring ends of spans of a space.

    A cell is named by its space and its begin.
    """
    ends: dict[Hashable, set[int]] = defaultdict(set)
    for space, low, high in spans:
        ends[space] |= {low, high}
    cuts = {space: sorted(some) for space, some in ends.items()}
    covering: dict[tuple[Hashable, int], list[int]] = defaultdict(list)
    for k, (space, low, high) in enumerate(spans):
        at = cuts[space]
        for begin in at[bisect_left(at, low) : bisect_left(at, high)]:
            covering[space, begin].append(k)
    return covering


def _address(plan: ExecutionPlan, rank: int, a: Access, units: int) -> Span:
    """Return a space and a range in it, such that aliases are one."""
    if a.place.packets:
        return "s", 2 * a.place.start, 2 * a.place.stop
    if a.place.buffer is Buffer.SCRATCH:
        return "s", a.place.start, a.place.stop
    if not plan.in_place:
        return str(a.place.buffer), a.place.start, a.place.stop
    gpu, shift = plan.gpus[rank], 0
    if a.place.buffer is plan.moving:
        shift = rank * gpu.size_of(a.place.buffer)
    return "u", a.place.start + shift * units, a.place.stop + shift * units


def _rank(
    plan: ExecutionPlan,
    graph: PlanGraph,
    rank: int,
    accesses: list[Access],
    ended: dict[int, int],
) -> Iterator[Finding]:
    """Yield what is wrong in one rank's buffers; ``ended``: as bits, what has before a moment."""
    at_end = 0
    for m in graph.finish[rank]:
        at_end |= ended[m]
    spans = [_address(plan, rank, a, graph.units) for a in accesses]
    for k, a in enumerate(accesses):
        if not a.place.packets and not at_end >> k & 1:
            if a.by.rank != rank:
                verb = "writes into" if a.writes else "reads"
                yield at(
                    "ending",
                    f"{verb} {a.name} of rank {rank}, which may end before that is done",
                    a.by,
                )
            elif a.late:
                yield at(
                    "ending",
                    f"the network may read {a.name} after the plan "
                    "has ended: flush it, or wait for an answer",
                    a.by,
                )
    told: set[tuple[int, int]] = set()
    for (space, _), here in cells(spans).items():
        if space in ("s", "o"):
            yield from _stale(accesses, ended, here, rank, told)
        for j, y in enumerate(here):
            for x in here[:j]:
                if (x, y) not in told and (
                    problem := _conflict(
                        accesses[x], accesses[y], ended, x, y, same=spans[x] == spans[y]
                    )
                ):
                    told.add((x, y))
                    yield at(
                        "races",
                        f"{_name(accesses[y], rank)} {problem} {accesses[x].by}",
                        accesses[y].by,
                    )


def _stale(
    accesses: list[Access],
    ended: dict[int, int],
    here: list[int],
    rank: int,
    told: set[tuple[int, int]],
) -> Iterator[Finding]:
    """Yield findings for reads of a place that no earlier access can have written."""
    writes = [k for k in here if accesses[k].writes]
    for k in here:
        a = accesses[k]
        later = [w for w in writes if accesses[w].by == a.by or ended[accesses[w].start] >> k & 1]
        if not a.writes and len(later) == len(writes) and (k, k) not in told:
            told.add((k, k))
            yield at("stale", f"{_name(a, rank)} is read and never written before", a.by)


def _name(a: Access, rank: int) -> str:
    kind = "packets in " if a.place.packets else ""
    return f"{kind}{a.name} of rank {rank}"


def _conflict(
    a: Access, b: Access, ended: dict[int, int], x: int, y: int, *, same: bool
) -> str | None:
    """Return what is wrong between two accesses to one place, or None; ``same``: to all of it."""
    if a.place.packets != b.place.packets and (a.writes or b.writes):
        return "is a place of packets and of plain data, also for"
    if not a.writes and not b.writes:
        return None
    if a.place.packets and not any(one.late and not one.writes for one in (a, b)):
        return None  # flags order packets and their readers, but not who copies packets as data
    if a.by == b.by and same and not a.late:
        return None  # a thread reads an element before it writes that element
    if ended[b.start] >> x & 1 or ended[a.start] >> y & 1:
        return None
    return "is unordered with"
