"""Publish no send by itself where the runtime's flag can overtake its reads.

Before (RCCL under LL, whose send ends without a barrier)::

    block 0:  0: s o[1]                            block 1:  0: r o[1]  waits for (0, 0)

After::

    block 0:  0: s o[1]    1: cpy o[1] -> s[0]     block 1:  0: r o[1]  waits for (0, 1)

A copy ends with a barrier of its thread block, so the flag behind it tells that the send has read
all it sends. It copies one chunk to a scratch slot that is its block's own and never read.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from weft.dsl.base.arrays import Bools, distinct_values
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.program import (
    BUFFER_NUMBER,
    COPY,
    SENDS,
    Buffer,
    Program,
    Protocol,
    offsets,
)
from weft.dsl.nouns.runtime import Target


@dataclass(frozen=True, slots=True)
class Fence:
    """Add a copy behind plain sends that are waited for, where these are not ordered."""

    name: ClassVar[str] = "fence"

    def apply(self, program: Program, target: Target) -> Program:
        """Return the program with a copy behind every send that a wait names."""
        if target.send_publishes or program.protocol is Protocol.SIMPLE:
            return program
        late = np.zeros(program.instructions, bool)
        late[program.wait] = True
        late &= SENDS[program.op]
        return _fenced(program, late) if late.any() else program


def _fenced(program: Program, late: Bools) -> Program:
    """Return the program with a copy behind each late instruction, which its waits name instead."""
    size, rank = program.instructions, program.rank
    rows = np.repeat(np.arange(size), 1 + late)
    copies = np.flatnonzero(np.diff(rows, prepend=-1) == 0)
    lengths = program.lengths + np.bincount(program.block[late], minlength=program.blocks)
    grown = program.take(rows, lengths)
    # A scratch slot for each block with a copy, behind those of its rank.
    owners = distinct_values(program.block[late])
    added = np.bincount(program.block_rank[owners], minlength=program.rank_count)
    scratch = program.chunks[:, 2]
    slot = np.zeros(program.blocks, np.int64)
    first = offsets(added)[program.block_rank[owners]]
    slot[owners] = scratch[program.block_rank[owners]] + np.arange(len(owners)) - first
    columns: dict[str, Any] = {"op": COPY, "dst_buffer": BUFFER_NUMBER[Buffer.SCRATCH], "count": 1}
    columns["dst_offset"] = slot[grown.block[copies]]
    for name, value in columns.items():
        column = columns[name] = getattr(grown, name).copy()
        column[copies] = value
    chunks = program.chunks.copy()
    chunks[:, 2] += added
    end = np.arange(size) + np.cumsum(late)  # the last row that each instruction has now
    waiting, wait = program.waiting, end[program.wait]
    # Ranks with a copy name their waits in order; others keep them.
    fenced = added[rank[waiting]] > 0
    order = np.lexsort((np.where(fenced, wait, np.arange(len(wait))), waiting))
    begin = end - late
    return replace(grown, chunks=chunks, **columns).with_waits(begin[waiting[order]], wait[order])
