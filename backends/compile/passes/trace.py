"""Algorithm to flow: moves written one after another get the step in which they can happen.

Before (allreduce on two ranks; ``i``, ``o``, ``s``: input, output, scratch)::

    rank 1 s[0] = rank 0 i[0]          rank 0 o[0] = rank 1 i[0] + rank 0 i[0]
    rank 1 s[0] = s[0] + rank 1 i[0]   rank 1 o[0] = rank 1 s[0]

After::

    step 0: 0 -> 1 from i[0] into s[0]        step 0: 1 -> 0 from i[0], adding i[0], into o[0]
    step 0: rank 1 adds i[0] to s[0]          step 1: rank 1 copies s[0] to o[0]

Moves between ranks become messages, moves within a rank local operations; :func:`depths`
says when. In place, an input slot is called by the letter of the output that aliases it.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from weft.dsl.base.arrays import Bools, Ints
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.algorithm import Algorithm, Moves
from weft.dsl.nouns.runtime import Target
from weft.dsl.nouns.slots import WIDE, Aliases

from ..analyses.flow import INPUT, NONE, OUTPUT, Flow, LocalOps, Messages
from ..analyses.landing import Slots, contended, same_as_before, unfused

BUFFER = OUTPUT - INPUT
"""Slots of different buffers are at least so far apart."""


@dataclass(frozen=True, slots=True)
class Trace:
    """Give every move its step.

    >>> from weft.dsl.nouns.collective import make
    >>> from weft.dsl.nouns.runtime import MSCCL
    >>> rows = [(0, 0, INPUT, 1, OUTPUT, NONE, NONE, NONE, NONE),
    ...         (0, 1, OUTPUT, 2, OUTPUT, NONE, NONE, NONE, NONE),
    ...         (0, 0, INPUT, 0, OUTPUT, NONE, NONE, NONE, NONE)]
    >>> chain = Algorithm("chain", make("broadcast", 3), Moves.of(rows), [0, 0, 0])
    >>> flow = Trace().apply(chain, MSCCL)
    >>> flow.messages.step.tolist(), flow.local.step.tolist()
    ([0, 1], [-1])
    """

    name: ClassVar[str] = "trace"

    def apply(self, algorithm: Algorithm, target: Target) -> Flow:
        """Return the flow of an algorithm. It is not judged here: the program's proof does that."""
        c, moves = algorithm.collective, canonical(algorithm)
        move, source, actions = _actions(moves, c.ranks)
        step, turn = depths(actions)
        scratch = Slots(algorithm.scratch)
        sent = np.flatnonzero(actions.quarter == LAND)
        messages = _messages(moves, move[sent], step[sent], turn[sent], scratch, target)
        local = _local(moves, move, source, actions.quarter, step)
        return Flow(c, algorithm.in_place, messages, local, scratch.sizes)


def canonical(algorithm: Algorithm) -> Moves:
    """The moves; in place, slots of the input that the output aliases by the output's letter."""
    moves, named = algorithm.moves, Aliases.of(algorithm.collective, algorithm.in_place).names
    return Moves(
        moves.chunk,
        moves.src,
        named(moves.src, moves.source),
        moves.dst,
        named(moves.dst, moves.target),
        named(moves.dst, moves.operand),
        moves.channel,
        moves.send_block,
        moves.recv_block,
    )


def _actions(moves: Moves, ranks: int) -> tuple[Ints, Ints, Actions]:
    """Return the move and the source slot of each action, and the actions.

    A sum within a rank that leaves its operands alone is a copy and a reduction; a copy of a slot
    onto itself is nothing.
    """
    local, adds = moves.local, moves.reduce
    apart = local & adds & (moves.operand != moves.target)
    # t = s + o becomes t = o, then t = t + s; where s is t already: t = t + o.
    split = apart & (moves.source != moves.target)
    idle = local & ~adds & (moves.source == moves.target)
    move = np.repeat(np.arange(len(moves)), np.where(idle, 0, np.where(split, 2, 1)))
    copies = split[move] & ~same_as_before(move)
    quarter = np.where(local[move], np.where(adds[move] & ~copies, REDUCE, COPY), LAND)
    other = copies | (apart & ~split)[move]
    source = np.where(other, moves.operand[move], moves.source[move])
    operand = np.where(local[move], NONE, moves.operand[move])
    begins, ends, adds_to = _places(
        (moves.src[move], source), (moves.dst[move], moves.target[move]), (moves.dst[move], operand)
    )
    pairs = ((moves.channel + 1) * ranks + moves.src) * ranks + moves.dst
    connection = np.unique(pairs, return_inverse=True)[1].reshape(-1)[move]
    count = 1 + max(int(p.max(initial=NONE)) for p in (begins, ends, adds_to))
    return (
        move,
        source,
        Actions(
            quarter,
            begins,
            ends,
            adds_to,
            moves.chunk[move],
            connection,
            _together(moves)[move],
            count,
        ),
    )


def _places(*pairs: tuple[Ints, Ints]) -> list[Ints]:
    """Numbers for (rank, slot) pairs; NONE stays NONE."""
    keys = [np.where(slot == NONE, NONE, rank * WIDE + slot) for rank, slot in pairs]
    names, inverse = np.unique(np.concatenate(keys), return_inverse=True)
    inverse = inverse.reshape(-1) - int(len(names) > 0 and names[0] == NONE)
    return np.split(inverse, len(keys))


def _together(moves: Moves) -> Bools:
    """Test if a move goes on with the next chunk where the move before it stopped."""
    result = (
        same_as_before(moves.src, moves.dst, moves.channel, moves.send_block, moves.recv_block)
        & ~moves.local
    )
    adds = moves.reduce
    for slot in (moves.source, moves.target):
        result[1:] &= slot[1:] == slot[:-1] + 1
    result[1:] &= adds[1:] == adds[:-1]
    # An operand of its own may be the next one's target, unless it is in another buffer.
    at_home = moves.operand == moves.target
    elsewhere = moves.operand // BUFFER != moves.target // BUFFER
    result &= ~adds | at_home | elsewhere
    result[1:] &= ~adds[:-1] | at_home[:-1] | elsewhere[:-1]
    result[1:] &= ~adds[1:] | (moves.operand[1:] == moves.operand[:-1] + 1)
    return result


def _messages(
    moves: Moves, rows: Ints, step: Ints, turn: Ints, scratch: Slots, target: Target
) -> Messages:
    src, dst, send, recv, operand = (
        x[rows] for x in (moves.src, moves.dst, moves.source, moves.target, moves.operand)
    )
    add_from, add_to = np.full(len(rows), NONE), np.full(len(rows), NONE)
    if not target.fuses:
        recv, add_from, add_to = unfused(dst, recv, operand, (src, turn, recv), scratch)
        operand = np.full(len(rows), NONE)
    zeros = np.zeros(len(rows), np.int64)
    return Messages(
        moves.chunk[rows],
        src,
        dst,
        step,
        turn,
        send,
        recv,
        operand,
        add_from,
        add_to,
        contended(src, dst, step, send, recv, add_to),
        zeros,
        moves.channel[rows],
        moves.send_block[rows],
        moves.recv_block[rows],
        zeros + 1,
        zeros,
    )


def _local(moves: Moves, move: Ints, source: Ints, quarter: Ints, step: Ints) -> LocalOps:
    rows = np.flatnonzero(quarter != LAND)
    rank, to = moves.src[move[rows]], moves.target[move[rows]]
    reduce = (quarter[rows] == REDUCE).astype(np.int64)
    zeros = np.zeros(len(rows), np.int64)
    return LocalOps(rank, step[rows], reduce, source[rows], to, zeros, zeros + 1)


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
    """(step, turn) of each action; turns order the messages of one step at one slot. Linear.

    Time runs in quarters of a step: sends read, messages land, copies, reductions. A slot remembers
    when it was last written and last read, so one walk over the moves finds for each the earliest
    quarter that keeps

    * read after write: a send reads what landed, or was copied, in an earlier step;
    * write after read: a message may land where a send of the same step reads (that reads what held
      before), all else comes later;
    * write after write: later, except that reductions into one slot may share a step; messages
      among them take turns.

    Moves that the author made of neighbouring chunks at once stay together. All others have a step
    of their connection for themselves, the earliest free one: what was written as a pipeline stays
    one.
    """
    quarter, joins = actions.quarter.tolist(), actions.joins.tolist()
    walk = _DepthWalk(actions)
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


class _DepthWalk:
    """Last reads and writes of every place, in quarters, on the way through the actions."""

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
        taken, key, path = self.taken, connection << 32 | step, []
        while key in taken:
            path.append(key)
            key = taken[key]
        for one in path:
            taken[one] = key + 1
        taken[key] = key + 1
        return key & 0xFFFFFFFF
