"""The program: instructions of each rank's thread blocks, independent of any runtime.

A thread block has at most one send peer and one receive peer on one channel and runs its
instructions in order; blocks of a rank run concurrently. A **connection** (source, destination,
channel) is a FIFO: the k-th send meets the k-th receive. Blocks of one rank are ordered only by
``waits``: an instruction starts after the named instructions of other blocks have finished.

Offsets and counts are in chunks of one size. Ranks are positions in the process group.

Storage is columnar, as that of a schedule is: passes, judges and simulators work on the columns of
:class:`Code`; ranks, blocks and instructions are views, made when they are used.

>>> from weft.dsl.nouns.collective import make
>>> one = Instr(Op.COPY, Slice(Buffer.INPUT, 0), Slice(Buffer.OUTPUT, 0))
>>> rank = RankProgram((Block(0, None, None, (one,)),), 1, 1, 0)
>>> p = Program.of("copy", make("allgather", 1), (rank,), 1)
>>> p.instructions, p.count.tolist(), p.ranks == (rank,)
(1, [1], True)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from enum import StrEnum
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from ..base.arrays import Ints
from ..base.errors import BadFile, CheckFailed, UnknownName
from ..base.files import SCHEMA, Fields, require_kind
from ..base.lazy_dataclass import Frozen, dataclass
from ..base.tables import count
from ..base.unique_rows import packed, pick, rows_of, same_rows
from .collective import Collective


class Op(StrEnum):
    """Operation of one instruction; the values are MSCCL's names.

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
        """Return True if it puts a message into the block's outgoing connection."""
        return self in _SENDS

    @property
    def receives(self) -> bool:
        """Return True if it takes a message from the block's incoming connection."""
        return self in _RECEIVES

    @property
    def reads_src(self) -> bool:
        """Return True if it reads the local source slice."""
        return self in _READS

    @property
    def writes_dst(self) -> bool:
        """Return True if it writes the local destination slice."""
        return self in _WRITES


_SENDS = frozenset(map(Op, "s rcs rrs rrcs".split()))
_RECEIVES = frozenset(map(Op, "r rcs rrs rrc rrcs".split()))
_READS = frozenset(map(Op, "s rrs rrc rrcs cpy re".split()))
_WRITES = frozenset(map(Op, "r rcs rrc rrcs cpy re".split()))


class Buffer(StrEnum):
    """The three buffers of a rank, by MSCCL's letters."""

    INPUT = "i"
    OUTPUT = "o"
    SCRATCH = "s"


@dataclass(frozen=True, slots=True, order=True)
class Slice:
    """Start of some chunks: a buffer and an offset in chunks."""

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
    """Protocol of a connection; decides how many operations fit its FIFO."""

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


OPS = tuple(Op)
BUFFERS = tuple(Buffer)
OP_NUMBER: Mapping[str, int] = {op: i for i, op in enumerate(OPS)}
BUFFER_NUMBER: Mapping[str, int] = {buffer: i for i, buffer in enumerate(BUFFERS)}
SENDS = np.array([op.sends for op in OPS])
RECEIVES = np.array([op.receives for op in OPS])
READS_SRC = np.array([op.reads_src for op in OPS])
WRITES_DST = np.array([op.writes_dst for op in OPS])
COPY, REDUCE, NOP = (OP_NUMBER[op] for op in (Op.COPY, Op.REDUCE, Op.NOP))
ABSENT = -1
"""In columns: no peer, no block, no instruction."""


class Code(Frozen, eq=False, kw_only=True):
    """Columns of thread blocks, instructions and waits, of a program or a file.

    Blocks and instructions are numbered through all ranks. The blocks of a rank are contiguous,
    and so are the instructions of a block, in order.

    Attributes:
        protocol: how the connections move data.
        chunks: shape (ranks, 3), declared chunks of the buffers i, o, s.
        block_rank, block_channel, block_send, block_recv: shape (blocks,); ``block_rank`` ascends,
            a peer of -1 is none.
        block_start: shape (blocks + 1,); the instructions of block b are
            ``block_start[b]:block_start[b+1]``.
        op: shape (instructions,), index into :data:`OPS`. Of the same shape: ``src_buffer``,
            ``dst_buffer``, index into :data:`BUFFERS`; ``src_offset``, ``dst_offset``, ``count``
            in chunks.
        wait_start: shape (instructions + 1,); the waits of instruction i are
            ``wait_start[i]:wait_start[i+1]``.
        wait_id, wait_flag: shape (waits,): wait until the block of that number on the same rank
            has published at least that flag. An instruction of a program publishes its index in
            its block when it has finished, and the number of a block is its position on its rank.
    """

    protocol: Protocol = Protocol.SIMPLE
    chunks: Ints
    block_rank: Ints
    block_channel: Ints
    block_send: Ints
    block_recv: Ints
    block_start: Ints
    op: Ints
    src_buffer: Ints
    src_offset: Ints
    dst_buffer: Ints
    dst_offset: Ints
    count: Ints
    wait_start: Ints
    wait_id: Ints
    wait_flag: Ints

    def __post_init__(self) -> None:
        # The values cached below follow from the columns, which must not change.
        for f in fields(self):
            column = getattr(self, f.name)
            if isinstance(column, np.ndarray):
                column.setflags(write=False)

    # --- sizes and names --------------------------------------------------------------------------

    @property
    def rank_count(self) -> int:
        """Number of ranks."""
        return len(self.chunks)

    @property
    def blocks(self) -> int:
        """Number of thread blocks of all ranks."""
        return len(self.block_rank)

    @property
    def instructions(self) -> int:
        """Number of instructions of all blocks of all ranks."""
        return len(self.op)

    @property
    def channels(self) -> int:
        """One more than the largest channel in use; of a file: as it declares."""
        return 1 + (int(self.block_channel.max()) if self.blocks else 0)

    @property
    def block_id(self) -> Ints:
        """The number of each block on its rank, as waits and messages name it."""
        return self.block_index

    @property
    def label(self) -> Ints:
        """The step number of each instruction, as messages name it: its index in its block."""
        return self.index

    @property
    def publishes(self) -> Ints:
        """The flag that each instruction publishes when done, -1: none; ascending in a block."""
        return self.index

    @property
    def more_start(self) -> Ints:
        """Shape (instructions + 1,): where the further sources of fused reductions begin."""
        return np.zeros(self.instructions + 1, np.int64)

    @property
    def more_offset(self) -> Ints:
        """Offsets of these sources, in the buffer of the first; only files have any."""
        return np.zeros(0, np.int64)

    def describe(self, instruction: int) -> str:
        """``rank 3 tb 1 step 4 (rcs)``, as messages name it."""
        block = self.describe_block(int(self.block[instruction]))
        return f"{block} step {self.label[instruction]} ({OPS[self.op[instruction]]})"

    def describe_block(self, block: int) -> str:
        """``rank 3 tb 1``."""
        return f"rank {self.block_rank[block]} tb {self.block_id[block]}"

    # --- derived from the columns, computed once --------------------------------------------------

    @cached_property
    def first_block(self) -> Ints:
        """Shape (ranks + 1,): the blocks of rank r are ``first_block[r]:first_block[r+1]``."""
        return np.searchsorted(self.block_rank, np.arange(self.rank_count + 1))

    @cached_property
    def block_index(self) -> Ints:
        """The position of each block among those of its rank."""
        return np.arange(self.blocks) - self.first_block[self.block_rank]

    @cached_property
    def lengths(self) -> Ints:
        """The number of instructions of each block."""
        return np.diff(self.block_start)

    @cached_property
    def block(self) -> Ints:
        """The block of each instruction, through all ranks."""
        return np.repeat(np.arange(self.blocks), self.lengths)

    @cached_property
    def rank(self) -> Ints:
        """The rank of each instruction."""
        return np.repeat(self.block_rank, self.lengths)

    @cached_property
    def index(self) -> Ints:
        """The position of each instruction in its block."""
        return np.arange(self.instructions) - np.repeat(self.block_start[:-1], self.lengths)

    @cached_property
    def waiting(self) -> Ints:
        """The instruction that waits, for each wait."""
        return np.repeat(np.arange(self.instructions), np.diff(self.wait_start))

    @cached_property
    def wait_block(self) -> Ints:
        """The block that each wait names, through all ranks; -1: its rank lacks the block."""
        rank = self.rank[self.waiting]
        found = self.first_block[rank] + self.wait_id
        known = (self.wait_id >= 0) & (found < self.first_block[rank + 1])
        return np.where(known, found, ABSENT)


class Program(Code, eq=False, kw_only=True):
    """A program for all ranks of a collective.

    ``collective`` fixes the meaning of buffer offsets; ``message_chunks`` is the number of chunks
    the message is cut into (``nchunksperloop``). ``in_place``: input and output alias as
    :meth:`Collective.in_place_shift` says. The columns are those of :class:`Code`.
    """

    name: str
    collective: Collective
    message_chunks: int
    in_place: bool = False

    def __repr__(self) -> str:
        return (
            f"<Program {self.name}: {self.collective}, {count(self.instructions, 'instruction')}"
            f", {self.protocol}{', in place' if self.in_place else ''}>"
        )

    @staticmethod
    def of(
        name: str,
        collective: Collective,
        ranks: Sequence[RankProgram],
        message_chunks: int,
        in_place: bool = False,
        protocol: Protocol = Protocol.SIMPLE,
    ) -> Program:
        """From views (small programs; passes at scale make columns)."""
        return Program(
            name=name,
            collective=collective,
            message_chunks=message_chunks,
            in_place=in_place,
            protocol=protocol,
            **_columns_of(ranks),
        )

    def with_ranks(self, ranks: Sequence[RankProgram]) -> Program:
        """Return the program with other code, from views."""
        return replace(self, **_columns_of(ranks))

    def take(self, rows: Ints, lengths: Ints) -> Program:
        """Return the program of some instructions, ``lengths[b]`` in block b, without waits."""
        code: dict[str, Any] = {name: getattr(self, name)[rows] for name in _INSTRUCTION}
        return replace(
            self,
            block_start=offsets(lengths),
            **code,
            wait_start=np.zeros(len(rows) + 1, np.int64),
            wait_id=np.zeros(0, np.int64),
            wait_flag=np.zeros(0, np.int64),
        )

    def with_waits(self, waiting: Ints, wait: Ints) -> Program:
        """The program with other waits: instruction ``waiting[i]`` waits for ``wait[i]``.

        Those of one instruction keep their order.
        """
        order = np.argsort(waiting, kind="stable")
        wait = wait[order]
        return replace(
            self,
            wait_start=np.searchsorted(waiting[order], np.arange(self.instructions + 1)),
            wait_id=self.block_index[self.block[wait]],
            wait_flag=self.index[wait],
        )

    @cached_property
    def wait(self) -> Ints:
        """The instruction that each wait names.

        Raises:
            CheckFailed: a wait for an instruction that does not exist.
        """
        block, flag = self.wait_block, self.wait_flag
        bad = (block == ABSENT) | (flag < 0)
        there = np.where(block == ABSENT, 0, block)
        if len(there):
            bad |= flag >= self.lengths[there]
        if bad.any():
            i = int(np.argmax(bad))
            waiting = self.waiting[i]
            raise CheckFailed(
                f"rank {self.rank[waiting]}: instruction {self.index[waiting]} of a block waits "
                f"for instruction {flag[i]} of block {self.wait_id[i]}, which does not exist"
            )
        return self.block_start[there] + flag

    @cached_property
    def src(self) -> Ints:
        """The slot where each source begins (:mod:`.slots`)."""
        return (self.src_buffer << 32) + self.src_offset

    @cached_property
    def dst(self) -> Ints:
        """The slot where each destination begins."""
        return (self.dst_buffer << 32) + self.dst_offset

    @cached_property
    def ranks(self) -> tuple[RankProgram, ...]:
        """Views of all ranks."""
        instrs, at = self.instrs, self.block_start.tolist()
        heads = enumerate(_heads(self))
        blocks = [Block(*head, tuple(instrs[at[b] : at[b + 1]])) for b, head in heads]
        first = self.first_block.tolist()
        return tuple(
            RankProgram(tuple(blocks[first[r] : first[r + 1]]), *chunks)
            for r, chunks in enumerate(self.chunks.tolist())
        )

    @cached_property
    def instrs(self) -> list[Instr]:
        """Views of all instructions; equal ones are one object wherever they stand."""
        waits = same_rows(self.wait_start, packed(self.wait_id, self.wait_flag))
        rows = [getattr(self, name) for name in _INSTRUCTION]
        _, first, which = np.unique(packed(*rows, waits), return_index=True, return_inverse=True)
        begin, at = rows_of(self.wait_start, first)
        pairs = list(zip(self.wait_id[at].tolist(), self.wait_flag[at].tolist(), strict=True))
        begin = begin.tolist()
        parts = (row[first].tolist() for row in rows)
        once = [
            Instr(
                OPS[op],
                Slice(BUFFERS[src], src_at),
                Slice(BUFFERS[dst], dst_at),
                count,
                tuple(pairs[begin[i] : begin[i + 1]]),
            )
            for i, (op, src, src_at, dst, dst_at, count) in enumerate(zip(*parts, strict=True))
        ]
        return pick(once, which.reshape(-1))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Program) and all(
            np.array_equal(getattr(self, f.name), getattr(other, f.name))
            if isinstance(getattr(self, f.name), np.ndarray)
            else getattr(self, f.name) == getattr(other, f.name)
            for f in fields(self)
        )

    __hash__ = None  # type: ignore[assignment]


_INSTRUCTION = ("op", "src_buffer", "src_offset", "dst_buffer", "dst_offset", "count")


def _heads(program: Program) -> Iterator[tuple[int, int | None, int | None]]:
    """Return channel, send peer and receive peer of each block."""
    columns = (program.block_channel, program.block_send, program.block_recv)
    for channel, *peers in zip(*(column.tolist() for column in columns), strict=True):
        send, recv = (None if peer == ABSENT else peer for peer in peers)
        yield channel, send, recv


def table(rows: Sequence[Sequence[int]], width: int) -> list[Ints]:
    """The columns of rows of integers, one array each."""
    whole = np.array(rows, np.int64).reshape(-1, width)
    return [np.ascontiguousarray(whole[:, i]) for i in range(width)]


def offsets(lengths: npt.ArrayLike) -> Ints:
    """Offsets of consecutive parts of these lengths, and the end of the last."""
    return np.concatenate([[0], np.cumsum(np.array(lengths, np.int64))])


def _columns_of(ranks: Sequence[RankProgram]) -> dict[str, Any]:
    blocks = [(r, block) for r, rank in enumerate(ranks) for block in rank]
    code = [x for _, block in blocks for x in block.code]
    heads = [
        (r, b.channel, *(ABSENT if peer is None else peer for peer in (b.send, b.recv)))
        for r, b in blocks
    ]
    rows = [
        (
            OP_NUMBER[x.op],
            BUFFER_NUMBER[x.src.buffer],
            x.src.offset,
            BUFFER_NUMBER[x.dst.buffer],
            x.dst.offset,
            x.count,
        )
        for x in code
    ]
    sizes = [(r.input_chunks, r.output_chunks, r.scratch_chunks) for r in ranks]
    return columns_of(sizes, heads, [len(b.code) for _, b in blocks], rows, [x.waits for x in code])


def columns_of(
    chunks: Sequence[Sequence[int]],
    heads: Sequence[Sequence[int]],
    lengths: Sequence[int],
    rows: Sequence[Sequence[int]],
    waits: Sequence[Sequence[Sequence[int]]],
) -> dict[str, Any]:
    """The columns of :class:`Code` by name, from rows.

    ``chunks`` of each rank; ``heads``: (rank, channel, send peer, receive peer) and ``lengths``
    of each block; of each instruction the ``rows`` (op, source buffer and offset, destination
    buffer and offset, count) and its ``waits`` (block number, flag).
    """
    head = ("block_rank", "block_channel", "block_send", "block_recv")
    wait = table([w for own in waits for w in own], 2)
    return {
        "chunks": np.array(chunks, np.int64).reshape(-1, 3),
        **dict(zip(head, table(heads, 4), strict=True)),
        "block_start": offsets(lengths),
        **dict(zip(_INSTRUCTION, table(rows, 6), strict=True)),
        "wait_start": offsets(list(map(len, waits))),
        "wait_id": wait[0],
        "wait_flag": wait[1],
    }


# --- files ----------------------------------------------------------------------------------------


LARGEST = 1 << 31
"""Numbers in a file are smaller."""


def dump(program: Program) -> dict[str, Any]:
    """The JSON object of a program (``docs/formats.md``), an instruction per row."""
    return {
        "weft": "program",
        "schema": SCHEMA,
        "name": program.name,
        "collective": program.collective.to_json(),
        "message_chunks": program.message_chunks,
        "in_place": program.in_place,
        "protocol": str(program.protocol),
        "ranks": _dump_ranks(program),
    }


def _dump_ranks(program: Program) -> list[dict[str, Any]]:
    ops, buffers = list(map(str, OPS)), list(map(str, BUFFERS))
    waits = np.stack([program.wait_id, program.wait_flag], axis=1).tolist()
    begin = program.wait_start.tolist()
    parts = (getattr(program, name).tolist() for name in _INSTRUCTION)
    rows = [
        [ops[op], buffers[src], at, buffers[dst], to, count, waits[begin[i] : begin[i + 1]]]
        for i, (op, src, at, dst, to, count) in enumerate(zip(*parts, strict=True))
    ]
    start = program.block_start.tolist()
    blocks = [
        {"channel": channel, "send": send, "recv": recv, "code": rows[start[b] : start[b + 1]]}
        for b, (channel, send, recv) in enumerate(_heads(program))
    ]
    first, sizes = program.first_block.tolist(), program.chunks.tolist()
    return [
        {
            "input_chunks": inputs,
            "output_chunks": outputs,
            "scratch_chunks": scratch,
            "blocks": blocks[first[r] : first[r + 1]],
        }
        for r, (inputs, outputs, scratch) in enumerate(sizes)
    ]


def load(data: Any, where: str = "program") -> Program:
    """Read the object that :func:`dump` writes: well formed, not proved.

    Raises:
        BadFile: not such an object. UserError: a collective that makes no sense. UnknownName: a
            protocol or kind that is not one.
    """
    require_kind(data, "program", where)
    fields = Fields(data, where)
    protocol = fields.get("protocol", str)
    if protocol not in set(Protocol):
        raise UnknownName("protocol", protocol, Protocol, where=where)
    name = fields.get("name", str)
    collective = Collective.from_json(fields.get("collective", dict), f"{where}: collective")
    rows = _FileRows()
    for r, rank in enumerate(fields.get("ranks", list)):
        rows.rank(rank, r, f"{where}: rank {r}")
    program = Program(
        name=name,
        collective=collective,
        message_chunks=_number(fields, "message_chunks", where),
        in_place=fields.get("in_place", bool),
        protocol=Protocol(protocol),
        **columns_of(rows.chunks, rows.heads, rows.lengths, rows.rows, rows.waits),
    )
    fields.finish()
    return program


class _FileRows:
    def __init__(self) -> None:
        self.chunks: list[list[int]] = []
        self.heads: list[tuple[int, int, int, int]] = []
        self.lengths: list[int] = []
        self.rows: list[tuple[int, ...]] = []
        self.waits: list[list[tuple[int, int]]] = []

    def rank(self, data: Any, rank: int, where: str) -> None:
        fields = Fields(data, where)
        names = ("input", "output", "scratch")
        self.chunks.append([_number(fields, f"{name}_chunks", where) for name in names])
        for b, block in enumerate(fields.get("blocks", list)):
            self._block(block, rank, f"{where} block {b}")
        fields.finish()

    def _block(self, data: Any, rank: int, where: str) -> None:
        fields = Fields(data, where)
        channel = _number(fields, "channel", where)
        peers = []
        for name in ("send", "recv"):
            peer = fields.get(name, (int, type(None)))
            peers.append(ABSENT if peer is None else _in_range(peer, name, where))
        code = fields.get("code", list)
        for i, row in enumerate(code):
            self._instruction(row, f"{where} instruction {i}")
        fields.finish()
        self.heads.append((rank, channel, peers[0], peers[1]))
        self.lengths.append(len(code))

    def _instruction(self, row: Any, where: str) -> None:
        kinds = [str, str, int, str, int, int, list]
        if not isinstance(row, list) or [type(x) for x in row] != kinds:
            raise BadFile(
                "an instruction is [op, buffer, offset, buffer, offset, count, waits]", where=where
            )
        op, src, src_at, dst, dst_at, count, waits = row
        for name, known, noun in (
            (op, OP_NUMBER, "operation"),
            (src, BUFFER_NUMBER, "buffer"),
            (dst, BUFFER_NUMBER, "buffer"),
        ):
            if name not in known:
                raise UnknownName(noun, name, known, where=where)
        for wait in waits:
            if not isinstance(wait, list) or [type(x) for x in wait] != [int, int]:
                raise BadFile("a wait is [block, instruction]", where=where)
        self.rows.append(
            (
                OP_NUMBER[op],
                BUFFER_NUMBER[src],
                _in_range(src_at, "the offset", where),
                BUFFER_NUMBER[dst],
                _in_range(dst_at, "the offset", where),
                _in_range(count, "the count", where),
            )
        )
        self.waits.append(
            [(_in_range(b, "a wait", where), _in_range(i, "a wait", where)) for b, i in waits]
        )


def _number(fields: Fields, key: str, where: str) -> int:
    return _in_range(fields.get(key, int), key, where)


def _in_range(value: int, what: str, where: str) -> int:
    if not 0 <= value < LARGEST:
        raise BadFile(f"{what} is {value}, outside 0 … {LARGEST - 1}", where=where)
    return value
