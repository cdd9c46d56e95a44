"""Happens-before clocks, level by level.

For an operation, the clock of a block is the last operation of that block that precedes it (or is
it). Clocks of many blocks at once would need operations × blocks of memory, so they are computed
for the blocks of one rank at a time, in as many vector operations as the graph has levels.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from weft.dsl.base.arrays import Ints

from .graph import Edge, Graph
from .layers import Successors, layers

Clocks = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Levels:
    """The edges of a graph without credits, sorted by the level of their target.

    Attributes:
        order: all operations, every edge forward; shorter than the graph if there is a cycle.
        source: of each edge; edges with one target are adjacent.
        group_start: first edge of each target, ``target`` the target; sorted by level.
        level_start: first group of each level, and their number at the end.
    """

    order: Ints
    source: Ints
    group_start: Ints
    target: Ints
    level_start: Ints


def levels(graph: Graph) -> Levels:
    """Sort the edges."""
    keep = graph.kind != Edge.CREDIT
    source, target = graph.source[keep], graph.target[keep]
    found = list(layers(Successors.of(graph.size, source, target)))
    order = np.concatenate(found) if found else np.zeros(0, np.int64)
    depth = np.zeros(graph.size, np.int64)
    depth[order] = np.repeat(np.arange(len(found)), [len(layer) for layer in found])
    sort = np.lexsort((target, depth[target]))
    source, target = source[sort], target[sort]
    first = np.ones(len(target), bool)
    first[1:] = target[1:] != target[:-1]
    group_start = np.flatnonzero(first)
    deep = depth[target[group_start]]
    level_start = np.searchsorted(deep, np.arange(1, int(deep.max(initial=0)) + 2))
    return Levels(order, source, group_start, target[group_start], level_start)


def clocks(graph: Graph, sorted_edges: Levels, first_block: int, blocks: int) -> Clocks:
    """The clocks of ``blocks`` blocks from ``first_block``, shape (operations, blocks)."""
    s = sorted_edges
    table = np.full((graph.size, blocks), -1, np.int32)
    column = graph.block() - first_block
    mine = np.flatnonzero((column >= 0) & (column < blocks))
    table[mine, column[mine]] = mine
    ends = np.append(s.group_start[1:], len(s.source))
    for low, high in zip(s.level_start[:-1].tolist(), s.level_start[1:].tolist(), strict=True):
        begin = int(s.group_start[low])
        rows = table[s.source[begin : int(ends[high - 1])]]
        latest = np.maximum.reduceat(rows, s.group_start[low:high] - begin, axis=0)
        target = s.target[low:high]
        table[target] = np.maximum(table[target], latest)
    return table
