"""The program: what each rank's thread blocks do, independent of any runtime.

A thread block has at most one send peer and one receive peer on one channel and runs its
instructions in order; blocks of a rank run concurrently. A **connection** (source, destination,
channel) is a FIFO: the k-th send meets the k-th receive. Blocks of one rank are ordered only by
``waits``: an instruction starts after the named instructions of other blocks have finished.

Offsets and counts are in chunks of one size. Ranks are positions in the process group.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from ..base.errors import UnknownName
from .collective import Collective


class Op(StrEnum):
    """What one instruction does; the values are MSCCL's names.

    ``X[off]`` are ``count`` chunks from ``off``; ⊕ is the caller's reduction.
    """

    SEND = "s"  #: send src
    RECV = "r"  #: dst = received
    RECV_COPY_SEND = "rcs"  #: dst = received; send it on
    RECV_REDUCE_SEND = "rrs"  #: send (received ⊕ src); store nothing
    RECV_REDUCE_COPY = "rrc"  #: dst = received ⊕ src
    RECV_REDUCE_COPY_SEND = "rrcs"  #: dst = received ⊕ src; send the same
    COPY = "cpy"  #: dst = src
    REDUCE = "re"  #: dst = dst ⊕ src
    NOP = "nop"  #: nothing; waits only

    @property
    def sends(self) -> bool:
        """Whether it puts a message into the block's outgoing connection."""
        return self in _SENDS

    @property
    def receives(self) -> bool:
        """Whether it takes a message from the block's incoming connection."""
        return self in _RECEIVES

    @property
    def reads_src(self) -> bool:
        """Whether it reads the local source slice."""
        return self in _READS

    @property
    def writes_dst(self) -> bool:
        """Whether it writes the local destination slice."""
        return self in _WRITES


_SENDS = frozenset({Op.SEND, Op.RECV_COPY_SEND, Op.RECV_REDUCE_SEND, Op.RECV_REDUCE_COPY_SEND})
_RECEIVES = frozenset(
    {
        Op.RECV,
        Op.RECV_COPY_SEND,
        Op.RECV_REDUCE_SEND,
        Op.RECV_REDUCE_COPY,
        Op.RECV_REDUCE_COPY_SEND,
    }
)
_READS = frozenset(
    {
        Op.SEND,
        Op.RECV_REDUCE_SEND,
        Op.RECV_REDUCE_COPY,
        Op.RECV_REDUCE_COPY_SEND,
        Op.COPY,
        Op.REDUCE,
    }
)
_WRITES = frozenset(
    {
        Op.RECV,
        Op.RECV_COPY_SEND,
        Op.RECV_REDUCE_COPY,
        Op.RECV_REDUCE_COPY_SEND,
        Op.COPY,
        Op.REDUCE,
    }
)


class Buffer(StrEnum):
    """The three buffers of a rank, by MSCCL's letters."""

    INPUT = "i"
    OUTPUT = "o"
    SCRATCH = "s"


@dataclass(frozen=True, slots=True, order=True)
class Slice:
    """Where some chunks begin: a buffer and an offset in chunks."""

    buffer: Buffer
    offset: int


@dataclass(frozen=True, slots=True)
class Instr:
    """One instruction.

    ``src`` is the local source (for receives that do not read it: the sender's slice, by
    convention, or the same as ``dst``), ``dst`` the local destination. ``waits`` are
    (block, instruction index) pairs on the same rank.
    """

    op: Op
    src: Slice
    dst: Slice
    count: int = 1
    waits: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Block:
    """A thread block: a channel, at most one peer each way, its code in order."""

    channel: int
    send: int | None
    recv: int | None
    code: tuple[Instr, ...]


@dataclass(frozen=True, slots=True)
class RankProgram:
    """The blocks of one rank, and its buffer sizes in chunks."""

    blocks: tuple[Block, ...]
    input_chunks: int
    output_chunks: int
    scratch_chunks: int

    def __iter__(self) -> Iterator[Block]:
        return iter(self.blocks)


class Protocol(StrEnum):
    """How a connection moves data; decides how many operations fit its FIFO."""

    SIMPLE = "Simple"
    LL = "LL"
    LL128 = "LL128"

    @property
    def fifo_operations(self) -> int:
        """Operations a sender can be ahead of its receiver (NCCL: 8 slots, Simple uses 4)."""
        return 2 if self is Protocol.SIMPLE else 8


def protocol_of(name: str) -> Protocol:
    """The protocol of that name; a protocol is its own.

    Raises:
        UnknownName: there is none.
    """
    if str(name) not in list(Protocol):
        raise UnknownName("protocol", str(name), Protocol)
    return Protocol(name)


@dataclass(frozen=True, slots=True)
class Program:
    """A program for all ranks of a collective.

    ``collective`` fixes the meaning of buffer offsets; ``message_chunks`` is the number of chunks
    the message is cut into (``nchunksperloop``). ``in_place``: input and output alias as
    :meth:`Collective.in_place_shift` says.
    """

    name: str
    collective: Collective
    ranks: tuple[RankProgram, ...]
    message_chunks: int
    in_place: bool = False
    protocol: Protocol = Protocol.SIMPLE

    @property
    def channels(self) -> int:
        """One more than the largest channel in use."""
        return 1 + max((b.channel for r in self.ranks for b in r), default=0)

    @property
    def instructions(self) -> int:
        """Instructions of all blocks of all ranks."""
        return sum(len(b.code) for r in self.ranks for b in r)
