"""GPU-to-GPU routes through nodes that do not store, and distances between GPUs."""

from __future__ import annotations

import heapq
import math
from collections import deque
from fractions import Fraction

import numpy as np

from ..base.arrays import Ints, Ints32
from ..base.components import strong_components
from ..base.kept import kept
from ..base.lazy_dataclass import Frozen
from .topology import Hop, Topology

ROUTES_PER_PAIR = 8
"""Default limit of routes per pair of GPUs; beyond it the fastest are kept."""


class Hops(Frozen):
    """Hops of a topology; ``complete`` is False if some were left out."""

    hops: tuple[Hop, ...]
    complete: bool

    def between(self, src: int, dst: int) -> tuple[int, ...]:
        """Return the indices of the hops of one ordered pair, fastest first."""
        return tuple(i for i, h in enumerate(self.hops) if (h.src, h.dst) == (src, dst))


@kept()
def find_hops(topology: Topology, *, routes_per_pair: int = ROUTES_PER_PAIR) -> Hops:
    """Return every simple route from GPU to GPU whose inner nodes only forward.

    Routes of a pair are sorted by (α, links, indices); at most ``routes_per_pair`` are kept.
    Cost: the number of such routes.
    """
    out_links = links_from(topology)
    alpha = _whole_latencies(topology)[0]  # integers: sums of fractions take most of the time
    found: list[Hop] = []
    complete = True
    for src in range(topology.ranks):
        routes, all_seen = _routes_from(topology, out_links, src, routes_per_pair)
        complete = complete and all_seen
        for dst in sorted(routes):
            best = sorted(routes[dst], key=lambda r: (sum([alpha[i] for i in r]), len(r), r))
            complete = complete and len(best) <= routes_per_pair
            found += [Hop(src, dst, route) for route in best[:routes_per_pair]]
    return Hops(tuple(found), complete)


def route_latency(topology: Topology, route: tuple[int, ...]) -> Fraction:
    """Return the α of a route in µs: the sum over its links."""
    return sum((topology.links[i].latency for i in route), Fraction(0))


def links_from(topology: Topology) -> tuple[tuple[int, ...], ...]:
    """Return for each node the indices of its outgoing links."""
    out: list[list[int]] = [[] for _ in topology.nodes]
    for i, one in enumerate(topology.links):
        out[one.src].append(i)
    return tuple(map(tuple, out))


def _routes_from(
    topology: Topology, out_links: tuple[tuple[int, ...], ...], src: int, per_pair: int
) -> tuple[dict[int, list[tuple[int, ...]]], bool]:
    """Search simple paths breadth first, so that a limit drops the longest routes."""
    ends = [link.dst for link in topology.links]
    stores = [node.stores for node in topology.nodes]
    routes: dict[int, list[tuple[int, ...]]] = {}
    budget = 64 * per_pair * max(1, topology.ranks)
    queue: deque[tuple[int, tuple[int, ...], int]] = deque([(src, (), 1 << src)])  # bits: seen
    while queue:
        if budget == 0:
            return routes, False
        budget -= 1
        node, route, seen = queue.popleft()
        for i in out_links[node]:
            dst = ends[i]
            if seen >> dst & 1:
                continue
            if stores[dst]:
                routes.setdefault(dst, []).append((*route, i))
            else:
                queue.append((dst, (*route, i), seen | 1 << dst))
    return routes, True


def hop_distances(topology: Topology) -> Ints32:
    """Return the least number of hops between ranks, shape (ranks, ranks); -1: unreachable."""
    n = topology.ranks
    near = gpu_neighbours(topology)
    distance = np.full((n, n), -1, np.int32)
    for start in range(n):
        distance[start, start] = 0
        queue = deque([start])
        while queue:
            u = queue.popleft()
            for v in near[u]:
                if distance[start, v] < 0:
                    distance[start, v] = distance[start, u] + 1
                    queue.append(v)
    return distance


def latency_units(topology: Topology) -> tuple[Ints, int]:
    """Return the α of every link as an integer number of units, and the units per µs."""
    alpha, scale = _whole_latencies(topology)
    return np.array(alpha, np.int64), scale


def _whole_latencies(topology: Topology) -> tuple[list[int], int]:
    """The same as Python's integers, which no denominator is too large for."""
    scale = math.lcm(*(x.latency.denominator for x in topology.links))
    return [int(x.latency * scale) for x in topology.links], scale


def latency_distances(topology: Topology) -> Ints:
    """Return the least α of a path between ranks, also through GPUs, in :func:`latency_units`.

    Shape (ranks, ranks); -1: unreachable. Dijkstra (1959) from every rank.
    """
    alpha, _ = latency_units(topology)
    out = [[(topology.links[i].dst, int(alpha[i])) for i in row] for row in links_from(topology)]
    n = topology.ranks
    return np.array([_least_from(start, out)[:n] for start in range(n)], np.int64)


def _least_from(start: int, out: list[list[tuple[int, int]]]) -> list[int]:
    best = [-1] * len(out)
    best[start] = 0
    queue = [(0, start)]
    while queue:
        length, node = heapq.heappop(queue)
        if length > best[node]:
            continue
        for other, alpha in out[node]:
            if best[other] < 0 or length + alpha < best[other]:
                best[other] = length + alpha
                heapq.heappush(queue, (best[other], other))
    return best


def gpu_neighbours(topology: Topology) -> tuple[tuple[int, ...], ...]:
    """Return for each rank the GPUs reachable by one hop, sorted: a search that stops at GPUs.

    Exact where :func:`find_hops` may be incomplete. Cost O(ranks × links).
    """
    out_links = links_from(topology)
    near = []
    ranks = topology.ranks  # computed once: the loop needs it at every node
    for src in range(ranks):
        seen = {src}
        queue = deque([src])
        while queue:
            for i in out_links[queue.popleft()]:
                dst = topology.links[i].dst
                if dst not in seen:
                    seen.add(dst)
                    if not topology.nodes[dst].stores:
                        queue.append(dst)
        near.append(tuple(sorted(v for v in seen - {src} if v < ranks)))
    return tuple(near)


def islands(topology: Topology) -> tuple[tuple[int, ...], ...]:
    """Return the strongly connected groups of ranks; a connected machine is one group.

    Cost O(nodes + links).
    """
    labels = strong_components(len(topology.nodes), *topology.link_ends().T)
    groups: dict[int, list[int]] = {}
    for rank, label in enumerate(labels[: topology.ranks].tolist()):
        groups.setdefault(label, []).append(rank)
    return tuple(map(tuple, groups.values()))
