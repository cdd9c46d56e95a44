"""Transfers by the million: a part of a stream, in columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

BLOCK = 1 << 22
"""Transfers in a block of a stream, about."""


@dataclass(frozen=True, eq=False)
class Block:
    """Transfers in order of their start: ``counts[i]`` of them begin at ``ticks[i]``.

    ``hop`` and ``chunk`` have one entry per transfer. Ticks ascend, also from block to block.
    """

    ticks: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64]
    hop: npt.NDArray[Any]
    chunk: npt.NDArray[Any]

    def __len__(self) -> int:
        return len(self.hop)

    @property
    def start(self) -> npt.NDArray[np.int64]:
        """The start of every transfer, in ticks."""
        return np.repeat(self.ticks, self.counts)
