"""The cheapest routes between ranks at integer prices, exactly."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush

import numpy as np

from weft.dsl.base.arrays import AnyArray, Ints
from weft.dsl.base.integers import FLOAT_EXACT
from weft.dsl.nouns.topology import Topology

from ..fabric.fabric import fabric_of


def route_costs(topology: Topology, prices: Sequence[int]) -> AnyArray:
    """The cheapest route between every two ranks over nodes that do not store; -1: none.

    Shape (ranks, ranks), exact: int64, or Python integers where the prices are large.
    """
    resource, link = fabric_of(topology).pairs
    price = [0] * len(topology.links)
    for r, i in zip(resource.tolist(), link.tolist(), strict=True):
        price[i] += prices[r]
    n, count = topology.ranks, len(topology.nodes)
    # A route ends at the first GPU: GPUs send as node v and receive as node count + v.
    least: dict[tuple[int, int], int] = {}
    for one, cost in zip(topology.links, price, strict=True):
        head = count + one.dst if topology.nodes[one.dst].stores else one.dst
        least[one.src, head] = min(cost, least.get((one.src, head), cost))
    # Any tree costs less than `largest`; no arc is free, so that sparse matrices keep it.
    base = 2 * count
    largest = (max(price, default=0) * count + 1) * base
    if largest * n < FLOAT_EXACT:
        return _by_scipy(least, n, count, base)
    table = np.full((n, n), -1, object)
    out: list[list[tuple[int, int]]] = [[] for _ in range(2 * count)]
    for (tail, head), cost in least.items():
        out[tail].append((head, cost))
    for src in range(n):
        for node, cost in _by_heap(out, src).items():
            if node >= count:
                table[src, node - count] = cost
    return table


def _by_scipy(least: dict[tuple[int, int], int], n: int, count: int, base: int) -> AnyArray:
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import dijkstra

    at = np.array(list(least), np.int64).reshape(-1, 2)
    cells = np.array(list(least.values()), float) * base + 1
    graph = csr_array((cells, (at[:, 0], at[:, 1])), shape=(2 * count, 2 * count))
    reach = dijkstra(graph, indices=np.arange(n))[:, count : count + n]
    found: Ints = np.where(np.isinf(reach), -1, np.floor(reach / base)).astype(np.int64)
    return found


def _by_heap(out: list[list[tuple[int, int]]], src: int) -> dict[int, int]:
    """Dijkstra in Python integers of any size."""
    done: dict[int, int] = {}
    heap = [(0, src)]
    while heap:
        cost, node = heappop(heap)
        if node in done:
            continue
        done[node] = cost
        for head, more in out[node]:
            if head not in done:
                heappush(heap, (cost + more, head))
    return done
