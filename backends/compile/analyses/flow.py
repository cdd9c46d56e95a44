"""The flow: messages between slots, between the schedule and the program.

A schedule says which chunk goes where; a program says which thread block does what. The flow lies
between: every message has its slots on both ends, and the passes add to it, column by column, the
channel, the thread blocks, how many chunks travel together, and the level that orders them.

Slots are those of :mod:`weft.dsl.nouns.slots`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from weft.dsl.nouns.collective import Collective
from weft.dsl.nouns.slots import BUFFERS, INPUT, NONE, OUTPUT, SCRATCH, slice_of

Column = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

__all__ = [
    "BUFFERS",
    "INPUT",
    "NONE",
    "OUTPUT",
    "SCRATCH",
    "Blocks",
    "Column",
    "Flags",
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
    that follows where the runtime has no such operation. ``turn`` orders the arrivals of one step
    at one slot. ``contended``: its slot is read or written by another message of its step.
    ``channel``, ``send_hint``, ``recv_hint``: what the author asks for, NONE where the passes are
    free. Hints number thread blocks of the sender and of the receiver: the ends of one number on
    one rank share a block.
    """

    chunk: Column
    src: Column
    dst: Column
    step: Column
    turn: Column
    send: Column
    recv: Column
    operand: Column
    add_from: Column
    add_to: Column
    contended: Flags
    instance: Column
    channel: Column
    send_hint: Column
    recv_hint: Column
    count: Column
    level: Column

    def __len__(self) -> int:
        return len(self.chunk)

    def take(self, rows: npt.NDArray[np.intp] | Flags) -> Messages:
        """Some rows, in that order."""
        return Messages(*(getattr(self, f.name)[rows] for f in fields(self)))


@dataclass(frozen=True, eq=False)
class LocalOps:
    """Columns of copies and reductions inside a rank: ``reduce`` tells them apart.

    They happen after the messages of ``step`` (-1: before everything).
    """

    rank: Column
    step: Column
    reduce: Column
    source: Column
    target: Column
    instance: Column
    count: Column

    def __len__(self) -> int:
        return len(self.rank)

    def take(self, rows: npt.NDArray[np.intp] | Flags) -> LocalOps:
        """Some rows, in that order."""
        return LocalOps(*(getattr(self, f.name)[rows] for f in fields(self)))


@dataclass(frozen=True, eq=False)
class Blocks:
    """Thread blocks of connections.

    ``connection`` of each message indexes ``send_block`` and ``recv_block`` (positions within
    their ranks) and ``mixed``: whether the receiving block also sends. ``peers[r][b]`` is
    (channel, send peer, receive peer) of block b of rank r.
    """

    connection: Column
    send_block: Column
    recv_block: Column
    mixed: Flags
    peers: tuple[tuple[tuple[int, int, int], ...], ...]


@dataclass(frozen=True, eq=False)
class Flow:
    """All messages and local operations of a collective, with its scratch sizes per rank."""

    collective: Collective
    in_place: bool
    messages: Messages
    local: LocalOps
    scratch: Column
    instances: int = 1
    blocks: Blocks | None = None
