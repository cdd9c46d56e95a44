"""What a rank orders by itself: program order and waits, without messages.

Nearly every pair of conflicting accesses is ordered by the flags of its own rank, and that is
cheap to prove, by the clocks of what waits. The pass ``sync`` asks the same clocks; what makes them
trustworthy is that the tests hold them against brute force.
"""

from __future__ import annotations

import numpy as np

from weft.dsl.base.arrays import Bools, Ints
from weft.dsl.base.layers import WaitClocks

from .graph import Edge, Graph

MOST_CELLS = 50_000_000
"""Clock entries held at once; where there are more, some ranks come after others."""


def ordered_locally(graph: Graph, first: Ints, second: Ints) -> Bools:
    """Whether its rank's own waits put ``first`` before ``second``; both on one rank."""
    block = graph.block()
    waits = graph.kind == Edge.WAIT
    source, target = graph.source[waits], graph.target[waits]
    proved = np.zeros(len(first), bool)
    for ranks in _batches(graph, block, target):
        here = graph.code.block_rank[block]
        edges = (here[target] >= ranks[0]) & (here[target] < ranks[1])
        pairs = np.flatnonzero((here[second] >= ranks[0]) & (here[second] < ranks[1]))
        clocks = WaitClocks(block, graph.code.block_index, source[edges], target[edges])
        proved[pairs] = clocks.done(first[pairs], second[pairs])
    return proved


def _batches(graph: Graph, block: Ints, target: Ints) -> list[tuple[int, int]]:
    """Ranges of ranks whose clocks fit the memory."""
    rank = graph.code.block_rank
    blocks = np.bincount(rank, minlength=graph.code.rank_count)
    waiting = np.bincount(rank[block[np.unique(target)]], minlength=graph.code.rank_count)
    cells = np.cumsum(waiting * blocks.max(initial=1)) // MOST_CELLS
    cuts = np.flatnonzero(np.diff(cells)) + 1
    return list(zip([0, *cuts.tolist()], [*cuts.tolist(), graph.code.rank_count], strict=True))
