"""Groups of near ranks, as PLink finds them: Kandemir et al.'s trees from measured distances.

The distance of two ranks is what a message of a middle size takes between them. Average linkage
makes a tree of it; where merging suddenly costs much more than before, the tree is cut.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from scipy.cluster.hierarchy import average, fcluster
from scipy.spatial.distance import squareform

from .model import Flow, Line

MIDDLE = 1 << 16
"""Bytes of the message whose time is the distance: α and β both count."""

FARTHER = 1.5
"""What is so many times farther is another group."""


def groups_of(found: Mapping[Flow, Line], ranks: int) -> list[list[int]]:
    """The groups, each in order of ranks, the group of rank 0 first; one if all are near."""
    if ranks < 3:
        return [list(range(ranks))]
    distance = np.zeros((ranks, ranks))
    for (a, b), line in found.items():
        distance[a, b] = line.us(MIDDLE)
    distance = (distance + distance.T) / 2
    np.fill_diagonal(distance, 0)
    tree = average(squareform(distance))
    heights = tree[:, 2]
    jumps = heights[1:] / np.maximum(heights[:-1], 1e-12)
    if jumps.max() < FARTHER:
        return [list(range(ranks))]
    cut = int(np.argmax(jumps))
    label = fcluster(tree, heights[cut] * 1.0001, "distance")
    first = {int(name): rank for rank, name in reversed(list(enumerate(label)))}
    return [np.flatnonzero(label == name).tolist() for name in sorted(first, key=first.__getitem__)]


def classes(values: np.ndarray, tolerance: float) -> np.ndarray:
    """Values with those that differ by less than ``tolerance`` made equal, to their median.

    A measured machine has as many bandwidths as links, a real one a few; equal links are what
    symmetry is made of, and what makes synthesis fast.
    """
    order = np.argsort(values, kind="stable")
    result = np.empty(len(values))
    start = 0
    for end in range(1, len(values) + 1):
        if end == len(values) or values[order[end]] > values[order[start]] * (1 + tolerance):
            some = order[start:end]
            result[some] = np.median(values[some])
            start = end
    return result
