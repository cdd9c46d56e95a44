"""Do not store a partial sum that nobody reads where it is.

Before::

    block 0 (from 0, to 2):   0: rrcs o[1] += …      5: r o[1]     (nobody reads o[1] in between)

After::

    block 0 (from 0, to 2):   0: rrs  o[1] + …       5: r o[1]
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from weft.dsl.program import Op, Program

from ..target import Target
from .access import unread
from .order import Code


@dataclass(frozen=True, slots=True)
class Elide:
    """Turn rrcs into rrs where the sum is only passed on."""

    name: ClassVar[str] = "elide"

    def apply(self, program: Program, target: Target) -> Program:
        """The program without copies nobody reads.

        Raises:
            CheckFailed: the program deadlocks.
        """
        if Op.RECV_REDUCE_SEND not in target.ops:
            return program
        code = Code.of(program)
        if not any(i.op is Op.RECV_REDUCE_COPY_SEND for i in code.instrs):
            return program
        dead = set(unread(program, code, code.positions(), Op.RECV_REDUCE_COPY_SEND))
        ranks = []
        for rank, firsts in zip(program.ranks, code.first, strict=True):
            blocks = tuple(
                replace(block, code=tuple(
                    replace(x, op=Op.RECV_REDUCE_SEND, dst=x.src) if i in dead else x
                    for i, x in enumerate(block.code, first)
                ))
                for block, first in zip(rank, firsts, strict=True)
            )  # fmt: skip
            ranks.append(replace(rank, blocks=blocks))
        return replace(program, ranks=tuple(ranks))
