"""Map the ranks of an algorithm to a machine: rings by its links, trees by its hierarchy.

The functions take the topology of the process group (``topology.restricted_to(group)``) and return
an order of its ranks for :func:`~weft.synth.engines.classic.flat.classic_algorithm`.

>>> from weft.dsl.catalogue import topology
>>> ring_order(topology("dgx1"))  # all eight on double NVLinks
(0, 1, 3, 2, 6, 7, 5, 4)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import sha256
from heapq import heappop, heappush
from itertools import pairwise

import numpy as np

from weft.dsl.base.arrays import Floats, Ints, distinct_values
from weft.dsl.base.errors import BadTopology
from weft.dsl.base.kept import kept
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.hops import links_from
from weft.dsl.nouns.topology import Topology

from ...base.meter import STEPS, Meter
from ...solvers import cp_sat
from ...solvers.cp_sat import CpAnswer, CpModel
from ...solvers.pool import listener_of
from .effort import CLASSIC_EFFORT, ClassicEffort


@dataclass(frozen=True, eq=False)
class PairPaths:
    """Bandwidth and latency of each pair's path without a GPU in between, shape (ranks, ranks).

    ``bandwidth`` is that of the narrowest link of the path in GB/s, 0 without a path;
    ``latency`` is the sum over its links in µs. The path is the widest direct link of the two
    ranks if there is one, else the path of least latency through switches and NICs.
    """

    bandwidth: Floats
    latency: Floats

    @staticmethod
    def of(topology: Topology) -> PairPaths:
        """All pairs: a Dijkstra search from every rank, O(ranks · links log links)."""
        n = topology.ranks
        bandwidth, latency = np.zeros((n, n)), np.full((n, n), np.inf)
        ends = [(x.dst, float(x.latency), float(x.bandwidth)) for x in topology.links]
        out = [[ends[i] for i in links] for links in links_from(topology)]
        stores = [node.stores for node in topology.nodes]
        for source in range(n):
            for node, alpha, wide in _fastest_paths(out, stores, source):
                bandwidth[source, node], latency[source, node] = wide, alpha
            cables = sorted((wide, -alpha, node) for node, alpha, wide in out[source] if node < n)
            for wide, alpha, node in cables:
                bandwidth[source, node], latency[source, node] = wide, -alpha
        return PairPaths(bandwidth, latency)

    def among(self, ranks: Sequence[int]) -> PairPaths:
        """The pairs of some ranks, renumbered by position."""
        chosen = np.ix_(ranks, ranks)
        return PairPaths(self.bandwidth[chosen], self.latency[chosen])


def _fastest_paths(
    out: list[list[tuple[int, float, float]]], stores: list[bool], source: int
) -> Iterator[tuple[int, float, float]]:
    """(rank, α, bandwidth) of the quickest ways from a rank, the widest of equally quick ones."""
    settled: set[int] = set()
    queue = [(0.0, -np.inf, source)]
    while queue:
        alpha, narrow, node = heappop(queue)
        if node in settled:
            continue
        settled.add(node)
        if stores[node] and node != source:
            yield node, alpha, -narrow
            continue
        for there, more, wide in out[node]:
            if there not in settled:
                heappush(queue, (alpha + more, max(narrow, -wide), there))


def ring_order(
    topology: Topology, effort: ClassicEffort = CLASSIC_EFFORT, meter: Meter | None = None
) -> tuple[int, ...]:
    """The ranks along the best ring.

    Its narrowest hop is as wide as any ring allows, then the narrowest hop inside the hosts, then
    the sum of latencies is small; each host is entered once and left once. Exact up to
    ``effort.exact_ring`` ranks (a Hamiltonian cycle by CP-SAT's circuit constraint, for every
    bandwidth that could be the narrowest); beyond, the hosts' own rings are joined. Of equally
    good rings: that of rank order, else one that starts at rank 0. ``meter`` counts the work.

    Raises:
        BadTopology: no ring through all ranks was found.
    """
    pairs, hosts = PairPaths.of(topology), [list(ranks) for ranks in hosts_of(topology)]
    if topology.ranks < 3:
        order = tuple(range(topology.ranks))
    elif topology.ranks > effort.exact_ring and len(hosts) > 2:
        order = _join_host_rings(pairs, hosts, effort, meter)
    else:
        order = _best_ring(pairs, hosts, effort, meter)
    for here, there in pairwise([*order, order[0]]):
        if here != there and not pairs.bandwidth[here, there]:
            raise BadTopology(
                f"no ring through all ranks of {topology.name} was found; in their own order, "
                f"nothing leads straight from rank {here} to rank {there}",
                hint="a chain may fit where no ring does, a tree where no chain does",
            )
    return order


def tree_order(topology: Topology) -> tuple[int, ...]:
    """The ranks so that those with close numbers are close on the machine.

    Host after host; within a host, ranks that are joined best stay together (average-linkage
    clustering of the pairs' bandwidths and latencies). Binomial trees and recursive doubling
    then cross between hosts at their largest distance only.
    """
    pairs = PairPaths.of(topology)
    order: list[int] = []
    for ranks in hosts_of(topology):
        order += [ranks[i] for i in _cluster_order(pairs.among(ranks))]
    return tuple(order)


def hosts_of(topology: Topology) -> tuple[tuple[int, ...], ...]:
    """The ranks of each host, hosts by their first rank; one group where hosts are not named."""
    groups: dict[int | None, list[int]] = {}
    for rank, host in enumerate(topology.host_of):
        groups.setdefault(host, []).append(rank)
    return tuple(map(tuple, groups.values()))


# --- rings ----------------------------------------------------------------------------------------


def _best_ring(
    pairs: PairPaths, hosts: list[list[int]], effort: ClassicEffort, meter: Meter | None
) -> tuple[int, ...]:
    """The best ring, by the widest floor for all hops, then for those inside hosts."""
    n = len(pairs.bandwidth)
    host_of = np.empty(n, np.int64)
    for i, ranks in enumerate(hosts):
        host_of[ranks] = i
    inside = host_of[:, None] == host_of[None, :]
    best = tuple(range(n))
    floors = np.zeros((n, n))
    for where in (np.full((n, n), True), inside):
        levels = distinct_values(pairs.bandwidth[where & (pairs.bandwidth > 0)])
        low, high = 0, len(levels)  # the least level that is too much is in (low, high]
        while low < high:
            middle = (low + high) // 2
            tried = np.where(where, np.maximum(floors, levels[middle]), floors)
            ring = _circuit(pairs, tried, host_of, effort, meter)
            if ring is None:
                high = middle
            else:
                best, low = ring, middle + 1
        if low:
            floors = np.where(where, np.maximum(floors, levels[low - 1]), floors)
    return best


def _circuit(
    pairs: PairPaths, floors: Floats, host_of: Ints, effort: ClassicEffort, meter: Meter | None
) -> tuple[int, ...] | None:
    """The ring of least latency whose hops have at least some bandwidth; None: none was found."""
    n = len(host_of)
    fits = (pairs.bandwidth > 0) & (pairs.bandwidth >= floors)
    np.fill_diagonal(fits, False)
    plain = tuple(range(n))
    allowed = pairs.latency[fits]
    if not (fits.any(axis=0).all() and fits.any(axis=1).all()):
        return None
    # Does rank order enter every host exactly once?
    once = int((np.diff(host_of) != 0).sum()) <= int(host_of.max())
    if once and fits[plain, np.roll(plain, -1)].all():
        # Rank order is as good as any where all hops are equally quick.
        if np.isclose(pairs.latency[plain, np.roll(plain, -1)], allowed.min()).all():
            return plain
    model = CpModel()
    arcs = [(u, v, model.boolean()) for u, v in np.argwhere(fits).tolist()]
    model.circuit(arcs)
    for host in range(int(host_of.max()) + 1 if host_of.any() else 0):
        model.one_of([x for u, v, x in arcs if host_of[u] == host != host_of[v]])
        model.one_of([x for u, v, x in arcs if host_of[v] == host != host_of[u]])
    nanoseconds = np.rint(pairs.latency * 1000)
    if len(distinct_values(nanoseconds[fits])) > 1:
        model.minimize([(x, int(nanoseconds[u, v])) for u, v, x in arcs])
    steps = round(effort.ring_seconds * STEPS * max(1.0, n / 32))
    answer = _answered(_Question(model, steps, meter))
    if meter is not None:
        meter.spend(answer.steps)
    if not answer.found:
        return None
    after = {u: v for u, v, x in arcs if answer.values[x]}
    return _from_zero(after, pairs)


@dataclass(frozen=True)
class _Question:
    """A circuit to find within ``steps``; ``meter`` does not change the answer."""

    model: CpModel
    steps: int
    meter: Meter | None

    def anchors(self) -> tuple[bytes, int]:
        """Return the key of the answer (:func:`.kept`): a digest of the model, its steps."""
        return sha256(self.model.text.encode()).digest(), self.steps


class _Unfinished(Exception):
    """The solver was stopped, or died of the question: such an answer is not kept."""

    def __init__(self, answer: CpAnswer) -> None:
        super().__init__()
        self.answer = answer


def _answered(question: _Question) -> CpAnswer:
    """The answer of CP-SAT: known where phases, and rounds of a search, repeat a question."""
    try:
        return _finished(question)
    except _Unfinished as error:
        return error.answer


@kept()
def _finished(question: _Question) -> CpAnswer:
    steps, listener = question.steps, listener_of(question.meter)
    answer = cp_sat.solve(question.model, steps=steps, listener=listener)
    if answer.steps == steps:  # a solver that is stopped or dies is charged exactly all of them
        raise _Unfinished(answer)
    return answer


def _from_zero(after: dict[int, int], pairs: PairPaths) -> tuple[int, ...]:
    """The ring from rank 0 on; in the direction of the lesser neighbour if both are as good."""
    order = [0]
    while len(order) < len(after):
        order.append(after[order[-1]])
    back = [0, *reversed(order[1:])]
    if back < order and _quality(pairs, back) >= _quality(pairs, order):
        return tuple(back)
    return tuple(order)


def _quality(pairs: PairPaths, order: Sequence[int]) -> tuple[float, float]:
    here, there = np.array(order), np.roll(order, -1)
    return float(pairs.bandwidth[here, there].min()), -float(pairs.latency[here, there].sum())


def _join_host_rings(
    pairs: PairPaths, hosts: list[list[int]], effort: ClassicEffort, meter: Meter | None
) -> tuple[int, ...]:
    """The rings of the hosts, each cut where it fits the host before best."""
    order: list[int] = []
    known: dict[bytes, tuple[int, ...]] = {}
    for ranks in hosts:
        own = pairs.among(ranks)
        key = own.bandwidth.tobytes() + own.latency.tobytes()
        if key not in known:
            known[key] = _best_ring(own, [list(range(len(ranks)))], effort, meter)
        ring = [ranks[i] for i in known[key]]
        if order:
            into = pairs.bandwidth[order[-1], ring]
            start = int(np.lexsort((pairs.latency[order[-1], ring], -into))[0])
            ring = ring[start:] + ring[:start]
        order += ring
    return tuple(order)


# --- trees ----------------------------------------------------------------------------------------


def _cluster_order(pairs: PairPaths) -> list[int]:
    """The leaves of a clustering, in the order in which clusters hold their least rank."""
    n = len(pairs.bandwidth)
    if n < 3:
        return list(range(n))
    members: list[list[int]] = [[i] for i in range(n)]
    for a, b in average_linkage(_distance(pairs)):
        first, second = sorted((members[a], members[b]), key=min)
        joined = first + second
        for one in joined:
            members[one] = joined
    return members[0]


def average_linkage(far: Floats) -> list[tuple[int, int]]:
    """Merges of clusters by the mean distance of their members, the nearest first: one member of
    each cluster. Of symmetric distances, all of them finite; O(n²).

    Chains of nearest neighbours, with the merges and ties of SciPy's ``linkage`` (Müllner,
    arXiv:1109.2378, 2011); its module takes 0.35 CPU seconds to load.

    >>> average_linkage(np.array([[0, 5, 4], [5, 0, 1], [4, 1, 0.0]]))
    [(1, 2), (0, 2)]
    """
    n = len(far)
    far = np.array(far, float)
    np.fill_diagonal(far, np.inf)
    size, heights = np.ones(n), list[float]()
    merges, chain = list[tuple[int, int]](), list[int]()
    while len(merges) < n - 1:
        if not chain:
            chain = [int(np.flatnonzero(size)[0])]
        while True:
            x = chain[-1]
            y = int(far[x].argmin())
            if len(chain) > 1 and far[x, chain[-2]] <= far[x, y]:
                break  # the one before comes first among equals: no chain goes in circles
            chain.append(y)
        x, y = sorted((chain.pop(), chain.pop()))
        heights.append(far[x, y])
        merges.append((x, y))
        mean = (size[x] * far[x] + size[y] * far[y]) / (size[x] + size[y])
        size[x], size[y] = 0, size[x] + size[y]
        mean[y] = np.inf
        far[x] = far[:, x] = np.inf  # its members are in y from now on
        kept = size > 0
        far[y, kept] = far[kept, y] = mean[kept]
    return [merges[i] for i in np.argsort(heights, kind="stable")]


def _distance(pairs: PairPaths) -> Floats:
    """Time of a message that takes as long as the median latency on the widest pair, both ways."""
    reached = pairs.bandwidth > 0
    widest, usual = pairs.bandwidth.max(), np.median(pairs.latency[reached]) if reached.any() else 0
    with np.errstate(divide="ignore", invalid="ignore"):
        time = np.where(reached, pairs.latency + usual * widest / pairs.bandwidth, np.nan)
    worst = np.nanmax(time) if reached.any() else 1.0
    time = np.where(reached, time, 4 * worst)  # neighbours of neighbours: farther than any pair
    np.fill_diagonal(time, 0)
    both: Floats = (time + time.T) / 2
    return both
