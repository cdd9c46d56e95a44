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

Allreduce where switches copy and sum: messages between groups, of which a cast replaces several.

Let p groups hold all ranks. As above, every byte needs at least 2 (p-1) messages
from group to group, however it goes: p - 1 until some group has the whole sum, and one more for
each other group. A cast can be written out as messages that leave every rank with at least as much:
a sum of k groups' parts for a rank of another group as k messages, a copy to k other groups as k,
one that sums and copies in one pass as those to one group and from it. Put prices on links so that
every route between groups costs 1 or more and every cast at least as much as it has messages: then
a byte costs 2 (p-1), and

    T >= 2 (p-1) M / sum of price · bandwidth.

This holds for all schedules, whichever way they go. The prices come from a linear program by
cutting planes, over orbits of links; their proofs are computed in integers, so they are trusted
with nothing. A cast over several computing switches is priced by its ends alone, each at the
cheapest switch of the machine: what it pays between switches only adds to that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import partial
from itertools import product
from math import ceil, lcm

import numpy as np

from weft.dsl.base.arrays import Bools, Floats, Ints
from weft.dsl.base.kept import kept
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.matrix import SparseMatrix
from weft.dsl.base.tables import rounded
from weft.dsl.nouns.topology import Topology
from weft.dsl.symmetry.orbits import Orbits, orbits_of

from ..fabric.fabric import fabric_of
from ..lp.highs import solve_lp
from ..steiner.graph import STEINER_EFFORT, Arcs, SteinerGraph, tie_price
from .cut import Crossing, CutFinder, NodeCut, crossing
from .network import MaxFlow, Network, network
from .words import BandwidthBound, capacity_words, carried, listed, names, price_words, prices_of


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
        """The bound for ``chunks`` buffers, and its certificate."""
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


@dataclass(frozen=True, eq=False)
class CastPartition:
    """Groups of ranks, prices of rows, and their bound.

    ``prices`` are integers of links and shared resources; a message costs at least ``per_message``
    of them; ``worth``: price times GB/s, summed.
    """

    groups: tuple[tuple[int, ...], ...]
    prices: tuple[int, ...]
    per_message: Fraction
    worth: Fraction

    @property
    def messages(self) -> int:
        """Messages between groups that each element of the buffer needs."""
        return 2 * (len(self.groups) - 1)

    @property
    def time(self) -> Fraction:
        """Buffers per GB/s: times M / 1000 it is µs."""
        return self.messages * self.per_message / self.worth

    def bound(self, topology: Topology, message_chunks: int, chunks: int) -> BandwidthBound:
        """The bound for ``chunks`` buffers, and its certificate."""
        p, priced = len(self.groups), prices_of(self.prices)
        alone = all(len(group) == 1 for group in self.groups)
        text = (
            f"Between {f'the {p} single ranks' if alone else f'{p} groups of ranks'} every byte "
            f"needs at least 2·({p} - 1) = {self.messages} messages. Price "
            f"{price_words(topology, priced)}: a route between groups costs "
            f"{rounded(self.per_message)} or more, and so does a cast for each message that it "
            "replaces (a sum of k groups or a copy to k others k, one of both those to one group "
            f"and from it); price times bandwidth adds up to {rounded(self.worth)} GB/s"
        )
        data = {
            "groups": [list(group) for group in self.groups],
            "prices": priced,
            "messages": self.messages,
            "per_message": str(self.per_message),
            "worth_GBps": str(self.worth),
            "chunks": chunks,
        }
        needed = self.messages * self.per_message * chunks
        return carried("casts", text, needed, self.worth, message_chunks, data)


@dataclass(frozen=True, eq=False)
class _PricedMove:
    """A route or a cast: its cost, how many messages it replaces, and the links it uses."""

    cost: float
    messages: int
    links: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class _CastEnds:
    """Prices and links of the ends of casts over a switch; without one, over the cheapest of each
    rank.

    ``first``: price from each rank to the switch, with the issuer's own copy; ``beyond``: from the
    switch to each rank; ``to_it``, ``from_it``: the links of both, by rank.
    """

    switch: int | None
    first: Floats
    beyond: Floats
    to_it: Callable[[int], Sequence[int]]
    from_it: Callable[[int], Sequence[int]]


def _with_own(arcs: Arcs, ranks: int, k: int, in_group: bool, v: int) -> tuple[int, ...]:
    """Return the links from rank v to switch k, and of the issuer's own copy back."""
    own = (int(arcs.back[k, v]),) if in_group else ()
    return (*arcs.route(v, ranks + k), *own)


def _any_of(each: Sequence[_CastEnds]) -> _CastEnds:
    """Return the ends of casts over several switches, each at the cheapest."""
    first, beyond = (np.array([getattr(x, y) for x in each]) for y in ("first", "beyond"))
    to_which, from_which = first.argmin(axis=0), beyond.argmin(axis=0)
    return _CastEnds(
        None,
        first.min(axis=0),
        beyond.min(axis=0),
        lambda v: each[to_which[v]].to_it(v),
        lambda w: each[from_which[w]].from_it(w),
    )


@kept(most=8)
def cast_partition(topology: Topology) -> CastPartition | None:
    """Return the best bound of this kind that was found; None where there is none."""
    able = [i for i, node in enumerate(topology.nodes) if node.computes]
    if not able or not 2 <= topology.ranks <= STEINER_EFFORT.cut_ranks:
        return None
    graphs = tuple(SteinerGraph.of(topology, outward=way) for way in (False, True))
    best: CastPartition | None = None
    for groups in _groupings(topology, able):
        found = _Prices(topology, orbits_of(topology), (graphs[0], graphs[1]), groups).best()
        if found is not None and (best is None or found.time > best.time):
            best = found
    return best


def _groupings(topology: Topology, able: Sequence[int]) -> Iterator[tuple[tuple[int, ...], ...]]:
    """Yield single ranks, hosts, and hosts with a computing switch beside single ranks."""
    ranks, hosts = range(topology.ranks), topology.host_of
    yield tuple((v,) for v in ranks)
    if None in hosts or len(set(hosts)) < 2:
        return
    named = sorted({h for h in hosts if h is not None})
    yield tuple(tuple(v for v in ranks if hosts[v] == h) for h in named)
    helped = {topology.nodes[i].host for i in able} - {None}
    if 0 < len(helped) < len(named):
        whole = [tuple(v for v in ranks if hosts[v] == h) for h in named if h in helped]
        yield (*whole, *((v,) for v in ranks if hosts[v] not in helped))


@dataclass(eq=False)
class _Prices:
    topology: Topology
    orbits: Orbits
    graphs: tuple[SteinerGraph, SteinerGraph]  # towards a rank (reversed), away from one
    groups: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        self.group = np.empty(self.topology.ranks, np.int64)
        for number, members in enumerate(self.groups):
            self.group[list(members)] = number
        rows = np.ones(fabric_of(self.topology).resources)
        met = [g.arcs(rows).cost[g.ranks :, g.ranks :] for g in self.graphs]
        self.joined = any(bool(np.isfinite(between).any()) for between in met)
        self.size = np.bincount(self.orbits.row_orbit)
        first = np.unique(self.orbits.row_orbit, return_index=True)[1]
        bandwidth = fabric_of(self.topology).bandwidth
        self.width = [bandwidth[i] for i in first.tolist()]

    def best(self) -> CastPartition | None:
        if len(self.groups) < 2:
            return None
        cuts: list[tuple[Ints, int]] = []
        price, fabric = np.array([1 / float(w) for w in self.width]), fabric_of(self.topology)
        for _ in range(STEINER_EFFORT.cut_rounds):
            broken = [
                m for m in self._moves(price) if m.cost < m.messages * (1 - STEINER_EFFORT.close)
            ]
            if cuts and not broken:
                break
            rows = [fabric.resources_of(np.array(m.links, np.int64))[1] for m in broken]
            loads = [np.bincount(self.orbits.row_orbit[r], minlength=len(self.size)) for r in rows]
            fresh = [(x, m.messages) for x, m in zip(loads, broken, strict=True)]
            known = {(load.tobytes(), messages) for load, messages in cuts}
            fresh = [c for c in fresh if (c[0].tobytes(), c[1]) not in known]
            if not fresh:
                break
            cuts += fresh
            solved = self._program(cuts)
            if solved is None:
                return None
            price = solved
        return self._judged(price)

    def _program(self, cuts: Sequence[tuple[Ints, int]]) -> Floats | None:
        worth = np.array([int(s) * float(w) for s, w in zip(self.size, self.width, strict=True)])
        loads = np.array([load for load, _ in cuts], float)
        at, column = np.nonzero(loads)
        matrix = SparseMatrix.of(loads.shape, at, column, -loads[at, column])
        right = np.array([-float(messages) for _, messages in cuts])
        found = solve_lp(worth / worth.max(), a_ub=matrix, b_ub=right, method="highs-ds")
        return None if found.x is None else found.x

    def _judged(self, price: Floats) -> CastPartition | None:
        exact = [
            Fraction(max(0.0, float(p))).limit_denominator(STEINER_EFFORT.denominator)
            for p in price
        ]
        unit = lcm(*(p.denominator for p in exact))
        whole = [int(p * unit) for p in exact]
        if not any(whole) or max(whole) > 1 << 40:
            return None
        least = self._per_message(np.array(whole, float))
        prices = tuple(whole[k] for k in self.orbits.row_orbit.tolist())
        bandwidth = fabric_of(self.topology).bandwidth
        worth = sum((p * b for p, b in zip(prices, bandwidth, strict=True)), Fraction(0))
        return CastPartition(self.groups, prices, least, worth) if least > 0 else None

    def _per_message(self, price: Floats) -> Fraction:
        """Return the least cost of a message under integer prices.

        Costs are integers and what ties add to them, which is less than ``ties`` for each message
        and two more. So a move of k messages costs at least k times the least ratio, less ties,
        rounded up.
        """
        ratio = min(m.cost / m.messages for m in self._moves(price))
        graph = self.graphs[1]
        tie = tie_price(graph.link_prices(price[self.orbits.row_orbit]))
        ties = tie * (2 * len(self.topology.nodes) + 1)  # no route is longer
        counts = range(1, 2 * len(self.groups))
        return min(Fraction(ceil(k * ratio - (k + 2) * ties), k) for k in counts)

    # --- the cheapest moves -----------------------------------------------------------------------

    def _moves(self, price: Floats) -> Iterator[_PricedMove]:
        """Yield the cheapest route between groups from each rank, and the casts of each switch
        that cost the least for each of their messages."""
        rows = price[self.orbits.row_orbit]
        forth, back = self.graphs[1].arcs(rows), self.graphs[0].arcs(rows)
        n = self.topology.ranks
        apart = self.group[:, None] != self.group[None, :]
        between = np.where(apart, forth.cost[:n, :n], np.inf)
        for v, w in enumerate(between.argmin(axis=1).tolist()):
            if np.isfinite(between[v, w]):
                yield _PricedMove(float(between[v, w]), 1, forth.route(v, w))
        forth_ends, back_ends = (
            self._ends(graph, arcs)
            for graph, arcs in ((self.graphs[1], forth), (self.graphs[0], back))
        )
        yield from self._casts(forth_ends)
        yield from self._casts(back_ends)
        yield from self._turns(back_ends, forth_ends)

    def _ends(self, graph: SteinerGraph, arcs: Arcs) -> list[_CastEnds]:
        """Return the ends of casts over each switch, and, where switches meet, over any."""
        n = graph.ranks
        each = [
            _CastEnds(
                node,
                arcs.cost[:n, n + k],
                arcs.cost[n + k, :n],
                partial(_with_own, arcs, n, k, bool(graph.in_group[k])),
                partial(arcs.route, n + k),
            )
            for k, node in enumerate(graph.switches)
        ]
        return [*each, _any_of(each)] if self.joined and each else each

    def _casts(self, switches: Sequence[_CastEnds]) -> Iterator[_PricedMove]:
        """Yield for each rank and switch the cast from (or, reversed, to) the rank: to the ranks of
        as many other groups, the nearest of each, as make a message cheapest."""
        for one in switches:
            ends = self._nearest(one.beyond)
            for v in np.flatnonzero(np.isfinite(one.first)).tolist():
                others = [(c, w) for c, w in ends if self.group[w] != self.group[v]]
                if not others:
                    continue
                costs = one.first[v] + np.cumsum([c for c, _ in others])
                count = 1 + int((costs / np.arange(1, len(others) + 1)).argmin())
                links = [*one.to_it(v), *(i for _, w in others[:count] for i in one.from_it(w))]
                yield _PricedMove(float(costs[count - 1]), count, tuple(links))

    def _turns(
        self, inward: Sequence[_CastEnds], outward: Sequence[_CastEnds]
    ) -> Iterator[_PricedMove]:
        """Yield the cast of each switch that sums and copies in one pass at the least for each
        message: a groups to one of them and from it to d make a + d - 2, of disjoint ones
        a + d - 1. The nearest ranks of each group cost no more than any others."""
        nodes = self.topology.nodes
        turning = {s for s, node in enumerate(nodes) if node.turns and node.multicast}
        if not turning:
            return
        for up_ends, down_ends in product(inward, outward):
            if up_ends.switch != down_ends.switch or up_ends.switch not in {*turning, None}:
                continue
            rising, falling = self._nearest(up_ends.beyond), self._nearest(down_ends.beyond)
            if not rising or not falling:
                continue
            up, down = (np.cumsum([c for c, _ in side]) for side in (rising, falling))
            costs = up[:, None] + down[None, :]
            both = np.arange(1, len(up) + 1)[:, None] + np.arange(1, len(down) + 1)[None, :]
            near = {int(self.group[w]) for _, w in (*rising, *falling)}
            for messages in (both - 2, np.where(both <= len(near), both - 1, 0)):
                ratio = np.where(messages > 0, costs / np.maximum(messages, 1), np.inf)
                a, d = np.unravel_index(int(ratio.argmin()), ratio.shape)
                if messages[a, d] < 1:
                    continue
                links = [i for _, w in rising[: a + 1] for i in up_ends.from_it(w)]
                links += [i for _, w in falling[: d + 1] for i in down_ends.from_it(w)]
                yield _PricedMove(float(costs[a, d]), int(messages[a, d]), tuple(links))

    def _nearest(self, cost: Floats) -> list[tuple[float, int]]:
        """Return the cheapest rank of each group to reach, the cheapest first."""
        found: dict[int, tuple[float, int]] = {}
        for w, c in enumerate(cost.tolist()):
            group = int(self.group[w])
            if np.isfinite(c) and (group not in found or c < found[group][0]):
                found[group] = (c, w)
        return sorted(found.values())
