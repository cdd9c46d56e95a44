"""Move scratch slots: every instruction that names one, on its own rank or on the peer's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from weft.dsl.base.arrays import Ints
from weft.dsl.nouns.program import Block, Buffer, Instr, Op, Program, RankProgram, Slice


def touched(instr: Instr) -> tuple[Slice, ...]:
    """The local slices an instruction reads or writes."""
    return (instr.src,) * instr.op.reads_src + (instr.dst,) * instr.op.writes_dst


def renumbered(program: Program, maps: Sequence[Ints], sizes: Sequence[int]) -> Program:
    """The program with scratch slot k of rank r at ``maps[r][k]`` (-1: nobody uses it).

    ``sizes`` are the new scratch sizes. Slots that one instruction takes together must stay
    together. The program itself if nothing moves.
    """
    stays = (
        size == code.scratch_chunks == len(where) and np.array_equal(where, np.arange(size))
        for code, where, size in zip(program.ranks, maps, sizes, strict=True)
    )
    if all(stays):
        return program
    return replace(
        program,
        ranks=tuple(
            _moved(code, rank, maps, int(sizes[rank])) for rank, code in enumerate(program.ranks)
        ),
    )


def _moved(code: RankProgram, rank: int, maps: Sequence[Ints], size: int) -> RankProgram:
    def block(b: Block) -> Block:
        return replace(b, code=tuple(_instr(i, b, rank, maps) for i in b.code))

    return replace(code, blocks=tuple(block(b) for b in code), scratch_chunks=size)


def _instr(instr: Instr, block: Block, rank: int, maps: Sequence[Ints]) -> Instr:
    """Unread sides name the peer's slice; where that is gone, the own one stands for it."""
    if Buffer.SCRATCH not in (instr.src.buffer, instr.dst.buffer) or instr.op is Op.NOP:
        return instr
    src_at = rank if instr.op.reads_src else block.recv
    dst_at = rank if instr.op.writes_dst else block.send
    src = _slice(instr.src, maps, src_at)
    dst = _slice(instr.dst, maps, dst_at)
    return replace(instr, src=src or dst or instr.src, dst=dst or src or instr.dst)


def _slice(part: Slice, maps: Sequence[Ints], rank: int | None) -> Slice | None:
    if part.buffer is not Buffer.SCRATCH or rank is None:
        return part
    place = maps[rank]
    new = int(place[part.offset]) if part.offset < len(place) else -1
    return None if new < 0 else Slice(Buffer.SCRATCH, new)
