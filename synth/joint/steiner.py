"""Cheapest trees to some ranks over others that may forward.

Dreyfus and Wagner (1971), over all subsets of the receivers, in array operations: 3^k · N for k
receivers. A tree from v to a set goes to some u first and divides there.
"""

from __future__ import annotations

import numpy as np

from weft.dsl.base.arrays import AnyArray, Floats
from weft.dsl.base.lazy_dataclass import dataclass


@dataclass(frozen=True, eq=False)
class SteinerTable:
    """Costs of trees from every vertex to every subset of some receivers.

    Attributes:
        receivers: vertices, by bit of a subset.
        cost: shape (2^k, N).
        goes: the vertex where the tree of a vertex and a subset divides.
        halves: one of the two subsets it divides into, at that vertex.
    """

    receivers: tuple[int, ...]
    cost: Floats
    goes: AnyArray
    halves: AnyArray

    def arcs(self, root: int, subset: int) -> list[tuple[int, int]]:
        """Return the arcs (tail, head) of the cheapest tree, parents first; routes, not links."""
        found: list[tuple[int, int]] = []
        stack = [(root, subset)]
        while stack:
            at, want = stack.pop()
            if want & (want - 1) == 0:
                target = self.receivers[want.bit_length() - 1]
                if at != target:
                    found.append((at, target))
                continue
            there = int(self.goes[want, at])
            if there != at:
                found.append((at, there))
            part = int(self.halves[want, there])
            stack += [(there, part), (there, want ^ part)]
        return found


def steiner(distance: Floats, receivers: tuple[int, ...]) -> SteinerTable:
    """Return the table for a matrix of distances (N, N) that are those of shortest routes."""
    n, size = len(distance), 1 << len(receivers)
    cost = np.zeros((size, n))
    goes = np.zeros((size, n), np.int32)
    halves = np.zeros((size, n), np.int32)
    for bit, target in enumerate(receivers):
        cost[1 << bit] = distance[:, target]
    for subset in sorted(range(1, size), key=lambda s: (s.bit_count(), s)):
        if subset.bit_count() == 1:
            continue
        low = subset & -subset
        parts, part = [], (subset - 1) & subset
        while part:
            if part & low:  # each pair of halves once
                parts.append(part)
            part = (part - 1) & subset
        several = np.array(parts)
        divided = cost[several] + cost[subset ^ several]
        which = divided.argmin(axis=0)
        halves[subset] = several[which]
        least = divided[which, np.arange(n)]
        through = distance + least[None, :]
        goes[subset] = through.argmin(axis=1)
        cost[subset] = through[np.arange(n), goes[subset]]
    return SteinerTable(receivers, cost, goes, halves)
