"""Transfers by the million: a part of a stream, in columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from weft.dsl.base.arrays import AnyArray, Ints

BLOCK = 1 << 22
"""Transfers in a block of a stream, about."""


@dataclass(frozen=True, eq=False)
class Block:
    """Transfers in order of their start: ``counts[i]`` of them begin at ``ticks[i]``.

    ``hop`` and ``chunk`` have one entry per transfer. Ticks ascend, also from block to block.
    """

    ticks: Ints
    counts: Ints
    hop: AnyArray
    chunk: AnyArray

    def __len__(self) -> int:
        return len(self.hop)

    @property
    def start(self) -> Ints:
        """The start of every transfer, in ticks."""
        return np.repeat(self.ticks, self.counts)
