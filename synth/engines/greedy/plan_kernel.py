"""Steps from starts: what a transfer depends on starts, and arrives, before it."""

from __future__ import annotations

import numpy as np

from weft.dsl.base.jit import Array, compiled


@compiled
def steps_of(src: Array, dst: Array, chunk: Array, places: Array, chunks: int) -> Array:
    """The step of each transfer, given in order of start; ``places`` (rank, chunk) begin at 0."""
    steps = np.empty(len(src), np.int32)
    for i in range(len(src)):
        step = places[src[i] * chunks + chunk[i]]
        steps[i] = step
        there = dst[i] * chunks + chunk[i]
        places[there] = max(places[there], step + 1)
    return steps
