"""The memory of the compiled loop: one array of 64-bit integers, and views of its parts.

Tables are made with numbers of rows in them; :func:`_placed` makes these the places of the rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from weft.dsl.base.arrays import Ints

from . import kernel as k
from .costs import Ticks
from .layout import Layout


@dataclass(frozen=True, slots=True)
class Memory:
    """The array, and where its parts are."""

    m: Ints
    row_count: int
    block_count: int
    end_count: int

    @property
    def begin_of_blocks(self) -> int:
        """Where the records of blocks begin."""
        return int(self.m[k.BLOCKS_AT])

    @property
    def rows(self) -> Ints:
        """A view of the records of rows."""
        return self._view(k.COUNTS, self.row_count, 3)

    @property
    def blocks(self) -> Ints:
        """A view of the records of blocks."""
        return self._view(int(self.m[k.BLOCKS_AT]), self.block_count, k.BLOCK_COLUMNS)

    @property
    def ends(self) -> Ints:
        """A view of the records of connections."""
        return self._view(int(self.m[k.ENDS_AT]), self.end_count, 4)

    @property
    def events(self) -> Ints:
        """A view of the events."""
        return self._view(int(self.m[k.EVENTS_AT]), int(self.m[k.EVENTS]), 2)

    def larger(self) -> Memory:
        """The same with room for more events, which are at the end."""
        room = np.zeros(len(self.m) - int(self.m[k.EVENTS_AT]), np.int64)
        return Memory(
            np.concatenate([self.m, room]), self.row_count, self.block_count, self.end_count
        )

    def _view(self, begin: int, count: int, columns: int) -> Ints:
        return self.m[begin : begin + count * columns].reshape(count, columns)

    @staticmethod
    def of(layout: Layout, ticks: Ticks, slots: int, turns: int) -> Memory:
        """Everything at time 0, where nothing has happened yet."""
        o = layout.operations
        operations, legs, holds = _costs(layout, ticks)
        ends = np.zeros((len(o.connections), 4), np.int64)
        ends[:, k.SENDER], ends[:, k.RECEIVER], ends[:, k.CREDIT] = o.sender, o.receiver, slots
        rows = np.zeros((len(ticks.row[0]), 3), np.int64)
        rows[:, k.QUEUE] = -1
        blocks = _blocks(layout, operations, turns)
        stack = np.flatnonzero(blocks[:, k.ON_STACK])[::-1]
        busy, most_added = len(stack), len(rows) + 2 * len(blocks)
        tables = [rows, blocks, ends, operations, layout.waits.copy(), legs, holds]
        begin = np.cumsum([k.COUNTS, *(x.size for x in tables)]).tolist()
        _placed(tables, begin)
        counts = np.zeros(k.COUNTS, np.int64)
        counts[k.LEFT], counts[k.TURNS], counts[k.MOST_ADDED] = busy, turns, most_added
        counts[k.BLOCKS_AT], counts[k.ENDS_AT], counts[k.STACK_AT] = begin[1], begin[2], begin[7]
        counts[k.STACK] = begin[7] + busy
        counts[k.HEADS_AT] = begin[7] + len(blocks)
        counts[k.EVENTS_AT] = counts[k.HEADS_AT] + 4 * (len(rows) + len(blocks) + 1)
        m = np.zeros(int(counts[k.EVENTS_AT]) + 4 * most_added + 64, np.int64)
        for at, table in zip((0, *begin), (counts, *tables), strict=False):
            m[at : at + table.size] = table.ravel()
        m[begin[7] : begin[7] + busy] = begin[1] + stack * k.BLOCK_COLUMNS
        return Memory(m, len(rows), len(blocks), len(ends))


def _placed(tables: list[Ints], begin: list[int]) -> None:
    """Where rows of tables are named, name the places at which they will begin."""
    _, blocks, ends, operations, waits, legs, holds = tables
    at_rows, at_blocks, at_ends, at_operations, at_waits, at_legs, at_holds, _ = begin
    for table, column, start, width in (
        (blocks, k.FIRST, at_operations, k.OPERATION_COLUMNS),
        (blocks, k.END, at_operations, k.OPERATION_COLUMNS),
        (blocks, k.AT, at_operations, k.OPERATION_COLUMNS),
        (blocks, k.OUT, at_ends, 4),
        (blocks, k.INTO, at_ends, 4),
        (ends, k.SENDER, at_blocks, k.BLOCK_COLUMNS),
        (ends, k.RECEIVER, at_blocks, k.BLOCK_COLUMNS),
        (operations, k.WAIT_BEGIN, at_waits, 2),
        (operations, k.WAIT_END, at_waits, 2),
        (operations, k.LEG, at_legs, 4),
        (operations, k.LAST_LEG, at_legs, 4),
        (waits, k.OTHER, at_blocks, k.BLOCK_COLUMNS),
        (waits, k.NEED, 0, k.OPERATION_COLUMNS),
        (legs, k.HOLD_BEGIN, at_holds, 2),
        (legs, k.HOLD_END, at_holds, 2),
        (holds, k.ROW, at_rows, 3),
    ):
        named = table[:, column]
        table[:, column] = np.where(named < 0, -1, start + named * width)


def _costs(layout: Layout, ticks: Ticks) -> tuple[Ints, Ints, Ints]:
    """The tables of operations, legs and holds: a full turn's legs, then those of the last."""
    o, count, held = layout.operations, len(layout.leg_chunks), len(layout.hold_row)
    operations = np.empty((o.size, k.OPERATION_COLUMNS), np.int64)
    operations[:, k.SENDS], operations[:, k.RECEIVES] = o.sends, o.receives
    operations[:, k.WAIT_BEGIN] = layout.wait_begin[:-1]
    operations[:, k.WAIT_END] = layout.wait_begin[1:]
    operations[:, k.LEG] = layout.leg
    operations[:, k.LAST_LEG] = np.where(layout.leg < 0, -1, layout.leg + count)
    chunks = np.where(o.local, o.chunks, 0)
    for column, each in zip((k.EXTRA, k.LAST_EXTRA), ticks.local, strict=True):
        operations[:, column] = ticks.overhead + chunks * each
    holds, legs = np.empty((2 * held, 2), np.int64), np.empty((2 * count, 4), np.int64)
    alpha = np.zeros(count, np.int64)
    np.add.at(alpha, layout.alpha_leg, np.array(ticks.alpha, np.int64)[layout.alpha_link])
    for turn, row in enumerate(ticks.row):
        hold = np.array(row, np.int64)[layout.hold_row] * layout.hold_chunks
        holds[turn * held : (turn + 1) * held] = np.stack([layout.hold_row, hold], axis=1)
        part = legs[turn * count : (turn + 1) * count]
        part[:, k.HOLD_BEGIN] = turn * held + layout.hold_begin[:-1]
        part[:, k.HOLD_END] = turn * held + layout.hold_begin[1:]
        part[:, k.LEAVES] = np.maximum.reduceat(hold, layout.hold_begin[:-1]) if held else 0
        part[:, k.ARRIVES] = part[:, k.LEAVES] + alpha
    operations[:, k.PLACE] = _places(layout, operations, legs)
    return operations, legs, holds


def _places(layout: Layout, operations: Ints, legs: Ints) -> Ints:
    """As :func:`~.precedence.precedence`."""
    tail = np.zeros(len(operations), np.int64)
    k.tails(layout.order, layout.start, layout.after, layout.meets, operations, legs, tail)
    place = np.empty(len(operations), np.int64)
    first = layout.by_far[np.argsort(-tail[layout.by_far], kind="stable")]
    place[first] = np.arange(len(operations))
    return place


def _blocks(layout: Layout, operations: Ints, turns: int) -> Ints:
    """Blocks at their first operations; those that do nothing which takes time are done."""
    o = layout.operations
    blocks = np.zeros((o.blocks, k.BLOCK_COLUMNS), np.int64)
    blocks[:, k.FIRST], blocks[:, k.END] = o.first[:-1], o.first[1:]
    blocks[:, k.OUT], blocks[:, k.INTO], blocks[:, k.AT] = o.out, o.into, o.first[:-1]
    blocks[:, k.DOING] = k.DONE
    blocks[:, [k.SLEEPERS, k.CHILD, k.SIBLING]] = -1
    does = (operations[:, k.SENDS] | operations[:, k.RECEIVES]) > 0
    does |= operations[:, k.WAIT_END] > operations[:, k.WAIT_BEGIN]
    does |= (operations[:, k.EXTRA] | operations[:, k.LAST_EXTRA]) > 0
    works = np.diff(np.concatenate(([0], np.cumsum(does)))[o.first]) > 0
    blocks[:, k.ON_STACK] = works
    blocks[~works, k.TURN] = turns
    return blocks
