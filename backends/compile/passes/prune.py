"""Close the gaps in scratch: slots that no instruction touches any more are given back.

Before::

    scratch of 4 chunks, used: s[0], s[3]

After::

    scratch of 2 chunks, used: s[0], s[1]       (neighbours stay neighbours)
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import ClassVar

import numpy as np

from weft.dsl.base.arrays import Bools, Ints
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.algorithm import Algorithm, Moves
from weft.dsl.nouns.program import (
    ABSENT,
    BUFFER_NUMBER,
    NOP,
    OP_NUMBER,
    READS_SRC,
    WRITES_DST,
    Buffer,
    Op,
    Program,
    offsets,
)
from weft.dsl.nouns.runtime import Target
from weft.dsl.nouns.slots import NONE, OUTPUT, WIDE

from ..analyses.access import latest, unread
from ..analyses.order import ProgramOrder


@dataclass(frozen=True, slots=True)
class Prune:
    """Renumber scratch without gaps."""

    name: ClassVar[str] = "prune"

    def apply(self, program: Program, target: Target) -> Program:
        """Return the program with the least scratch for the slots it uses."""
        used = _used(program)
        if used.all():
            return program
        place = np.where(used, np.cumsum(used) - 1, -1)
        ends = offsets(program.chunks[:, 2])
        kept = offsets(used)[ends]
        # Places are numbered through all ranks up to here.
        rank = np.repeat(np.arange(program.rank_count), program.chunks[:, 2])
        return renumbered(program, np.where(used, place - kept[rank], -1), np.diff(kept))


def _used(program: Program) -> Bools:
    """Test if each scratch slot, rank after rank, is named by an instruction of its rank."""
    first, sizes = offsets(program.chunks[:, 2]), program.chunks[:, 2]
    used = np.zeros(first[-1], bool)
    for does, buffer, offset in (
        (READS_SRC, program.src_buffer, program.src_offset),
        (WRITES_DST, program.dst_buffer, program.dst_offset),
    ):
        at = np.flatnonzero(does[program.op] & (buffer == SCRATCH))
        row = np.repeat(at, program.count[at])
        slot = np.arange(len(row)) - np.repeat(offsets(program.count[at])[:-1], program.count[at])
        slot += offset[row]
        inside = slot < sizes[program.rank[row]]
        used[(first[program.rank[row]] + slot)[inside]] = True
    return used


SCRATCH = BUFFER_NUMBER[Buffer.SCRATCH]


def renumbered(program: Program, place: Ints, sizes: Ints) -> Program:
    """Return the program with scratch slots elsewhere.

    ``place`` is the new offset of every scratch slot, rank after rank (-1: no instruction of the
    rank uses it); ``sizes`` are the new scratch sizes. Slots that one instruction takes together
    must stay together. The program itself if nothing moves.
    """
    old = program.chunks[:, 2]
    within = np.arange(len(place)) - np.repeat(offsets(old)[:-1], old)
    if np.array_equal(sizes, old) and np.array_equal(place, within):
        return program
    op, block = program.op, program.block
    # A side that is not read or written names, by convention, the slice of the peer.
    src_rank = np.where(READS_SRC[op], program.rank, program.block_recv[block])
    dst_rank = np.where(WRITES_DST[op], program.rank, program.block_send[block])
    src, src_there = _moved(program, program.src_buffer, program.src_offset, src_rank, place)
    dst, dst_there = _moved(program, program.dst_buffer, program.dst_offset, dst_rank, place)
    # Where the peer's slot is gone, the other side stands for it.
    by_dst = ~src_there & dst_there & (op != NOP)
    by_src = ~dst_there & src_there & (op != NOP)
    chunks = program.chunks.copy()
    chunks[:, 2] = sizes
    return replace(
        program,
        chunks=chunks,
        src_buffer=np.where(by_dst, program.dst_buffer, program.src_buffer),
        src_offset=np.where(by_dst, dst, src),
        dst_buffer=np.where(by_src, program.src_buffer, program.dst_buffer),
        dst_offset=np.where(by_src, src, dst),
    )


def _moved(
    program: Program, buffer: Ints, offset: Ints, rank: Ints, place: Ints
) -> tuple[Ints, Bools]:
    """Return the new offsets of one side, and whether its slots are still there."""
    moved, there = offset.copy(), np.ones(len(offset), bool)
    at = np.flatnonzero((buffer == SCRATCH) & (rank != ABSENT) & (program.op != NOP))
    sizes, first = program.chunks[:, 2], offsets(program.chunks[:, 2])
    known = offset[at] < sizes[rank[at]]
    there[at[~known]] = False
    at = at[known]
    new = place[first[rank[at]] + offset[at]]
    there[at[new < 0]] = False
    moved[at[new >= 0]] = new[new >= 0]
    return moved, there


# Do not store a partial sum that is never read where it is.
#
# Before::
#
#     block 0 (from 0, to 2):   0: rrcs o[1] += …      5: r o[1]     (nothing reads o[1] in between)
#
# After::
#
#     block 0 (from 0, to 2):   0: rrs  o[1] + …       5: r o[1]


@dataclass(frozen=True, slots=True)
class Elide:
    """Turn rrcs into rrs where the sum is only passed on."""

    name: ClassVar[str] = "elide"

    def apply(self, program: Program, target: Target) -> Program:
        """Return the program without copies that are never read.

        Raises:
            CheckFailed: the program deadlocks.
        """
        if Op.RECV_REDUCE_SEND not in target.ops:
            return program
        wait = program.wait
        if not (program.op == OP_NUMBER[Op.RECV_REDUCE_COPY_SEND]).any():
            return program
        dead = unread(program, ProgramOrder.of(program).positions(), Op.RECV_REDUCE_COPY_SEND)
        if not len(dead):
            return program
        op, buffer, offset = program.op.copy(), program.dst_buffer.copy(), program.dst_offset.copy()
        op[dead] = OP_NUMBER[Op.RECV_REDUCE_SEND]
        buffer[dead], offset[dead] = program.src_buffer[dead], program.src_offset[dead]
        shorter = replace(program, op=op, dst_buffer=buffer, dst_offset=offset)
        return shorter.with_waits(*latest(program, program.waiting, wait))


# Algorithm to algorithm: drop moves whose result is never read.
#
# Before::
#
#     rank 1: s[0] = i[0]      (o[0] is the same memory)      rank 1: o[0] = rank 0: i[1]
#
# After, if nothing reads s[0]::
#
#     rank 1: o[0] = rank 0: i[1]
#
# One walk backwards over the moves: a slot is live if the collective wants it in the end or a later
# move that stays reads it.


@dataclass(frozen=True, slots=True)
class Dead:
    """Keep the instructions that lead to the postcondition."""

    name: ClassVar[str] = "dead"

    def apply(self, algorithm: Algorithm, target: Target) -> Algorithm:
        """Return the algorithm without the moves that nothing needs."""
        m, post = algorithm.moves, algorithm.collective.post
        wanted = post.ranks.astype(np.int64) * WIDE + OUTPUT + post.offsets
        live = set(wanted.tolist())
        reads, base = (m.src * WIDE + m.source).tolist(), m.dst * WIDE
        writes = (base + m.target).tolist()
        adds = np.where(m.operand == NONE, NONE, base + m.operand).tolist()
        kept = np.ones(len(m), bool)
        for i in range(len(m) - 1, -1, -1):
            if writes[i] not in live:
                kept[i] = False
                continue
            live.discard(writes[i])
            if adds[i] != NONE:
                live.add(adds[i])
            live.add(reads[i])
        if kept.all():
            return algorithm
        columns = (getattr(m, field.name)[kept] for field in fields(m))
        return replace(algorithm, moves=Moves(*columns))
