"""Do not store a partial sum that nobody reads where it is.

Before::

    block 0 (from 0, to 2):   0: rrcs o[1] += …      5: r o[1]     (nobody reads o[1] in between)

After::

    block 0 (from 0, to 2):   0: rrs  o[1] + …       5: r o[1]
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from weft.dsl.nouns.program import Op, Program

from ...runtime.target import Target
from ..analyses.access import unread
from ..analyses.code import OP_NUMBER, Code, instructions, with_code
from ..analyses.order import Order


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
        if not (code.op == OP_NUMBER[Op.RECV_REDUCE_COPY_SEND]).any():
            return program
        dead = unread(code, Order.of(code).positions(), Op.RECV_REDUCE_COPY_SEND)
        if not len(dead):
            return program
        old, new = np.unique(code.form[dead], return_inverse=True)
        shorter = [
            replace(x, op=Op.RECV_REDUCE_SEND, dst=x.src)
            for x in (code.forms[i] for i in old.tolist())
        ]
        form = code.form.copy()
        form[dead] = len(code.forms) + new.reshape(-1)
        written = instructions([*code.forms, *shorter], form, code.waits())
        return with_code(program, written, np.diff(code.block_start).tolist())
