"""Drop dependences that others imply, and let few flags serve many waits.

Before::

    block 2, 0: r o[3]    waits for (0, 1) and (1, 4)        block 1, 4 waits for (0, 1)

After (transitive reduction)::

    block 2, 0: r o[3]    waits for (1, 4)

A wait that the clock of the block, or of another wait, covers already says nothing new (see
:class:`weft.dsl.base.layers.WaitClocks`). What is left costs a flag at one end and, from the second
wait of an instruction on, a step that does nothing at the other. Two moves save them. Both only add
order, and only upwards in the linear order of ``order.py``, which excludes deadlocks, and no path
grows longer in instructions. In time it may: instructions that move different amounts of data wait
for each other then (a torus reduce_scatter took half as long again). So they are for programs that
run out of steps, ``sync{move=true}``:

*A later flag suffices*::

    block 1 waits for (0, 3), block 2 for (0, 5)   ->   both wait for (0, 5)     if that is early
                                                                                 enough for block 1

*A wait moves ahead*, to an instruction of its block that waits for nothing::

    block 1, 2: r    block 1, 3: s  waits for (0, 1), (2, 4)
    ->  block 1, 2: r  waits for (0, 1)    block 1, 3: s  waits for (2, 4)
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from weft.dsl.base.arrays import Bools, Ints, distinct_values
from weft.dsl.base.errors import CheckFailed
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.program import (
    BUFFER_NUMBER,
    COPY,
    REDUCE,
    SENDS,
    Buffer,
    Program,
    Protocol,
    offsets,
)
from weft.dsl.nouns.runtime import Target

from ..analyses.access import latest
from ..analyses.order import ProgramOrder, wait_clocks

REACH = 16
"""Instructions by which a wait may move ahead."""


@dataclass(frozen=True, slots=True)
class Sync:
    """Drop waits that others imply; ``move``: also move some, which saves steps and may cost time.

    RCCL decides by the buffers of the two steps whether memory is ordered too; nothing moves there.
    """

    name: ClassVar[str] = "sync"
    move: bool = False

    def apply(self, program: Program, target: Target) -> Program:
        """Return the program with fewer waits; happens-before is kept, or implied by the others.

        Raises:
            CheckFailed: the waits of a rank form a cycle, or the program deadlocks.
        """
        if not len(program.wait):
            return program
        stuck = ProgramOrder.local(program).unreached()
        if len(stuck):
            i = int(stuck[0])
            block = program.block_index[program.block[i]]
            raise CheckFailed(
                f"rank {program.rank[i]}: block {block} waits in a circle at instruction "
                f"{program.index[i]}"
            )
        slim = _reduced(program)
        if self.move and target.send_publishes and len(slim.wait):
            order = ProgramOrder.of(slim)
            level, begin = order.span()
            slim = _reduced(_later(slim, level, begin))
            slim = _ahead(slim, level, begin)
        if np.array_equal(slim.wait, program.wait) and np.array_equal(
            slim.wait_start, program.wait_start
        ):
            return program
        return slim.with_waits(*latest(slim, slim.waiting, slim.wait))


def _kept(code: Program, wait: Ints, waiting: Ints) -> Program:
    """Return the program with other waits; those of an instruction ascend."""
    order = np.lexsort((wait, waiting))
    return code.with_waits(waiting[order], wait[order])


def _reduced(code: Program) -> Program:
    """Without waits that the block so far implies, or another wait of the same instruction."""
    code = code.with_waits(*latest(code, code.waiting, code.wait))
    known = wait_clocks(code)
    wait, waiting = code.wait, code.waiting
    implied = known.done_before(wait, waiting) | (code.block[wait] == code.block[waiting])
    wait, waiting = wait[~implied], waiting[~implied]
    size = np.bincount(waiting, minlength=code.instructions)
    start = np.cumsum(size) - size
    covered = np.zeros(len(wait), bool)
    for other in range(int(size.max(initial=1))):
        # Every wait against the other-th wait of the same instruction.
        rows = np.flatnonzero(size[waiting] > other)
        rival = start[waiting[rows]] + other
        apart = rival != rows
        covered[rows[apart]] |= known.done(wait[rows[apart]], wait[rival[apart]])
    return _kept(code, wait[~covered], waiting[~covered])


def _later(code: Program, level: Ints, begin: Ints) -> Program:
    """Let flags that are needed anyway serve earlier waits, where that causes no delay.

    Each wait accepts the flags of an interval of its block: from the instruction it names to the
    last that is below the waiting one. The fewest flags that meet all intervals of a block are
    found by taking them by their ends; each is the latest of those that start in the group, so it
    is an instruction that a wait names already.
    """
    wait, waiting = code.wait, code.waiting
    tall = int(max(level.max(initial=0), begin.max(initial=0))) + 2
    climb = code.block * tall + level  # ascending
    last = np.searchsorted(climb, code.block[wait] * tall + begin[waiting]) - 1
    moved = wait.copy()
    group: list[int] = []
    end, block_of = -1, code.block
    rows = np.lexsort((wait, last))
    starts, ends, blocks = wait[rows].tolist(), last[rows].tolist(), block_of[wait[rows]].tolist()
    latest, block = -1, -1
    for row, first, final, home in zip(rows.tolist(), starts, ends, blocks, strict=True):
        if group and (home != block or first > end):
            moved[group] = latest
            group = []
        if not group:
            end, block, latest = final, home, -1
        group.append(row)
        latest = max(latest, first)
    if group:
        moved[group] = latest
    return _kept(code, moved, waiting)


def _ahead(code: Program, level: Ints, begin: Ints) -> Program:
    """Move waits beyond the first of an instruction to those before it that wait for nothing."""
    size = np.diff(code.wait_start)
    free: Bools = size == 0
    wait, waiting = code.wait.copy(), code.waiting.copy()
    for i in np.flatnonzero(size > 1).tolist():
        rows = np.arange(code.wait_start[i], code.wait_start[i + 1])
        rows = rows[np.argsort(level[wait[rows]], kind="stable")]
        at, floor = i - 1, max(i - REACH, int(code.block_start[code.block[i]]))
        for row in rows[:0:-1].tolist():
            while at >= floor and not free[at]:
                at -= 1
            if at < floor or begin[at] <= level[wait[row]]:
                continue
            waiting[row], free[at] = at, False
    return _kept(code, wait, waiting)


# Publish no send by itself where the runtime's flag can overtake its reads.
#
# Before (RCCL under LL, whose send ends without a barrier)::
#
#     block 0:  0: s o[1]                            block 1:  0: r o[1]  waits for (0, 0)
#
# After::
#
#     block 0:  0: s o[1]    1: cpy o[1] -> s[0]     block 1:  0: r o[1]  waits for (0, 1)
#
# A copy ends with a barrier of its thread block, so the flag behind it tells that the send has read
# all it sends. It copies one chunk to a scratch slot that is its block's own and never read.


@dataclass(frozen=True, slots=True)
class Fence:
    """Add a copy behind plain sends that are waited for, where these are not ordered."""

    name: ClassVar[str] = "fence"

    def apply(self, program: Program, target: Target) -> Program:
        """Return the program with a copy behind every send that a wait names."""
        if target.send_publishes or program.protocol is Protocol.SIMPLE:
            return program
        late = np.zeros(program.instructions, bool)
        late[program.wait] = True
        late &= SENDS[program.op]
        return _fenced(program, late) if late.any() else program


def _fenced(program: Program, late: Bools) -> Program:
    """Return the program with a copy behind each late instruction, which its waits name instead."""
    size, rank = program.instructions, program.rank
    rows = np.repeat(np.arange(size), 1 + late)
    copies = np.flatnonzero(np.diff(rows, prepend=-1) == 0)
    lengths = program.lengths + np.bincount(program.block[late], minlength=program.blocks)
    grown = program.take(rows, lengths)
    # A scratch slot for each block with a copy, behind those of its rank.
    owners = distinct_values(program.block[late])
    added = np.bincount(program.block_rank[owners], minlength=program.rank_count)
    scratch = program.chunks[:, 2]
    slot = np.zeros(program.blocks, np.int64)
    first = offsets(added)[program.block_rank[owners]]
    slot[owners] = scratch[program.block_rank[owners]] + np.arange(len(owners)) - first
    columns: dict[str, Any] = {"op": COPY, "dst_buffer": BUFFER_NUMBER[Buffer.SCRATCH], "count": 1}
    columns["dst_offset"] = slot[grown.block[copies]]
    for name, value in columns.items():
        column = columns[name] = getattr(grown, name).copy()
        column[copies] = value
    chunks = program.chunks.copy()
    chunks[:, 2] += added
    end = np.arange(size) + np.cumsum(late)  # the last row that each instruction has now
    waiting, wait = program.waiting, end[program.wait]
    # Ranks with a copy name their waits in order; others keep them.
    fenced = added[rank[waiting]] > 0
    order = np.lexsort((np.where(fenced, wait, np.arange(len(wait))), waiting))
    begin = end - late
    return replace(grown, chunks=chunks, **columns).with_waits(begin[waiting[order]], wait[order])


# Let the runtime add many sources to one destination in one go.
#
# Before::
#
#     block 0:   0: re o[0] += s[0]  waits for (1, 0)      1: re o[0] += s[1]  waits for (2, 0)
#
# After::
#
#     block 0:   0: re o[0] += s[0]  waits for (1, 0), (2, 0)      1: re o[0] += s[1]
#
# The runtimes merge ``re`` that follow each other into one, if they have one destination and one
# source buffer, none but the first waits, and nothing waits for any but the last: the destination
# is read and written once instead of every time. So all waits of such a run go to its first
# instruction, for as many as the runtime adds up right (``max_fused_reduces``). The sum is there no
# later than before: it was never ready before the last source was. A circle is impossible, since
# what was between the sums can depend on none of them but through the last.
#
# Every wait but one is a step that does nothing, so a run takes more steps than it did: the pass is
# left out unless requested.


@dataclass(frozen=True, slots=True)
class Chain:
    """Move the waits of runs of ``re`` before the first, so that the runtime merges them."""

    name: ClassVar[str] = "chain"

    def apply(self, program: Program, target: Target) -> Program:
        """The program whose runs of sums the runtime merges. Linear in instructions and waits."""
        wait = program.wait
        first = _heads(program, target.max_fused_reduces)[program.waiting]
        if np.array_equal(first, program.waiting):
            return program
        return program.with_waits(*latest(program, first, wait))


def _heads(code: Program, most: int) -> Ints:
    """Return the first instruction of the run of each instruction; itself outside runs."""
    at = np.arange(code.instructions)
    joined = np.zeros(code.instructions, bool)
    joined[1:] = _alike(code)
    begin = np.maximum.accumulate(np.where(joined, 0, at))
    result: Ints = at - (at - begin) % most
    return result


def _alike(code: Program) -> Bools:
    """Test if each instruction but the first goes on with the sum of the one before it."""
    adds = code.op == REDUCE
    buffer, apart = code.src >> 32, np.abs(code.src - code.dst) >= code.count
    same: Bools = adds[1:] & adds[:-1] & (code.block[1:] == code.block[:-1])
    for column in (code.dst, code.count, buffer):
        same &= column[1:] == column[:-1]
    # A sum of its own destination is another one when both are taken at once.
    same &= apart[1:] & apart[:-1]
    named = np.zeros(code.instructions, bool)
    named[code.wait] = True
    return same & ~named[:-1]
