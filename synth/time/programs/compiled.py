"""The machine of :mod:`.events` with its state in arrays, run by the compiled loop.

To whoever watches a run (:mod:`.steady`) it is the same machine: it stops at the same times, and
its state comes back when that of the other does.
"""

from __future__ import annotations

import numpy as np

from weft.dsl.base.arrays import Ints

from . import kernel as k
from .costs import Ticks
from .layout import Layout
from .memory import Memory


class CompiledMachine:
    """The state of a run; see :class:`~.events.Machine`, whose public part this has."""

    def __init__(self, layout: Layout, ticks: Ticks, *, slots: int, turns: int) -> None:
        self.operations, self.turns, self.unit = layout.operations, turns, ticks.unit
        self.first: list[int] = self.operations.first.tolist()
        self.memory = Memory.of(layout, ticks, slots, turns)
        self.watched, self.seen = -1, 0

    @property
    def now(self) -> int:
        """The clock."""
        return int(self.memory.m[k.NOW])

    @property
    def left(self) -> int:
        """Blocks that are not done."""
        return int(self.memory.m[k.LEFT])

    @property
    def turn(self) -> list[int]:
        """The iteration each block is in."""
        turn: list[int] = self.memory.blocks[:, k.TURN].tolist()
        return turn

    @property
    def busy(self) -> Ints:
        """Ticks that each row was held."""
        return self.memory.rows[:, k.BUSY]

    @property
    def spent(self) -> Ints:
        """Ticks of each activity per block."""
        return self.memory.blocks[:, k.SPENT :].T

    @property
    def finished(self) -> Ints:
        """When each block ended."""
        return self.memory.blocks[:, k.FINISHED]

    def start(self) -> None:
        """Everything that can happen at time 0 happens."""
        k.settle(self.memory.m)

    def watch(self, block: int, turn: int) -> None:
        """Stop when a block is not in that turn any more."""
        self.watched, self.seen = block, turn

    def advance(self) -> bool:
        """On to the end, or to where the watched block turns; False if it never gets there."""
        watched = -1
        if self.watched >= 0:
            watched = self.memory.begin_of_blocks + self.watched * k.BLOCK_COLUMNS
        while (why := k.advance(self.memory.m, watched, self.seen)) == k.FULL:
            self.memory = self.memory.larger()
        return bool(why != k.STUCK)

    def state(self) -> tuple[object, ...]:
        """What decides the future, but for the turns; times relative to now."""
        memory, now = self.memory, self.now
        blocks = memory.blocks
        # Of rows counts until when they are held, and not whether somebody waits for that.
        events = memory.events
        events = events[events[:, k.WHAT] >= memory.begin_of_blocks] - (now, 0)
        events = events[np.lexsort((events[:, k.WHAT], events[:, k.TIME]))]
        queued = np.where(blocks[:, k.DOING] == k.LINK, now - blocks[:, k.SINCE], -1)
        free = np.maximum(memory.rows[:, k.FREE_AT] - now, 0)
        parts = (blocks[:, k.AT : k.STAGE + 1], memory.ends[:, k.INBOX :], free, events, queued)
        return tuple(part.tobytes() for part in parts)

    def spent_so_far(self) -> list[list[int]]:
        """``spent`` up to now."""
        spent, blocks = self.spent.copy(), self.memory.blocks
        spent[blocks[:, k.DOING], np.arange(len(blocks))] += self.now - blocks[:, k.SINCE]
        so_far: list[list[int]] = spent.tolist()
        return so_far

    def shift(self, later: int, turn: list[int]) -> None:
        """Go to the same state at a later time, with the blocks in other turns."""
        memory, m = self.memory, self.memory.m
        blocks = memory.blocks
        m[k.NOW] += later
        blocks[:, k.TURN] = turn
        blocks[:, k.SINCE] += later
        memory.rows[:, k.FREE_AT] += later
        memory.events[:, k.TIME] += later
        asleep = np.flatnonzero(blocks[:, k.STAGE] == k.ASLEEP)
        blocks[:, k.SLEEPERS] = -1
        blocks[asleep, k.CHILD] = blocks[asleep, k.SIBLING] = -1
        blocks[asleep, k.STAGE] = k.FRESH  # they fall asleep again
        for block in asleep.tolist():
            k.put(m, memory.begin_of_blocks + block * k.BLOCK_COLUMNS)
        k.settle(m)
