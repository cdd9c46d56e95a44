"""Publish no send by itself where the runtime's flag can overtake its reads.

Before (RCCL under LL, whose send ends without a barrier)::

    block 0:  0: s o[1]                            block 1:  0: r o[1]  waits for (0, 0)

After::

    block 0:  0: s o[1]    1: cpy o[1] -> s[0]     block 1:  0: r o[1]  waits for (0, 1)

A copy ends with a barrier of its thread block, so the flag behind it tells that the send has read
all it sends. It copies one chunk to a scratch slot that is its block's own and nobody reads.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from weft.dsl.nouns.program import Buffer, Instr, Op, Program, Protocol, RankProgram, Slice

from ...runtime.target import Target


@dataclass(frozen=True, slots=True)
class Fence:
    """Let nobody wait for a plain send, on targets and protocols that do not order it."""

    name: ClassVar[str] = "fence"

    def apply(self, program: Program, target: Target) -> Program:
        """The program with a copy behind every send that somebody waits for."""
        if target.send_publishes or program.protocol is Protocol.SIMPLE:
            return program
        ranks = tuple(map(_fenced, program.ranks))
        return program if ranks == program.ranks else replace(program, ranks=ranks)


def _fenced(code: RankProgram) -> RankProgram:
    waited = {wait for block in code for instr in block.code for wait in instr.waits}
    late = {w for w in waited if code.blocks[w[0]].code[w[1]].op.sends}
    if not late:
        return code
    own: dict[int, int] = {}  # block -> its scratch slot
    place: dict[tuple[int, int], tuple[int, int]] = {}  # old instruction -> what to wait for
    grown: list[list[Instr]] = []
    for b, block in enumerate(code):
        new: list[Instr] = []
        for i, instr in enumerate(block.code):
            new.append(instr)
            if (b, i) in late:
                slot = own.setdefault(b, code.scratch_chunks + len(own))
                new.append(Instr(Op.COPY, instr.src, Slice(Buffer.SCRATCH, slot)))
            place[b, i] = (b, len(new) - 1)
        grown.append(new)
    return replace(
        code,
        blocks=tuple(
            replace(block, code=tuple(_moved(i, place) for i in new))
            for block, new in zip(code, grown, strict=True)
        ),
        scratch_chunks=code.scratch_chunks + len(own),
    )


def _moved(instr: Instr, place: dict[tuple[int, int], tuple[int, int]]) -> Instr:
    if not instr.waits:
        return instr
    return replace(instr, waits=tuple(sorted(place[w] for w in instr.waits)))
