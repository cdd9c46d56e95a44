"""The cheapest way to serve each part of a demand at given prices of links: columns of the master.

Trees over all that may forward, where those are the members alone, are minimum arborescences;
otherwise Steiner trees, exact up to :attr:`JointEffort.exact_receivers` receivers, beyond that by
attaching the nearest receiver again and again (Takahashi and Matsuyama, 1980).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np

from weft.dsl.base.arrays import AnyArray, Floats, Ints
from weft.dsl.base.errors import UserError
from weft.dsl.base.lazy_dataclass import dataclass

from ..base.effort import Effort, setting
from ..fabric.fabric import Fabric
from ..prices.arborescence import tree_costs
from ..steiner.graph import least_parents
from .demands import CollectiveDemand, FlowPart, SumPart, TreePart
from .routes import PricedRoutes


@dataclass(frozen=True, eq=False)
class SteinerTable:
    """Costs of trees from every vertex to every subset of some receivers."""

    receivers: tuple[int, ...]  # vertices, by bit of a subset
    cost: Floats  # shape (2^k, N)
    goes: AnyArray  # the vertex where the tree of a vertex and a subset divides
    halves: AnyArray  # one of the two subsets it divides into, at that vertex

    def arcs(self, root: int, subset: int) -> list[tuple[int, int]]:
        """Return the arcs (tail, head) of the cheapest tree, parents first; routes, not links."""
        found: list[tuple[int, int]] = []
        stack = [(root, subset)]
        while stack:
            at, want = stack.pop()
            if want & (want - 1) == 0:
                target = self.receivers[want.bit_length() - 1]
                if at != target:
                    found.append((at, target))
                continue
            there = int(self.goes[want, at])
            if there != at:
                found.append((at, there))
            part = int(self.halves[want, there])
            stack += [(there, part), (there, want ^ part)]
        return found


def steiner(distance: Floats, receivers: tuple[int, ...]) -> SteinerTable:
    """Return the table for a matrix of distances (N, N) that are those of shortest routes."""
    n, size = len(distance), 1 << len(receivers)
    cost = np.zeros((size, n))
    goes = np.zeros((size, n), np.int32)
    halves = np.zeros((size, n), np.int32)
    for bit, target in enumerate(receivers):
        cost[1 << bit] = distance[:, target]
    for subset in sorted(range(1, size), key=lambda s: (s.bit_count(), s)):
        if subset.bit_count() == 1:
            continue
        low = subset & -subset
        parts, part = [], (subset - 1) & subset
        while part:
            if part & low:  # each pair of halves once
                parts.append(part)
            part = (part - 1) & subset
        several = np.array(parts)
        divided = cost[several] + cost[subset ^ several]
        which = divided.argmin(axis=0)
        halves[subset] = several[which]
        least = divided[which, np.arange(n)]
        through = distance + least[None, :]
        goes[subset] = through.argmin(axis=1)
        cost[subset] = through[np.arange(n), goes[subset]]
    return SteinerTable(receivers, cost, goes, halves)


RELAYS_HINT = (
    '"relays": "all" of operations (relays = "all" in [step] of settings) lets other ranks forward'
)


class Unreached(UserError):
    """The ranks of a collective are not joined by ranks that may forward for it."""


@dataclass(frozen=True, slots=True)
class JointEffort(Effort):
    """Limits of the joint bound."""

    rounds: int = setting(600, "rounds of pricing, at most")
    met: float = setting(1e-9, "relative difference of value and bound that counts as none")
    saving_rounds: int = setting(6, "rounds in which shorter trees of the same time are looked for")
    exact_receivers: int = setting(9, "receivers of a tree with relays that is priced exactly")
    roots_tried: int = setting(8, "cheapest roots of a sum whose trees become columns")
    columns: int = setting(6000, "columns kept in the master")
    union_ranks: int = setting(64, "ranks up to which a custom collective is solved jointly")
    union_rows: int = setting(20_000, "places of chunks of such a collective, at most")


JOINT_EFFORT = JointEffort()
"""Default limits."""

UNION_EFFORT = JointEffort(rounds=60)
"""Limits for one collective that is the union of several: its bounds are computed often."""


@dataclass(frozen=True, slots=True)
class TreeShape:
    """Arcs (tail, head, links of the route) of a tree, parents first; ``root`` is where it starts.

    ``backwards``: an in-tree: arcs are (head, tail) of the data, and the links lead to the root.
    ``also``: other ranks where it starts, since they hold the data, too: a forest.
    """

    root: int
    arcs: tuple[tuple[int, int, tuple[int, ...]], ...]
    backwards: bool = False
    also: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class PricedColumn:
    """One way to serve a part."""

    part: int  # its number in the demand
    cost: float  # price of a byte
    # links, load: the links it uses, and how many times a byte of the part loads each
    links: Ints
    load: Floats
    # Its trees: one, or for a sum one in and one out; none for flows
    shapes: tuple[TreeShape, ...] = ()

    def key(self) -> bytes:
        """Return its key among those of its part."""
        return self.links.tobytes() + np.round(self.load, 9).tobytes()


@dataclass(frozen=True, eq=False)
class DemandPricing:
    """Prices for one demand; ``price`` of every link."""

    fabric: Fabric
    demand: CollectiveDemand
    price: Floats
    effort: JointEffort

    def columns(self, parts: Sequence[int]) -> Iterator[PricedColumn]:
        """Yield the cheapest column of each part first, and others that may be useful."""
        for at in parts:
            part = self.demand.parts[at]
            if isinstance(part, FlowPart):
                yield self._flow(at, part)
            elif isinstance(part, TreePart):
                yield self._tree(at, part)
            else:
                yield from self._sums(at, part)

    def require_reached(self, parts: Sequence[int]) -> None:
        """Check that some trees or flows serve each part.

        Raises:
            Unreached: a rank is not reached over those that may forward.
        """
        for part in (self.demand.parts[at] for at in parts):
            if isinstance(part, FlowPart):
                wanted = tuple(v for v, x in part.pairs() if x and v != part.source)
                fine = self._reaches(part.source, wanted)
            elif isinstance(part, TreePart):
                fine = all(
                    any(self._reaches(v, (w,), part.backwards) for v in part.holders)
                    for w in part.receivers
                )
            else:
                first, *rest = part.members
                fine = all(self._reaches(first, tuple(rest), back) for back in (False, True))
            if not fine:
                name = self.demand.name
                every = len(self.demand.forwarders) == self.fabric.ranks
                raise Unreached(
                    f"{name}: not all of its ranks are joined by ranks that may forward for it",
                    hint="all ranks of the machine may: links between its parts are missing or dead"
                    if every
                    else RELAYS_HINT,
                )

    def _reaches(self, root: int, others: tuple[int, ...], backwards: bool = False) -> bool:
        _, cost, _ = self._closure[backwards]
        row = cost[self.demand.forwarders.index(root)]
        return bool(np.isfinite(row[[self.fabric.nodes + v for v in others]]).all())

    def _flow(self, at: int, part: FlowPart) -> PricedColumn:
        wanted = np.zeros(self.fabric.ranks)
        for target, amount in part.pairs():
            if target != part.source:
                wanted[target] += float(amount)
        wanted /= wanted.sum()
        routes, cost, _ = self._closure[False]
        load = routes.spread(cost[self.demand.forwarders.index(part.source)], wanted)
        return self._column(at, load)

    def _tree(self, at: int, part: TreePart) -> PricedColumn:
        if len(part.holders) > 1:
            shape = self._forest(part.holders, part.receivers)
        else:
            shape = self._shape(part.holders[0], part.receivers, part.backwards)
        return self._of_shapes(at, (shape,))

    def _sums(self, at: int, part: SumPart) -> Iterator[PricedColumn]:
        roots = self._roots(part)
        made = []
        for root in roots:
            rest = tuple(v for v in part.members if v != root)
            shapes = self._shape(root, rest, True), self._shape(root, rest, False)
            made.append(self._of_shapes(at, shapes))
        yield from sorted(made, key=lambda column: column.cost)

    def _roots(self, part: SumPart) -> list[int]:
        """Return the roots worth a column, cheapest first where that is known without trees."""
        members, most = part.members, self.effort.roots_tried
        if not self._exact(members[0], members[1:]):
            if len(members) - 1 > self.effort.exact_receivers:
                return list(members)
            out, into = (self._table(members, back) for back in (False, True))
            whole = (1 << len(members)) - 1
            cost = out.cost[whole] + into.cost[whole]
            forwarders = self.demand.forwarders
            for bit, member in enumerate(members):
                v, rest = forwarders.index(member), whole ^ (1 << bit)
                cost[v] = out.cost[rest, v] + into.cost[rest, v]
            return [forwarders[v] for v in np.argsort(cost, kind="stable")[:most].tolist()]
        if len(members) <= most:
            return list(members)
        rows = [self.demand.forwarders.index(v) for v in members]
        places = [self.fabric.nodes + v for v in members]
        cost = np.zeros(len(members))
        for _, reach, _ in self._hops.values():
            table = reach[rows][:, places]
            np.fill_diagonal(table, 0)
            fine = np.where(
                np.isinf(table), -1, table / (table[np.isfinite(table)].max() or 1) * (1 << 30)
            )
            cost += tree_costs(np.rint(fine).astype(np.int64))
        return [members[i] for i in np.argsort(cost, kind="stable")[:most].tolist()]

    def _exact(self, root: int, receivers: Sequence[int]) -> bool:
        """Return True if no other rank may forward: the tree is a minimum arborescence."""
        return {root, *receivers} >= set(self.demand.forwarders)

    def _shape(self, root: int, receivers: tuple[int, ...], backwards: bool) -> TreeShape:
        if self._exact(root, receivers):
            return self._arborescence(root, receivers, backwards)
        if len(receivers) <= self.effort.exact_receivers:
            return self._steiner(root, receivers, backwards)
        return self._nearest((root,), receivers, backwards)

    def _forest(self, holders: tuple[int, ...], receivers: tuple[int, ...]) -> TreeShape:
        """Return cheapest trees from several holders that reach all receivers together.

        Data with several holders starts at the one nearest to its destination.
        """
        if len(receivers) > self.effort.exact_receivers:
            return self._nearest(holders, receivers, False)
        forwarders = self.demand.forwarders
        rows = [forwarders.index(v) for v in holders]
        distance = self._distance(False)
        nearest = np.array(rows)[distance[rows].argmin(axis=0)]
        distance[rows] = distance[rows].min(axis=0)
        table = steiner(distance, tuple(forwarders.index(v) for v in receivers))
        arcs = table.arcs(rows[0], (1 << len(receivers)) - 1)
        named = [
            (forwarders[nearest[v] if u in rows else u], forwarders[v])
            for u, v in arcs
            if v not in rows
        ]
        return TreeShape(holders[0], self._routed(named, False), False, holders[1:])

    def _distance(self, backwards: bool) -> Floats:
        _, cost, _ = self._closure[backwards]
        found: Floats = cost[:, [self.fabric.nodes + v for v in self.demand.forwarders]].copy()
        np.fill_diagonal(found, 0)
        return found

    def _arborescence(self, root: int, receivers: tuple[int, ...], backwards: bool) -> TreeShape:
        routes, cost, before = self._hops[backwards]
        place = {v: i for i, v in enumerate(self.demand.forwarders)}
        vertices = [root, *receivers]
        rows = [place[v] for v in vertices]
        matrix = cost[rows][:, [self.fabric.nodes + v for v in vertices]]
        found = least_parents(matrix, 0, root_first=True)
        assert found is not None, "else it is not reached"
        parent = found.tolist()
        arcs = [
            (vertices[u], vertices[v], tuple(routes.walk(before[place[vertices[u]]], vertices[v])))
            for v in _parents_first(parent)
            if (u := parent[v]) >= 0
        ]
        return TreeShape(root, tuple(arcs), backwards)

    def _routed(
        self, arcs: Sequence[tuple[int, int]], backwards: bool
    ) -> tuple[tuple[int, int, tuple[int, ...]], ...]:
        routes, _, before = self._closure[backwards]
        place = {v: i for i, v in enumerate(self.demand.forwarders)}
        return tuple((u, v, tuple(routes.walk(before[place[u]], v))) for u, v in arcs)

    def _steiner(self, root: int, receivers: tuple[int, ...], backwards: bool) -> TreeShape:
        members = self.demand.operation.members
        several = members if len(members) <= len(receivers) + 1 else receivers
        table = self._table(several, backwards)
        bits = sum(1 << several.index(v) for v in receivers)
        forwarders = self.demand.forwarders
        arcs = table.arcs(forwarders.index(root), bits)
        named = [(forwarders[u], forwarders[v]) for u, v in arcs]
        return TreeShape(root, self._routed(named, backwards), backwards)

    def _table(self, receivers: tuple[int, ...], backwards: bool) -> SteinerTable:
        key = (receivers, backwards)
        if key not in self._tables:
            inside = tuple(self.demand.forwarders.index(v) for v in receivers)
            self._tables[key] = steiner(self._distance(backwards), inside)
        return self._tables[key]

    def _nearest(
        self, roots: tuple[int, ...], receivers: tuple[int, ...], backwards: bool
    ) -> TreeShape:
        _, cost, _ = self._closure[backwards]
        forwarders = self.demand.forwarders
        place = {v: i for i, v in enumerate(forwarders)}
        inside, left, arcs = list(roots), list(receivers), []
        while left:
            rows = [place[v] for v in inside]
            table = cost[rows][:, [self.fabric.nodes + v for v in left]]
            u, v = np.unravel_index(int(table.argmin()), table.shape)
            arcs.append((inside[int(u)], left[int(v)]))
            inside.append(left.pop(int(v)))
        return TreeShape(roots[0], self._routed(arcs, backwards), backwards, roots[1:])

    @cached_property
    def _tables(self) -> dict[tuple[tuple[int, ...], bool], SteinerTable]:
        return {}

    @cached_property
    def _hops(self) -> dict[bool, tuple[PricedRoutes, Floats, AnyArray]]:
        """Routes between members over nodes that do not store, out (False) and in (True)."""
        return self._reach(np.zeros(self.fabric.ranks, bool))

    @cached_property
    def _closure(self) -> dict[bool, tuple[PricedRoutes, Floats, AnyArray]]:
        """Routes over all that may forward."""
        through = np.zeros(self.fabric.ranks, bool)
        through[list(self.demand.forwarders)] = True
        return self._reach(through)

    def _reach(self, through: AnyArray) -> dict[bool, tuple[PricedRoutes, Floats, AnyArray]]:
        both = {
            back: PricedRoutes(self.fabric, self.price, through, back) for back in (False, True)
        }
        return {back: (one, *one.reach(self.demand.forwarders)) for back, one in both.items()}

    def _of_shapes(self, at: int, shapes: tuple[TreeShape, ...]) -> PricedColumn:
        load = np.zeros(self.fabric.links)
        for shape in shapes:
            for _, _, route in shape.arcs:
                np.add.at(load, list(route), 1.0)
        return self._column(at, load, shapes)

    def _column(self, at: int, load: Floats, shapes: tuple[TreeShape, ...] = ()) -> PricedColumn:
        links = np.flatnonzero(load)
        return PricedColumn(at, float(load @ self.price), links, load[links], shapes)


def _parents_first(parent: Sequence[int]) -> list[int]:
    below: list[list[int]] = [[] for _ in parent]
    order = []
    for v, u in enumerate(parent):
        if u < 0:
            order.append(v)
        else:
            below[u].append(v)
    for v in order:  # grows
        order += below[v]
    return order
