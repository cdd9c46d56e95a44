"""What a rank orders by itself: program order and waits, without messages.

Nearly every pair of conflicting accesses is ordered by the flags of its own rank, and that is
cheap to prove. Only operations that wait learn anything new, so only they carry a clock (for each
block of the rank, the latest operation known to be done); any other has that of the last one before
it in its block. All ranks advance at once. O(waits × blocks of a rank) in time and memory.

The pass ``sync`` keeps clocks of the same kind in code of its own; what makes these trustworthy is
that the tests hold them against brute force.
"""

from __future__ import annotations

import numpy as np

from weft.dsl.base.arrays import Bools, Ints

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
        clocks = _Clocks(graph, block, source[edges], target[edges])
        proved[pairs] = clocks.knows(second[pairs], first[pairs])
    return proved


def _batches(graph: Graph, block: Ints, target: Ints) -> list[tuple[int, int]]:
    """Ranges of ranks whose clocks fit the memory."""
    rank = graph.code.block_rank
    blocks = np.bincount(rank, minlength=graph.code.rank_count)
    waiting = np.bincount(rank[block[np.unique(target)]], minlength=graph.code.rank_count)
    cells = np.cumsum(waiting * blocks.max(initial=1)) // MOST_CELLS
    cuts = np.flatnonzero(np.diff(cells)) + 1
    return list(zip([0, *cuts.tolist()], [*cuts.tolist(), graph.code.rank_count], strict=True))


class _Clocks:
    """The clocks of all operations that wait."""

    def __init__(self, graph: Graph, block: Ints, source: Ints, target: Ints) -> None:
        rank = graph.code.block_rank
        self.block = block
        self.column = np.arange(len(rank)) - np.searchsorted(rank, rank)
        self.waiting = np.unique(target)
        width = int(self.column.max(initial=0)) + 1
        self.table = np.full(
            (len(self.waiting) + 1, width), -1, np.int32
        )  # last row: knows nothing
        own = np.searchsorted(self.waiting, target)
        np.maximum.at(self.table, (own, self.column[block[source]]), source)
        # A clock takes in that of the one before it in its block, and those behind its waits.
        before = self.last(self.waiting - 1)
        inherited = np.flatnonzero(before >= 0)
        inherited = inherited[
            block[self.waiting[before[inherited]]] == block[self.waiting[inherited]]
        ]
        behind = self.last(source)
        useful = behind >= 0
        self._advance(
            np.concatenate([before[inherited], behind[useful]]),
            np.concatenate([inherited, own[useful]]),
        )

    def last(self, operation: Ints) -> Ints:
        """The last clock at or before each operation in its block; -1 for none."""
        at = np.searchsorted(self.waiting, operation, side="right") - 1
        found = at >= 0
        found[found] = self.block[self.waiting[at[found]]] == self.block[operation[found]]
        return np.where(found, at, -1)

    def _advance(self, before: Ints, after: Ints) -> None:
        """Take maxima along the edges, layer by layer (there is no cycle)."""
        order = np.argsort(before, kind="stable")
        before, after = before[order], after[order]
        start = np.searchsorted(before, np.arange(len(self.waiting) + 1))
        missing = np.bincount(after, minlength=len(self.waiting))
        layer = np.flatnonzero(missing == 0)
        while len(layer):
            sizes = start[layer + 1] - start[layer]
            rows = np.repeat(start[layer] - np.cumsum(sizes) + sizes, sizes)
            rows += np.arange(len(rows))
            to = after[rows]
            sort = np.argsort(to, kind="stable")
            to, rows = to[sort], rows[sort]
            opens = np.flatnonzero(np.diff(to, prepend=-1))
            if not len(opens):
                return
            latest = np.maximum.reduceat(self.table[before[rows]], opens, axis=0)
            reached = to[opens]
            self.table[reached] = np.maximum(self.table[reached], latest)
            missing[reached] -= np.diff(opens, append=len(to))
            layer = reached[missing[reached] == 0]

    def knows(self, later: Ints, earlier: Ints) -> Bools:
        """Whether each later operation comes after the earlier one, of another block."""
        known: Bools = self.table[self.last(later), self.column[self.block[earlier]]] >= earlier
        return known
