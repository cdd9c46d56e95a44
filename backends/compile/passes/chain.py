"""Let the runtime add many sources to one destination in one go.

Before::

    block 0:   0: re o[0] += s[0]  waits for (1, 0)      1: re o[0] += s[1]  waits for (2, 0)

After::

    block 0:   0: re o[0] += s[0]  waits for (1, 0), (2, 0)      1: re o[0] += s[1]

The runtimes merge ``re`` that follow each other into one, if they have one destination and one
source buffer, none but the first waits, and nothing waits for any but the last: the destination is
read and written once instead of every time. So all waits of such a run go to its first instruction,
for as many as the runtime adds up right (``max_fused_reduces``). The sum is there no later than
before: it was never ready before the last source was. There can be no circle, since what was
between the sums can depend on none of them but through the last.

Every wait but one is a step that does nothing, so a run takes more steps than it did: the pass is
left out unless it is asked for.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from weft.dsl.base.arrays import Bools, Ints
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.program import REDUCE, Program
from weft.dsl.nouns.runtime import Target

from ..analyses.access import latest


@dataclass(frozen=True, slots=True)
class Chain:
    """Move the waits of runs of ``re`` before the first, so that the runtime merges them."""

    name: ClassVar[str] = "chain"

    def apply(self, program: Program, target: Target) -> Program:
        """The program whose runs of sums the runtime merges. Linear in instructions and waits."""
        wait = program.wait
        first = _heads(program, target.max_fused_reduces)[program.waiting]
        if np.array_equal(first, program.waiting):
            return program
        return program.with_waits(*latest(program, first, wait))


def _heads(code: Program, most: int) -> Ints:
    """Return the first instruction of the run of each instruction; itself outside runs."""
    at = np.arange(code.instructions)
    joined = np.zeros(code.instructions, bool)
    joined[1:] = _alike(code)
    begin = np.maximum.accumulate(np.where(joined, 0, at))
    result: Ints = at - (at - begin) % most
    return result


def _alike(code: Program) -> Bools:
    """Test whether each instruction but the first goes on with the sum of the one before it."""
    adds = code.op == REDUCE
    buffer, apart = code.src >> 32, np.abs(code.src - code.dst) >= code.count
    same: Bools = adds[1:] & adds[:-1] & (code.block[1:] == code.block[:-1])
    for column in (code.dst, code.count, buffer):
        same &= column[1:] == column[:-1]
    # A sum of its own destination is another one when both are taken at once.
    same &= apart[1:] & apart[:-1]
    named = np.zeros(code.instructions, bool)
    named[code.wait] = True
    return same & ~named[:-1]
