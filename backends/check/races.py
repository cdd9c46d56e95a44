"""Data races: two accesses to one chunk, one a write, that nothing orders.

Happens-before is the operation graph without credit edges, queried by clocks: for an operation
and a block, the last operation of that block that precedes it (or is it). Clocks of many blocks at
once would need operations × blocks of memory, so they are computed for the blocks of one rank at a
time, in as many vector operations as the graph has levels. Along a topological order it suffices to
compare every access with the last write before it, and every write with the reads since then.
"""

from __future__ import annotations

import numpy as np

from weft.dsl.base.arrays import Bools, Ints, Ints32, distinct_values
from weft.dsl.base.layers import EdgeLevels, WaitClocks
from weft.dsl.base.lazy_dataclass import dataclass

from .accesses import Accesses, accesses, block_of, in_scratch, place_name
from .bounds import CallerBuffers
from .findings import LIMITS, Finding, Severity
from .graph import Edge, Graph


@dataclass(frozen=True)
class RaceQuestion:
    """Kind of unordered pairs to look for, and the words of their findings.

    Attributes:
        severity: of the findings; ``kind``: their name in the table of consequences.
        words: between the chunk and the other operation.
        visibility: only reads of what another block wrote into the user's buffers matter.
        most: findings that are listed one by one.
    """

    kind: str
    words: str
    severity: Severity = Severity.ERROR
    visibility: bool = False
    most: int = 20


FULL = RaceQuestion("race", "is unordered with")
LATE_SENDS = RaceQuestion(
    "late-send",
    "may, under LL on rccl, overtake reads of a send whose flag it waits for:",
    Severity.WARNING,
    most=1,
)
"""For a graph in which a plain send publishes before it has read (RCCL under LL)."""
RELAXED = RaceQuestion(
    "relaxed",
    "is read after a wait that acquires nothing on rccl (its srcbuf is not o, or the "
    "flag's dstbuf is s), and was written by",
    Severity.WARNING,
    visibility=True,
    most=1,
)
"""For a graph without the waits that RCCL makes with relaxed memory order."""


def races(
    graph: Graph,
    edges: EdgeLevels,
    buffers: CallerBuffers,
    *,
    in_place: bool,
    question: RaceQuestion = FULL,
    weak: tuple[Graph, EdgeLevels] | None = None,
) -> list[Finding]:
    """Unordered conflicting accesses of a program that does not deadlock.

    ``graph`` has single chunks as operations and one iteration: other iterations touch other
    elements, and merging chunks only adds order. ``weak`` is the same graph with fewer edges,
    in which pairs must be ordered instead; an order of ``graph`` is one of it too.
    """
    code = graph.code
    how = "in place" if in_place else "out of place"
    judged, judged_edges = weak or (graph, edges)
    pairs = _suspects(graph, accesses(graph, edges.order, buffers, in_place), question)
    doubtful = ~ordered_locally(judged, *pairs[:2])
    first, second, place = (x[doubtful] for x in pairs)
    if graph.size * len(distinct_values(graph.block()[first])) > LIMITS.ordered_pairs:
        text = f"too large for the race proof here ({graph.size} operations), {how}"
        return [Finding("races", Severity.WARNING, text)]
    first, second, place = _unordered(judged, judged_edges, first, second, place)
    found = []
    for a, b, p in list(zip(first.tolist(), second.tolist(), place.tolist(), strict=True))[
        : question.most
    ]:
        transfer = int(graph.transfer[b])
        block = block_of(code, transfer)
        text = f"{place_name(buffers, in_place, p)} {question.words} {graph.describe(a)}, {how}"
        found.append(
            Finding(
                "races",
                question.severity,
                text,
                int(code.block_rank[block]),
                int(code.block_id[block]),
                int(code.label[transfer]),
                question.kind,
            )
        )
    if len(first) > question.most:
        text = f"… and {len(first) - question.most} more, {how}"
        found.append(Finding("races", question.severity, text, kind=question.kind))
    return found


def _suspects(graph: Graph, touched: Accesses, question: RaceQuestion) -> tuple[Ints, Ints, Ints]:
    """Pairs (earlier in the order, later) of operations whose order proves all others, and where.

    Every access against the last write before it, every write against the reads since then; pairs
    within one block are in program order.
    """
    operation, place, writes = touched.operation, touched.place, touched.writes
    after_write = np.flatnonzero(touched.previous >= 0)
    if question.visibility:
        reads = ~writes | touched.adds
        after_write = after_write[reads[after_write] & ~in_scratch(place[after_write])]
        first, second = touched.previous[after_write], after_write
    else:
        # Each read is followed by the next write of its place, if any.
        position = np.arange(len(place))
        following = np.where(writes, position, len(place))
        following = np.minimum.accumulate(following[::-1])[::-1]
        read = np.flatnonzero(~writes & (following < len(place)))
        read = read[place[following[read]] == place[read]]
        first = np.concatenate([touched.previous[after_write], read])
        second = np.concatenate([after_write, following[read]])
    block = graph.block()
    apart = block[operation[first]] != block[operation[second]]
    return operation[first[apart]], operation[second[apart]], place[second[apart]]


def _unordered(
    graph: Graph, edges: EdgeLevels, first: Ints, second: Ints, place: Ints
) -> tuple[Ints, Ints, Ints]:
    """The pairs that nothing orders, through other ranks either; clocks of one rank at a time."""
    if not len(first):
        return first, second, place
    block = graph.block()
    rank = graph.code.block_rank
    bad = np.zeros(len(first), bool)
    owner = rank[block[first]]
    for r in distinct_values(owner).tolist():
        mine = np.flatnonzero(owner == r)
        begin, end = np.searchsorted(rank, [r, r + 1]).tolist()
        table = clocks(graph, edges, begin, end - begin)
        bad[mine] = table[second[mine], block[first[mine]] - begin] < first[mine]
    return first[bad], second[bad], place[bad]


def levels(graph: Graph) -> EdgeLevels:
    """Return the edges of happens-before, by level."""
    keep = graph.kind != Edge.CREDIT
    return EdgeLevels.of(graph.size, graph.source[keep], graph.target[keep])


def clocks(graph: Graph, edges: EdgeLevels, first_block: int, blocks: int) -> Ints32:
    """Return the clocks of ``blocks`` blocks from ``first_block``, shape (operations, blocks)."""
    table = np.full((graph.size, blocks), -1, np.int32)
    column = graph.block() - first_block
    mine = np.flatnonzero((column >= 0) & (column < blocks))
    table[mine, column[mine]] = mine
    edges.advance(table)
    return table


def ordered_locally(graph: Graph, first: Ints, second: Ints) -> Bools:
    """Test if its rank's own waits put ``first`` before ``second``; both on one rank.

    Nearly every pair of conflicting accesses is ordered by the flags of its own rank, and that is
    cheap to prove, by the clocks of what waits. The pass ``sync`` queries the same clocks; they
    are trustworthy because the tests hold them against brute force.
    """
    block = graph.block()
    waits = graph.kind == Edge.WAIT
    source, target = graph.source[waits], graph.target[waits]
    proved = np.zeros(len(first), bool)
    for ranks in _batches(graph, block, target):
        here = graph.code.block_rank[block]
        edges = (here[target] >= ranks[0]) & (here[target] < ranks[1])
        pairs = np.flatnonzero((here[second] >= ranks[0]) & (here[second] < ranks[1]))
        clocks = WaitClocks(block, graph.code.block_index, source[edges], target[edges])
        proved[pairs] = clocks.done(first[pairs], second[pairs])
    return proved


def _batches(graph: Graph, block: Ints, target: Ints) -> list[tuple[int, int]]:
    """Ranges of ranks whose clocks fit the memory."""
    rank = graph.code.block_rank
    blocks = np.bincount(rank, minlength=graph.code.rank_count)
    waiting = np.bincount(rank[block[distinct_values(target)]], minlength=graph.code.rank_count)
    cells = np.cumsum(waiting * blocks.max(initial=1)) // LIMITS.clock_entries
    cuts = np.flatnonzero(np.diff(cells)) + 1
    return list(zip([0, *cuts.tolist()], [*cuts.tolist(), graph.code.rank_count], strict=True))
