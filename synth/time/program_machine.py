"""A run of a program: the memory of the kernel, and access to the state of the run.

The same kernel (:mod:`.program_kernel`) runs as plain Python on a list, where ticks may have any
size, or compiled on an array of 64-bit integers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import IntEnum
from typing import Any

import numpy as np

from weft.dsl.base.arrays import AnyArray, Bools, Ints
from weft.dsl.base.jit import fast
from weft.dsl.base.kept import kept
from weft.dsl.base.lazy_dataclass import dataclass

from . import program_kernel as k
from . import queue_kernel as q
from .program_tables import FITS, Layout, Ticks


class Activity(IntEnum):
    """An activity of a thread block: working, or waiting for something."""

    MESSAGE = 0  #: waits for a message to arrive
    SLOT = 1  #: waits for a free slot of the FIFO it sends into
    BLOCK = 2  #: waits for another block of its rank
    LINK = 3  #: queues for the links of its message
    SENDING = 4
    LOCAL = 5  #: copies, reduces, overheads
    DONE = 6

    @property
    def words(self) -> str:
        """In words, of several blocks."""
        return _WORDS[self]


_WORDS = (
    "wait for messages",
    "wait for slots",
    "wait for blocks",
    "queue for links",
    "send",
    "work locally",
    "are done",
)


class Machine:
    """The state of a run.

    Columns are lists or arrays with one entry per row or block.

    Attributes:
        operations: what is run; ``first``: the first operation of each block, and one end more.
        turns: iterations of the loop. ``unit``: ticks in a µs.
        m, kernel: its memory, and the functions that change it.
    """

    def __init__(
        self, layout: Layout, ticks: Ticks, *, slots: int, turns: int, compiled: bool = False
    ) -> None:
        """``compiled``: ticks must fit 64 bits (:meth:`Layout.longest`)."""
        self.operations, self.turns, self.unit = layout.operations, turns, ticks.unit
        self.first: list[int] = self.operations.first.tolist()
        words = memory(layout, ticks, slots, turns, np.int64 if compiled else object)
        self.m: Any = words if compiled else words.tolist()
        self.kernel: Any = fast(k) if compiled else k
        self.watched, self.seen = -1, 0

    # -- what can be seen --

    @property
    def now(self) -> int:
        """The clock."""
        return int(self.m[q.NOW])

    @property
    def left(self) -> int:
        """Blocks that are not done."""
        return int(self.m[k.LEFT])

    @property
    def turn(self) -> list[int]:
        """The iteration each block is in."""
        return _integers(self._block(k.TURN))

    @property
    def operations_done(self) -> int:
        """Operations in the turns that each block has ended."""
        return int(np.dot(np.array(self._block(k.TURN), np.int64), np.diff(self.operations.first)))

    @property
    def busy(self) -> list[int]:
        """Ticks that each resource was held."""
        return _integers(self._row(q.BUSY))

    @property
    def finished(self) -> list[int]:
        """Ticks at which each block had ended."""
        return _integers(self._block(k.FINISHED))

    @property
    def spent(self) -> list[list[int]]:
        """Ticks of each activity per block, up to its last change."""
        return [_integers(self._block(k.SPENT + activity)) for activity in Activity]

    def spent_so_far(self) -> list[list[int]]:
        """Ticks of each activity per block, up to now."""
        spent, now = self.spent, self.now
        doing, since = _integers(self._block(k.DOING)), _integers(self._block(k.SINCE))
        for block, (activity, start) in enumerate(zip(doing, since, strict=True)):
            spent[activity][block] += now - start
        return spent

    def state(self) -> tuple[object, ...]:
        """Everything that decides the future, but for the turns; times relative to now."""
        m, now = self.m, self.now
        ends = slice(m[k.ENDS_AT], m[k.ENDS_AT] + self._ends() * k.END_COLUMNS)
        # Of a resource only the time until which it is held counts, not whether a client waits.
        events = self._events()
        events = events[events[:, q.WHAT] >= m[k.BLOCKS_AT]]
        events[:, q.TIME] -= now
        queued = np.where(self._column(k.DOING) == k.LINK, now - self._column(k.SINCE), -1)
        free = np.maximum(np.asarray(self._row(q.FREE_AT), events.dtype) - now, 0)
        parts = [self._column(k.AT), self._column(k.STAGE), free, queued]
        parts += [np.asarray(m[ends][column :: k.END_COLUMNS]) for column in (k.INBOX, k.CREDIT)]
        if events.dtype == object:
            return (sorted(map(tuple, events.tolist())), *(part.tolist() for part in parts))
        parts.append(events[np.lexsort((events[:, q.WHAT], events[:, q.TIME]))])
        return tuple(part.tobytes() for part in parts)

    # -- what can be done --

    def start(self) -> None:
        """Process everything that can happen at time 0."""
        self.kernel.settle(self.m)

    def watch(self, block: int, turn: int) -> None:
        """Make :meth:`advance` stop when a block has left a turn; -1: no block is watched."""
        self.watched, self.seen = block, turn

    def limit(self, us: float) -> None:
        """Make :meth:`advance` stop before the first event after this time."""
        ticks = us * self.unit
        # One more, for a time that was a number of ticks before it was rounded to µs.
        self.m[k.LIMIT] = math.floor(ticks) + 1 if ticks < FITS else -1

    @property
    def late(self) -> bool:
        """True if the run is not done, and was stopped by its limit."""
        m = self.m
        at = m[q.EVENTS_AT] + q.TIME
        return bool(m[k.LEFT] > 0 and m[q.EVENTS] > 0 and 0 <= m[k.LIMIT] < m[at])

    def advance(self) -> bool:
        """Run to the end or the limit, or until the watched block turns; False if the run is stuck
        before."""
        watched = self.at(self.watched) if self.watched >= 0 else -1
        while (why := self.kernel.advance(self.m, watched, self.seen)) == k.FULL:
            self.m = q.longer(self.m)
        return bool(why != k.STUCK)

    def repeat(self, later: int, turn: list[int], busy: list[int], spent: list[list[int]]) -> None:
        """Go to the same state at a later time, with blocks in other turns and more time spent."""
        m, size = self.m, k.BLOCK_COLUMNS
        begin, end = int(m[k.BLOCKS_AT]), int(m[k.ENDS_AT])
        asleep = [
            self.at(block) for block, stage in enumerate(self._block(k.STAGE)) if stage == k.ASLEEP
        ]
        queued = [later if doing == k.LINK else 0 for doing in self._block(k.DOING)]
        m[q.NOW] += later
        m[begin + k.TURN : end : size] = turn
        m[begin + k.SLEEPERS : end : size] = [-1] * len(turn)
        self._add(slice(begin + k.SINCE, end, size), [later] * len(turn))
        self._add(slice(begin + q.KEY, end, size), queued)
        for activity in Activity:
            self._add(slice(begin + k.SPENT + activity, end, size), spent[activity])
        self._add(slice(k.COUNTS + q.BUSY, begin, q.ROW_COLUMNS), busy)
        self._add(slice(k.COUNTS + q.FREE_AT, begin, q.ROW_COLUMNS), [later] * len(busy))
        events = int(m[q.EVENTS_AT])
        until = events + q.EVENT_COLUMNS * int(m[q.EVENTS])
        times = slice(events + q.TIME, until, q.EVENT_COLUMNS)
        self._add(times, [later] * int(m[q.EVENTS]))
        for at in asleep:  # they fall asleep again
            m[at + q.CHILD] = m[at + q.SIBLING] = -1
            m[at + k.STAGE] = k.FRESH
            self.kernel.put(m, at)
        self.kernel.settle(m)

    def _add(self, where: slice, more: list[int]) -> None:
        if isinstance(self.m, list):
            self.m[where] = [a + b for a, b in zip(self.m[where], more, strict=True)]
        else:
            self.m[where] += np.array(more, np.int64)

    # -- where things are --

    def at(self, block: int) -> int:
        """Address of the record of a block."""
        return int(self.m[k.BLOCKS_AT]) + block * k.BLOCK_COLUMNS

    def block(self, at: int) -> int:
        """The block whose record begins there."""
        return (at - int(self.m[k.BLOCKS_AT])) // k.BLOCK_COLUMNS

    def operation(self, at: int) -> int:
        """The operation that the block whose record begins there is at."""
        block = self.block(at)
        done = int(self.m[at + k.AT]) - int(self.m[at + k.FIRST])
        return self.first[block] + done // k.OPERATION_COLUMNS

    def leg(self, at: int) -> int:
        """The row in :func:`leg_tables` of what the block whose record begins there sends."""
        return (int(self.m[at + q.LEG]) - int(self.m[k.LEGS_AT])) // q.LEG_COLUMNS

    def _block(self, column: int) -> Any:
        return self.m[self.m[k.BLOCKS_AT] + column : self.m[k.ENDS_AT] : k.BLOCK_COLUMNS]

    def _row(self, column: int) -> Any:
        return self.m[k.COUNTS + column : self.m[k.BLOCKS_AT] : q.ROW_COLUMNS]

    def _column(self, column: int) -> AnyArray:
        found = self._block(column)
        return np.array(found, object) if isinstance(found, list) else found

    def _ends(self) -> int:
        return len(self.operations.connections)

    def _events(self) -> AnyArray:
        begin = self.m[q.EVENTS_AT]
        words = self.m[begin : begin + q.EVENT_COLUMNS * self.m[q.EVENTS]]
        kind = object if isinstance(words, list) else np.int64
        return np.array(words, kind).reshape(-1, q.EVENT_COLUMNS)


def _integers(column: Any) -> list[int]:
    found: list[int] = column if isinstance(column, list) else column.tolist()
    return found


# --- the memory -----------------------------------------------------------------------------------


def memory(layout: Layout, ticks: Ticks, slots: int, turns: int, kind: Any) -> AnyArray:
    """Everything at time 0, where nothing has happened yet, as integers of a NumPy type."""
    frame = _frame(layout, len(ticks.row[0]))
    words = frame.words.astype(kind)
    blocks, ends, operations, legs, holds = (frame.table(words, i) for i in range(1, 6))
    ends[:, k.CREDIT] = slots
    count = len(layout.leg_chunks)
    extras = [
        np.asarray(ticks.overhead + layout.local_chunks.astype(kind) * x) for x in ticks.local
    ]
    for column, extra in zip((k.EXTRA, k.LAST_EXTRA), extras, strict=True):
        operations[:, column] = extra
    leg, hold = leg_tables(layout, ticks, kind)
    legs[:, q.LEAVES], legs[:, q.ARRIVES] = leg[:, q.LEAVES], leg[:, q.ARRIVES]
    holds[:, q.TICKS] = hold[:, q.TICKS]
    operations[:, k.RANK] = _ranks(layout, extras[0], leg[:count], kind)
    works = _works(layout, extras)
    blocks[:, k.ON_STACK] = works
    blocks[~works, k.TURN] = turns
    stack = np.flatnonzero(works)[::-1]
    busy, at = len(stack), int(words[k.STACK_AT])
    words[[k.LEFT, k.TURNS, k.STACK]] = busy, turns, at + busy
    words[at : at + busy] = frame.begin[1] + stack * k.BLOCK_COLUMNS
    return words


@dataclass(frozen=True, eq=False)
class _Frame:
    """The memory of a layout without what sizes change: ticks, turns and slots.

    ``begin``, ``width``: of its tables, in the order rows, blocks, ends, operations, legs, holds,
    waits; each address is where the one of that number begins, the last one where all end.
    """

    words: Ints
    begin: tuple[int, ...]
    width: tuple[int, ...]

    def table(self, words: AnyArray, place: int) -> AnyArray:
        """Return a view of a table."""
        part = words[self.begin[place] : self.begin[place + 1]]
        return part.reshape(-1, self.width[place])


@kept()
def _frame(layout: Layout, resources: int) -> _Frame:
    o, count, held = layout.operations, len(layout.leg_chunks), len(layout.hold_row)
    rows = np.zeros((resources, q.ROW_COLUMNS), np.int64)
    rows[:, q.QUEUE] = -1
    ends = np.zeros((len(o.connections), k.END_COLUMNS), np.int64)
    ends[:, k.SENDER], ends[:, k.RECEIVER] = o.sender, o.receiver
    operations = np.zeros((o.size, k.OPERATION_COLUMNS), np.int64)
    operations[:, k.SENDS], operations[:, k.RECEIVES] = o.sends, o.receives
    operations[:, k.WAIT_BEGIN], operations[:, k.WAIT_END] = o.wait_start[:-1], o.wait_start[1:]
    operations[:, k.FULL_LEG] = layout.leg
    operations[:, k.LAST_LEG] = np.where(layout.leg < 0, -1, layout.leg + count)
    legs = np.zeros((2 * count, q.LEG_COLUMNS), np.int64)
    holds = np.zeros((2 * held, q.HOLD_COLUMNS), np.int64)
    for turn in (0, 1):
        part = legs[turn * count : (turn + 1) * count]
        part[:, q.HOLD_BEGIN] = layout.hold_begin[:-1] + turn * held
        part[:, q.HOLD_END] = layout.hold_begin[1:] + turn * held
        holds[turn * held : (turn + 1) * held, q.ROW] = layout.hold_row
    blocks = _blocks(layout)
    tables = [rows, blocks, ends, operations, legs, holds, o.waits.copy()]
    begin = np.cumsum([k.COUNTS, *(x.size for x in tables)]).tolist()
    _place(tables, begin)
    most_added, stack = len(rows) + 2 * len(blocks), begin[-1]
    counts = np.zeros(k.COUNTS, np.int64)
    counts[[k.MOST_ADDED, k.LIMIT]] = most_added, -1
    counts[[k.BLOCKS_AT, k.ENDS_AT, k.LEGS_AT, k.STACK_AT]] = begin[1], begin[2], begin[4], stack
    counts[q.HEADS_AT] = stack + len(blocks)
    heads = q.HEAD_COLUMNS * (len(rows) + len(blocks) + 1)
    counts[q.EVENTS_AT] = counts[q.HEADS_AT] + heads
    room = np.zeros(len(blocks) + heads + 4 * most_added + 64, np.int64)
    words = np.concatenate([counts, *(x.ravel() for x in tables), room])
    return _Frame(words, tuple(begin), tuple(x.shape[1] for x in tables))


def _place(tables: list[Ints], begin: list[int]) -> None:
    """Replace numbers of records in tables by the addresses at which the records will begin."""
    _, blocks, ends, operations, legs, holds, waits = tables
    at_rows, at_blocks, at_ends, at_operations, at_legs, at_holds, at_waits, _ = begin
    for table, column, start, width in (
        (blocks, k.FIRST, at_operations, k.OPERATION_COLUMNS),
        (blocks, k.END, at_operations, k.OPERATION_COLUMNS),
        (blocks, k.AT, at_operations, k.OPERATION_COLUMNS),
        (blocks, k.OUT, at_ends, k.END_COLUMNS),
        (blocks, k.INTO, at_ends, k.END_COLUMNS),
        (ends, k.SENDER, at_blocks, k.BLOCK_COLUMNS),
        (ends, k.RECEIVER, at_blocks, k.BLOCK_COLUMNS),
        (operations, k.WAIT_BEGIN, at_waits, k.WAIT_COLUMNS),
        (operations, k.WAIT_END, at_waits, k.WAIT_COLUMNS),
        (operations, k.FULL_LEG, at_legs, q.LEG_COLUMNS),
        (operations, k.LAST_LEG, at_legs, q.LEG_COLUMNS),
        (waits, k.OTHER, at_blocks, k.BLOCK_COLUMNS),
        (waits, k.NEED, 0, k.OPERATION_COLUMNS),
        (legs, q.HOLD_BEGIN, at_holds, q.HOLD_COLUMNS),
        (legs, q.HOLD_END, at_holds, q.HOLD_COLUMNS),
        (holds, q.ROW, at_rows, q.ROW_COLUMNS),
    ):
        named = table[:, column]
        table[:, column] = np.where(named < 0, -1, start + named * width)


def leg_tables(layout: Layout, ticks: Ticks, kind: Any) -> tuple[AnyArray, AnyArray]:
    """Legs and holds with their ticks: those of a full turn, then those of the last.

    What a NIC takes for a message at least delays those behind it, and not the message.
    """
    count, held = len(layout.leg_chunks), len(layout.hold_row)
    legs = np.zeros((2 * count, q.LEG_COLUMNS), kind)
    holds = np.zeros((2 * held, q.HOLD_COLUMNS), kind)
    alpha = layout.latency(ticks, kind)
    least = ticks.message.astype(kind)[layout.hold_row]
    for turn, row in enumerate(ticks.row):
        hold = row.astype(kind)[layout.hold_row] * layout.hold_chunks
        part = holds[turn * held : (turn + 1) * held]
        part[:, q.ROW], part[:, q.TICKS] = layout.hold_row, np.maximum(hold, least)
        leg = legs[turn * count : (turn + 1) * count]
        leaves = np.maximum.reduceat(hold, layout.hold_begin[:-1]) if held else 0
        leg[:, q.LEAVES] = np.maximum(leaves, layout.leg_chunks.astype(kind) * ticks.block[turn])
        leg[:, q.ARRIVES] = leg[:, q.LEAVES] + alpha
    return legs, holds


def _ranks(layout: Layout, extra: AnyArray, legs: AnyArray, kind: Any) -> Ints:
    """A place in the order for every operation of a turn; least first.

    First what has the longest way behind it: the time that must still pass after it in its turn
    if nothing had to queue (list scheduling by critical path). Then by how far round the ranks
    the message goes, the farthest first, so that a symmetric exchange is served as rotations,
    each rank at another port. Then in the order of thread blocks. ``extra``, ``legs``: of a full
    turn.
    """
    size = len(extra)
    leaves, arrives = extra.copy(), extra.copy()
    sends = np.flatnonzero(layout.leg >= 0)
    leaves[sends] += legs[layout.leg[sends], q.LEAVES]
    arrives[sends] += legs[layout.leg[sends], q.ARRIVES]
    tail: Any = np.zeros(size, kind)
    columns: list[Any] = [layout.order, layout.start, layout.after, layout.meets]
    columns += [leaves, arrives, tail]
    if kind is object:
        columns = [x.tolist() for x in columns]
        k.tails(*columns)
        tail = np.array(columns[-1], kind)
    else:
        fast(k).tails(*columns)
    place = np.empty(size, np.int64)
    place[layout.by_far[np.argsort(-tail[layout.by_far], kind="stable")]] = np.arange(size)
    return place


def _blocks(layout: Layout) -> Ints:
    """Blocks at their first operations."""
    o = layout.operations
    blocks = np.zeros((o.blocks, k.BLOCK_COLUMNS), np.int64)
    blocks[:, k.FIRST], blocks[:, k.END] = o.first[:-1], o.first[1:]
    blocks[:, k.OUT], blocks[:, k.INTO], blocks[:, k.AT] = o.out, o.into, o.first[:-1]
    blocks[:, k.DOING] = k.DONE
    blocks[:, [k.SLEEPERS, q.CHILD, q.SIBLING]] = -1
    return blocks


def _works(layout: Layout, extras: Sequence[AnyArray]) -> Bools:
    """Tell which blocks do something; the others have only what takes no time, and are done."""
    o = layout.operations
    does = o.sends | o.receives | (np.diff(o.wait_start) > 0)
    for extra in extras:
        does = does | (extra > 0).astype(bool)
    return np.diff(np.concatenate(([0], np.cumsum(does)))[o.first]) > 0
