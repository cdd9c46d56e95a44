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

from weft.dsl.base.arrays import Bools
from weft.dsl.nouns.program import READS_SRC, WRITES_DST, Program, offsets

from ...runtime.target import Target
from ..analyses.renumber import SCRATCH, renumbered


@dataclass(frozen=True, slots=True)
class Prune:
    """Renumber scratch without gaps."""

    name: ClassVar[str] = "prune"

    def apply(self, program: Program, target: Target) -> Program:
        """The program with the least scratch for the slots it uses."""
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
    """Whether each scratch slot, rank after rank, is named by an instruction of its rank."""
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
