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

    # -- state --

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
        count = len(self.operations.connections)
        ends = slice(m[k.ENDS_AT], m[k.ENDS_AT] + count * k.END_COLUMNS)
        # Of a resource only the time until which it is held counts, not whether a client waits.
        words = m[m[q.EVENTS_AT] : m[q.EVENTS_AT] + q.EVENT_COLUMNS * m[q.EVENTS]]
        kind = object if isinstance(words, list) else np.int64
        events = np.array(words, kind).reshape(-1, q.EVENT_COLUMNS)
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

    # -- actions --

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
        """The row in :func:`leg_tables` of the sends of the block whose record begins there."""
        return (int(self.m[at + q.LEG]) - int(self.m[k.LEGS_AT])) // q.LEG_COLUMNS

    def _block(self, column: int) -> Any:
        return self.m[self.m[k.BLOCKS_AT] + column : self.m[k.ENDS_AT] : k.BLOCK_COLUMNS]

    def _row(self, column: int) -> Any:
        return self.m[k.COUNTS + column : self.m[k.BLOCKS_AT] : q.ROW_COLUMNS]

    def _column(self, column: int) -> AnyArray:
        found = self._block(column)
        return np.array(found, object) if isinstance(found, list) else found


def _integers(column: Any) -> list[int]:
    found: list[int] = column if isinstance(column, list) else column.tolist()
    return found


# --- the memory -----------------------------------------------------------------------------------


def memory(layout: Layout, ticks: Ticks, slots: int, turns: int, kind: Any) -> AnyArray:
    """Everything at time 0, where nothing has happened yet, as integers of a NumPy type."""
    plain, where = _frame(layout, len(ticks.row[0]))
    words = plain.astype(kind)

    def column(table: str, number: int) -> AnyArray:
        at = where[table]
        return words[at.start + number : at.stop : at.step]

    column("ends", k.CREDIT)[:] = slots
    extras = [
        np.asarray(ticks.overhead + layout.local_chunks.astype(kind) * x) for x in ticks.local
    ]
    column("operations", k.EXTRA)[:], column("operations", k.LAST_EXTRA)[:] = extras
    leg, hold = leg_tables(layout, ticks, kind)
    column("legs", q.LEAVES)[:], column("legs", q.ARRIVES)[:] = leg[:, q.LEAVES], leg[:, q.ARRIVES]
    column("holds", q.TICKS)[:] = hold[:, q.TICKS]
    full = leg[: len(layout.leg_chunks)]
    column("operations", k.RANK)[:] = _ranks(layout, extras[0], full, kind)
    works = _works(layout, extras)
    column("blocks", k.ON_STACK)[:] = works
    column("blocks", k.TURN)[~works] = turns
    stack = np.flatnonzero(works)[::-1]
    busy, at = len(stack), where["stack"].start
    words[[k.LEFT, k.TURNS, k.STACK]] = busy, turns, at + busy
    words[at : at + busy] = where["blocks"].start + stack * k.BLOCK_COLUMNS
    return words


@kept()
def _frame(layout: Layout, resources: int) -> tuple[AnyArray, dict[str, range]]:
    """The memory of a layout without what sizes change: ticks, turns and slots; and the addresses
    of its tables."""
    o, count, held = layout.operations, len(layout.leg_chunks), len(layout.hold_row)
    ends = np.zeros((len(o.connections), k.END_COLUMNS), np.int64)
    ends[:, k.SENDER], ends[:, k.RECEIVER] = o.sender, o.receiver
    operations = np.zeros((o.size, k.OPERATION_COLUMNS), np.int64)
    operations[:, k.SENDS], operations[:, k.RECEIVES] = o.sends, o.receives
    operations[:, k.WAIT_BEGIN], operations[:, k.WAIT_END] = o.wait_start[:-1], o.wait_start[1:]
    operations[:, k.FULL_LEG] = layout.leg
    operations[:, k.LAST_LEG] = np.where(layout.leg < 0, -1, layout.leg + count)
    waits = o.waits.copy()
    waits[:, k.NEED] *= k.OPERATION_COLUMNS
    legs = np.zeros((2 * count, q.LEG_COLUMNS), np.int64)
    holds = np.zeros((2 * held, q.HOLD_COLUMNS), np.int64)
    for turn in (0, 1):
        part = legs[turn * count : (turn + 1) * count]
        part[:, q.HOLD_BEGIN] = layout.hold_begin[:-1] + turn * held
        part[:, q.HOLD_END] = layout.hold_begin[1:] + turn * held
        holds[turn * held : (turn + 1) * held, q.ROW] = layout.hold_row
    most_added = resources + 2 * o.blocks
    tables = {
        "rows": q.idle_rows(resources),
        "blocks": _blocks(layout),
        "ends": ends,
        "operations": operations,
        "legs": legs,
        "holds": holds,
        "waits": waits,
        "stack": np.zeros(o.blocks, np.int64),
        "heads": np.zeros(q.HEAD_COLUMNS * (resources + o.blocks + 1), np.int64),
        "events": np.zeros(4 * most_added + 64, np.int64),
    }
    words, where = q.placed(k.COUNTS, tables, (*q.NAMED, *k.NAMED))
    words[[k.MOST_ADDED, k.LIMIT]] = most_added, -1
    for word, table in k.BEGINS.items():
        words[word] = where[table].start
    return words, where


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
    o = layout.operations
    blocks = np.zeros((o.blocks, k.BLOCK_COLUMNS), np.int64)
    blocks[:, k.FIRST], blocks[:, k.END] = o.first[:-1], o.first[1:]
    blocks[:, k.OUT], blocks[:, k.INTO], blocks[:, k.AT] = o.out, o.into, o.first[:-1]
    blocks[:, k.DOING] = k.DONE
    blocks[:, [k.SLEEPERS, q.CHILD, q.SIBLING]] = -1
    return blocks


def _works(layout: Layout, extras: Sequence[AnyArray]) -> Bools:
    """Mark the blocks that do something; the others have only operations of no time, and end."""
    o = layout.operations
    does = o.sends | o.receives | (np.diff(o.wait_start) > 0)
    for extra in extras:
        does = does | (extra > 0).astype(bool)
    return np.diff(np.concatenate(([0], np.cumsum(does)))[o.first]) > 0


# --- skipping turns -------------------------------------------------------------------------------
# A state that comes back is passed as often as there are turns for it, at once. A *state* is
# everything that decides what happens next, with times relative to now and without the turns that
# blocks are in: where each block is, what lies in the FIFOs, what occupies the rows and until when,
# queues and their starts. If a state returns after ΔT, in which block b made p(b) turns, the run
# repeats itself: m further periods add m·ΔT to the clock and m·p(b) to the turns. Two things end
# that: a block that reaches the last turn (its pieces may be smaller), and a block that catches up
# with one that it waits for and that makes fewer turns.
#
# Arithmetic is exact, so the result is that of the whole run, to the last tick. States are compared
# as in Brent's cycle detection: with one that is kept, renewed whenever its age doubles.

State = tuple[object, ...]

FEWEST_TURNS = 4
"""With fewer there is nothing to gain."""


@dataclass(frozen=True, slots=True)
class _Moment:
    """A state, its time, and the counts up to then."""

    state: State
    now: int
    turn: list[int]
    busy: list[int]
    spent: list[list[int]]

    @staticmethod
    def of(machine: Machine, state: State) -> _Moment:
        return _Moment(state, machine.now, machine.turn, machine.busy, machine.spent_so_far())


class Steady:
    """Compares states of a run, and skips the repetitions when one returns."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.pairs = machine.operations.awaited
        self.skipped = 0  # operations
        self._begin()

    def _begin(self) -> None:
        m = self.machine
        self.kept: _Moment | None = None
        self.age, self.limit = 0, 1
        turn = m.turn
        working = (b for b in range(len(turn)) if turn[b] < m.turns)
        self.watched = min(working, key=turn.__getitem__, default=-1)
        self.seen = turn[self.watched] if self.watched >= 0 else m.turns

    @property
    def simulated(self) -> int:
        """Operations that were simulated one by one, in turns that are over."""
        return self.machine.operations_done - self.skipped

    def look(self) -> bool:
        """To be called after every advance: does something once the watched block has turned.

        Returns whether it has.
        """
        m = self.machine
        turn = m.turn[self.watched]
        if self.watched < 0 or turn == self.seen:
            return False
        self.seen = turn
        if self.seen >= m.turns - 1:
            self._begin()
            return True
        state = m.state()
        self.age += 1
        if self.kept is not None and state == self.kept.state:
            self._jump(self.kept, _Moment.of(m, state))
            self._begin()
        elif self.kept is None or self.age == self.limit:
            self.kept = _Moment.of(m, state)
            self.age, self.limit = 0, 2 * self.limit
        return True

    def _jump(self, before: _Moment, after: _Moment) -> None:
        m = self.machine
        periods = self._periods(before.turn, after.turn)
        if periods < 1:
            return
        turns = [b + periods * (b - a) for a, b in zip(before.turn, after.turn, strict=True)]
        for block, (a, b) in enumerate(zip(after.turn, turns, strict=True)):
            self.skipped += (b - a) * (m.first[block + 1] - m.first[block])
        busy = [periods * (b - a) for a, b in zip(before.busy, after.busy, strict=True)]
        spent = [
            [periods * (b - a) for a, b in zip(old, new, strict=True)]
            for old, new in zip(before.spent, after.spent, strict=True)
        ]
        m.repeat(periods * (after.now - before.now), turns, busy, spent)

    def _periods(self, before: list[int], after: list[int]) -> int:
        """Return how often the state can come back."""
        turns = self.machine.turns
        most = turns
        for a, b in zip(before, after, strict=True):
            if b > a:
                most = min(most, (turns - 2 - b) // (b - a))
        for waiting, other in self.pairs:
            if after[waiting] >= turns or before[other] >= turns:
                continue
            mine = after[waiting] - before[waiting]
            lead, gain = after[other] - after[waiting], after[other] - before[other] - mine
            if not gain:
                continue
            # It never had to wait, and must not have to: a lead of all turns it makes meanwhile.
            if min(lead, lead - gain) <= mine:
                return 0
            if gain < 0:
                most = min(most, 1 + (lead - mine - 1) // -gain)
        return most
