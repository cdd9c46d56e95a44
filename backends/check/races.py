"""Data races: two accesses to one chunk, one a write, that nothing orders.

Happens-before is the operation graph without credit edges, asked through the clocks of
:mod:`~weft.backends.check.clocks`. Along a topological order it suffices to compare every access
with the last write before it, and every write with the reads since then.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..listing import COPY, NOP, READS_SRC, WRITES_DST, Ints, Listing
from .bounds import Buffers
from .clocks import clocks, levels
from .connections import Connections
from .findings import Finding, Severity
from .graph import Graph, expand, topological_order
from .local_order import ordered_locally

MOST_WORK = 20_000_000_000
"""Operations × blocks beyond which the proof is not attempted here (some ten seconds)."""

_RANK_BITS = 44  # an address is below this; shifts and offsets are 32-bit numbers


def races(
    listing: Listing,
    links: Connections,
    buffers: Buffers,
    *,
    in_place: bool,
    weak_send_flags: bool = False,
) -> list[Finding]:
    """Unordered conflicting accesses of a program that does not deadlock.

    Every chunk is its own operation and there is one iteration: other iterations touch other
    elements, and merging chunks only adds order. ``weak_send_flags`` as in :func:`expand`.
    """
    graph = expand(listing, links, weak_send_flags=weak_send_flags)
    how = "in place" if in_place else "out of place"
    order = topological_order(graph, credit=False)
    if len(order) < graph.size:
        return []  # it deadlocks, and is reported for that
    pairs = _suspects(graph, order, _accesses(graph, buffers, in_place))
    doubtful = ~ordered_locally(graph, *pairs[:2])
    first, second, place = (x[doubtful] for x in pairs)
    if graph.size * len(np.unique(graph.block()[first])) > MOST_WORK:
        text = f"too large for the race proof here ({graph.size} operations), {how}"
        return [Finding("races", Severity.WARNING, text)]
    first, second, place = _unordered(graph, first, second, place)
    found = []
    severity = Severity.WARNING if weak_send_flags else Severity.ERROR
    for a, b, p in list(zip(first.tolist(), second.tolist(), place.tolist(), strict=True))[:20]:
        transfer = int(graph.transfer[b])
        block = int(np.searchsorted(listing.block_start, transfer, side="right")) - 1
        what = "is unordered with" if not weak_send_flags else (
            "may, under LL on rccl, overtake reads of a send whose flag it waits for:"
        )  # fmt: skip
        text = f"{_letter(buffers, listing, block, p, in_place)} {what} {graph.describe(a)}, {how}"
        found.append(
            Finding("races", severity, text, int(listing.block_rank[block]),
                    int(listing.block_id[block]), int(listing.label[transfer]))
        )  # fmt: skip
    if len(first) > 20:
        found.append(Finding("races", severity, f"… and {len(first) - 20} more, {how}"))
    return found


@dataclass(frozen=True)
class _Accesses:
    """Columns: operation, rank-wide address (rank and address), whether it writes."""

    operation: Ints
    place: Ints
    writes: npt.NDArray[np.bool_]


def _bases(buffers: Buffers, in_place: bool) -> Ints:
    """First address of i, o, s on each rank, shape (ranks, 3)."""
    far = 1 << 41
    base = np.empty_like(buffers.size)
    base[:, 1] = far
    base[:, 0] = far + buffers.shift if in_place else 2 * far
    base[:, 2] = 3 * far
    return base


def _accesses(graph: Graph, buffers: Buffers, in_place: bool) -> _Accesses:
    listing = graph.listing
    base = _bases(buffers, in_place)
    rank = listing.block_rank[graph.block()]
    t = graph.transfer
    op = listing.op[t]
    moves = (listing.count[t] > 0) & (op != NOP)
    src = np.flatnonzero(READS_SRC[op] & moves)
    dst = np.flatnonzero(WRITES_DST[op] & moves)
    number = np.diff(listing.more_start)[t]
    more = np.repeat(np.arange(graph.size), number)
    within = np.arange(len(more)) - np.repeat(np.cumsum(number) - number, number)
    further = listing.more_offset[listing.more_start[t[more]] + within]
    columns = []
    for at, buffer, offset in (
        (src, listing.src_buffer, listing.src_offset[t[src]]),
        (more, listing.src_buffer, further),
        (dst, listing.dst_buffer, listing.dst_offset[t[dst]]),
    ):
        address = base[rank[at], buffer[t[at]]] + offset + graph.piece[at] * graph.merge
        columns.append((at, (rank[at] << _RANK_BITS) + address))
    writes = [np.full(len(at), side == 2) for side, (at, _) in enumerate(columns)]
    # A copy onto itself (the own chunk of an allgather, in place) changes nothing that others
    # read; it still must not run while somebody writes, so it counts as a read.
    copies = dst[listing.op[t[dst]] == COPY]
    read_at = dict(zip(src.tolist(), columns[0][1].tolist(), strict=True))
    where = np.searchsorted(dst, copies)
    same = columns[2][1][where] == [read_at[c] for c in copies.tolist()]
    writes[2][where[same]] = False
    return _Accesses(
        np.concatenate([a for a, _ in columns]),
        np.concatenate([p for _, p in columns]),
        np.concatenate(writes),
    )


def _suspects(graph: Graph, order: Ints, accesses: _Accesses) -> tuple[Ints, Ints, Ints]:
    """Pairs (earlier in the order, later) of operations whose order proves all others, and where.

    Every access against the last write before it, every write against the reads since then; pairs
    within one block are in program order.
    """
    when = np.empty(graph.size, np.int64)
    when[order] = np.arange(graph.size)
    # In one operation the read comes before the write.
    sort = np.lexsort((accesses.writes, when[accesses.operation], accesses.place))
    operation, place = accesses.operation[sort], accesses.place[sort]
    writes = accesses.writes[sort]
    position = np.arange(len(sort))
    begin = np.searchsorted(place, place)
    last = np.maximum.accumulate(np.where(writes, position, -1))
    previous = np.concatenate([[-1], last[:-1]]) if len(last) else last
    after_write = np.flatnonzero(previous >= begin)
    # Each read is followed by the next write of its place, if any.
    following = np.where(writes, position, len(sort))
    following = np.minimum.accumulate(following[::-1])[::-1]
    read = np.flatnonzero(~writes & (following < len(sort)))
    read = read[place[following[read]] == place[read]]
    first = np.concatenate([previous[after_write], read])
    second = np.concatenate([after_write, following[read]])
    block = graph.block()
    apart = block[operation[first]] != block[operation[second]]
    return operation[first[apart]], operation[second[apart]], place[second[apart]]


def _unordered(graph: Graph, first: Ints, second: Ints, place: Ints) -> tuple[Ints, Ints, Ints]:
    """The pairs that nothing orders, through other ranks either; clocks of one rank at a time."""
    if not len(first):
        return first, second, place
    edges = levels(graph)
    block = graph.block()
    rank = graph.listing.block_rank
    bad = np.zeros(len(first), bool)
    owner = rank[block[first]]
    for r in np.unique(owner).tolist():
        mine = np.flatnonzero(owner == r)
        begin, end = np.searchsorted(rank, [r, r + 1]).tolist()
        table = clocks(graph, edges, begin, end - begin)
        bad[mine] = table[second[mine], block[first[mine]] - begin] < first[mine]
    return first[bad], second[bad], place[bad]


def _letter(buffers: Buffers, listing: Listing, block: int, place: int, in_place: bool) -> str:
    """``o[3]`` for an address."""
    rank = int(listing.block_rank[block])
    address = place & ((1 << _RANK_BITS) - 1)
    base = _bases(buffers, in_place)[rank]
    for buffer, name in ((2, "s"), (1, "o"), (0, "i")):
        offset = address - int(base[buffer])
        if 0 <= offset < int(buffers.size[rank, buffer]):
            return f"{name}[{offset}]"
    return "a chunk"
