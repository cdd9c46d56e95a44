"""Layers of a directed graph: each holds what depends on earlier layers only, as early as it can.

Kahn's algorithm, a layer at a time: the number of the layer is the longest path to the node, and
the layers one after another are a topological order. Wide layers are array operations, narrow ones
a loop, so that neither a ring of a thousand ranks nor one long block is slow.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from weft.dsl.base.arrays import Ints

_NARROW = 16


@dataclass(frozen=True)
class Successors:
    """Edges as CSR: those from node v go to ``after[start[v]:start[v+1]]``; parallel ones count."""

    start: Ints
    after: Ints

    @staticmethod
    def of(size: int, source: Ints, target: Ints) -> Successors:
        """From edges in any order."""
        order = np.argsort(source, kind="stable")
        start = np.searchsorted(source[order], np.arange(size + 1))
        return Successors(start, target[order])


def layers(edges: Successors) -> Iterator[Ints]:
    """The layers; nodes of a cycle, and what depends on them, are in none."""
    size = len(edges.start) - 1
    number = np.diff(edges.start)
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


def _after_few(edges: Successors, missing: npt.NDArray[np.intp], ready: Ints) -> Ints:
    found = []
    for node in ready.tolist():
        for other in edges.after[edges.start[node] : edges.start[node + 1]].tolist():
            missing[other] -= 1
            if not missing[other]:
                found.append(other)
    return np.array(found, np.int64)


def ranges(begin: Ints, number: Ints) -> Ints:
    """``begin[i] … begin[i] + number[i] - 1`` for all i, one after another."""
    first = np.cumsum(number) - number
    return np.asarray(np.arange(int(number.sum())) + np.repeat(begin - first, number))
