"""Cuts: data that is held only inside a set of nodes and wanted outside must leave it.

For every set S of nodes, T >= (chunks held only in S and wanted outside) / capacity out of S.
The best S is found by Dinkelbach's iteration over max-flows: at time T every destination must get
a flow of all it wants from a super-source that supplies the holders; a flow that falls short
yields a cut with a larger ratio, and T becomes that ratio. For collectives whose chunks all go to
the same ranks (broadcast, allgather, gather) this is the exact maximum over all cuts, and
by Edmonds' theorem it is attained without switches. (algorithms.md, Edmonds 1973,
Dinkelbach 1967; ForestColl searches the same value by bisection.)

Capacity of a set of links, limited by their bandwidths and by the resources that they share.

The capacity of links X is the largest sum of loads such that no link and no shared resource
exceeds its bandwidth. Any *cover* bounds it from above: multipliers on links and resources
that add up to at least 1 on every link of X. A reader can check the cover by hand.

Several cuts together: where links share resources, no single cut gives the best bound.

Let x_e be the load of link e. Every cut S needs x(links out of S) >= the chunks that must leave
S, and T >= load / bandwidth of every link and resource. With weights w_S on cuts and prices p on
links and resources such that on every link the weights of the cuts it leaves are at most its
price, T >= sum of w_S · chunks(S) / sum of p · bandwidth: a single cut is the case of one weight.

The best mix is a linear program over all cuts, found by adding those that max-flows on x violate
(the LP form of Edmonds' branching theorem, which also says that the value is attained where
all ranks want all chunks and no node only forwards).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from weft.dsl.base.arrays import Bools, Ints, distinct_values
from weft.dsl.base.errors import WeftError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.matrix import SparseMatrix
from weft.dsl.base.tables import count, rounded
from weft.dsl.nouns.topology import Topology

from ..base.meter import Meter
from ..fabric.fabric import as_small_integers, fabric_of
from ..lp.certified import Certified, LinearProgram, certified_minimum
from .demand import ClassDemand
from .effort import BoundEffort
from .network import MaxFlow, Network, network
from .words import BandwidthBound, capacity_words, carried, chunk_words, listed, names, price_words


@dataclass(frozen=True)
class Crossing:
    """Links that something must cross, and a cover that bounds their load."""

    links: tuple[int, ...]  # indices of the links
    # (resource, multiplier), resources as numbered by weft.synth.fabric.fabric
    cover: tuple[tuple[int, Fraction], ...]
    capacity: Fraction  # sum of multiplier times bandwidth, in GB/s

    def to_json(self) -> dict[str, Any]:
        """For :attr:`Certificate.data`: rationals as strings."""
        return {
            "links": list(self.links),
            "cover": [[row, str(times)] for row, times in self.cover],
            "capacity_GBps": str(self.capacity),
        }


def crossing(topology: Topology, links: Iterable[int]) -> Crossing:
    """The capacity of a set of links (module docstring).

    Exact where the resources are disjoint or nested on the set; where they overlap, the least
    fractional cover by a linear program, rounded up to a rational one.
    """
    chosen = tuple(sorted(set(links)))
    fabric = fabric_of(topology)
    crossed: dict[int, list[int]] = {}
    for link in chosen:
        for row in fabric.loaded[link][1:]:
            crossed.setdefault(row, []).append(link)
    shared = [(row, frozenset(crossed[row])) for row in sorted(crossed)]
    sets = [members for _, members in shared]
    nested = sum(map(len, sets)) == len(frozenset().union(*sets)) or all(
        not (a & b) or a <= b or b <= a for i, a in enumerate(sets) for b in sets[:i]
    )
    if nested:
        rows = _nested_cover(fabric.bandwidth, chosen, shared)
        cover = tuple((row, Fraction(1)) for row in rows)
    else:
        cover = _fractional_cover(fabric.bandwidth, chosen, shared)
    capacity = sum((times * fabric.bandwidth[row] for row, times in cover), Fraction(0))
    return Crossing(chosen, cover, capacity)


_Shared = list[tuple[int, frozenset[int]]]


def _nested_cover(
    bandwidth: tuple[Fraction, ...], links: tuple[int, ...], shared: _Shared
) -> list[int]:
    """From small resources to large: take the resource where it is cheaper than its members."""
    price = {i: bandwidth[i] for i in links}  # of each group, under its first link
    rows = {i: [i] for i in links}
    group = {i: i for i in links}
    for row, members in sorted(shared, key=lambda x: len(x[1])):
        inner = {group[i] for i in members}
        total = sum((price[g] for g in inner), Fraction(0))
        head = min(inner)
        paid = [r for g in sorted(inner) for r in rows[g]]
        for g in inner:
            del price[g], rows[g]
        group |= dict.fromkeys(members, head)
        price[head], rows[head] = (
            (bandwidth[row], [row]) if bandwidth[row] < total else (total, paid)
        )
    return sorted(r for paid in rows.values() for r in paid)


def _fractional_cover(
    bandwidth: tuple[Fraction, ...], links: tuple[int, ...], shared: _Shared
) -> tuple[tuple[int, Fraction], ...]:
    place = {link: i for i, link in enumerate(links)}
    rows = [(i, frozenset([i])) for i in links] + shared
    cells = [(place[m], j) for j, (_, members) in enumerate(rows) for m in members]
    at = np.array(cells).T
    cost, _, _ = as_small_integers([bandwidth[row] for row, _ in rows])
    lp = LinearProgram(
        cost,
        SparseMatrix.of((len(links), len(rows)), at[0], at[1], -np.ones(len(cells), np.int64)),
        -np.ones(len(links), np.int64),
        upper=np.ones(len(rows), np.int64),
    )
    answer = certified_minimum(lp)
    if answer.x_numerators is None:  # an integral cover is always one: every link for itself
        return tuple((i, Fraction(1)) for i in links)
    return tuple(
        (rows[j][0], Fraction(int(k), answer.x_denominator))
        for j, k in enumerate(answer.x_numerators.tolist())
        if k
    )


@dataclass(frozen=True, eq=False)
class NodeCut:
    """A set of nodes, the chunks that must leave it, and the links they must use."""

    inside: Bools
    chunks: int
    crossing: Crossing

    @property
    def time(self) -> Fraction:
        """Chunks per GB/s: times bytes per chunk / 1000 it is µs."""
        return self.chunks / self.crossing.capacity

    @property
    def members(self) -> list[int]:
        """The nodes of the set."""
        return np.flatnonzero(self.inside).tolist()

    def words(self, topology: Topology) -> str:
        """The way that chunks must go; the smaller side is named."""
        others = np.flatnonzero(~self.inside).tolist()
        out = len(self.members) <= len(others)
        side = names(topology, self.members if out else others)
        over = capacity_words(topology, self.crossing)
        return f"must go {'out of' if out else 'into'} {side} over {over}"

    def bound(self, topology: Topology, message_chunks: int) -> BandwidthBound:
        """The bound of the cut, and its certificate."""
        return carried(
            "cut",
            f"{chunk_words(self.chunks, message_chunks)} {self.words(topology)}",
            self.chunks,
            self.crossing.capacity,
            message_chunks,
            {"inside": self.members, "chunks": self.chunks},
            self.crossing.to_json(),
        )

    def turned(self) -> NodeCut:
        """The same cut on the machine with all links reversed."""
        return NodeCut(~self.inside, self.chunks, self.crossing)


@dataclass(frozen=True, eq=False)
class CutFinder:
    """Stateless evaluation of sets of nodes as cuts."""

    topology: Topology
    across: Callable[[Bools], int]
    ends: Ints

    @staticmethod
    def of(topology: Topology, across: Callable[[Bools], int]) -> CutFinder:
        """``across`` counts the chunks that must leave a set of ranks."""
        ends = topology.link_ends().T
        return CutFinder(topology, across, ends)

    def cut(self, inside: Bools) -> NodeCut | None:
        """The cut of a set of nodes; None if nothing must leave it, or nothing can."""
        chunks = self.across(inside[: self.topology.ranks])
        leaving = np.flatnonzero(inside[self.ends[0]] & ~inside[self.ends[1]])
        if not chunks or not len(leaving):
            return None
        return NodeCut(inside.copy(), chunks, crossing(self.topology, leaving.tolist()))

    def promising(self, sides: list[Bools]) -> list[Bools]:
        """The sets that may be the best cut, by floats; only where links share no resource."""
        width = np.array([float(x.bandwidth) for x in self.topology.links])
        times = np.zeros(len(sides))
        for i, inside in enumerate(sides):
            out = width[inside[self.ends[0]] & ~inside[self.ends[1]]].sum()
            times[i] = self.across(inside[: self.topology.ranks]) / out if out else 0
        return [sides[i] for i in np.flatnonzero(times > times.max(initial=0) * (1 - 1e-9))]


def best_of(*cuts: NodeCut | None) -> NodeCut | None:
    """The cut of the longest time; the first among equals."""
    best: NodeCut | None = None
    for one in cuts:
        if one is not None and (best is None or one.time > best.time):
            best = one
    return best


def best_cut(topology: Topology, demand: ClassDemand, speakers: Ints) -> NodeCut | None:
    """The best cut over per-destination flows (module docstring).

    ``topology`` is the machine that the demand is to be read on; ``speakers`` has one rank of
    every orbit of it, which are all the destinations to be tried for a uniform demand.
    The maximum over all cuts when ``demand.spread``, or there is one destination; in general a
    valid bound.
    """
    finder = CutFinder.of(topology, demand.across)
    supply = Supply(network(topology), demand)
    entering = np.zeros(len(topology.nodes))
    for one in topology.links:
        entering[one.dst] += float(one.bandwidth)
    # Destinations, by chunks wanted per bandwidth into them, the largest first.
    needy = demand.sinks()
    need = demand.wanted()[needy] / np.maximum(entering[needy], 1e-300)
    sinks: list[int] = needy[np.argsort(-need, kind="stable")].tolist()
    if demand.uniform:
        chosen = set(speakers.tolist())
        sinks = [v for v in sinks if v in chosen]
    best = best_of(finder.cut(_all_but(topology, sinks[0])))
    for sink in sinks:
        best = supply.improve(finder, sink, best)
    return best


def host_cuts(
    topology: Topology, across: Callable[[Bools], int], most_ranks: int
) -> Iterator[NodeCut | None]:
    """The cuts out of and into every host: candidates, not a maximum.

    Those of every single rank, too, on machines of at most ``most_ranks``.
    """
    finder = CutFinder.of(topology, across)
    host = np.array([-1 if x.host is None else x.host for x in topology.nodes])
    groups = [host == h for h in distinct_values(host[host >= 0])]
    if topology.ranks <= most_ranks:
        groups += [~_all_but(topology, v) for v in range(topology.ranks)]
    sides = [side for group in groups for side in (group, ~group)]
    if not topology.resources:
        sides = finder.promising(sides)
    for side in sides:
        yield finder.cut(side)


def _all_but(topology: Topology, rank: int) -> Bools:
    inside = np.ones(len(topology.nodes), bool)
    inside[rank] = False
    return inside


class Supply:
    """The flow network of :func:`best_cut`: a super-source feeds the holders.

    Classes with one holder share an arc to that rank; each of the others gets a vertex that
    feeds all its holders. For a spread demand the arcs are the same for every destination.
    """

    def __init__(self, net: Network, demand: ClassDemand) -> None:
        self._demand = demand
        self._net = net
        if len(demand.holders) == demand.classes:  # no columns of millions of pairs
            self._single: Ints | slice = slice(None)
            self._single_rank, self._many = demand.holders, np.zeros(0, np.int64)
        else:
            single = np.diff(demand.holder_start) == 1
            self._single = np.flatnonzero(single)
            self._single_rank = demand.holders[demand.holder_start[:-1][single]]
            self._many = np.flatnonzero(~single)
        self._source = net.vertices
        self._ranks = np.flatnonzero(np.bincount(self._single_rank, minlength=demand.ranks))
        own = net.vertices + 1 + np.arange(len(self._many))
        start = demand.holder_start
        fans = [demand.holders[start[k] : start[k + 1]] for k in self._many]
        tails = np.concatenate(
            [
                np.full(len(self._ranks) + len(own), self._source),
                np.repeat(own, [len(f) for f in fans]),
            ]
        )
        heads = np.concatenate([self._ranks, own, *fans])
        self._fan = sum(map(len, fans))
        vertices = net.vertices + 1 + len(own)
        self._flow = MaxFlow(net, np.array([tails, heads], np.int64), vertices)
        self._everywhere = demand.spread
        self._set_for: object = None
        self._goal = 0

    def improve(self, finder: CutFinder, sink: int, best: NodeCut | None) -> NodeCut | None:
        """Better cuts between the holders and one destination, until its flow suffices."""
        supplies = None
        while True:
            time = best.time if best is not None else Fraction(1, 10**12)
            if supplies is None:
                supplies = self._supplies(sink)
            goal = self._set(time, supplies, sink)
            if self._flow.solve(self._source, sink) >= goal:
                return best
            inside = self._flow.source_side()[: self._net.nodes]
            found = best_of(best, finder.cut(inside))
            if found is best:  # rounded sizes, or resources that the flow does not see
                return best
            best = found

    def shortfall(self, sink: int) -> Bools | None:
        """The source side of a cut that keeps the flow to ``sink`` too small at T = 1, if any."""
        goal = self._set(Fraction(1), self._supplies(sink), sink)
        if self._flow.solve(self._source, sink) >= goal:
            return None
        return self._flow.source_side()[: self._net.nodes]

    def _supplies(self, sink: int) -> Ints:
        """Chunks of every supply arc: of the ranks, then of the classes with many holders."""
        demand = self._demand
        if demand.unicast and not self._everywhere:
            return np.asarray(demand.pairs[self._ranks, sink])
        wanted = np.ones(demand.classes, bool) if self._everywhere else demand.wanted_by(sink)
        weight = np.where(wanted, demand.weight, 0)
        by_rank = np.bincount(self._single_rank, weight[self._single], demand.ranks)
        parts = [by_rank[self._ranks], weight[self._many]]
        return np.concatenate(parts).astype(np.int64)

    def _set(self, time: Fraction, supplies: Ints, sink: int) -> int:
        """Set the sizes for one T; returns the flow that is needed."""
        key = (time, None if self._everywhere else sink)
        if key != self._set_for:
            per_size = time * self._net.unit  # chunks that a machine arc of size 1 carries
            p, q = per_size.numerator, per_size.denominator
            chunks = [x * q for x in supplies.tolist()]
            divisor = self._flow.set(p, chunks + [sum(chunks)] * self._fan)
            self._goal = sum(x // divisor for x in chunks)
            self._set_for = key
        return self._goal


@dataclass(frozen=True, eq=False)
class Mix:
    """Weighted cuts against prices of resources (links, then shared ones); all integers.

    ``complete``: no cut is violated by a rational load that attains ``time``.
    """

    cuts: tuple[NodeCut, ...]
    weights: tuple[int, ...]
    prices: tuple[tuple[int, int], ...]
    worth: Fraction
    complete: bool

    @property
    def needed(self) -> int:
        """Weighted chunks: weight times chunks that must leave, summed over the cuts."""
        return sum(w * c.chunks for w, c in zip(self.weights, self.cuts, strict=True))

    @property
    def time(self) -> Fraction:
        """Chunks per GB/s: times bytes per chunk / 1000 it is µs."""
        return self.needed / self.worth

    def bound(self, topology: Topology, message_chunks: int) -> BandwidthBound:
        """The bound of the mix, and its certificate."""
        cuts = [
            f"{w} times {count(c.chunks, 'chunk')} out of {names(topology, c.members)}"
            for w, c in zip(self.weights, self.cuts, strict=True)
        ]
        text = (
            f"Weigh cuts: {listed(cuts, '; ')}: {self.needed} (M is {message_chunks} chunks). "
            f"Price {price_words(topology, self.prices)}: no link leaves more weight of cuts than "
            "it costs, with the resources it uses; price times bandwidth adds up to "
            f"{rounded(self.worth)} GB/s"
        )
        data = {
            "cuts": [
                {"weight": w, "inside": c.members, "chunks": c.chunks}
                for w, c in zip(self.weights, self.cuts, strict=True)
            ],
            "prices": [list(x) for x in self.prices],
            "worth_GBps": str(self.worth),
        }
        return carried("cuts", text, self.needed, self.worth, message_chunks, data)

    def turned(self) -> Mix:
        """The same mix on the machine with all links reversed."""
        return replace(self, cuts=tuple(c.turned() for c in self.cuts))


def best_mix(
    topology: Topology, demand: ClassDemand, first: Sequence[NodeCut], effort: BoundEffort
) -> Mix | None:
    """The best mix of cuts, starting from some; None where it is too large or was not solved."""
    if len(topology.links) > effort.mix_links:
        return None
    finder = CutFinder.of(topology, demand.across)
    flow = network(replace(topology, resources=(), symmetries=()))
    cuts = {c.inside.tobytes(): c for c in first}
    size, _, exact = as_small_integers(topology.capacities())
    best: Mix | None = None
    for _ in range(effort.mix_rounds):
        chosen = tuple(cuts.values())
        try:
            answer = _solve(topology, chosen, size, effort.program_meter())
        except WeftError:
            return best
        new = [c for c in _violated(flow, demand, finder, answer) if c.inside.tobytes() not in cuts]
        mix = _mix(topology, chosen, answer, complete=exact and not new and answer.exact)
        if mix is not None and (best is None or mix.time >= best.time):
            best = mix
        if not new:
            return best
        cuts |= {c.inside.tobytes(): c for c in new}
    return best


def _solve(topology: Topology, cuts: tuple[NodeCut, ...], size: Ints, meter: Meter) -> Certified:
    """Least T for loads that meet the cuts. Columns: load of each link, then T."""
    last = len(topology.links)
    row, link = fabric_of(topology).pairs
    cut_row = np.repeat(np.arange(len(cuts)), [len(c.crossing.links) for c in cuts]) + len(size)
    cut_link = np.concatenate([np.array(c.crossing.links, np.int64) for c in cuts])
    ones = np.ones(len(link), np.int64)
    a_ub = SparseMatrix.of(
        (len(size) + len(cuts), last + 1),
        np.concatenate([row, np.arange(len(size)), cut_row]),
        np.concatenate([link, np.full(len(size), last), cut_link]),
        np.concatenate([ones, -size, -np.ones(len(cut_link), np.int64)]),
    )
    right = np.concatenate([np.zeros(len(size), np.int64), -np.array([c.chunks for c in cuts])])
    cost = np.zeros(last + 1, np.int64)
    cost[last] = 1
    return certified_minimum(LinearProgram(cost, a_ub, right), meter=meter)


def _violated(
    flow: Network, demand: ClassDemand, finder: CutFinder, answer: Certified
) -> list[NodeCut]:
    """For each destination a cut that the loads do not meet, exactly where they are rational.

    ``flow``: the network of the links alone.
    """
    scale = answer.x_denominator if answer.x_numerators is not None else 1 << 30
    loads = answer.x_numerators
    if loads is None:
        loads = np.ceil(answer.x * scale).astype(np.int64)
    net = replace(flow, size=loads[:-1].copy(), unit=Fraction(1, scale))
    supply = Supply(net, demand)
    sides = [supply.shortfall(int(v)) for v in demand.sinks()]
    found = [finder.cut(side) for side in sides if side is not None]
    return [c for c in found if c is not None]


def _mix(
    topology: Topology, cuts: tuple[NodeCut, ...], answer: Certified, *, complete: bool
) -> Mix | None:
    """Weights and prices from the dual; links are priced up to the need of the weights."""
    fabric = fabric_of(topology)
    weights = [int(w) for w in -answer.dual_ub[fabric.resources :]]
    paid = np.array([int(p) for p in -answer.dual_ub[: fabric.resources]], dtype=object)
    row, link = fabric.pairs
    offered = np.zeros(fabric.links, dtype=object)
    np.add.at(offered, link, paid[row])
    for weight, cut in zip(weights, cuts, strict=True):
        offered[list(cut.crossing.links)] -= weight
    paid[: len(offered)] -= np.minimum(offered, 0)
    worth = sum((int(p) * b for p, b in zip(paid, fabric.bandwidth, strict=True) if p), Fraction(0))
    if not worth:
        return None
    used = [(w, c) for w, c in zip(weights, cuts, strict=True) if w]
    prices = tuple((i, int(p)) for i, p in enumerate(paid) if p)
    return Mix(tuple(c for _, c in used), tuple(w for w, _ in used), prices, worth, complete)
