"""A chain of ranks, and the chunks in a pipeline along it.

==========  ========  ============
algorithm   steps     share of M
==========  ========  ============
broadcast   n-2+c     (n-2+c)/c
reduce      n-2+c     (n-2+c)/c
==========  ========  ============

c chunks; the best number is sqrt((n-2) β M / α). J. Pješivac-Grbović et al., Performance analysis
of MPI collective operations, Cluster Computing 10 (2007).
"""

from __future__ import annotations

import itertools

from weft.dsl.author.builder import Builder

from .phases import Order, add
from .ring import broadcast, chain_cost

__all__ = ["broadcast", "chain_cost", "reduce"]


def reduce(p: Builder, order: Order) -> None:
    """Chunk after chunk from the far end to the root, summed on the way."""
    back = order[::-1]
    for k in range(p.chunks):
        for here, there in itertools.pairwise(back):
            add(p, here, [k], there)
