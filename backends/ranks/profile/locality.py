"""Groups of near ranks, as PLink finds them: Kandemir et al.'s trees from measured distances.

The distance of two ranks is what small and large messages between them take, by the lines of their
classes; so distances that were not told apart are equal. Average linkage makes a tree of it; where
merging suddenly costs much more than before, the tree is cut.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from scipy.cluster.hierarchy import average, fcluster
from scipy.spatial.distance import squareform

from weft.dsl.base.arrays import Floats

from .model import AlphaBeta, Flow
from .noise import ALIKE

Groups = tuple[tuple[int, ...], ...]


def groups_of(
    found: Mapping[Flow, AlphaBeta], ranks: int, largest: int
) -> tuple[Groups, str | None]:
    """The groups, that of rank 0 first, one if all are near; and what is not clear, in words.

    All ranks of a group are nearer to each other than to any rank outside it.
    """
    whole = (tuple(range(ranks)),)
    if ranks < 3:
        return whole, None
    distance = _distances(found, ranks, largest)
    tree = average(squareform(distance))
    heights = tree[:, 2]
    enough = np.log1p(ALIKE) / 2
    for cut in np.argsort(heights[:-1] - heights[1:], kind="stable").tolist():
        if heights[cut + 1] - heights[cut] < enough:
            break
        label = fcluster(tree, (heights[cut] + heights[cut + 1]) / 2, "distance")
        same = label[:, None] == label[None, :]
        inside = distance[same & ~np.eye(ranks, dtype=bool)]
        if inside.size and inside.max() < distance[~same].min() - enough / 2:
            return _named(label), None
    flat = float(np.ptp(distance[~np.eye(ranks, dtype=bool)])) < enough
    return whole, None if flat else "links differ, but not so that ranks fall into groups"


def _distances(found: Mapping[Flow, AlphaBeta], ranks: int, largest: int) -> Floats:
    """Logarithms, so that a tree of them looks at ratios; 0 where nothing is nearer."""
    distance = np.zeros((ranks, ranks))
    for (a, b), line in found.items():
        distance[a, b] = np.log(max(line.alpha, 1e-6) * line.us(largest)) / 2
    distance = (distance + distance.T) / 2
    least = distance[~np.eye(ranks, dtype=bool)].min()
    distance -= least
    np.fill_diagonal(distance, 0)
    return np.asarray(np.maximum(distance, 0))


def _named(label: np.ndarray) -> Groups:
    first = {int(name): rank for rank, name in reversed(list(enumerate(label)))}
    names = sorted(first, key=first.__getitem__)
    return tuple(tuple(np.flatnonzero(label == name).tolist()) for name in names)
