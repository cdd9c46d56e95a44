"""Allreduce: cuts, and partitions.

*Cut.* The sum of the ranks inside S must reach the ranks outside: T >= M / capacity out of S.

*Partition.* Let p groups hold all ranks, and take one element of the buffer. Some group is the
first to have the whole sum; by then at least p - 1 messages went between groups, since it has data
of each other group. Each of the p - 1 others must then still get a message. Every message leaves
its group, so T >= 2 (p-1) M / capacity of all links that leave their group (the bound of one-way
gossip, Golumbic 1974). It holds where nodes between the groups only forward: a switch that
adds or multicasts must be in a group.

The best partition is found exactly over sums of group capacities: f(P) = T·out(P) - 2 is
submodular, and the least sum of f over the groups of a partition comes from a greedy vector
with one min-cut per rank (Dilworth truncation: Frank and Tardos 1988; Cunningham 1985). T is
improved by Dinkelbach's iteration.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from weft.dsl.base.arrays import Bools
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.topology import Topology

from .cut import Crossing, CutFinder, NodeCut, crossing
from .network import MaxFlow, Network, network
from .words import BandwidthBound, capacity_words, carried, listed, names


@dataclass(frozen=True, eq=False)
class Partition:
    """Disjoint groups of ranks, and the links that messages between them must use.

    ``shells[i]`` are the nodes of group i and the switches taken along; ``outward``: the
    links counted leave a shell (they enter one otherwise).
    """

    groups: tuple[tuple[int, ...], ...]
    shells: tuple[tuple[int, ...], ...]
    outward: bool
    crossing: Crossing

    @property
    def messages(self) -> int:
        """Messages between groups that each element of the buffer needs."""
        return 2 * (len(self.groups) - 1)

    @property
    def time(self) -> Fraction:
        """Buffers per GB/s: times M / 1000 it is µs."""
        return self.messages / self.crossing.capacity

    def bound(self, topology: Topology, message_chunks: int, chunks: int) -> BandwidthBound:
        """The bound for so many buffers, and its certificate."""
        p = len(self.groups)
        groups = listed([names(topology, group) for group in self.groups])
        alone = all(len(group) == 1 for group in self.groups)
        text = (
            f"Between {f'the {p} single ranks' if alone else f'{p} groups {groups}'} every byte "
            f"needs at least 2·({p} - 1) = {self.messages} messages: {p - 1} before any group has "
            f"the sum, {p - 1} to bring it to the others. Each message "
            f"{'leaves its group' if self.outward else 'enters a group'} over "
            f"{capacity_words(topology, self.crossing)}"
        )
        data = {
            "groups": [list(group) for group in self.groups],
            "shells": [list(shell) for shell in self.shells],
            "outward": self.outward,
            "messages": self.messages,
            "chunks": chunks,
        }
        needed, capacity = self.messages * chunks, self.crossing.capacity
        more = self.crossing.to_json()
        return carried("partition", text, needed, capacity, message_chunks, data, more)


def least_cut(topology: Topology) -> NodeCut | None:
    """The global directed minimum cut between ranks: one flow each way between rank 0 and all."""
    n = topology.ranks
    if n < 2:
        return None
    finder = CutFinder.of(topology, lambda inside: int(inside.any() and not inside.all()))
    net = network(topology)
    flow = MaxFlow(net, np.zeros((2, 0), np.int64), net.vertices)
    flow.set(1, [])
    best: NodeCut | None = None
    least: int | None = None
    for pair in [p for v in range(1, n) for p in ((0, v), (v, 0))]:
        value = flow.solve(*pair)
        if least is None or value < least:
            least = value
            found = finder.cut(flow.source_side()[: net.nodes])
            if found is not None and (best is None or found.time > best.time):
                best = found
    return best


def best_partition(topology: Topology, start: Fraction) -> Partition | None:
    """The best partition bound above ``start``, found from both sides; None if there is none.

    With switches that reduce or multicast only hosts, and such switches each with the ranks beside
    it, are tried, where they hold them all.
    """
    best = plain_partition(topology, start)
    if any(x.multicast or x.reduces for x in topology.nodes):
        return best
    forwards = len(topology.nodes) > topology.ranks or bool(topology.resources)
    for outward in (True, False) if forwards else (True,):
        best = _improve(topology, outward, best, start)
    return best


def plain_partition(topology: Topology, start: Fraction) -> Partition | None:
    """The best partition above ``start`` by hosts or single ranks: candidates, no max-flows."""
    capable = [i for i, x in enumerate(topology.nodes) if x.multicast or x.reduces]
    candidates = [_by_host(topology, capable), *_by_switch(topology, capable)]
    if not capable:
        singles = [(v,) for v in range(topology.ranks)]
        candidates += [evaluate(topology, singles, singles, outward) for outward in (True, False)]
    return _better(candidates, start)


def evaluate(
    topology: Topology,
    groups: Sequence[Sequence[int]],
    shells: Sequence[Sequence[int]],
    outward: bool,
) -> Partition | None:
    """The bound of given groups with given shells; None for fewer than two groups."""
    if len(groups) < 2:
        return None
    ends = topology.link_ends()
    near, far = ends.T if outward else ends.T[::-1]
    chosen = np.zeros(len(near), bool)
    for shell in shells:
        inside = np.zeros(len(topology.nodes), bool)
        inside[list(shell)] = True
        chosen |= inside[near] & ~inside[far]
    if not chosen.any():
        return None
    return Partition(
        tuple(tuple(g) for g in groups),
        tuple(tuple(s) for s in shells),
        outward,
        crossing(topology, np.flatnonzero(chosen).tolist()),
    )


def _better(found: Sequence[Partition | None], start: Fraction) -> Partition | None:
    best: Partition | None = None
    for one in found:
        if one is not None and one.time > (start if best is None else best.time):
            best = one
    return best


def _by_host(topology: Topology, capable: list[int]) -> Partition | None:
    hosts = [x.host for x in topology.nodes]
    named = sorted({h for h in hosts[: topology.ranks] if h is not None})
    if None in hosts[: topology.ranks] or any(hosts[i] not in named for i in capable):
        return None
    groups = [[v for v in range(topology.ranks) if hosts[v] == h] for h in named]
    shells = [[v for v, at in enumerate(hosts) if at == h] for h in named]
    return _better([evaluate(topology, groups, shells, way) for way in (True, False)], Fraction(0))


def _by_switch(topology: Topology, capable: list[int]) -> list[Partition | None]:
    """Groups of the ranks beside each computing switch (a leaf and its hosts), if they cover all.

    Computing switches without ranks beside them (a spine) lie in no group, so then there is none.
    """
    beside: dict[int, set[int]] = {s: set() for s in capable}
    for x in topology.links:
        for near, far in ((x.src, x.dst), (x.dst, x.src)):
            if far in beside and near < topology.ranks:
                beside[far].add(near)
    groups = [sorted(members) for members in beside.values()]
    held = [v for members in groups for v in members]
    if not all(groups) or sorted(held) != list(range(topology.ranks)):
        return []
    shells = [[*members, s] for s, members in zip(beside, groups, strict=True)]
    return [evaluate(topology, groups, shells, way) for way in (True, False)]


def _improve(
    topology: Topology, outward: bool, best: Partition | None, start: Fraction
) -> Partition | None:
    """Dinkelbach: take the partition that violates the present bound most, until none does."""
    net = network(topology if outward else topology.reversed())
    truncation = _Truncation(net, topology.ranks)
    while True:
        time = start if best is None else best.time
        groups = truncation.violating(time * net.unit) if time else None
        if groups is None:
            return best
        shells = [truncation.shell(g) for g in groups]
        found = _better([best, evaluate(topology, groups, shells, outward)], start)
        if found is best:  # resources that the flow does not see
            return best
        best = found


class _Truncation:
    """The greedy vector of the Dilworth truncation, by max-flows.

    For rank j the set S (j in S, S within 0 … j) of least T·out(S) - x(S - j) is a minimum cut:
    j is the source, later ranks are tied to the sink, an earlier rank i is paid x_i to join.
    """

    def __init__(self, net: Network, ranks: int) -> None:
        self._net, self._ranks = net, ranks
        ground, sink = net.vertices, net.vertices + 1
        rank = np.arange(ranks)
        tails = np.concatenate([np.full(ranks, ground), rank])
        heads = np.concatenate([rank, np.full(ranks, sink)])
        self._ground, self._sink = ground, sink
        self._flow = MaxFlow(net, np.array([tails, heads], np.int64), net.vertices + 2)

    def violating(self, time: Fraction) -> list[list[int]] | None:
        """The partition with the least sum of T·out - 2, if that sum is below -2.

        ``time`` is T times the unit of the network's sizes.
        """
        p, q = time.numerator, time.denominator
        x: list[int] = []
        block = list(range(self._ranks))  # block[v]: the first rank of v's block
        endless = int(self._net.size.sum()) * p + 2 * q * self._ranks + 1
        for j in range(self._ranks):
            value, inside = self._least(j, x, p, endless)
            if inside is None:
                return None
            x.append(value - 2 * q)
            tight = np.flatnonzero(inside[: j + 1])
            heads = {block[v] for v in tight.tolist()} | {block[j]}
            first = min(heads)
            block = [first if b in heads else b for b in block]
        if sum(x) + 2 * q >= 0:
            return None
        return [[v for v in range(self._ranks) if block[v] == b] for b in sorted(set(block))]

    def _least(self, j: int, x: list[int], p: int, endless: int) -> tuple[int, Bools | None]:
        """Least T·out(S) - x(S - j), scaled, and the set; None if the sizes are beyond 64 bits."""
        late = self._ranks - j - 1
        joining = [max(0, v) for v in x] + [endless] + [0] * late
        leaving = [max(0, -v) for v in x] + [0] + [endless] * late
        if self._flow.set(p, joining + leaving) != 1:
            return 0, None
        value = self._flow.solve(self._ground, self._sink)
        return value - sum(max(0, v) for v in x), self._flow.source_side()

    def shell(self, group: Sequence[int]) -> list[int]:
        """The nodes around a group for which the capacity out of it is least."""
        inside = set(group)
        endless = int(self._net.size.sum()) + 1
        joining = [endless if v in inside else 0 for v in range(self._ranks)]
        leaving = [0 if v in inside else endless for v in range(self._ranks)]
        self._flow.set(1, joining + leaving)
        self._flow.solve(self._ground, self._sink)
        nodes = np.flatnonzero(self._flow.source_side()[: self._net.nodes])
        return [int(v) for v in nodes if v in inside or v >= self._ranks]
