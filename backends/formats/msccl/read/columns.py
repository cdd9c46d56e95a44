"""A file as columns, as the checker and the interpreter take it: the runtimes' transfers."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from weft.dsl.base.arrays import Ints
from weft.dsl.nouns.program import (
    BUFFER_NUMBER,
    NOBODY,
    OP_NUMBER,
    Code,
    columns_of,
    offsets,
    table,
)

from .model import XmlAlgo


class XmlCode(Code, eq=False, kw_only=True):
    """The columns of a file, well formed or not; an instruction is one of its transfers.

    Attributes:
        nchannels: channels that the file declares.
        ids: of each block, any numbers.
        step, flag: of each transfer: its ``s``, and what it publishes, -1 for nothing.
        sources_start, sources: further source offsets of fused reductions; those of transfer i are
            ``sources[sources_start[i]:sources_start[i+1]]``.
    """

    nchannels: int
    ids: Ints
    step: Ints
    flag: Ints
    sources_start: Ints
    sources: Ints

    @property
    def channels(self) -> int:
        """As the file declares."""
        return self.nchannels

    @property
    def block_id(self) -> Ints:
        """The ``id`` of each block."""
        return self.ids

    @property
    def label(self) -> Ints:
        """The ``s`` of each transfer."""
        return self.step

    @property
    def publishes(self) -> Ints:
        """The flag that each transfer publishes, -1 for none."""
        return self.flag

    @property
    def more_start(self) -> Ints:
        """Shape (transfers + 1,), into ``more_offset``."""
        return self.sources_start

    @property
    def more_offset(self) -> Ints:
        """Offsets of further sources of fused reductions."""
        return self.sources

    @cached_property
    def wait_block(self) -> Ints:
        """The block that each wait names, through all ranks; -1: none of its rank has that id."""
        blocks = list(zip(self.block_rank.tolist(), self.ids.tolist(), strict=True))
        # The first block of an id counts, should there be two.
        numbers = {key: i for i, key in reversed(list(enumerate(blocks)))}
        waits = zip(self.rank[self.waiting].tolist(), self.wait_id.tolist(), strict=True)
        return np.array([numbers.get(key, NOBODY) for key in waits], np.int64)


def code_of(algo: XmlAlgo) -> XmlCode:
    """Return the columns of a file."""
    blocks = [(rank, b) for rank, r in enumerate(algo.ranks) for b in r.blocks]
    transfers = [t for _, b in blocks for t in b.transfers]
    rows = [
        (
            OP_NUMBER[t.op],
            BUFFER_NUMBER[t.src.buffer],
            t.src.offset,
            BUFFER_NUMBER[t.dst.buffer],
            t.dst.offset,
            t.count,
        )
        for t in transfers
    ]
    ids, step, flag = table([(b.id,) for _, b in blocks], 1) + table(
        [(t.step, t.flag if t.publishes else NOBODY) for t in transfers], 2
    )
    return XmlCode(
        protocol=algo.protocol,
        nchannels=algo.channels,
        ids=ids,
        step=step,
        flag=flag,
        sources_start=offsets([len(t.more_sources) for t in transfers]),
        sources=np.array([at for t in transfers for at in t.more_sources], np.int64),
        **columns_of(
            [(r.input_chunks, r.output_chunks, r.scratch_chunks) for r in algo.ranks],
            [(rank, b.channel, b.send, b.recv) for rank, b in blocks],
            [len(b.transfers) for _, b in blocks],
            rows,
            [t.waits for t in transfers],
        ),
    )
