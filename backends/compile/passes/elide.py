"""Do not store a partial sum that is never read where it is.

Before::

    block 0 (from 0, to 2):   0: rrcs o[1] += …      5: r o[1]     (nothing reads o[1] in between)

After::

    block 0 (from 0, to 2):   0: rrs  o[1] + …       5: r o[1]
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.program import OP_NUMBER, Op, Program
from weft.dsl.nouns.runtime import Target

from ..analyses.access import latest, unread
from ..analyses.order import ProgramOrder


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
