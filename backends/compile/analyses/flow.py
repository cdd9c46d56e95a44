"""The flow: messages between slots, between the schedule and the program.

A schedule says which chunk goes where; a program says which thread block does what. The flow lies
between: every message has its slots on both ends, and the passes add to it, column by column, the
channel, the thread blocks, how many chunks travel together, and the level that orders them.

Slots are those of :mod:`weft.dsl.nouns.slots`.
"""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import numpy.typing as npt

from weft.dsl.base.arrays import Bools, Ints
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.collective import Collective
from weft.dsl.nouns.program import BUFFERS
from weft.dsl.nouns.slots import INPUT, NONE, OUTPUT, SCRATCH, slice_of

__all__ = [
    "BUFFERS",
    "INPUT",
    "NONE",
    "OUTPUT",
    "SCRATCH",
    "Blocks",
    "Flow",
    "LocalOps",
    "Messages",
    "slice_of",
]


@dataclass(frozen=True, eq=False)
class Messages:
    """Columns with one entry per message, shape (messages,).

    ``send`` is the slot it is read from, ``recv`` where it lands. ``operand``: the slot that is
    added to it as it lands (receive-reduce-copy). ``add_from``/``add_to``: the local reduction
    that follows where the runtime lacks this operation. ``turn`` orders the arrivals of one step
    at one slot. ``contended``: its slot is read or written by another message of its step.
    ``channel``, ``send_hint``, ``recv_hint``: requests of the author, NONE where the passes are
    free. Hints number thread blocks of the sender and of the receiver: the ends of one number on
    one rank share a block.
    """

    chunk: Ints
    src: Ints
    dst: Ints
    step: Ints
    turn: Ints
    send: Ints
    recv: Ints
    operand: Ints
    add_from: Ints
    add_to: Ints
    contended: Bools
    instance: Ints
    channel: Ints
    send_hint: Ints
    recv_hint: Ints
    count: Ints
    level: Ints

    def __len__(self) -> int:
        return len(self.chunk)

    def take(self, rows: npt.NDArray[np.intp] | Bools) -> Messages:
        """Some rows, in that order."""
        return Messages(*(getattr(self, f.name)[rows] for f in fields(self)))


@dataclass(frozen=True, eq=False)
class LocalOps:
    """Columns of copies and reductions inside a rank: ``reduce`` tells them apart.

    They happen after the messages of ``step`` (-1: before everything).
    """

    rank: Ints
    step: Ints
    reduce: Ints
    source: Ints
    target: Ints
    instance: Ints
    count: Ints

    def __len__(self) -> int:
        return len(self.rank)

    def take(self, rows: npt.NDArray[np.intp] | Bools) -> LocalOps:
        """Some rows, in that order."""
        return LocalOps(*(getattr(self, f.name)[rows] for f in fields(self)))


@dataclass(frozen=True, eq=False)
class Blocks:
    """Thread blocks of connections.

    ``connection`` of each message indexes ``send_block`` and ``recv_block`` (positions within
    their ranks) and ``mixed``: whether the receiving block also sends. ``peers[r][b]`` is
    (channel, send peer, receive peer) of block b of rank r.
    """

    connection: Ints
    send_block: Ints
    recv_block: Ints
    mixed: Bools
    peers: tuple[tuple[tuple[int, int, int], ...], ...]


@dataclass(frozen=True, eq=False)
class Flow:
    """All messages and local operations of a collective, with its scratch sizes per rank.

    ``parts``: into which every chunk was cut only so that several thread blocks can sum it.
    """

    collective: Collective
    in_place: bool
    messages: Messages
    local: LocalOps
    scratch: Ints
    instances: int = 1
    blocks: Blocks | None = None
    parts: int = 1
