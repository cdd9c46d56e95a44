"""Allreduce where switches copy and sum: messages between groups, of which a cast replaces several.

Let p groups hold all ranks. As in :mod:`.partition`, every byte needs at least 2 (p-1) messages
from group to group, however it goes: p - 1 until some group has the whole sum, and one more for
each other group. A cast can be written out as messages that leave every rank with at least as much:
a sum of k groups' parts for a rank of another group as k messages, a copy to k other groups as k,
one that sums and copies in one pass as those to one group and from it. Put prices on links so that
every route between groups costs 1 or more and every cast at least as much as it has messages: then
a byte costs 2 (p-1), and

    T >= 2 (p-1) M / sum of price · bandwidth.

This holds for all schedules, whichever way they go. The prices come from a linear program by
cutting planes, over orbits of links; what they prove is computed in integers, so they are trusted
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

from weft.dsl.base.arrays import Floats, Ints
from weft.dsl.base.kept import kept
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.matrix import SparseMatrix
from weft.dsl.base.tables import rounded
from weft.dsl.nouns.topology import Topology
from weft.dsl.symmetry.orbits import Orbits, orbits_of

from ..fabric.fabric import fabric_of
from ..lp.highs import solve_lp
from ..steiner.graph import STEINER_EFFORT, Arcs, SteinerGraph, tie_price
from .words import BandwidthBound, carried, price_words, prices_of


@dataclass(frozen=True, eq=False)
class CastPartition:
    """Groups of ranks, prices of rows, and what they prove.

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
        """The bound for so many buffers, and its certificate."""
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
    """A route or a cast: what it costs, how many messages it replaces, and the links it uses."""

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
    """The search for prices of one partition."""

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
        price = np.array([1 / float(w) for w in self.width])
        for _ in range(STEINER_EFFORT.cut_rounds):
            broken = [
                m for m in self._moves(price) if m.cost < m.messages * (1 - STEINER_EFFORT.close)
            ]
            if cuts and not broken:
                break
            fresh = [(self._load(m.links), m.messages) for m in broken]
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

    def _load(self, links: tuple[int, ...]) -> Ints:
        _, rows = fabric_of(self.topology).resources_of(np.array(links, np.int64))
        return np.bincount(self.orbits.row_orbit[rows], minlength=len(self.size))

    def _judged(self, price: Floats) -> CastPartition | None:
        """Return what the prices prove, made integers."""
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
        """Return what a message costs at least under integer prices.

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
        so many other groups, the nearest of each, that a message costs the least."""
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
