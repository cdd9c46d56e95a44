"""Who reads and writes which slot of a rank, in the linear order of a program."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from weft.dsl.program import Buffer, Op, Program, Slice

from .flow import BUFFERS, Column
from .order import NOBODY, Code

_BASE = {buffer: i << 32 for i, buffer in enumerate(BUFFERS)}


def slots(program: Program, rank: int, part: Slice, count: int) -> Iterator[int]:
    """The slots of a slice; in place, an input chunk that the output aliases has its number."""
    for offset in range(part.offset, part.offset + count):
        if program.in_place and part.buffer is Buffer.INPUT:
            aliased = offset + program.collective.in_place_shift(rank)
            if 0 <= aliased < program.ranks[rank].output_chunks:
                yield _BASE[Buffer.OUTPUT] + aliased
                continue
        yield _BASE[part.buffer] + offset


def by_rank(code: Code, level: Column) -> dict[int, list[int]]:
    """The instructions of each rank in linear order."""
    order: dict[int, list[int]] = {}
    for i in np.argsort(level, kind="stable").tolist():
        order.setdefault(code.rank[i], []).append(i)
    return order


def last_writers(program: Program, code: Code, level: Column) -> list[int]:
    """For every plain send, the one instruction that last wrote all it reads; -1 if none did."""
    found = [NOBODY] * len(code.instrs)
    for rank, order in by_rank(code, level).items():
        writer: dict[int, int] = {}
        for i in order:
            instr = code.instrs[i]
            if instr.op is Op.SEND:
                who = {writer.get(s, NOBODY) for s in slots(program, rank, instr.src, instr.count)}
                if len(who) == 1:
                    found[i] = who.pop()
            elif instr.op.writes_dst:
                for slot in slots(program, rank, instr.dst, instr.count):
                    writer[slot] = i
    return found


def unread(program: Program, code: Code, level: Column, op: Op) -> Iterator[int]:
    """Instructions of kind ``op`` whose result no other local instruction reads.

    Whatever stays in the user's buffers to the end counts as read.
    """
    for rank, order in by_rank(code, level).items():
        dead: dict[int, bool] = {}  # slot -> the next access overwrites it unread, or never comes
        for i in reversed(order):
            instr = code.instrs[i]
            if instr.op is op and all(
                dead.get(s, s >= _BASE[Buffer.SCRATCH])
                for s in slots(program, rank, instr.dst, instr.count)
            ):
                yield i
            if instr.op.writes_dst:
                dead.update((s, True) for s in slots(program, rank, instr.dst, instr.count))
            if instr.op is Op.REDUCE:
                dead.update((s, False) for s in slots(program, rank, instr.dst, instr.count))
            if instr.op.reads_src:
                dead.update((s, False) for s in slots(program, rank, instr.src, instr.count))
