"""Close the gaps in scratch: slots that no instruction touches any more are given back.

Before::

    scratch of 4 chunks, used: s[0], s[3]

After::

    scratch of 2 chunks, used: s[0], s[1]       (neighbours stay neighbours)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from weft.dsl.program import Block, Buffer, Instr, Op, Program, RankProgram, Slice

from ..target import Target
from .flow import Column


@dataclass(frozen=True, slots=True)
class Prune:
    """Renumber scratch without gaps."""

    name: ClassVar[str] = "prune"

    def apply(self, program: Program, target: Target) -> Program:
        """The program with the least scratch for the slots it uses."""
        maps = [_places(code) for code in program.ranks]
        return replace(
            program,
            ranks=tuple(_moved(code, rank, maps) for rank, code in enumerate(program.ranks)),
        )


def _places(code: RankProgram) -> Column:
    """New offset of every old scratch slot, with the new size at the end; unused ones: -1."""
    used = np.zeros(code.scratch_chunks + 1, bool)
    for block in code:
        for instr in block.code:
            for part in _touched(instr):
                if part.buffer is Buffer.SCRATCH:
                    used[part.offset : part.offset + instr.count] = True
    used[-1] = True
    place = np.cumsum(used) - 1
    return np.where(used, place, -1)


def _touched(instr: Instr) -> tuple[Slice, ...]:
    """The local slices an instruction reads or writes."""
    return (instr.src,) * instr.op.reads_src + (instr.dst,) * instr.op.writes_dst


def _moved(code: RankProgram, rank: int, maps: list[Column]) -> RankProgram:
    def block(b: Block) -> Block:
        return replace(b, code=tuple(_instr(i, b, rank, maps) for i in b.code))

    size = int(maps[rank][-1])
    return replace(code, blocks=tuple(block(b) for b in code), scratch_chunks=size)


def _instr(instr: Instr, block: Block, rank: int, maps: list[Column]) -> Instr:
    """Unread sides name the peer's slice; where that is gone, the own one stands for it."""
    if Buffer.SCRATCH not in (instr.src.buffer, instr.dst.buffer) or instr.op is Op.NOP:
        return instr
    src_at = rank if instr.op.reads_src else block.recv
    dst_at = rank if instr.op.writes_dst else block.send
    src = _slice(instr.src, maps, src_at)
    dst = _slice(instr.dst, maps, dst_at)
    return replace(instr, src=src or dst or instr.src, dst=dst or src or instr.dst)


def _slice(part: Slice, maps: list[Column], rank: int | None) -> Slice | None:
    if part.buffer is not Buffer.SCRATCH or rank is None:
        return part
    place = maps[rank]
    new = int(place[part.offset]) if part.offset < len(place) - 1 else -1
    return None if new < 0 else Slice(Buffer.SCRATCH, new)
