"""Bounds from prices where every rank wants every chunk: each chunk costs a minimum arborescence.

Put a non-negative price y on every link and shared resource. In any schedule take, for each byte
of a chunk and each rank, the transfer that first brought it there: these transfers form a tree
that spans all ranks from the holder, because a rank sends only what it has. A transfer from
rank i to rank j costs at least the cheapest route between them over nodes that do not store, each
copy anew where switches do not multicast; so the byte costs at least the minimum arborescence from
its holder. All that is carried until T costs at most T times the price of everything at full
bandwidth:

    T >= sum over chunks (cost of the least tree from its holder) / sum of price · bandwidth

Nothing is assumed about the schedule or about where the prices come from (packing.md §1; they are
best where they are the duals of the packing of trees). Reductions run backwards on the reversed
machine. All in integers.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from heapq import heappop, heappush

import numpy as np

from weft.dsl.base.arrays import AnyArray, Ints
from weft.dsl.base.errors import UserError
from weft.dsl.base.integers import FLOAT_EXACT
from weft.dsl.base.units import BYTES_PER_US_PER_GBPS
from weft.dsl.nouns.collective import Collective
from weft.dsl.nouns.topology import Topology

from ..base.engine import Certificate
from ..fabric.fabric import fabric_of
from .arborescence import TreePrices, tree_costs
from .demand import ClassDemand, copying_demand
from .report import tree_certificate


def tree_prices(
    topology: Topology, collective: Collective, prices: Sequence[int]
) -> tuple[Fraction, Certificate]:
    """Return a lower bound on T/M, in µs per byte of M, from integer prices, and its certificate.

    ``prices`` has one non-negative integer per entry of :meth:`Topology.capacities`: links, then
    shared resources. Cost O(N²) for the trees, N shortest paths for the routes.

    Raises:
        UserError: prices that do not fit; a collective whose chunks do not all go from one rank
            each to all ranks (or the reverse); a switch that copies or adds for it.
    """
    demand = _demand(topology, collective)
    checked = _checked(topology, prices)
    machine = topology.reversed() if demand.backwards else topology
    costs = tree_costs(route_costs(machine, checked))
    weight = np.zeros(topology.ranks, np.int64)
    np.add.at(weight, demand.holders, demand.weight)
    held = np.flatnonzero(weight).tolist()
    spent = sum(int(weight[v]) * costs[v] for v in held)
    worth = sum((p * b for p, b in zip(checked, topology.capacities(), strict=True)), Fraction(0))
    of = collective.message_chunks
    value = spent / worth / (BYTES_PER_US_PER_GBPS * of)
    found = TreePrices(checked, tuple((v, costs[v]) for v in held), spent, worth)
    return value, tree_certificate(topology, found, of, value)


def _demand(topology: Topology, collective: Collective) -> ClassDemand:
    demand = copying_demand(collective)
    if (
        demand is None
        or not demand.spread
        or len(demand.holders) > demand.classes
        or not demand.everybody()
    ):
        raise UserError(
            f"{collective}: tree prices need chunks that go from one rank each to all ranks",
            hint="broadcast, reduce, allgather, reduce_scatter",
        )
    for node in topology.nodes:
        if node.reduces if demand.backwards else node.multicast:
            raise UserError(
                f"{node.name} {'adds' if demand.backwards else 'copies'} in the network: "
                "a tree may use its links once for several ranks"
            )
    return demand


def _checked(topology: Topology, prices: Sequence[int]) -> tuple[int, ...]:
    found = tuple(int(p) for p in prices)
    count = fabric_of(topology).resources
    if len(found) != count:
        raise UserError(f"{len(found)} prices for {count} links and shared resources")
    if min(found, default=0) < 0 or not any(found):
        raise UserError("prices must be non-negative integers, and not all of them 0")
    return found


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
