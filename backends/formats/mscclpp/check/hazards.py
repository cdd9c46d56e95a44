"""Find unordered accesses, and remote accesses that may begin too early or end too late.

For the buffers of one rank at a time, every access is a bit, and every moment knows the accesses
that have ended before it: O(moments · accesses of the rank / 64) per rank.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from weft.dsl.nouns.program import Buffer

from ....check.findings import Finding, Severity
from ..plan.model import ExecutionPlan
from .graph import Access, PlanGraph, PlanStep

MOST_WORK = 10_000_000
"""Moments × ranks beyond which the proof is not attempted (about half a minute)."""


def hazards(plan: ExecutionPlan, graph: PlanGraph, order: list[int]) -> Iterator[Finding]:
    """Races, missing handshakes, and what is unfinished at the end."""
    if len(graph) * len(plan.gpus) > MOST_WORK:
        text = f"too large for the race proof here ({len(graph)} moments)"
        yield Finding("races", Severity.WARNING, text)
        return
    begun = _begun(plan, graph, order)
    done = [0] * len(plan.gpus)
    for rank, moments in enumerate(graph.finish):
        for m in moments:
            done[rank] |= begun[m]
    by_owner: dict[int, list[Access]] = defaultdict(list)
    for a in graph.accesses:
        by_owner[a.owner].append(a)
        if a.owner != a.by.rank:
            yield from _handshake(plan, a, begun, done)
    for rank in range(len(plan.gpus)):
        yield from _rank(plan, graph, order, rank, by_owner[rank])


def _finding(check: str, message: str, step: PlanStep) -> Finding:
    return Finding(check, Severity.ERROR, message, step.rank, step.block, step.index)


# --- who has begun --------------------------------------------------------------------------------


def _begun(plan: ExecutionPlan, graph: PlanGraph, order: list[int]) -> list[int]:
    """For every moment, as bits, the ranks whose launch has begun before it."""
    begun = [0] * len(graph)
    for rank, moments in enumerate(graph.begin):
        for m in moments:
            begun[m] = 1 << rank
    for m in order:
        for b in graph.strong[m]:
            begun[m] |= begun[b]
        for b in graph.weak[m]:
            begun[m] |= begun[b]
    return begun


def _handshake(
    plan: ExecutionPlan, a: Access, begun: list[int], done: list[int]
) -> Iterator[Finding]:
    """Yield a finding if an access may precede its peer's launch; packets may be a launch early."""
    if begun[a.start] >> a.owner & 1:
        return
    if not a.packets:
        yield _finding(
            "handshake",
            f"nothing tells that the launch of rank {a.owner} has begun: its buffers may be in use",
            a.by,
        )
    elif not plan.double_scratch or not done[a.by.rank] >> a.owner & 1:
        yield _finding(
            "handshake",
            f"packets to rank {a.owner} may overwrite those of an earlier "
            "launch that it has not read",
            a.by,
        )


# --- one rank's buffers --------------------------------------------------------------------------


def _address(plan: ExecutionPlan, rank: int, a: Access) -> tuple[str, int, int]:
    """Return a space and a range of cells in it, such that aliases are one."""
    if a.packets:
        return "s", 2 * a.low, 2 * a.high
    if a.buffer is Buffer.SCRATCH:
        return "s", a.low, a.high
    if not plan.in_place:
        return str(a.buffer), a.low, a.high
    gpu, shift = plan.gpus[rank], 0
    if plan.collective == "allgather":
        shift = rank * gpu.input_chunks if a.buffer is Buffer.INPUT else 0
    elif plan.collective in ("reducescatter", "reduce_scatter"):
        shift = rank * gpu.output_chunks if a.buffer is Buffer.OUTPUT else 0
    return "u", a.low + shift, a.high + shift


def _rank(
    plan: ExecutionPlan, graph: PlanGraph, order: list[int], rank: int, accesses: list[Access]
) -> Iterator[Finding]:
    ended = _ended(graph, order, accesses)
    at_end = 0
    for m in graph.finish[rank]:
        at_end |= ended[m]
    cells: dict[tuple[str, int], list[int]] = defaultdict(list)
    for k, a in enumerate(accesses):
        space, low, high = _address(plan, rank, a)
        for cell in range(low, high):
            cells[space, cell].append(k)
        if not a.packets and not at_end >> k & 1:
            if a.by.rank != rank:
                verb = "writes into" if a.writes else "reads"
                yield _finding(
                    "ending",
                    f"{verb} {a.buffer}[{a.low}] of rank {rank}, which may end before that is done",
                    a.by,
                )
            elif a.late:
                yield _finding(
                    "ending",
                    f"the network may read {a.buffer}[{a.low}] after the plan "
                    "has ended: flush it, or wait for an answer",
                    a.by,
                )
    told: set[tuple[int, int]] = set()
    for (space, _), here in cells.items():
        if space in "so":
            yield from _stale(accesses, ended, here, rank, told)
        for j, y in enumerate(here):
            for x in here[:j]:
                if (x, y) not in told and (
                    problem := _conflict(accesses[x], accesses[y], ended, x, y)
                ):
                    told.add((x, y))
                    yield _finding(
                        "races",
                        f"{_name(accesses[y], rank)} {problem} {accesses[x].by}",
                        accesses[y].by,
                    )


def _stale(
    accesses: list[Access], ended: list[int], here: list[int], rank: int, told: set[tuple[int, int]]
) -> Iterator[Finding]:
    """Yield findings for reads of a place that no earlier access can have written."""
    writes = [k for k in here if accesses[k].writes]
    for k in here:
        a = accesses[k]
        later = [w for w in writes if accesses[w].by == a.by or ended[accesses[w].start] >> k & 1]
        if not a.writes and len(later) == len(writes) and (k, k) not in told:
            told.add((k, k))
            yield _finding("stale", f"{_name(a, rank)} is read and never written before", a.by)


def _name(a: Access, rank: int) -> str:
    kind = "packets in " if a.packets else ""
    return f"{kind}{a.buffer}[{a.low}] of rank {rank}"


def _ended(graph: PlanGraph, order: list[int], accesses: list[Access]) -> list[int]:
    """For every moment, as bits, the accesses that have ended before it (or with it)."""
    bits = [0] * len(graph)
    for k, a in enumerate(accesses):
        bits[a.end] |= 1 << k
    for m in order:
        known = bits[m]
        for b in graph.strong[m]:
            known |= bits[b]
        bits[m] = known
    return bits


def _conflict(a: Access, b: Access, ended: list[int], x: int, y: int) -> str | None:
    """Return what is wrong between two accesses to one place, or None."""
    if a.packets != b.packets and (a.writes or b.writes):
        return "is a place of packets and of plain data, also for"
    if not a.writes and not b.writes:
        return None
    if a.packets and not any(one.late and not one.writes for one in (a, b)):
        return None  # flags order packets and their readers, but not who copies packets as data
    if a.by == b.by and (a.low, a.high, a.buffer) == (b.low, b.high, b.buffer) and not a.late:
        return None  # a thread reads an element before it writes that element
    if ended[b.start] >> x & 1 or ended[a.start] >> y & 1:
        return None
    return "is unordered with"
