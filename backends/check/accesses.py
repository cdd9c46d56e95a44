"""Accesses of a graph of operations to chunks, by place.

A **place** is one chunk of one rank's memory as an integer; in place, an input chunk and the output
chunk that aliases it are one place.
"""

from __future__ import annotations

import numpy as np

from weft.dsl.base.arrays import Bools, Ints
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.program import COPY, REDUCE, Code

from ..judge.events import touched
from .bounds import CallerBuffers
from .graph import Graph

RANK_BITS = 44  # an address is below this; shifts and offsets are 32-bit numbers
_FAR = 1 << 41


@dataclass(frozen=True)
class Accesses:
    """Columns, sorted by place and then by time; in one operation reads come before the write.

    Attributes:
        operation, place: the operation, and the place that it touches.
        writes: True if it writes. A ``re`` also reads the place that it writes (``adds``).
        previous: position of the last write of the place before this access, or -1.
    """

    operation: Ints
    place: Ints
    writes: Bools
    adds: Bools
    previous: Ints


def bases(buffers: CallerBuffers, in_place: bool) -> Ints:
    """First address of i, o, s on each rank, shape (ranks, 3)."""
    base = np.empty_like(buffers.size)
    base[:, 1] = _FAR
    base[:, 0] = _FAR + buffers.shift if in_place else 2 * _FAR
    base[:, 2] = 3 * _FAR
    return base


def places(
    buffers: CallerBuffers, in_place: bool, rank: Ints, buffer: Ints | int, offset: Ints
) -> Ints:
    """Return the places of chunks of buffers (0, 1, 2 for i, o, s)."""
    return np.asarray((rank << RANK_BITS) + bases(buffers, in_place)[rank, buffer] + offset)


def accesses(graph: Graph, order: Ints, buffers: CallerBuffers, in_place: bool) -> Accesses:
    """Return the accesses of all operations, in a topological order of them."""
    operation, place, writes, adds = _columns(graph, buffers, in_place)
    when = np.empty(graph.size, np.int64)
    when[order] = np.arange(graph.size)
    sort = np.lexsort((writes, when[operation], place))
    operation, place = operation[sort], place[sort]
    writes, adds = writes[sort], adds[sort]
    begin = np.searchsorted(place, place)
    last = np.maximum.accumulate(np.where(writes, np.arange(len(sort)), -1))
    previous = np.concatenate([[-1], last[:-1]]) if len(last) else last
    return Accesses(operation, place, writes, adds, np.where(previous >= begin, previous, -1))


def _columns(
    graph: Graph, buffers: CallerBuffers, in_place: bool
) -> tuple[Ints, Ints, Bools, Bools]:
    """(operation, place, writes, adds) in no order."""
    code, o = graph.code, graph.operations
    rank, op = code.block_rank[o.block], code.op[o.transfer]
    columns = []
    for at, buffer, first in touched(code, o):
        some = o.count[at] > 0
        at, buffer, first = at[some], buffer[some], first[some]
        columns.append((at, places(buffers, in_place, rank[at], buffer, first)))
    src, dst = columns[0][0], columns[2][0]
    writes = [np.full(len(at), side == 2) for side, (at, _) in enumerate(columns)]
    # A copy onto itself (the own chunk of an allgather, in place) changes nothing that others
    # read; it still must not run during a write, so it counts as a read.
    read = np.full(graph.size, -1, np.int64)
    read[src] = columns[0][1]
    same = (op[dst] == COPY) & (read[dst] == columns[2][1])
    writes[2][same] = False
    operation = np.concatenate([a for a, _ in columns])
    wrote = np.concatenate(writes)
    return (
        operation,
        np.concatenate([p for _, p in columns]),
        wrote,
        wrote & (op[operation] == REDUCE),
    )


def place_name(buffers: CallerBuffers, in_place: bool, place: int) -> str:
    """Return ``o[3]`` for a place, without the rank."""
    rank, address = place >> RANK_BITS, place & ((1 << RANK_BITS) - 1)
    base = bases(buffers, in_place)[rank]
    for buffer, name in ((2, "s"), (1, "o"), (0, "i")):
        offset = address - int(base[buffer])
        if 0 <= offset < int(buffers.size[rank, buffer]):
            return f"{name}[{offset}]"
    return "a chunk"


def in_scratch(place: Ints) -> Bools:
    """Test if places are scratch chunks."""
    return np.asarray((place & ((1 << RANK_BITS) - 1)) >= 3 * _FAR)


def block_of(code: Code, transfer: int) -> int:
    """Return the block of one transfer."""
    return int(np.searchsorted(code.block_start, transfer, side="right")) - 1
