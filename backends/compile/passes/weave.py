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

Sums that are instructions of their own stand behind the receive in its block. So the sums of what
several peers send for one slot, which come one after another, keep one block busy at a time. Where
``lower`` has cut chunks into parts, all blocks of an instance sum: each those of some parts, after
all receives of their level, so that no receive waits for a sum of its level.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from weft.dsl.base.arrays import Ints, distinct_values
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.program import OP_NUMBER, Op, Program, Protocol, offsets, table
from weft.dsl.nouns.runtime import Target

from ..analyses.access import SlotAccesses, latest
from ..analyses.flow import NONE, Blocks, Flow

LATE = np.int64(1) << 40  # a level after all others of its step
_OFFSET = 0xFFFFFFFF  # the part of a slot that is its offset


@dataclass(frozen=True, slots=True)
class Weave:
    """Write the code; ``label`` names the program, ``protocol`` is the one it is run with.

    Local work gets blocks of its own.
    """

    name: ClassVar[str] = "weave"
    label: str = "weft"
    protocol: Protocol = Protocol.SIMPLE

    def apply(self, flow: Flow, target: Target) -> Program:
        """Return the program of a flow whose messages have blocks, counts and levels."""
        assert flow.blocks is not None, "thread blocks come before the code"
        local_block, peers = _local_blocks(flow, flow.blocks, target)
        rows = _rows(flow, flow.blocks, local_block)
        first_block = offsets([len(own) for own in peers])
        block = first_block[rows.rank] + rows.block
        # The rows are in order, so a stable sort leaves every block in order.
        order = np.argsort(block, kind="stable")
        rank = np.repeat(np.arange(len(peers)), np.diff(first_block))
        channel, send, recv = table([head for own in peers for head in own], 3)
        c = flow.collective
        source, to = rows.source[order], rows.to[order]
        program = Program(
            name=self.label,
            collective=c,
            message_chunks=c.message_chunks,
            in_place=flow.in_place,
            protocol=self.protocol,
            chunks=np.stack(
                np.broadcast_arrays(c.input_chunks, c.output_chunks, flow.scratch), axis=1
            ),
            block_rank=rank,
            block_channel=channel,
            block_send=send,
            block_recv=recv,
            block_start=offsets(np.bincount(block, minlength=len(rank))),
            op=np.array([OP_NUMBER[op] for op in _OPS])[rows.op[order]],
            src_buffer=source >> 32,
            src_offset=source & _OFFSET,
            dst_buffer=to >> 32,
            dst_offset=to & _OFFSET,
            count=rows.count[order],
            wait_start=np.zeros(len(order) + 1, np.int64),
            wait_id=np.zeros(0, np.int64),
            wait_flag=np.zeros(0, np.int64),
        )
        return program.with_waits(*_waits(rows, program, order))


def _local_blocks(
    flow: Flow, blocks: Blocks, target: Target
) -> tuple[Ints, list[list[tuple[int, int, int]]]]:
    """Return the block of each local operation, and the peers of all blocks, those included.

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


_OPS = (Op.SEND, Op.RECV, Op.RECV_REDUCE_COPY, Op.REDUCE, Op.COPY)


@dataclass(frozen=True, eq=False)
class _WovenRows:
    """All instructions in the order they are walked; ``op`` is a number in ``_OPS``."""

    rank: Ints
    block: Ints
    op: Ints
    source: Ints
    to: Ints
    count: Ints


def _rows(flow: Flow, blocks: Blocks, local_block: Ints) -> _WovenRows:
    m, local = flow.messages, flow.local
    send_block, recv_block = (b[blocks.connection] for b in (blocks.send_block, blocks.recv_block))
    adds, add_block, add_at, add_count = _sums(flow, send_block, recv_block)
    n, sizes = len(m), [len(m), len(m), len(adds), len(local)]
    kind = np.repeat(np.arange(4), sizes)
    # Columns of the four kinds: send, receive, the reduction after a receive, local work.
    rank = np.concatenate([m.src, m.dst, m.dst[adds], local.rank])
    block = np.concatenate([send_block, recv_block, add_block, local_block])
    source = np.concatenate(
        [
            m.send,
            np.where(m.operand == NONE, m.send, m.operand),
            m.add_from[adds] + add_at,
            local.source,
        ]
    )
    to = np.concatenate([m.recv, m.recv, m.add_to[adds] + add_at, local.target])
    count = np.concatenate([m.count, m.count, add_count, local.count])
    op = np.concatenate(
        [
            np.zeros(n, np.int64),
            np.where(m.operand == NONE, 1, 2),
            np.full(len(adds), 3),
            4 - local.reduce,
        ]
    )
    step = np.concatenate([m.step, m.step, m.step[adds], local.step])
    level = np.concatenate([m.level, m.level, m.level[adds], np.full(len(local), LATE)])
    phase = np.minimum(kind, 1)
    if flow.parts > 1:
        phase[kind == 2] = 2
    turn = np.concatenate([np.zeros(n, np.int64), m.turn, m.turn[adds], local.reduce])
    index = np.concatenate([np.arange(n), np.arange(n), adds, np.arange(len(local))])
    order = np.lexsort((kind, index, turn, phase, level, step))
    return _WovenRows(*(x[order] for x in (rank, block, op, source, to, count)))


def _sums(flow: Flow, send_block: Ints, recv_block: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """Return the sums after receives: message, block, first chunk and chunks of each.

    In a flow whose chunks have parts, every block of an instance on the rank has a stretch of each
    message.
    """
    m = flow.messages
    adds = np.flatnonzero(m.add_to != NONE)
    if flow.parts == 1 or not len(adds):
        return adds, recv_block[adds], np.zeros(len(adds), np.int64), m.count[adds]
    wide = max(int(send_block.max()), int(recv_block.max())) + 1
    ends = [(m.src, send_block), (m.dst, recv_block)]
    places = [(rank * flow.instances + m.instance) * wide + block for rank, block in ends]
    owner, blocks = np.divmod(distinct_values(np.concatenate(places)), wide)
    owner, first, many = np.unique(owner, return_index=True, return_counts=True)
    group = np.searchsorted(owner, m.dst[adds] * flow.instances + m.instance[adds])
    stretches = np.minimum(m.count[adds], many[group])
    start = np.cumsum(stretches) - stretches
    row = np.repeat(np.arange(len(adds)), stretches)
    number = np.arange(len(row)) - start[row]
    count, all_of = m.count[adds][row], stretches[row]
    low = number * count // all_of
    high = (number + 1) * count // all_of
    return adds[row], blocks[first[group[row]] + number], low, high - low


def _waits(rows: _WovenRows, program: Program, order: Ints) -> tuple[Ints, Ints]:
    """For each instruction of the program the latest it depends on in every other block."""
    op = rows.op
    reads = np.flatnonzero(np.array([x.reads_src for x in _OPS])[op])
    sums = np.flatnonzero(op == _OPS.index(Op.REDUCE))
    writes = np.flatnonzero(np.array([x.writes_dst for x in _OPS])[op])
    who = np.concatenate([reads, sums, writes])
    slot = np.concatenate([rows.source[reads], rows.to[sums], rows.to[writes]])
    stores = np.arange(len(who)) >= len(reads) + len(sums)
    time = np.arange(len(op))
    after, before = SlotAccesses.at(
        rows.rank[who], slot, rows.count[who], who, stores, time
    ).conflicts()
    number = np.empty(len(op), np.int64)
    number[order] = time
    after, before = number[after], number[before]
    apart = program.block[after] != program.block[before]
    return latest(program, after[apart], before[apart])
