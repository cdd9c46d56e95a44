"""What a program does, as columns: the common form of an XML file and a Program for judging.

The checker and the interpreter both start from it, and from nothing else: neither sees how the
lowering made the program. Blocks and transfers are numbered through all ranks; the transfers of a
block are contiguous and in order. A few NumPy arrays hold a million transfers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

import numpy as np

from weft.dsl.base.arrays import Ints
from weft.dsl.base.unique_rows import distinct, rows_of
from weft.dsl.nouns.program import Buffer, Op, Program, Protocol, Slice

from ..formats.msccl.read.model import Transfer, XmlAlgo

OPS = tuple(Op)
BUFFERS = tuple(Buffer)
SENDS = np.array([op.sends for op in OPS])
RECEIVES = np.array([op.receives for op in OPS])
READS_SRC = np.array([op.reads_src for op in OPS])
WRITES_DST = np.array([op.writes_dst for op in OPS])
REDUCE = OPS.index(Op.REDUCE)
COPY = OPS.index(Op.COPY)
NOP = OPS.index(Op.NOP)
_OP_INDEX = {op: i for i, op in enumerate(OPS)}
_BUFFER_INDEX = {b: i for i, b in enumerate(BUFFERS)}


@dataclass(frozen=True)
class Listing:
    """Columns of blocks, transfers and waits.

    Attributes:
        ranks: number of ranks; ``channels``: declared number of channels.
        chunks: shape (ranks, 3), declared chunks of the buffers i, o, s.
        block_rank, block_id, block_channel, block_send, block_recv: one entry per block; a peer
            of -1 is none; ``block_id`` is the number that waits use on that rank.
        block_start: shape (blocks + 1,); those of block b are
            ``block_start[b]:block_start[b+1]``.
        op: index into :data:`OPS`; ``src_buffer``, ``dst_buffer``: index into :data:`BUFFERS`.
        label: how the transfer is called in messages (the step's ``s``).
        publishes: the flag value it publishes when done, -1 for none; ascending in a block.
        more_start, more_offset: further source offsets of fused reductions (CSR by transfer).
        wait_start, wait_block, wait_flag: what a transfer waits for (CSR by transfer): until the
            block (number through all ranks; -1: there is none) published at least the flag.
    """

    ranks: int
    protocol: Protocol
    channels: int
    chunks: Ints
    block_rank: Ints
    block_id: Ints
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
    label: Ints
    publishes: Ints
    more_start: Ints
    more_offset: Ints
    wait_start: Ints
    wait_block: Ints
    wait_flag: Ints

    def __post_init__(self) -> None:
        for f in fields(self):
            column = getattr(self, f.name)
            if isinstance(column, np.ndarray):
                column.setflags(write=False)

    @property
    def blocks(self) -> int:
        """Number of blocks of all ranks."""
        return len(self.block_rank)

    @property
    def transfers(self) -> int:
        """Number of transfers of all blocks."""
        return len(self.op)

    def block_of_transfer(self) -> Ints:
        """The block of each transfer."""
        return np.repeat(np.arange(self.blocks), np.diff(self.block_start))

    def describe(self, transfer: int) -> str:
        """``rank 3 tb 1 step 4 (rcs)``, as messages name it."""
        block = int(np.searchsorted(self.block_start, transfer, side="right")) - 1
        return (
            f"{self.describe_block(block)} step {self.label[transfer]} ({OPS[self.op[transfer]]})"
        )

    def describe_block(self, block: int) -> str:
        """``rank 3 tb 1``."""
        return f"rank {self.block_rank[block]} tb {self.block_id[block]}"


@dataclass(slots=True)
class _Row:
    """One transfer before it goes into the columns."""

    op: Op
    src: Slice
    dst: Slice
    count: int
    label: int
    publishes: int
    more: tuple[int, ...]
    waits: tuple[tuple[int, int], ...]


def of_xml(algo: XmlAlgo) -> Listing:
    """The listing of a file."""
    chunks = [(r.input_chunks, r.output_chunks, r.scratch_chunks) for r in algo.ranks]
    blocks = [
        (rank, b.id, b.channel, b.send, b.recv, _xml_rows(b.transfers))
        for rank, r in enumerate(algo.ranks)
        for b in r.blocks
    ]
    return _build(algo.protocol, algo.channels, chunks, blocks)


def of_program(program: Program) -> Listing:
    """The listing of a program: every instruction publishes its index when it has finished.

    Equal instructions are often one object; each is read once.
    """
    blocks = [(r, i, b) for r, rank in enumerate(program.ranks) for i, b in enumerate(rank.blocks)]
    head = _columns(
        [(r, i, b.channel, _peer(b.send), _peer(b.recv), len(b.code)) for r, i, b in blocks], 6
    )
    rank, number, length = head[0], head[1], head[5]
    once, which = distinct([instr for _, _, b in blocks for instr in b.code])
    body = _columns(
        [
            (
                _OP_INDEX[x.op],
                _BUFFER_INDEX[x.src.buffer],
                x.src.offset,
                _BUFFER_INDEX[x.dst.buffer],
                x.dst.offset,
                x.count,
            )
            for x in once
        ],
        6,
    )
    op, src_buffer, src_offset, dst_buffer, dst_offset, count = (x[which] for x in body)
    block_start = np.concatenate([[0], np.cumsum(length)])
    label = np.arange(len(which)) - np.repeat(block_start[:-1], length)
    first_wait = np.concatenate([[0], np.cumsum([len(x.waits) for x in once], dtype=np.int64)])
    wait_start, row = rows_of(first_wait, which)
    other, flag = (x[row] for x in _columns([w for x in once for w in x.waits], 2))
    here = np.repeat(np.repeat(rank, length), np.diff(wait_start))
    # The blocks of a rank are 0, 1, 2 …, one after the other.
    first, blocks_there = np.searchsorted(rank, here), np.bincount(rank, minlength=1)[here]
    known = (other >= 0) & (other < blocks_there)
    return Listing(
        ranks=len(program.ranks),
        protocol=program.protocol,
        channels=program.channels,
        chunks=np.array(
            [(r.input_chunks, r.output_chunks, r.scratch_chunks) for r in program.ranks], np.int64
        ).reshape(-1, 3),
        block_rank=rank,
        block_id=number,
        block_channel=head[2],
        block_send=head[3],
        block_recv=head[4],
        block_start=block_start,
        op=op,
        src_buffer=src_buffer,
        src_offset=src_offset,
        dst_buffer=dst_buffer,
        dst_offset=dst_offset,
        count=count,
        label=label,
        publishes=label.copy(),
        more_start=np.zeros(len(which) + 1, np.int64),
        more_offset=np.zeros(0, np.int64),
        wait_start=wait_start,
        wait_block=np.where(known, first + other, -1),
        wait_flag=flag,
    )


def _peer(peer: int | None) -> int:
    return -1 if peer is None else peer


def _xml_rows(transfers: Iterable[Transfer]) -> Iterable[_Row]:
    for t in transfers:
        flag = t.flag if t.publishes else -1
        yield _Row(t.op, t.src, t.dst, t.count, t.step, flag, t.more_sources, t.waits)


def _build(
    protocol: Protocol,
    channels: int,
    chunks: list[tuple[int, int, int]],
    blocks: list[tuple[int, int, int, int, int, Iterable[_Row]]],
) -> Listing:
    starts, more_starts, wait_starts = [0], [0], [0]
    rows: list[tuple[int, ...]] = []
    more: list[int] = []
    waits: list[tuple[int, int, int]] = []
    for rank, *_, code in blocks:
        for t in code:
            rows.append(
                (
                    _OP_INDEX[t.op],
                    _BUFFER_INDEX[t.src.buffer],
                    t.src.offset,
                    _BUFFER_INDEX[t.dst.buffer],
                    t.dst.offset,
                    t.count,
                    t.label,
                    t.publishes,
                )
            )
            more.extend(t.more)
            more_starts.append(len(more))
            waits.extend((rank, *w) for w in t.waits)
            wait_starts.append(len(waits))
        starts.append(len(rows))
    # The first block of an id counts, should there be two.
    numbers = {(b[0], b[1]): i for i, b in reversed(list(enumerate(blocks)))}
    head = _columns([b[:5] for b in blocks], 5)
    body = _columns(rows, 8)
    block_rank, block_id, block_channel, block_send, block_recv = head
    op, src_buffer, src_offset, dst_buffer, dst_offset, count, label, publishes = body
    return Listing(
        ranks=len(chunks),
        protocol=protocol,
        channels=channels,
        chunks=np.array(chunks, np.int64).reshape(-1, 3),
        block_rank=block_rank,
        block_id=block_id,
        block_channel=block_channel,
        block_send=block_send,
        block_recv=block_recv,
        block_start=np.array(starts, np.int64),
        op=op,
        src_buffer=src_buffer,
        src_offset=src_offset,
        dst_buffer=dst_buffer,
        dst_offset=dst_offset,
        count=count,
        label=label,
        publishes=publishes,
        more_start=np.array(more_starts, np.int64),
        more_offset=np.array(more, np.int64),
        wait_start=np.array(wait_starts, np.int64),
        wait_block=np.array([numbers.get((rank, b), -1) for rank, b, _ in waits], np.int64),
        wait_flag=np.array([flag for _, _, flag in waits], np.int64),
    )


def _columns(rows: Sequence[tuple[int, ...]], width: int) -> list[Ints]:
    table = np.array(rows, np.int64).reshape(-1, width)
    return [np.ascontiguousarray(table[:, i]) for i in range(width)]
