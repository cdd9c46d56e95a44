"""A program as operations: what each thread block does in one turn of its loop.

An instruction of *count* chunks is ⌈count / merge⌉ operations. Blocks and operations are numbered
through all ranks; those of a block are contiguous and in order.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from weft.dsl.base.arrays import Bools, Ints
from weft.dsl.base.errors import CheckFailed
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.program import NOBODY, NOP, OPS, RECEIVES, SENDS, Op, Program, offsets

from .routes import Connection

_LOCAL = np.array([op in (Op.COPY, Op.REDUCE) for op in OPS])


@dataclass(frozen=True, eq=False)
class Operations:
    """Operations of a program in one turn, and the connections between its blocks.

    Blocks, and what each operation does, are those of the program's own columns.

    Attributes:
        program: whose operations these are.
        connections: (source, destination, channel) of each FIFO.
        sender, receiver: the block at each end of a connection; -1: there is none.
        out, into: the connection each block sends to, receives from; -1: none.
        first: shape (blocks + 1,); the operations of block b are ``first[b]:first[b+1]``.
        owner: the instruction of the program that each operation is a piece of.
        chunks: number of chunks that each operation moves.
        wait_start, waits: CSR of what each operation waits for: a block, and how many operations
            of a turn it must have done.
    """

    program: Program
    connections: list[Connection]
    sender: Ints
    receiver: Ints
    out: Ints
    into: Ints
    first: Ints
    owner: Ints
    chunks: Ints
    wait_start: Ints
    waits: Ints

    @property
    def blocks(self) -> int:
        """Thread blocks of all ranks."""
        return self.program.blocks

    @property
    def size(self) -> int:
        """Operations of one turn."""
        return len(self.owner)

    @cached_property
    def op(self) -> Ints:
        """Index into :data:`OPS` of each operation; an instruction of no chunks does nothing."""
        return np.where(self.program.count == 0, NOP, self.program.op)[self.owner]

    def step_of(self, operation: int) -> int:
        """The step of a block that an operation belongs to."""
        return int(self.program.index[self.owner[operation]])

    @property
    def sends(self) -> Bools:
        """True for each operation that sends."""
        return SENDS[self.op]

    @property
    def receives(self) -> Bools:
        """True for each operation that receives."""
        return RECEIVES[self.op]

    @property
    def local(self) -> Bools:
        """True for each operation that only works on its rank's memory."""
        return _LOCAL[self.op]

    def block_of(self) -> Ints:
        """The block of each operation."""
        return self.program.block[self.owner]

    def waits_of(self, operation: int) -> list[tuple[int, int]]:
        """Return the (block, operations of a turn that it must have done) that one waits for."""
        rows = self.waits[self.wait_start[operation] : self.wait_start[operation + 1]]
        return [(block, done) for block, done in rows.tolist()]

    @cached_property
    def waiting(self) -> Ints:
        """The operation that waits, for each row of ``waits``."""
        return np.repeat(np.arange(self.size), np.diff(self.wait_start))

    @cached_property
    def awaited(self) -> list[tuple[int, int]]:
        """Pairs of blocks of which the first waits for the second."""
        pairs = np.stack([self.block_of()[self.waiting], self.waits[:, 0]], axis=1)
        return [(a, b) for a, b in np.unique(pairs, axis=0).tolist()]

    def describe(self, operation: int) -> str:
        """``rank 3 tb 1 step 4 (rcs)``, as the checker names it."""
        block = self.program.describe_block(int(self.program.block[self.owner[operation]]))
        return f"{block} step {self.step_of(operation)} ({OPS[self.op[operation]]})"


def operations_of(program: Program, merge: int) -> Operations:
    """The operations of a program, at most ``merge`` chunks in one.

    Raises:
        CheckFailed: two blocks share an end of a connection, a message has no way out of its
            block, or something waited for does not exist.
    """
    pieces = np.where(program.op == NOP, 1, np.maximum(-(-program.count // merge), 1))
    begin = offsets(pieces)
    owner = np.repeat(np.arange(program.instructions), pieces)
    done = (np.arange(len(owner)) - begin[owner]) * merge
    found = Operations(
        program,
        *_ends(program),
        begin[program.block_start],
        owner,
        np.minimum(merge, program.count[owner] - done),
        *_waits(program, begin),
    )
    block = found.block_of()
    for does, side, what in (
        (found.sends, found.out, "sends to nobody"),
        (found.receives, found.into, "receives from nobody"),
    ):
        mute = np.flatnonzero(does & (side[block] < 0))
        if len(mute):
            name = found.describe(int(mute[0]))
            raise CheckFailed(f"{name} {what}: its thread block has no such peer")
    return found


def _ends(program: Program) -> tuple[list[Connection], Ints, Ints, Ints, Ints]:
    """Number the connections; the blocks at their ends, and those that blocks send to and receive
    from, as :class:`Operations` has them."""
    number: dict[Connection, int] = {}
    ends: tuple[list[int], list[int]] = ([], [])
    sides: tuple[list[int], list[int]] = ([], [])
    heads = (program.block_rank, program.block_send, program.block_recv, program.block_channel)
    heads_of = zip(*(column.tolist() for column in heads), strict=True)
    for block, (rank, send, recv, channel) in enumerate(heads_of):
        both = ((send, (rank, send, channel)), (recv, (recv, rank, channel)))
        for end, side, (peer, connection) in zip(ends, sides, both, strict=True):
            if peer == NOBODY:
                side.append(-1)
                continue
            at = number.setdefault(connection, len(number))
            if at == len(end):
                ends[0].append(-1)
                ends[1].append(-1)
            if end[at] >= 0:
                a, b, channel = connection
                raise CheckFailed(
                    f"{program.describe_block(block)} uses the connection from rank {a} to rank "
                    f"{b} on channel {channel}, as another thread block of that rank does",
                    hint="`weft check` tells all that is wrong with the program",
                )
            end[at] = block
            side.append(at)
    sender, receiver, out, into = (np.array(x, np.int64) for x in (*ends, *sides))
    return list(number), sender, receiver, out, into


def _waits(program: Program, begin: Ints) -> tuple[Ints, Ints]:
    """CSR of the last operations of the instructions that the first of an instruction waits for."""
    block, at = program.wait_block, program.wait_flag
    bad = (block == NOBODY) | (at < 0)
    bad[~bad] = at[~bad] >= program.lengths[block[~bad]]
    if bad.any():
        i = int(np.argmax(bad))
        row = int(program.waiting[i])
        raise CheckFailed(
            f"{program.describe_block(int(program.block[row]))} step {program.index[row]} waits "
            f"for step {at[i]} of tb {program.wait_id[i]}, which does not exist"
        )
    start = program.block_start[block]
    counts = np.zeros(int(begin[-1]), np.int64)
    counts[begin[:-1]] = np.diff(program.wait_start)
    return offsets(counts), np.stack([block, begin[start + at + 1] - begin[start]], axis=1)
