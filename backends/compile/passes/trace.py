"""Algorithm to flow: moves written one after another get the step in which they can happen.

Before (allreduce on two ranks; ``i``, ``o``, ``s``: input, output, scratch)::

    rank 1 s[0] = rank 0 i[0]          rank 0 o[0] = rank 1 i[0] + rank 0 i[0]
    rank 1 s[0] = s[0] + rank 1 i[0]   rank 1 o[0] = rank 1 s[0]

After::

    step 0: 0 -> 1 from i[0] into s[0]        step 0: 1 -> 0 from i[0], adding i[0], into o[0]
    step 0: rank 1 adds i[0] to s[0]          step 1: rank 1 copies s[0] to o[0]

Moves between ranks become messages, moves within a rank local operations; :mod:`.analyses.depths`
says when. In place, an input slot is called by the letter of the output that aliases it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from weft.dsl.base.arrays import Bools, Ints
from weft.dsl.nouns.algorithm import Algorithm, Moves
from weft.dsl.nouns.slots import WIDE, Aliases

from ...runtime.target import Target
from ..analyses.depths import COPY, LAND, REDUCE, Actions, depths
from ..analyses.flow import INPUT, NONE, OUTPUT, Flow, LocalOps, Messages
from ..analyses.landing import Slots, contended, same_as_before, unfused

BUFFER = OUTPUT - INPUT
"""Slots of different buffers are at least so far apart."""


@dataclass(frozen=True, slots=True)
class Trace:
    """Give every move its step.

    >>> from weft.dsl.nouns.collective import make
    >>> from weft.backends.runtime.target import MSCCL
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
        """The flow of an algorithm. It is not judged here: the program's proof does that."""
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
    """The move and the source slot of each action, and the actions.

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
    """Whether a move goes on with the next chunk where the move before it stopped."""
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
