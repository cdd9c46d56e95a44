"""Connected components of graphs whose nodes are numbers, without loading SciPy for them."""

from __future__ import annotations

import sys

import numpy as np

from .arrays import Ints, Ints32
from .jit import Array, fast, kernel

MANY_EDGES = 50_000
"""Of more edges strong components are found by compiled code."""


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
    """Label the strongly connected components of a directed graph, sinks first. O(nodes + edges).

    >>> strong_components(4, np.array([0, 1, 2, 2]), np.array([1, 0, 3, 1])).tolist()
    [0, 0, 2, 1]
    """
    order = np.argsort(source, kind="stable")
    start = np.searchsorted(source[order], np.arange(nodes + 1))
    columns = [start, target[order], *np.full((5, nodes), -1)]
    if len(source) > MANY_EDGES:
        fast(sys.modules[__name__]).label_strong(*columns)
        return np.asarray(columns[2], np.int64)
    listed = [column.tolist() for column in columns]
    label_strong(*listed)
    return np.array(listed[2], np.int64)


@kernel
def label_strong(
    start: Array, target: Array, label: Array, number: Array, low: Array, path: Array, stack: Array
) -> None:
    """Fill ``label``: Tarjan's algorithm (SIAM J. Comput. 1972), without recursion.

    The edges of node v lead to ``target[start[v]:start[v+1]]``. ``number``: when a node was seen;
    ``low``: the earliest node on the stack that it reaches; ``path``: the node that led to it. All
    but ``start`` and ``target`` begin as -1.
    """
    seen, labels, top = 0, 0, 0
    at = start.copy()
    for root in range(len(label)):
        node = root if number[root] < 0 else -1
        while node >= 0:
            if number[node] < 0:
                number[node] = low[node] = seen
                stack[top] = node
                seen, top = seen + 1, top + 1
            if at[node] < start[node + 1]:
                other = target[at[node]]
                at[node] += 1
                if number[other] < 0:
                    path[other] = node
                    node = other
                elif label[other] < 0:
                    low[node] = min(low[node], number[other])
                continue
            if low[node] == number[node]:
                while label[node] < 0:
                    top -= 1
                    label[stack[top]] = labels
                labels += 1
            before = path[node]
            if before >= 0:
                low[before] = min(low[before], low[node])
            node = before
