"""Close the gaps in scratch: slots that no instruction touches any more are given back.

Before::

    scratch of 4 chunks, used: s[0], s[3]

After::

    scratch of 2 chunks, used: s[0], s[1]       (neighbours stay neighbours)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from weft.dsl.base.arrays import Ints
from weft.dsl.nouns.program import Buffer, Program, RankProgram

from ...runtime.target import Target
from ..analyses.renumber import renumbered, touched


@dataclass(frozen=True, slots=True)
class Prune:
    """Renumber scratch without gaps."""

    name: ClassVar[str] = "prune"

    def apply(self, program: Program, target: Target) -> Program:
        """The program with the least scratch for the slots it uses."""
        maps = [_places(code) for code in program.ranks]
        if all(bool((places >= 0).all()) for places in maps):
            return program
        return renumbered(program, maps, [int(m.max(initial=-1)) + 1 for m in maps])


def _places(code: RankProgram) -> Ints:
    """New offset of every old scratch slot; unused ones: -1."""
    used = np.zeros(code.scratch_chunks, bool)
    if not code.scratch_chunks:
        return np.zeros(0, np.int64)
    for block in code:
        for instr in block.code:
            for part in touched(instr):
                if part.buffer is Buffer.SCRATCH:
                    used[part.offset : part.offset + instr.count] = True
    return np.where(used, np.cumsum(used) - 1, -1)
