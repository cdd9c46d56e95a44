"""Bounds from prices where several collectives use a machine at once.

Put a non-negative price y on every link and shared resource. Whatever the schedules are, all that
is carried until T costs at most T times the price of everything at full bandwidth, and each
collective costs at least what its cheapest trees and paths do, over the ranks that may forward:

    T >= sum over collectives (least cost) / sum of price · bandwidth

The least cost is, for data that several ranks need, amount · cheapest tree from its holder (with
several holders, cheapest trees from all of them); for
sums that all need, amount · cheapest tree in and tree out of one rank; otherwise the sum of amount
· distance. Trees are minimum arborescences where only their ranks may forward, and Steiner trees
elsewhere: exact up to ten receivers (Erickson, Monma and Veinott 1987), beyond that bounded
from below by dual ascent (Wong 1984). Nothing is assumed about where the prices come from. All in
integers.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from weft.dsl.base.arrays import AnyArray
from weft.dsl.base.errors import UserError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.units import BYTES_PER_US_PER_GBPS
from weft.dsl.nouns.topology import Topology

from ..fabric.fabric import fabric_of
from .arborescence import tree_costs
from .route_costs import route_costs


@dataclass(frozen=True, slots=True)
class PricedDemand:
    """The demand of one collective, for the bound."""

    forwarders: tuple[int, ...]  # ranks that may forward, ascending
    # (holders, receivers, bytes, backwards) of data that goes along a tree, or along a forest where
    # several ranks hold it
    trees: tuple[tuple[tuple[int, ...], tuple[int, ...], Fraction, bool], ...] = ()
    # (members, bytes) of data that is added up for all members
    sums: tuple[tuple[tuple[int, ...], Fraction], ...] = ()
    # (source, targets, bytes for each) of other data; one number of bytes: for each
    flows: tuple[tuple[int, tuple[int, ...], tuple[Fraction, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class PricedBound:
    """A bound, and its two sides."""

    us: Fraction  # the bound in µs
    costs: tuple[Fraction, ...]  # least cost of each demand, price times bytes
    worth: Fraction  # price times GB/s of everything


def joint_prices(
    topology: Topology, demands: Sequence[PricedDemand], prices: Sequence[int]
) -> PricedBound:
    """Return the bound on the time of all demands together that prices prove.

    ``prices``: a non-negative integer per entry of :meth:`Topology.capacities`.

    Raises:
        UserError: prices that do not fit, or a rank that is not reached.
    """
    checked = tuple(map(int, prices))
    if len(checked) != fabric_of(topology).resources:
        raise UserError(f"{len(checked)} prices for {fabric_of(topology).resources} resources")
    if min(checked, default=0) < 0 or not any(checked):
        raise UserError("prices must be non-negative integers, and not all of them 0")
    forth = route_costs(topology, checked)
    machine = _Priced(forth, route_costs(topology.reversed(), checked), {})
    costs = tuple(machine.cost(one) for one in demands)
    pairs = zip(checked, topology.capacities(), strict=True)
    worth = sum((p * b for p, b in pairs if p), Fraction(0))
    total = sum(costs, Fraction(0))
    return PricedBound(total / worth / BYTES_PER_US_PER_GBPS, costs, worth)


@dataclass(frozen=True, eq=False)
class _Priced:
    """Route costs between ranks, forth and back; equal questions are answered once.

    Steiner trees are exact up to ``exact`` receivers.
    """

    forth: AnyArray
    back: AnyArray
    known: dict[object, object]
    exact: int = 10

    def cost(self, one: PricedDemand) -> Fraction:
        total = Fraction(0)
        for holders, receivers, amount, backwards in one.trees:
            total += amount * self._from_any(one, holders, receivers, backwards)
        for members, amount in one.sums:
            total += amount * self._sum(one, members)
        for source, targets, amounts in one.flows:
            row = self._distances(one.forwarders, False)
            at = {v: i for i, v in enumerate(one.forwarders)}
            lengths = [int(row[at[source], at[v]]) if v != source else 0 for v in targets]
            if min(lengths, default=0) < 0:
                raise UserError(f"rank {source} does not reach all that it sends to")
            if len(amounts) == 1:
                total += amounts[0] * sum(lengths)
            else:
                total += sum((a * x for a, x in zip(amounts, lengths, strict=True)), Fraction(0))
        return total

    def _from_any(
        self,
        one: PricedDemand,
        holders: tuple[int, ...],
        receivers: tuple[int, ...],
        backwards: bool,
    ) -> int:
        """Return the cost of trees from all holders together: they count as one rank, 0."""
        if len(holders) == 1:
            return self._tree(one, holders[0], receivers, backwards)
        rest = tuple(v for v in one.forwarders if v not in holders)
        forth, back = (_contracted(x, holders, rest) for x in (self.forth, self.back))
        at = {v: i + 1 for i, v in enumerate(rest)}
        small = PricedDemand(tuple(range(len(rest) + 1)))
        wanting = tuple(at[v] for v in receivers)
        return _Priced(forth, back, {}, self.exact)._tree(small, 0, wanting, backwards)

    def _sum(self, one: PricedDemand, members: tuple[int, ...]) -> int:
        if set(members) >= set(one.forwarders):
            out, into = (self._spanning(members, back) for back in (False, True))
            return min(a + b for a, b in zip(out, into, strict=True))
        if len(members) <= self.exact:  # all their subsets at once
            for back in (False, True):
                self._steiner(one.forwarders, tuple(sorted(members)), back)
        found = []
        for v in one.forwarders:
            rest = tuple(w for w in members if w != v)
            with contextlib.suppress(UserError):  # a root that not all reach
                found.append(self._tree(one, v, rest, False) + self._tree(one, v, rest, True))
        if not found:
            raise UserError(f"ranks {members} do not reach each other")
        return min(found)

    def _tree(
        self, one: PricedDemand, root: int, receivers: tuple[int, ...], backwards: bool
    ) -> int:
        receivers = tuple(sorted(receivers))
        ranks = tuple(sorted({root, *receivers}))
        if set(ranks) >= set(one.forwarders):
            return self._spanning_from(ranks.index(root), ranks, backwards)
        if len(receivers) <= self.exact:
            table = self._steiner(one.forwarders, receivers, backwards)
            price = table[one.forwarders.index(root)]
            if price < 0:
                raise UserError(f"rank {root} and ranks {receivers} do not reach each other")
            return price
        key = ("ascent", one.forwarders, root, receivers, backwards)
        if key not in self.known:
            cost = _among(self.back if backwards else self.forth, one.forwarders)
            at = {v: i for i, v in enumerate(one.forwarders)}
            self.known[key] = _ascent(cost, at[root], [at[v] for v in receivers])
        found: int = self.known[key]  # type: ignore[assignment]
        return found

    def _spanning(self, ranks: tuple[int, ...], backwards: bool) -> list[int]:
        """Return the cost of the minimum arborescence from each of some ranks that spans them."""
        cost = _among(self.back if backwards else self.forth, ranks)
        key = ("span", len(ranks), cost.tobytes() if cost.dtype != object else str(cost.tolist()))
        if key not in self.known:
            try:
                self.known[key] = tree_costs(cost)
            except ValueError:
                raise UserError(f"ranks {ranks} do not reach each other") from None
        found: list[int] = self.known[key]  # type: ignore[assignment]
        return found

    def _spanning_from(self, root: int, ranks: tuple[int, ...], backwards: bool) -> int:
        """Return the cost of the minimum arborescence from the rank at place ``root``.

        Arcs into the root are in no such tree, so it may be reached for nothing: then the others
        need not reach each other.
        """
        try:
            return self._spanning(ranks, backwards)[root]
        except UserError:
            cost = _among(self.back if backwards else self.forth, ranks)
            cost[:, root] = 0
            try:
                return tree_costs(cost)[root]
            except ValueError:
                raise UserError(f"ranks {ranks} are not all joined with {ranks[root]}") from None

    def _distances(self, forwarders: tuple[int, ...], backwards: bool) -> AnyArray:
        """Return the distances between all that forward, over all that forward; -1: none."""
        key = ("distance", forwarders, backwards)
        if key not in self.known:
            cost = _among(self.back if backwards else self.forth, forwarders)
            self.known[key] = _shortest(cost)
        found: AnyArray = self.known[key]  # type: ignore[assignment]
        return found

    def _steiner(
        self, forwarders: tuple[int, ...], receivers: tuple[int, ...], backwards: bool
    ) -> list[int]:
        """Return the cost of the Steiner tree from every forwarder to the receivers; -1: none."""
        key = ("steiner", forwarders, backwards)
        if key not in self.known:
            self.known[key] = {}
        tables: dict[tuple[int, ...], list[int]] = self.known[key]  # type: ignore[assignment]
        if receivers not in tables:
            cost = _among(self.back if backwards else self.forth, forwarders)
            at = {v: i for i, v in enumerate(forwarders)}
            _steiner(cost, sorted(at[v] for v in receivers), tables, forwarders)
        return tables[receivers]


def _among(cost: AnyArray, ranks: Sequence[int]) -> AnyArray:
    return np.ascontiguousarray(cost[np.ix_(ranks, ranks)])


def _contracted(cost: AnyArray, holders: Sequence[int], rest: Sequence[int]) -> AnyArray:
    """Return the costs of arcs where some vertices are one, the first; -1: none."""
    table = np.full((len(rest) + 1, len(rest) + 1), -1, cost.dtype)
    table[1:, 1:] = _among(cost, rest)
    for i, v in enumerate(rest, start=1):
        out = [int(x) for x in cost[list(holders), v] if x >= 0]
        into = [int(x) for x in cost[v, list(holders)] if x >= 0]
        table[0, i], table[i, 0] = min(out, default=-1), min(into, default=-1)
    table[0, 0] = 0
    return table


def _shortest(cost: AnyArray) -> AnyArray:
    """Return shortest distances of a matrix of arcs, -1 where there is none: Floyd and Warshall."""
    far = int(cost.max(initial=0)) * len(cost) + 1
    best = np.where(cost < 0, far, cost)
    np.fill_diagonal(best, 0)
    for k in range(len(best)):
        np.minimum(best, best[:, k, None] + best[None, k, :], out=best)
    return np.where(best >= far, -1, best)


def _steiner(
    cost: AnyArray,
    receivers: Sequence[int],
    tables: dict[tuple[int, ...], list[int]],
    names: Sequence[int],
) -> None:
    """Fill in the costs of all subsets of the receivers: merge two halves, then spread."""
    far = int(cost.max(initial=0)) * len(cost) + 1
    arcs = np.where(cost < 0, far, cost)
    found: dict[int, AnyArray] = {}
    for subset in range(1, 1 << len(receivers)):
        best = np.full(len(cost), far, arcs.dtype)
        if subset & (subset - 1) == 0:
            best[receivers[subset.bit_length() - 1]] = 0
        part = (subset - 1) & subset
        while part > subset ^ part:
            best = np.minimum(best, found[part] + found[subset ^ part])
            part = (part - 1) & subset
        found[subset] = np.minimum(_spread(arcs, best), far)
        key = tuple(names[receivers[i]] for i in range(len(receivers)) if subset >> i & 1)
        tables[key] = [int(x) if x < far else -1 for x in found[subset]]


def _spread(arcs: AnyArray, best: AnyArray) -> AnyArray:
    """Make each vertex as cheap as an arc to another one and that one's cost: dense Dijkstra."""
    done = np.zeros(len(best), bool)
    last = best.max() + 1
    for _ in range(len(best)):
        v = int(np.where(done, last, best).argmin())
        done[v] = True
        best = np.minimum(best, arcs[:, v] + best[v])
    return best


def _ascent(cost: AnyArray, root: int, receivers: Sequence[int]) -> int:
    """Return a lower bound on the Steiner tree: raise the price of cuts around receivers."""
    n = len(cost)
    left = np.where(cost < 0, int(cost.max(initial=0)) * n + 1, cost).astype(object)
    total = 0
    waiting = list(receivers)
    while waiting:
        inside = _reaching(left, waiting[0])
        if inside[root]:
            waiting.pop(0)
            continue
        crossing = np.ix_(~inside, inside)
        step = int(left[crossing].min())
        left[crossing] -= step
        total += step
        waiting.append(waiting.pop(0))
    return total


def _reaching(left: AnyArray, target: int) -> AnyArray:
    """Return which vertices reach one over arcs that have nothing left."""
    inside = np.zeros(len(left), bool)
    inside[target] = True
    stack = [target]
    while stack:
        v = stack.pop()
        new = (left[:, v] == 0) & ~inside
        inside |= new
        stack += np.flatnonzero(new).tolist()
    return inside
