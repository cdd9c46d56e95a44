"""Scratch slots that are never needed at the same time share a place.

Before::

    block 0 (from 1):   0: r s[0]     1: re o[0] += s[0]     2: r s[1]     3: re o[1] += s[1]

After::

    block 0 (from 1):   0: r s[0]     1: re o[0] += s[0]     2: r s[0]     3: re o[1] += s[0]

Slot y may lie where slot x lay if every access of x happens before the first write of y in the
order that the program has already: the code of the blocks and the waits. So no wait is added and
nothing that could run side by side is put in a row. Linear-scan register allocation (Poletto and
Sarkar 1999) with *happens before* for the order: slots take places in the order of their first
writes, the first place that is free. Slots that one instruction moves together stay neighbours.

Accesses of x that others follow need no test; all slots of one place are ordered, so only the last
one is compared. Cost: scratch slots × places, vectorised, and what clocks cost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import field
from typing import ClassVar

import numpy as np

from weft.dsl.base.arrays import Bools, Ints
from weft.dsl.base.errors import CheckFailed
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.program import READS_SRC, REDUCE, WRITES_DST, Program
from weft.dsl.nouns.runtime import Target

from .prune import SCRATCH, renumbered

Place = tuple[int, int]
"""Block of a rank, and index of an instruction there."""

WINDOW = 2048
"""Number of latest places that are considered; keeps the pass nearly linear."""


@dataclass(frozen=True, slots=True)
class Scratch:
    """Allocate scratch by liveness."""

    name: ClassVar[str] = "scratch"

    def apply(self, program: Program, target: Target) -> Program:
        """Return the program with shared scratch; never more than it had.

        Raises:
            CheckFailed: the waits of a rank form a cycle.
        """
        if not program.chunks[:, 2].any():
            return program
        places = [_allocate(program, rank) for rank in range(program.rank_count)]
        sizes = [int(place.max(initial=-1)) + 1 for place in places]
        return renumbered(program, np.concatenate(places), np.array(sizes, np.int64))


@dataclass(eq=False)
class _Slot:
    """The accesses of a slot: those before the first, and the last of every block."""

    opening: Ints
    written: bool
    last: dict[int, int] = field(default_factory=dict)
    final: list[Place] = field(default_factory=list)


def _allocate(program: Program, rank: int) -> Ints:
    """Return the place of every scratch slot of a rank; -1 where nothing touches it."""
    size = int(program.chunks[rank, 2])
    place = np.full(size, -1, np.int64)
    if not size:
        return place
    slots, joined = _accesses(program, rank)
    memory = _ScratchMemory()
    starts = sorted(slots)
    run_of: dict[int, int] = {}  # the first slot of the run of each slot
    for at in starts:
        run_of[at] = run_of[at - 1] if at and joined[at - 1] else at
    runs: dict[int, list[int]] = {}
    for at in slots:  # in the order of first accesses
        runs.setdefault(run_of[at], [])
    for at in starts:
        runs[run_of[at]].append(at)
    for members in runs.values():
        place[members] = memory.put([slots[at] for at in members])
    return place


def _accesses(program: Program, rank: int) -> tuple[dict[int, _Slot], Bools]:
    """The slots in the order of first access, and which are moved together with the next one."""
    slots: dict[int, _Slot] = {}
    joined = np.zeros(program.chunks[rank, 2], bool)
    clocks: dict[Place, Ints] = {}
    first = int(program.first_block[rank])
    base, end = program.block_start[program.first_block[rank : rank + 2]].tolist()
    mine = slice(base, end)
    op = program.op[mine]
    reads = (READS_SRC[op] & (program.src_buffer[mine] == SCRATCH)).tolist()
    writes = (WRITES_DST[op] & (program.dst_buffer[mine] == SCRATCH)).tolist()
    stores = (op != REDUCE).tolist()
    columns = (program.src_offset, program.dst_offset, program.count, program.block, program.index)
    src, dst, counts, blocks, indices = (column[mine].tolist() for column in columns)
    for row, clock in walk(program, rank):
        i = row - base
        if not (reads[i] or writes[i]):
            continue
        here = (blocks[i] - first, indices[i])
        now = clocks[here] = clock.copy()
        for touches, offset, fresh in ((reads[i], src[i], False), (writes[i], dst[i], stores[i])):
            if not touches:
                continue
            joined[offset : offset + counts[i] - 1] = True
            for at in range(offset, offset + counts[i]):
                if at not in slots:
                    slots[at] = _Slot(now, fresh)
                slots[at].last[here[0]] = here[1]
    for slot in slots.values():
        ends = list(slot.last.items())
        slot.final = [
            (b, i) for b, i in ends if not any(clocks[e][b] >= i for e in ends if e[0] != b)
        ]
    return slots, joined


class _ScratchMemory:
    """Places, each with the final accesses of the slot that had it last."""

    def __init__(self) -> None:
        self.size = 0
        self.block = np.zeros((0, 1), np.int64)
        self.index = np.zeros((0, 1), np.int64)  # of padding: -1, always done

    def put(self, run: list[_Slot]) -> Ints:
        """Consecutive places for a run of slots: the first that are free for all of them."""
        base = self._first_fit(run)
        self._grow(base + len(run), max(len(slot.final) for slot in run))
        for at, slot in enumerate(run, base):
            self.index[at] = -1
            for k, (block, index) in enumerate(slot.final):
                self.block[at, k], self.index[at, k] = block, index
        return np.arange(base, base + len(run))

    def _first_fit(self, run: list[_Slot]) -> int:
        low = max(0, self.size - WINDOW)
        count = self.size - low
        fits = np.ones(count + 1, bool)  # the last: after all places
        last, free = run[0], self._free(run[0], low)
        for j, slot in enumerate(run):
            if slot.opening is not last.opening or slot.written != last.written:
                last, free = slot, self._free(slot, low)
            if j >= count:
                break
            fits[: count - j] &= free[j:]
        return low + int(np.argmax(fits))

    def _free(self, slot: _Slot, low: int) -> Bools:
        """Mark the places that are free when the slot is first written."""
        if not slot.written:  # read before it is written: whatever it means, leave it alone
            return np.zeros(self.size - low, bool)
        here = slice(low, self.size)
        done: Bools = np.all(slot.opening[self.block[here]] >= self.index[here], axis=1)
        return done

    def _grow(self, size: int, width: int) -> None:
        rows, columns = self.index.shape
        if size > rows or width > columns:
            shape = (max(rows, 2 * size if size > rows else 0), max(columns, width))
            block, index = np.zeros(shape, np.int64), np.full(shape, -1)
            block[:rows, :columns], index[:rows, :columns] = self.block, self.index
            self.block, self.index = block, index
        self.size = max(self.size, size)


def walk(program: Program, rank: int) -> Iterator[tuple[int, Ints]]:
    """Yield the instructions of a rank in an order its waits allow, each with its clock.

    ``clock[b]`` is the last instruction of block b of the rank that is done before this one begins,
    -1 for none. The array is reused: copy what you keep. Cost: waits × blocks.

    The order that a rank's own code gives: the blocks' code and the waits. Messages through other
    ranks order more; so this order is a subset of the true one.

    Raises:
        CheckFailed: the waits form a cycle.
    """
    first, end = program.first_block[rank : rank + 2].tolist()
    start = program.block_start[first : end + 1].tolist()
    base = start[0]
    begin = program.wait_start[base : start[-1] + 1]
    waits = program.wait[begin[0] : begin[-1]].tolist()
    wait_at = (begin - begin[0]).tolist()
    owner = (program.block[waits] - first).tolist()
    named = set(waits)
    clocks = np.full((end - first, end - first), -1, np.int64)
    done = start[:-1]  # the next instruction of each block
    published: dict[int, Ints] = {}
    sleeping: dict[int, list[int]] = {}
    ready = deque(range(end - first))
    while ready:
        at = ready.popleft()
        clock = clocks[at]
        while done[at] < start[at + 1]:
            here = done[at]
            own = range(wait_at[here - base], wait_at[here - base + 1])
            late = next((waits[w] for w in own if done[owner[w]] <= waits[w]), None)
            if late is not None:
                sleeping.setdefault(late, []).append(at)
                break
            for w in own:
                np.maximum(clock, published[waits[w]], out=clock)
            yield here, clock
            clock[at] = here - start[at]
            done[at] += 1
            if here in named:
                published[here] = clock.copy()
                ready.extend(sleeping.pop(here, ()))
    for at, here in enumerate(done):
        if here < start[at + 1]:
            raise CheckFailed(
                f"rank {rank}: block {at} waits in a circle at instruction {here - start[at]}"
            )
