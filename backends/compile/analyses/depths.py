"""Steps of moves that were written one after another: as early as what they touch allows.

Time runs in quarters of a step: sends read, messages land, copies, reductions. A slot remembers
when it was last written and last read, so one walk over the moves finds for each the earliest
quarter that keeps

* read after write: a send reads what landed, or was copied, in an earlier step;
* write after read: a message may land where a send of the same step reads (that reads what held
  before), all else comes later;
* write after write: later, except that reductions into one slot may share a step; messages among
  them take turns.

Moves that the author made of neighbouring chunks at once stay together. All others have a step of
their connection for themselves, the earliest free one: what was written as a pipeline stays one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from weft.dsl.base.arrays import Bools, Ints

from .flow import NONE

SEND, LAND, COPY, REDUCE = range(4)
"""The quarters of a step."""

LONG_AGO = -8
BEFORE = -1
"""The step of local work before the first message."""


@dataclass(frozen=True, eq=False)
class Actions:
    """Columns with one entry per action: a message (LAND), or a copy or reduction on one rank.

    ``source``, ``target`` and ``operand`` number places (slots of ranks), 0 … places-1; a
    message's operand is NONE if it only stores. ``connection`` numbers connections, and ``joins``
    says whether a message travels with the one before it.
    """

    quarter: Ints
    source: Ints
    target: Ints
    operand: Ints
    chunk: Ints
    connection: Ints
    joins: Bools
    places: int


def depths(actions: Actions) -> tuple[Ints, Ints]:
    """(step, turn) of each action; turns order the messages of one step at one slot. Linear."""
    quarter, joins = actions.quarter.tolist(), actions.joins.tolist()
    walk = _Walk(actions)
    at, end = 0, len(quarter)
    while at < end:
        if quarter[at] == COPY:
            walk.copy(at)
        elif quarter[at] == REDUCE:
            walk.reduce(at)
        else:
            first, at = at, at + 1
            while at < end and joins[at]:
                at += 1
            walk.messages(first, at)
            continue
        at += 1
    return np.array(walk.step, np.int64), np.array(walk.turn, np.int64)


class _Walk:
    """What every place remembers, in quarters, on the way through the actions."""

    def __init__(self, actions: Actions) -> None:
        self.source: list[int] = actions.source.tolist()
        self.target: list[int] = actions.target.tolist()
        self.operand: list[int] = actions.operand.tolist()
        self.chunk: list[int] = actions.chunk.tolist()
        self.connection: list[int] = actions.connection.tolist()
        self.step, self.turn = [0] * len(self.source), [0] * len(self.source)
        self.written, self.read = [LONG_AGO] * actions.places, [LONG_AGO] * actions.places
        # Of the last message that wrote, and the last send that read, each place.
        self.writer_chunk, self.reader_chunk = [NONE] * actions.places, [NONE] * actions.places
        self.turns = [0] * actions.places
        self.taken: dict[int, int] = {}  # connection and step -> a later step that may be free

    def copy(self, i: int) -> None:
        source, target = self.source[i], self.target[i]
        before = max(self.written[source], self.written[target], self.read[target])
        self._local(i, max(BEFORE, (before + 4 - COPY) // 4), COPY)

    def reduce(self, i: int) -> None:
        source, target = self.source[i], self.target[i]
        before = max(self.written[source], self.read[target])
        step, last = (before + 4 - REDUCE) // 4, self.written[target]
        # The order of a sum is free.
        step = max(step, last // 4 if last & 3 == REDUCE else (last + 4 - REDUCE) // 4)
        self._local(i, max(BEFORE, step), REDUCE)

    def _local(self, i: int, step: int, quarter: int) -> None:
        now = 4 * step + quarter
        source, target = self.source[i], self.target[i]
        self.step[i] = step
        self.read[source] = max(self.read[source], now)
        self.written[target] = now

    def messages(self, first: int, end: int) -> None:
        """Messages that travel together: all as late as the latest of them."""
        step = max(map(self._earliest, range(first, end)))
        step = self._free(self.connection[first], step)
        for i in range(first, end):
            self._sent(i, step)

    def _earliest(self, i: int) -> int:
        target, operand = self.target[i], self.operand[i]
        step = max(0, self.written[self.source[i]] // 4 + 1)
        read, last = self.read[target], self.written[target]
        if read & 3 == SEND and self.reader_chunk[target] != self.chunk[i]:
            read += 1  # levels order what concerns one chunk only
        before = max(read, last)
        if operand == target:
            if last & 3 == LAND and self.writer_chunk[target] == self.chunk[i]:
                before = max(read, last - 1)  # takes its turn
        elif operand != NONE:
            before = max(before, self.written[operand])
        return max(step, (before + 4 - LAND) // 4)

    def _sent(self, i: int, step: int) -> None:
        source, target, operand = self.source[i], self.target[i], self.operand[i]
        chunk, now = self.chunk[i], 4 * step
        self.step[i] = step
        if now > self.read[source]:
            self.read[source], self.reader_chunk[source] = now, chunk
        elif now == self.read[source] and self.reader_chunk[source] != chunk:
            self.read[source] = now + 1
        if operand not in (NONE, target):
            self.read[operand] = max(self.read[operand], now + LAND)
        same = self.written[target] == now + LAND
        self.turn[i] = self.turns[target] = self.turns[target] + 1 if same else 0
        self.written[target], self.writer_chunk[target] = now + LAND, chunk

    def _free(self, connection: int, step: int) -> int:
        """Take the first free step of the connection, from ``step`` on."""
        taken, key, path = self.taken, connection << 32 | step, []
        while key in taken:
            path.append(key)
            key = taken[key]
        for one in path:
            taken[one] = key + 1
        taken[key] = key + 1
        return key & 0xFFFFFFFF
