"""Reads and writes of the slots of each rank, one after another in a linear order.

Everything is columns with one entry per access of one chunk; O(accesses log accesses).
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from weft.dsl.base.arrays import Bools, Ints
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.program import ABSENT, OP_NUMBER, READS_SRC, REDUCE, WRITES_DST, Op, Program
from weft.dsl.nouns.slots import SCRATCH, Aliases


@dataclass(frozen=True, eq=False)
class SlotAccesses:
    """Columns, sorted by place (a slot of a rank), then time; a read before a write of its time.

    ``who`` is the instruction, ``slot`` what it calls the place.
    """

    place: Ints
    who: Ints
    writes: Bools
    slot: Ints

    @staticmethod
    def at(
        rank: Ints, slot: Ints, count: Ints, who: Ints, writes: Bools, time: Ints
    ) -> SlotAccesses:
        """Build from accesses of ``count`` slots; ``time`` is that of each instruction."""
        row = np.repeat(np.arange(len(slot)), count)
        within = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
        slot, who, writes = slot[row] + within, who[row], writes[row]
        wide = int((slot & 0xFFFFFFFF).max(initial=0)) + 1
        place = (rank[row] * 3 + (slot >> 32)) * wide + (slot & 0xFFFFFFFF)
        times = int(time.max(initial=0)) + 1
        if int(place.max(initial=0)) >= (1 << 61) // times:
            place = np.unique(place, return_inverse=True)[1].reshape(-1)
        order = np.argsort((place * times + time[who]) * 2 + writes)
        return SlotAccesses(place[order], who[order], writes[order], slot[order])

    @cached_property
    def last_write(self) -> Ints:
        """The access that last wrote the place before each; -1 for none."""
        at = np.arange(len(self.place))
        last = np.maximum.accumulate(np.where(self.writes, at, -1))
        before = np.concatenate([[-1], last[:-1]])[: len(at)]
        return np.where(before >= np.searchsorted(self.place, self.place), before, -1)

    @cached_property
    def next_write(self) -> Ints:
        """The access that next writes the place after each; -1 for none."""
        n = len(self.place)
        at = np.arange(n)
        following = np.minimum.accumulate(np.where(self.writes, at, n)[::-1])[::-1]
        after = np.concatenate([following[1:], [n]])[:n]
        return np.where(after < np.searchsorted(self.place, self.place, side="right"), after, -1)

    def conflicts(self) -> tuple[Ints, Ints]:
        """(later, earlier) instructions: read after write, write after write, write after read."""
        written, read = self.last_write >= 0, ~self.writes & (self.next_write >= 0)
        return (
            self.who[np.concatenate([np.flatnonzero(written), self.next_write[read]])],
            self.who[np.concatenate([self.last_write[written], np.flatnonzero(read)])],
        )


def accesses(code: Program, level: Ints) -> SlotAccesses:
    """All accesses of a program; in place, an input slot that the output aliases is that one."""
    time = np.empty(code.instructions, np.int64)
    time[np.argsort(level, kind="stable")] = np.arange(code.instructions)
    reduces = np.flatnonzero(code.op == REDUCE)
    reads, writes = np.flatnonzero(READS_SRC[code.op]), np.flatnonzero(WRITES_DST[code.op])
    who = np.concatenate([reads, reduces, writes])
    slot = np.concatenate([code.src[reads], code.dst[reduces], code.dst[writes]])
    stores = np.arange(len(who)) >= len(reads) + len(reduces)
    return _aliased(
        code, SlotAccesses.at(code.rank[who], slot, code.count[who], who, stores, time), time
    )


def _aliased(code: Program, found: SlotAccesses, time: Ints) -> SlotAccesses:
    """In place: the accesses again, by the slots of the output where those of the input alias."""
    if not code.in_place:
        return found
    rank = code.rank[found.who]
    slot = Aliases.of_program(code).names(rank, found.slot)
    one = np.ones(len(slot), np.int64)
    return SlotAccesses.at(rank, slot, one, found.who, found.writes, time)


def last_writers(code: Program, a: SlotAccesses) -> Ints:
    """For every plain send, the one instruction that last wrote all it reads; -1 if none did."""
    mine = np.flatnonzero(code.op[a.who] == OP_NUMBER[Op.SEND])
    writer = np.where(a.last_write[mine] >= 0, a.who[a.last_write[mine]], ABSENT)
    least, most = np.full(code.instructions, code.instructions), np.full(code.instructions, ABSENT)
    np.minimum.at(least, a.who[mine], writer)
    np.maximum.at(most, a.who[mine], writer)
    return np.where(least == most, most, ABSENT)


def unread(code: Program, level: Ints, op: Op) -> Ints:
    """Instructions of kind ``op`` whose result no other local instruction reads.

    Values that stay in the user's buffers to the end count as read.
    """
    a = accesses(code, level)
    at = np.flatnonzero((code.op[a.who] == OP_NUMBER[op]) & a.writes)
    last = np.ones(len(a.place), bool)
    last[:-1] = a.place[1:] != a.place[:-1]
    after = np.minimum(at + 1, len(a.place) - 1)
    read = np.where(last[at], a.slot[at] < SCRATCH, ~a.writes[after])
    used = np.zeros(code.instructions, bool)
    used[a.who[at[read]]] = True
    return np.setdiff1d(a.who[at], np.flatnonzero(used))


def latest(code: Program, waiting: Ints, wait: Ints) -> tuple[Ints, Ints]:
    """Of the instructions of one block that an instruction waits for, only the latest.

    From and to pairs: ``waiting[i]`` waits for ``wait[i]``; the result is sorted. Instructions of a
    later block have larger numbers, so in order of numbers those of one block are neighbours.
    """
    order = np.lexsort((wait, waiting))
    waiting, wait = waiting[order], wait[order]
    block = code.block[wait]
    last = np.ones(len(wait), bool)
    last[:-1] = (waiting[1:] != waiting[:-1]) | (block[1:] != block[:-1])
    return waiting[last], wait[last]
