"""Flow to program: the code of every thread block, with exact dependences.

Before::

    step 0: 0 -> 1 from i[0] into o[0]          step 1: 1 -> 2 from o[0] into o[0]

After::

    rank 1, block 0 (receives from 0):  0: r o[0]
    rank 1, block 1 (sends to 2):       0: s o[0]    waits for block 0, instruction 0

All instructions are walked once, in the order that ``aggregate`` explains. Run one after another in
that order they do what the schedule says; so each must wait for the last writer of what it reads
(read after write), and for the readers and the writer of what it overwrites (write after read,
write after write). Within a block the order of the code is enough.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from weft.dsl.program import Block, Instr, Op, Program, Protocol, RankProgram, Slice

from ..target import Target
from .flow import NONE, Blocks, Column, Flow, slice_of

LATE = np.int64(1) << 40  # a level after all others of its step


@dataclass(frozen=True, slots=True)
class Weave:
    """Write the code; ``label`` names the program. Local work gets blocks of its own."""

    name: ClassVar[str] = "weave"
    label: str = "weft"
    protocol: Protocol = Protocol.SIMPLE

    def apply(self, flow: Flow, target: Target) -> Program:
        """The program of a flow whose messages have blocks, counts and levels."""
        assert flow.blocks is not None, "thread blocks come before the code"
        local_block, peers = _local_blocks(flow, flow.blocks, target)
        ranks = [_RankCode(len(blocks)) for blocks in peers]
        for rank, block, op, source, to, count in _instructions(flow, flow.blocks, local_block):
            ranks[rank].append(block, op, source, to, count)
        c = flow.collective
        return Program(
            self.label, c,
            tuple(
                RankProgram(
                    code.blocks(peers[rank]), c.input_chunks, c.output_chunks,
                    int(flow.scratch[rank]),
                )
                for rank, code in enumerate(ranks)
            ),
            c.message_chunks, flow.in_place, self.protocol,
        )  # fmt: skip


def _local_blocks(
    flow: Flow, blocks: Blocks, target: Target
) -> tuple[Column, list[list[tuple[int, int, int]]]]:
    """The block of each local operation, and the peers of all blocks, those included.

    Each instance of a rank has its own, and several where they would be long: half the steps a
    block may have, which leaves room for dependences.
    """
    local, peers = flow.local, [list(p) for p in blocks.peers]
    keys = local.rank * flow.instances + local.instance
    block = np.empty(len(local), np.int64)
    # Sums into one slot stay together; so the order within a key is by target.
    order = np.lexsort((local.target, keys))
    _, start, size = np.unique(keys[order], return_index=True, return_counts=True)
    for first, count in zip(start.tolist(), size.tolist(), strict=True):
        own = peers[int(local.rank[order[first]])]
        parts = -(-count // max(1, target.max_steps // 2))
        block[order[first : first + count]] = len(own) + np.arange(count) * parts // count
        own.extend([(0, NONE, NONE)] * parts)
    for own in peers:
        if not own:  # a rank with nothing to do still launches one block
            own.append((0, NONE, NONE))
    return block, peers


_Row = tuple[int, int, Op, int, int, int]


def _instructions(flow: Flow, blocks: Blocks, local_block: Column) -> Iterator[_Row]:
    """All instructions in order: (rank, block, op, source slot, destination slot, count)."""
    m, local = flow.messages, flow.local
    send_block, recv_block = (b[blocks.connection] for b in (blocks.send_block, blocks.recv_block))
    adds = np.flatnonzero(m.add_to != NONE)
    n, sizes = len(m), [len(m), len(m), len(adds), len(local)]
    kind = np.repeat(np.arange(4), sizes)
    # Columns of the four kinds: send, receive, the reduction after a receive, local work.
    rank = np.concatenate([m.src, m.dst, m.dst[adds], local.rank])
    block = np.concatenate([send_block, recv_block, recv_block[adds], local_block])
    source = np.concatenate([m.send, np.where(m.operand == NONE, m.send, m.operand),
                             m.add_from[adds], local.source])  # fmt: skip
    to = np.concatenate([m.recv, m.recv, m.add_to[adds], local.target])
    count = np.concatenate([m.count, m.count, m.count[adds], local.count])
    code = np.concatenate([np.zeros(n, np.int64), np.where(m.operand == NONE, 1, 2),
                           np.full(len(adds), 3), 4 - local.reduce])  # fmt: skip
    step = np.concatenate([m.step, m.step, m.step[adds], local.step])
    level = np.concatenate([m.level, m.level, m.level[adds], np.full(len(local), LATE)])
    phase = np.minimum(kind, 1)
    turn = np.concatenate([np.zeros(n, np.int64), m.turn, m.turn[adds], local.reduce])
    index = np.concatenate([np.arange(n), np.arange(n), adds, np.arange(len(local))])
    order = np.lexsort((kind, index, turn, phase, level, step))
    ops = (Op.SEND, Op.RECV, Op.RECV_REDUCE_COPY, Op.REDUCE, Op.COPY)
    columns = (x[order].tolist() for x in (rank, block, code, source, to, count))
    for r, b, o, s, d, c in zip(*columns, strict=True):
        yield r, b, ops[o], s, d, c


class _RankCode:
    """The code of one rank as it grows, and who last wrote and since then read each slot."""

    def __init__(self, blocks: int) -> None:
        self.code: list[list[Instr]] = [[] for _ in range(blocks)]
        self.writer: dict[int, tuple[int, int]] = {}
        self.readers: dict[int, list[tuple[int, int]]] = {}
        self.slices: dict[int, Slice] = {}

    def append(self, block: int, op: Op, source: int, to: int, count: int) -> None:
        me = (block, len(self.code[block]))
        latest: dict[int, int] = {}  # block -> latest instruction to wait for
        if op.reads_src:
            self._read(source, count, me, latest)
        if op is Op.REDUCE:
            self._read(to, count, me, latest)
        if op.writes_dst:
            self._write(to, count, me, latest)
        latest.pop(block, None)
        waits = tuple(sorted(latest.items()))
        self.code[block].append(Instr(op, self._slice(source), self._slice(to), count, waits))

    def _read(self, slot: int, count: int, me: tuple[int, int], latest: dict[int, int]) -> None:
        for at in range(slot, slot + count):
            before = self.writer.get(at)
            if before is not None and latest.get(before[0], -1) < before[1]:
                latest[before[0]] = before[1]
            self.readers.setdefault(at, []).append(me)

    def _write(self, slot: int, count: int, me: tuple[int, int], latest: dict[int, int]) -> None:
        for at in range(slot, slot + count):
            others = self.readers.pop(at, [])
            before = self.writer.get(at)
            if before is not None:
                others.append(before)
            for block, index in others:
                if (block, index) != me and latest.get(block, -1) < index:
                    latest[block] = index
            self.writer[at] = me

    def _slice(self, slot: int) -> Slice:
        known = self.slices.get(slot)
        if known is None:
            known = self.slices[slot] = slice_of(slot)
        return known

    def blocks(self, peers: list[tuple[int, int, int]]) -> tuple[Block, ...]:
        def peer(rank: int) -> int | None:
            return None if rank == NONE else rank

        return tuple(
            Block(channel, peer(send), peer(recv), tuple(code))
            for (channel, send, recv), code in zip(peers, self.code, strict=True)
        )
