"""Which orders of a program are the same computation.

Two orders in which every pair of conflicting accesses (one chunk, one of them a write) comes the
same way round read and write the same values (they are one *trace*, in Mazurkiewicz's sense), so
an order whose trace was executed before need not be executed again. A program without races has a
single trace. Messages need no pairs: the k-th is read by the k-th receive in every order, and its
slot is free by then.
"""

from __future__ import annotations

import numpy as np

from weft.dsl.base.arrays import Ints
from weft.dsl.nouns.program import READS_SRC, WRITES_DST

from .layout import Layout
from .machine import Machine

MOST_PAIRS = 2_000_000
"""With more conflicting pairs every order is executed."""


class Traces:
    """Tells the traces of a machine's orders apart."""

    def __init__(self, machine: Machine, place: Layout) -> None:
        found = _pairs(machine, place)
        self._known = found is not None
        self._first, self._second = found if found is not None else (_NONE, _NONE)
        self._when = np.empty(len(machine.operations), np.int64)
        self._seen: set[bytes] = set()

    def fresh(self, order: Ints) -> bool:
        """Whether an order is of a trace that was not met before."""
        if not self._known:
            return True
        self._when[order] = np.arange(len(order))
        key = np.packbits(self._when[self._first] < self._when[self._second]).tobytes()
        if key in self._seen:
            return False
        self._seen.add(key)
        return True


_NONE: Ints = np.zeros(0, np.int64)


def _pairs(machine: Machine, place: Layout) -> tuple[Ints, Ints] | None:
    """Conflicting operations of different blocks, or None if there are too many."""
    who, cell, writes = _accesses(machine, place)
    order = np.argsort(cell, kind="stable")
    who, cell, writes = who[order], cell[order], writes[order]
    start = np.flatnonzero(np.diff(cell, prepend=-1))
    size = np.diff(start, append=len(cell))
    group = np.repeat(np.arange(len(start)), size)
    writer = np.flatnonzero(writes)
    many = size[group[writer]]  # a writer is paired with all of its cell
    if int(many.sum()) > MOST_PAIRS:
        return None
    one = np.repeat(writer, many)
    other = np.arange(len(one)) - np.repeat(np.cumsum(many) - many, many) + start[group[one]]
    first, second = who[one], who[other]
    block = machine.operations.block
    apart = block[first] != block[second]
    names = np.unique(first[apart] * len(block) + second[apart])
    return names // max(1, len(block)), names % max(1, len(block))


def _accesses(machine: Machine, place: Layout) -> tuple[Ints, Ints, Ints]:
    """Columns of operation, cell (chunk and iteration) and whether it is written."""
    code, o = machine.code, machine.operations
    rank = code.block_rank[o.block]
    source = place.base[rank, code.src_buffer[o.transfer]]
    target = place.base[rank, code.dst_buffer[o.transfer]]
    others = np.diff(code.more_start)[o.transfer]
    owner = np.repeat(np.arange(len(o)), others)
    extra = np.arange(len(owner)) - np.repeat(np.cumsum(others) - others, others)
    extra += code.more_start[o.transfer[owner]]
    reads = np.flatnonzero(READS_SRC[code.op[o.transfer]])
    writes = np.flatnonzero(WRITES_DST[code.op[o.transfer]])
    who = np.concatenate([reads, owner, writes])
    row = np.concatenate(
        [
            source[reads] + code.src_offset[o.transfer[reads]],
            source[owner] + code.more_offset[extra],
            target[writes] + code.dst_offset[o.transfer[writes]],
        ]
    )
    written = np.repeat([0, 1], [len(reads) + len(owner), len(writes)])
    count = o.count[who]
    chunk = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)
    who, row, written = (np.repeat(x, count) for x in (who, row + o.first[who], written))
    return who, (row + chunk) * machine.shape.iterations + o.iteration[who], written
