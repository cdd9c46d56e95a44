"""Lengths of shortest paths between the nodes of a directed graph."""

from __future__ import annotations

from typing import Any

import numpy as np

from .arrays import Floats, Ints

_SMALL = 256
"""Nodes of a graph for which SciPy takes longer to load (0.3 CPU seconds) than to do without."""


def distances(nodes: int, tails: Ints, heads: Ints, lengths: Ints, sources: Ints) -> Floats:
    """Return the lengths of shortest paths from some nodes to all; infinite if there is none.

    Lengths are 0 or more, and sums of them exact in float64. Of parallel arcs the shortest counts.

    Returns:
        array of shape (sources, nodes).

    >>> tails, heads, lengths = np.array([[0, 1, 0], [1, 2, 2], [1, 1, 3]])
    >>> distances(4, tails, heads, lengths, np.array([0, 3]))
    array([[ 0.,  1.,  2., inf],
           [inf, inf, inf,  0.]])
    """
    if nodes > _SMALL:
        return _by_dijkstra(nodes, tails, heads, lengths, sources)
    if len(sources) * 4 < nodes:  # for few, rounds are quicker than a matrix of all nodes
        return _by_rounds(nodes, tails, heads, lengths, sources)
    between = np.full((nodes, nodes), np.inf)
    np.minimum.at(between, (tails, heads), lengths)
    np.fill_diagonal(between, 0)
    for middle in range(nodes):  # Floyd and Warshall
        np.minimum(between, between[:, middle, None] + between[None, middle], out=between)
    return np.asarray(between[sources])


def _by_rounds(nodes: int, tails: Ints, heads: Ints, lengths: Ints, sources: Ints) -> Floats:
    """Each round takes one arc more, until nothing gets shorter (Bellman and Ford)."""
    reach = np.full((len(sources), nodes), np.inf)
    reach[np.arange(len(sources)), sources] = 0
    order = np.argsort(heads, kind="stable")
    tails, lengths = tails[order], lengths[order]
    ends, firsts = np.unique(heads[order], return_index=True)
    while len(ends):
        known = reach[:, ends]
        found = np.minimum(known, np.minimum.reduceat(reach[:, tails] + lengths, firsts, axis=1))
        if np.array_equal(found, known):
            break
        reach[:, ends] = found
    return reach


def _by_dijkstra(nodes: int, tails: Ints, heads: Ints, lengths: Ints, sources: Ints) -> Floats:
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import dijkstra

    order = np.lexsort((lengths, heads, tails))
    arc = tails[order] * nodes + heads[order]
    kept = order[np.diff(arc, prepend=-1) > 0]  # the shortest of parallel ones
    cells: Any = lengths[kept].astype(float)
    graph = csr_array((cells, (tails[kept], heads[kept])), shape=(nodes, nodes))
    return np.asarray(dijkstra(graph, indices=sources))
