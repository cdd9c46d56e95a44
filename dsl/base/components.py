"""Connected components of graphs whose nodes are numbers."""

from __future__ import annotations

import numpy as np

from .arrays import Ints, Ints32

_FEW = 128


def components(nodes: int, a: Ints | Ints32, b: Ints | Ints32) -> Ints:
    """Label the components of an undirected graph with edges a–b, in order of their first nodes.

    Every pass hooks roots to lesser ones and shortens all paths: O(edges · log nodes).

    >>> components(5, np.array([3, 0]), np.array([1, 4])).tolist()
    [0, 1, 2, 1, 0]
    """
    root = np.arange(nodes)
    while (apart := root[a] != root[b]).any():
        one, other = root[a[apart]], root[b[apart]]
        np.minimum.at(root, np.maximum(one, other), np.minimum(one, other))
        while not np.array_equal(root, further := root[root]):
            root = further
    return np.unique(root, return_inverse=True)[1].astype(np.int64)


def strong_components(nodes: int, source: Ints | Ints32, target: Ints | Ints32) -> Ints:
    """Label the strongly connected components of a directed graph, in any order.

    O(nodes + edges), or O(nodes³ · log nodes) for few nodes.

    >>> strong_components(4, np.array([0, 1, 2, 2]), np.array([1, 0, 3, 1])).tolist()
    [0, 0, 1, 2]
    """
    if nodes <= _FEW:
        return _by_squaring(nodes, source, target)
    # SciPy takes longer to load than a graph of few nodes.
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    edges = coo_array((np.ones(len(source), bool), (source, target)), (nodes, nodes))
    return connected_components(edges, connection="strong")[1].astype(np.int64)


def _by_squaring(nodes: int, source: Ints | Ints32, target: Ints | Ints32) -> Ints:
    """Label the components by reachability: paths of one, two, four … edges."""
    if not nodes:
        return np.zeros(0, np.int64)
    reach = np.eye(nodes, dtype=np.float32)
    reach[source, target] = 1
    while (further := (reach @ reach > 0).astype(np.float32)).sum() > reach.sum():
        reach = further
    return np.unique((reach * reach.T).argmax(axis=1), return_inverse=True)[1].astype(np.int64)
