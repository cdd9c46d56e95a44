"""A program as operations: what each thread block does in one turn of its loop.

An instruction of *count* chunks is ⌈count / merge⌉ operations. Blocks and operations are numbered
through all ranks; those of a block are contiguous and in order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from weft.dsl.base.arrays import Bools, Ints
from weft.dsl.base.errors import CheckFailed
from weft.dsl.nouns.program import Block, Op, Program

from .routes import Connection

_OPS = tuple(Op)
_INDEX = {op: i for i, op in enumerate(_OPS)}
_SENDS = np.array([op.sends for op in _OPS])
_RECEIVES = np.array([op.receives for op in _OPS])
_LOCAL = np.array([op in (Op.COPY, Op.REDUCE) for op in _OPS])


@dataclass(frozen=True, eq=False)
class Operations:
    """Columns of blocks, connections and operations.

    Attributes:
        connections: (source, destination, channel) of each FIFO.
        sender, receiver: the block at each end of a connection; -1: there is none.
        block_rank, block_id: whose block it is, and its number on that rank.
        out, into: the connection each block sends to, receives from; -1: none.
        first: shape (blocks + 1,); the operations of block b are ``first[b]:first[b+1]``.
        op: index into :class:`Op`; ``chunks`` that it moves; ``instruction`` of its block.
        sends, receives, local: what it does, as booleans.
        waits: for operations that wait, (block, operations of a turn it must have done) pairs.
    """

    connections: list[Connection]
    sender: Ints
    receiver: Ints
    block_rank: Ints
    block_id: Ints
    out: Ints
    into: Ints
    first: Ints
    op: Ints
    chunks: Ints
    instruction: Ints
    waits: dict[int, tuple[tuple[int, int], ...]]

    @property
    def blocks(self) -> int:
        """Thread blocks of all ranks."""
        return len(self.block_rank)

    @property
    def size(self) -> int:
        """Operations of one turn."""
        return len(self.op)

    @property
    def sends(self) -> Bools:
        """Whether each operation sends."""
        return _SENDS[self.op]

    @property
    def receives(self) -> Bools:
        """Whether each operation receives."""
        return _RECEIVES[self.op]

    @property
    def local(self) -> Bools:
        """Whether each operation only works on its rank's memory."""
        return _LOCAL[self.op]

    def block_of(self) -> Ints:
        """The block of each operation."""
        return np.repeat(np.arange(self.blocks), np.diff(self.first))

    def describe(self, block: int, operation: int) -> str:
        """``rank 3 tb 1 step 4 (rcs)``, as the checker names it."""
        return (
            f"rank {self.block_rank[block]} tb {self.block_id[block]} "
            f"step {self.instruction[operation]} ({_OPS[self.op[operation]]})"
        )


def operations_of(program: Program, merge: int) -> Operations:
    """The operations of a program, at most ``merge`` chunks in one.

    Raises:
        CheckFailed: two blocks share an end of a connection, a message has no way out of its
            block, or something waited for does not exist.
    """
    blocks = [(rank, i, b) for rank, r in enumerate(program.ranks) for i, b in enumerate(r.blocks)]
    ends = _Ends()
    out, into = ends.of(blocks)
    starts = np.cumsum([0, *(len(b.code) for _, _, b in blocks)])
    codes = np.array(
        [(_INDEX[x.op], x.count) for _, _, b in blocks for x in b.code], np.int64
    ).reshape(-1, 2)
    instruction = np.arange(len(codes)) - np.repeat(starts[:-1], np.diff(starts))
    pieces = np.where(codes[:, 0] == _INDEX[Op.NOP], 1, np.maximum(-(-codes[:, 1] // merge), 1))
    begin = np.concatenate([[0], np.cumsum(pieces)])
    owner = np.repeat(np.arange(len(codes)), pieces)
    done = (np.arange(len(owner)) - begin[owner]) * merge
    op = codes[owner, 0]
    op[codes[owner, 1] == 0] = _INDEX[Op.NOP]
    found = Operations(
        list(ends.number),
        np.array(ends.sender, np.int64),
        np.array(ends.receiver, np.int64),
        np.array([rank for rank, _, _ in blocks], np.int64),
        np.array([i for _, i, _ in blocks], np.int64),
        np.array(out, np.int64),
        np.array(into, np.int64),
        begin[starts],
        op,
        np.minimum(merge, codes[owner, 1] - done),
        instruction[owner],
        dict(_waits(program, starts.tolist(), begin.tolist())),
    )
    _refuse_mute(found)
    return found


class _Ends:
    """Numbers the connections, and finds the block at each end."""

    def __init__(self) -> None:
        self.number: dict[Connection, int] = {}
        self.sender: list[int] = []
        self.receiver: list[int] = []

    def of(self, blocks: list[tuple[int, int, Block]]) -> tuple[list[int], list[int]]:
        out, into = [], []
        for number, (rank, i, block) in enumerate(blocks):
            here = f"rank {rank} tb {i}"
            sends = receives = -1
            if block.send is not None:
                sends = self._end((rank, block.send, block.channel), number, self.sender, here)
            if block.recv is not None:
                receives = self._end((block.recv, rank, block.channel), number, self.receiver, here)
            out.append(sends)
            into.append(receives)
        return out, into

    def _end(self, connection: Connection, block: int, side: list[int], here: str) -> int:
        number = self.number.setdefault(connection, len(self.number))
        if number == len(self.sender):
            self.sender.append(-1)
            self.receiver.append(-1)
        if side[number] >= 0:
            a, b, channel = connection
            raise CheckFailed(
                f"{here} uses the connection from rank {a} to rank {b} on channel {channel}, "
                "as another thread block of that rank does",
                hint="`weft check` tells all that is wrong with the program",
            )
        side[number] = block
        return number


def _waits(
    program: Program, starts: list[int], begin: list[int]
) -> Iterator[tuple[int, tuple[tuple[int, int], ...]]]:
    """(operation, what it waits for): the last operations of the instructions it names."""
    first = 0
    for rank, r in enumerate(program.ranks):
        for i, block in enumerate(r.blocks):
            for j, instr in enumerate(block.code):
                if not instr.waits:
                    continue
                needs = []
                for other, at in instr.waits:
                    if not (0 <= other < len(r.blocks) and 0 <= at < len(r.blocks[other].code)):
                        raise CheckFailed(
                            f"rank {rank} tb {i} step {j} waits for step {at} of tb {other}, "
                            "which does not exist"
                        )
                    start = starts[first + other]
                    needs.append((first + other, begin[start + at + 1] - begin[start]))
                yield begin[starts[first + i] + j], tuple(needs)
        first += len(r.blocks)


def _refuse_mute(found: Operations) -> None:
    """A message needs a connection to go to, and one to come from."""
    block = found.block_of()
    for does, side, what in (
        (found.sends, found.out, "sends to nobody"),
        (found.receives, found.into, "receives from nobody"),
    ):
        mute = np.flatnonzero(does & (side[block] < 0))
        if len(mute):
            name = found.describe(int(block[mute[0]]), int(mute[0]))
            raise CheckFailed(f"{name} {what}: its thread block has no such peer")
