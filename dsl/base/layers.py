"""Layers of a directed graph, and clocks that advance along its edges.

A layer holds the items that depend on earlier layers only, as early as it can.
Kahn's algorithm, a layer at a time: the number of the layer is the longest path to the node, and
the layers one after another are a topological order. Wide layers are array operations, narrow ones
a loop, so that neither a ring of a thousand ranks nor one long block is slow.

Passes and judges share these data structures, but no algorithm that uses them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from heapq import heappop, heappush
from itertools import pairwise

import numpy as np

from .arrays import Bools, Ints, Ints32, distinct_values
from .lazy_dataclass import Frozen

_NARROW = 16
_THIN = 64
"""Layers of fewer nodes on average are faster walked one node at a time."""
_SMALL = 512
"""Graphs of fewer nodes are walked one node at a time from the first layer on."""


class Successors(Frozen):
    """Edges as CSR; parallel ones count."""

    start: Ints  # (nodes + 1,): of after, the edges that leave node v
    after: Ints  # target of each edge, by source

    @staticmethod
    def of(size: int, source: Ints, target: Ints) -> Successors:
        """Build from edges in any order."""
        order = np.argsort(source, kind="stable")
        start = np.searchsorted(source[order], np.arange(size + 1))
        return Successors(start, target[order])


def layers(edges: Successors) -> Iterator[Ints]:
    """Yield the layers; nodes of a cycle, and nodes that depend on them, are in none."""
    size = len(edges.start) - 1
    number = np.diff(edges.start)
    # edges into each node from nodes that are in no layer yet
    missing = np.bincount(edges.after, minlength=size)
    ready: Ints = np.flatnonzero(missing == 0)
    while len(ready):
        yield ready
        if len(ready) <= _NARROW:
            ready = _after_few(edges, missing, ready)
            continue
        reached = edges.after[ranges(edges.start[ready], number[ready])]
        reached, times = np.unique(reached, return_counts=True)
        missing[reached] -= times
        ready = reached[missing[reached] == 0]


def _after_few(edges: Successors, missing: Ints, ready: Ints) -> Ints:
    found = []
    for node in ready.tolist():
        for other in edges.after[edges.start[node] : edges.start[node + 1]].tolist():
            missing[other] -= 1
            if not missing[other]:
                found.append(other)
    return np.array(found, np.int64)


def least_first(before: Sequence[Collection[int]]) -> list[int]:
    """Return the nodes in an order in which, of those that may come next, the least does.

    ``before[v]``: nodes that precede v. Nodes of a cycle, and those behind it, are left out.

    >>> least_first([{2}, {4}, (), {3}, ()])
    [2, 0, 4, 1]
    """
    behind: list[list[int]] = [[] for _ in before]
    missing = [len(set(others)) for others in before]
    for node, others in enumerate(before):
        for other in set(others):
            behind[other].append(node)
    ready = [node for node, number in enumerate(missing) if not number]
    found = []
    while ready:
        found.append(heappop(ready))
        for node in behind[found[-1]]:
            missing[node] -= 1
            if not missing[node]:
                heappush(ready, node)
    return found


def ranges(begin: Ints, number: Ints) -> Ints:
    """``begin[i] … begin[i] + number[i] - 1`` for all i, one after another."""
    first = np.cumsum(number) - number
    return np.asarray(np.arange(int(number.sum())) + np.repeat(begin - first, number))


def depths(nodes: int, source: Ints, target: Ints) -> Ints:
    """Longest path to each node, layer by layer; -1 on cycles and behind them.

    O(nodes + edges), in arrays as long as the layers are broad.
    """
    level = np.full(nodes, -1, np.int64)
    order = np.argsort(source, kind="stable")
    after = target[order]
    start = np.searchsorted(source[order], np.arange(nodes + 1))
    missing = np.bincount(target, minlength=nodes)
    layer, depth, done = np.flatnonzero(missing == 0), 0, 0
    while len(layer):
        level[layer] = depth
        depth, done = depth + 1, done + len(layer)
        if nodes < _SMALL or (depth % _THIN == 0 and done < _THIN * depth):
            return _depths_one_by_one(level, layer, start, after, missing)
        sizes = start[layer + 1] - start[layer]
        total = int(sizes.sum())
        rows = np.repeat(start[layer] - np.cumsum(sizes) + sizes, sizes) + np.arange(total)
        reached, hits = np.unique(after[rows], return_counts=True)
        missing[reached] -= hits
        layer = reached[missing[reached] == 0]
    return level


def _depths_one_by_one(level: Ints, layer: Ints, start: Ints, after: Ints, missing: Ints) -> Ints:
    """As :func:`depths`, one node at a time from a layer on: for long thin programs."""
    levels, starts, targets, left = (x.tolist() for x in (level, start, after, missing))
    bound = [0] * len(levels)  # least level that the nodes passed so far allow each
    ready = layer.tolist()
    for node in ready:
        above = levels[node] + 1
        for other in targets[starts[node] : starts[node + 1]]:
            left[other] -= 1
            if bound[other] < above:
                bound[other] = above
            if not left[other]:
                levels[other] = bound[other]
                ready.append(other)
    return np.array(levels, np.int64)


class EdgeLevels(Frozen):
    """The edges of a graph, sorted by the level (the longest path to it) of their target."""

    order: Ints  # all nodes, every edge forward; shorter than the graph if there is a cycle
    level: Ints  # of each node; -1 on cycles and behind them
    source: Ints  # of each edge; edges with one target, a group, are adjacent
    group_start: Ints  # first edge of each group; groups ascend by level
    target: Ints  # of each group
    level_start: Ints  # first group of each level from 1 on, and their number at the end

    @staticmethod
    def of(size: int, source: Ints, target: Ints) -> EdgeLevels:
        """Sort edges. O(edges log edges)."""
        found = list(layers(Successors.of(size, source, target)))
        order = np.concatenate(found) if found else np.zeros(0, np.int64)
        level = np.full(size, -1, np.int64)
        level[order] = np.repeat(np.arange(len(found)), [len(layer) for layer in found])
        sort = np.lexsort((target, level[target]))
        source, target = source[sort], target[sort]
        first = np.ones(len(target), bool)
        first[1:] = target[1:] != target[:-1]
        group_start = np.flatnonzero(first)
        deep = level[target[group_start]]
        level_start = np.searchsorted(deep, np.arange(1, int(deep.max(initial=0)) + 2))
        return EdgeLevels(order, level, source, group_start, target[group_start], level_start)

    def steps(self) -> Iterator[tuple[Ints, Ints, Ints]]:
        """Level by level: the sources of all edges, where those of each target begin, the targets.

        The targets of a level are distinct, and no source is of that level or a later one.
        """
        ends = np.append(self.group_start[1:], len(self.source))
        for low, high in pairwise(self.level_start.tolist()):
            begin, end = int(self.group_start[low]), int(ends[high - 1])
            yield self.source[begin:end], self.group_start[low:high] - begin, self.target[low:high]

    def advance(self, table: Ints32) -> None:
        """Raise each row of a table (nodes, ·) to the maximum of all rows that lead to it."""
        for source, begin, target in self.steps():
            latest = np.maximum.reduceat(table[source], begin, axis=0)
            table[target] = np.maximum(table[target], latest)


class WaitClocks:
    """Items of a rank that are done when another begins, by program order and waits alone.

    Items (instructions, operations) are numbered block after block. Only an item that waits adds
    knowledge, so only those have a clock: for each block of the rank, the latest item known to
    be done. Any other has the clock of the last one before it in its block. All ranks advance at
    once. O(waits × blocks of a rank) in time and memory.
    """

    def __init__(self, block: Ints, column: Ints, before: Ints, after: Ints) -> None:
        """``after[i]`` waits for ``before[i]``, of another block of its rank; without a cycle.

        ``block``: of each item. ``column``: of each block, its position on its rank.
        """
        self.block, self.column = block, column
        self.waiting = distinct_values(after)
        width = int(column.max(initial=0)) + 1
        # The last row is that of items before any wait: -1, nothing is done.
        self.table = np.full((len(self.waiting) + 1, width), -1, np.int32)
        own = np.searchsorted(self.waiting, after)
        np.maximum.at(self.table, (own, column[block[before]]), before)
        # A clock takes in that of the one before it in its block, and those behind its waits.
        earlier = self.last(self.waiting - 1)
        follows = np.flatnonzero(earlier >= 0)
        # ``waiting - 1`` may lie in the block before, which adds no knowledge.
        blocks = block[self.waiting]
        follows = follows[blocks[earlier[follows]] == blocks[follows]]
        behind = self.last(before)
        known = behind >= 0
        source = np.concatenate([earlier[follows], behind[known]])
        target = np.concatenate([follows, own[known]])
        EdgeLevels.of(len(self.waiting), source, target).advance(self.table)

    def last(self, item: Ints) -> Ints:
        """Return the clock of each item: the last at or before it in its block; -1: none."""
        at = np.searchsorted(self.waiting, item, side="right") - 1
        held = at >= 0
        held[held] = self.block[self.waiting[at[held]]] == self.block[item[held]]
        return np.where(held, at, -1)

    def done(self, first: Ints, second: Ints) -> Bools:
        """Return True where ``first`` is done when ``second``, of another block, begins."""
        result: Bools = self.table[self.last(second), self.column[self.block[first]]] >= first
        return result

    def done_before(self, first: Ints, second: Ints) -> Bools:
        """As :meth:`done`, without the waits of ``second`` itself."""
        clock = np.searchsorted(self.waiting, second) - 1
        mine = clock >= 0
        mine[mine] = self.block[self.waiting[clock[mine]]] == self.block[second[mine]]
        row = np.where(mine, clock, -1)
        result: Bools = self.table[row, self.column[self.block[first]]] >= first
        return result
