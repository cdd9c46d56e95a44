"""The graph of trees with casts: its vertices are the ranks and the switches that compute.

An arc is a cheapest route between two vertices over nodes that pass one copy on. From rank to rank
any switch does; a route from or to a computing switch passes plain nodes only, so that what meets
at one follows from the vertices alone. A switch with its issuer in the group passes one copy on as
plain ones do: copies meet there only where an issuer next to it has one. For trees that lead away
from a root (``outward``) a switch computes if it multicasts; for those that lead to one, if it
reduces: they are trees that lead away on the reversed machine. A rank that feeds a switch with its
issuer in the group pays for its own copy too, back over the cheapest link from the switch.

Limits of the search for trees with casts and for bounds that know of them.

Cheapest trees that span all ranks, over those computing switches that make them cheaper.

For a set of switches the tree is a minimum arborescence (Edmonds 1967) over ranks and these
switches. Sets are searched: from all of them and from none, switches are taken away or added, like
ones together or one at a time, while that makes the tree cheaper.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import product
from math import prod

import numpy as np

from weft.dsl.base.arrays import AnyArray, Bools, Floats, Ints, Ints32
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.topology import Topology

from ..base.effort import Effort, setting
from ..base.meter import Meter
from ..fabric.fabric import fabric_of


@dataclass(frozen=True, slots=True)
class SteinerEffort(Effort):
    """Limits of :func:`.packing.cast_packing` and of the prices of messages between groups."""

    packing: float = setting(20.0, "effort of one packing")
    rounds: int = setting(100, "rounds of column generation, at most")
    sets: int = setting(512, "sets of switches that are looked at one by one, at most")
    cells: int = setting(50, "entries of a matrix of costs that take about a step")
    close: float = setting(
        1e-9, "part by which costs may differ and count as equal; of equal routes the shorter wins"
    )
    cut_rounds: int = setting(60, "rounds of cutting planes for a bound, at most")
    cut_ranks: int = setting(
        160, "ranks of a machine up to which routes between all of them are priced for a bound"
    )
    way_bytes: int = setting(
        1 << 20, "bytes for which the cheapest of several ways between two switches is taken"
    )
    denominator: int = setting(5040, "largest denominator of such a price")


STEINER_EFFORT = SteinerEffort()


def tie_price(price: Floats) -> float:
    """Return the cost of each link beside its price: of equal routes the shorter is taken."""
    return STEINER_EFFORT.close * float(price.mean() or 1.0)


@dataclass(frozen=True, eq=False)
class Arcs:
    """The cheapest routes under some prices."""

    # Of each arc with the issuer's own copy, infinite where there is none; shape (vertices,
    # vertices)
    cost: Floats
    before: Ints32  # the state before each one on the way from each vertex, -9999: none
    ends: Ints  # the state in which each arc ends
    link: dict[int, int]  # the cheapest link between two states, by tail * states + head
    # The link of the issuer's own copy, from each switch to each rank, or -1; shape (switches,
    # ranks)
    back: Ints
    # The link of the issuer to each switch with its issuer in the group, or -1; same shape
    own: Ints

    def route(self, tail: int, head: int) -> tuple[int, ...]:
        """Return the links of an arc, from its tail to its head."""
        ranks = self.own.shape[1]
        if tail < ranks <= head and self.own[head - ranks, tail] >= 0:
            return (int(self.own[head - ranks, tail]),)
        states, at, links = self.before.shape[1], int(self.ends[tail, head]), list[int]()
        while at != tail:
            before = int(self.before[tail, at])
            links.append(self.link[before * states + at])
            at = before
        return tuple(reversed(links))


@dataclass(frozen=True, eq=False)
class SteinerGraph:
    """Ranks, then the switches that compute in one direction of trees."""

    topology: Topology  # the machine, reversed for trees that lead to a root
    switches: tuple[int, ...]  # nodes of the vertices behind the ranks

    @staticmethod
    def of(topology: Topology, *, outward: bool) -> SteinerGraph:
        """Return the graph of trees that lead away from a root, or to one."""
        machine = topology if outward else topology.reversed()
        able = tuple(i for i, node in enumerate(machine.nodes) if node.multicast)
        return SteinerGraph(machine, able)

    @cached_property
    def ranks(self) -> int:
        """Return the number of ranks, which are the first vertices."""
        return self.topology.ranks

    @property
    def vertices(self) -> int:
        """Return the number of vertices."""
        return self.ranks + len(self.switches)

    @cached_property
    def node(self) -> tuple[int, ...]:
        """Return the node of each vertex."""
        return (*range(self.ranks), *self.switches)

    @cached_property
    def in_group(self) -> Bools:
        """Return of each switch whether its issuer is in the group."""
        return np.array([self.topology.nodes[v].issuer_in_group for v in self.switches], bool)

    @cached_property
    def _steps(self) -> tuple[Ints, Ints, Ints]:
        """Return steps of ways: from state, to state, link.

        State v starts at vertex v. State V + u: at node u over nodes that pass one copy; V + N + u:
        at node u, and a switch was passed at which copies meet.
        """
        nodes, first, count = self.topology.nodes, self.vertices, len(self.topology.nodes)
        vertex = {u: v for v, u in enumerate(self.node)}
        rows = []
        for i, x in enumerate(self.topology.links):
            over, past = first + x.dst, first + count + x.dst
            if x.src in vertex:
                rows.append((vertex[x.src], over, i))
            if not nodes[x.src].stores:
                meets = x.src in vertex and not nodes[x.src].issuer_in_group
                rows.append((first + x.src, past if meets else over, i))
                rows.append((first + count + x.src, past, i))
        table = np.array(rows, np.int64).reshape(-1, 3).T
        return table[0], table[1], table[2]

    def link_prices(self, rows: Floats) -> Floats:
        """Return the price of each link from those of links and shared resources."""
        resource, link = fabric_of(self.topology).pairs
        found = np.zeros(len(self.topology.links))
        np.add.at(found, link, rows[resource])
        return found

    def arcs(self, rows: Floats) -> Arcs:
        """Return the cheapest routes; ``rows`` are prices of links and shared resources."""
        from scipy.sparse import csr_array  # takes 100 ms to load
        from scipy.sparse.csgraph import dijkstra

        price = self.link_prices(rows)
        price = price + tie_price(price)
        tail, head, link = self._steps
        first, count, n = self.vertices, len(self.topology.nodes), self.ranks
        states = first + 2 * count
        order = np.lexsort((link, price[link], head, tail))
        pair = tail[order] * states + head[order]
        order = order[np.diff(pair, prepend=-1) != 0]
        best = link[order]
        graph = csr_array((price[best], (tail[order], head[order])), shape=(states, states))
        reach, before = dijkstra(graph, indices=np.arange(first), return_predecessors=True)
        over = first + np.array(self.node, np.int64)
        ends = np.broadcast_to(over, (first, first)).copy()
        past = over[:n] + count
        shorter = reach[:n, past] < reach[:n, over[:n]]
        ends[:n, :n] += count * shorter
        cost = np.take_along_axis(reach, ends, axis=1)
        np.fill_diagonal(cost, np.inf)
        names = (tail[order] * states + head[order]).tolist()
        back, own = self._direct(price, back=True), self._direct(price, back=False)
        own[~self.in_group] = -1
        both = np.where((own >= 0) & (back >= 0), price[own] + price[back], np.inf).T
        cost[:n, n:] = np.where(self.in_group, both, cost[:n, n:])
        cost[n:, n:][:, self.in_group] = np.inf  # no rank issues there
        return Arcs(cost, before, ends, dict(zip(names, best.tolist(), strict=True)), back, own)

    def _direct(self, price: Floats, *, back: bool) -> Ints:
        """Return the cheapest link from each switch to each rank, or to it from there; -1: none."""
        found = np.full((len(self.switches), self.ranks), -1, np.int64)
        place = {u: k for k, u in enumerate(self.switches)}
        for i, x in enumerate(self.topology.links):
            switch, rank = (x.src, x.dst) if back else (x.dst, x.src)
            if switch in place and rank < self.ranks:
                held = found[place[switch], rank]
                if held < 0 or price[i] < price[held]:
                    found[place[switch], rank] = i
        return found


@dataclass(frozen=True, slots=True)
class Tree:
    """A tree: its cost, its root, and (parent, child) of all other vertices in it."""

    cost: float
    root: int
    arcs: tuple[tuple[int, int], ...]


def least_parents(cost: Floats, root: int, *, root_first: bool = False) -> Ints | None:
    """Return the parent of each vertex in a minimum arborescence, -1 of the root.

    ``cost[u, v]``: of the arc, infinite where there is none. None if not all are reached. Cycles
    of cheapest entering arcs are contracted, each with a few array operations. Of equal arcs that
    from the lowest vertex counts; with ``root_first`` that from the root, which leaves few cycles.
    """
    n = len(cost)
    cost = cost.copy()
    np.fill_diagonal(cost, np.inf)
    cost[:, root] = np.inf
    parent = cost.argmin(axis=0)
    if root_first:
        parent[cost[root] <= cost.min(axis=0)] = root
    parent[root] = root
    others = np.arange(n) != root
    if not np.isfinite(cost[parent, np.arange(n)][others]).all():
        return None
    cycle = _cycle(parent, root)
    if cycle is None:
        parent[root] = -1
        return np.asarray(parent, np.int64)
    inside = np.zeros(n, bool)
    inside[cycle] = True
    outer = np.flatnonzero(~inside)
    paid = cost[parent[cycle], cycle]
    entering = cost[np.ix_(outer, cycle)] - paid
    leaving = cost[np.ix_(cycle, outer)]
    into, out = entering.argmin(axis=1), leaving.argmin(axis=0)
    m = len(outer)
    smaller = np.full((m + 1, m + 1), np.inf)
    smaller[:m, :m] = cost[np.ix_(outer, outer)]
    smaller[:m, m] = entering[np.arange(m), into]
    smaller[m, :m] = leaving[out, np.arange(m)]
    place = int(np.searchsorted(outer, root))
    found = least_parents(smaller, place, root_first=root_first)
    if found is None:
        return None
    whole = parent.copy()
    entered = int(found[m])
    for k, v in enumerate(outer.tolist()):
        above = int(found[k])
        if above == m:
            whole[v] = cycle[out[k]]
        elif above >= 0:
            whole[v] = outer[above]
    whole[cycle[into[entered]]] = outer[entered]
    whole[root] = -1
    return np.asarray(whole, np.int64)


def _cycle(parent: Ints, root: int) -> Ints | None:
    state = np.zeros(len(parent), np.int8)
    state[root] = 2
    for start in range(len(parent)):
        path, v = [], start
        while state[v] == 0:
            state[v] = 1
            path.append(v)
            v = int(parent[v])
        if state[v] == 1:
            return np.array(path[path.index(v) :], np.int64)
        state[path] = 2
    return None


@dataclass(frozen=True, eq=False)
class SwitchSets:
    """The search for switches of a tree: ``alike`` lists those that are images of each other."""

    ranks: int
    alike: tuple[tuple[int, ...], ...]

    def least(self, cost: Floats, root: int, meter: Meter) -> Tree | None:
        """Return the cheapest tree from a root that was found; None if none spans all ranks."""
        every = frozenset(v for group in self.alike for v in group)
        best: Tree | None = None
        for start in (every, frozenset[int]()):
            found = self._searched(cost, root, start, meter)
            if found is not None and (best is None or found.cost < best.cost):
                best = found
        return best

    def every(self, cost: Floats, root: int, meter: Meter) -> Tree | None:
        """Return the cheapest tree over all sets of switches.

        Of switches that a symmetry of the costs exchanges, with all others and the root in their
        places, only the number counts. None where there are more than ``STEINER_EFFORT.sets``, too.
        """
        groups = [
            part
            for group in self.alike
            for far in _as_far(cost, root, group)
            for part in _exchangeable(cost, root, far, self.ranks)
        ]
        if prod(len(group) + 1 for group in groups) > STEINER_EFFORT.sets:
            return None
        best: Tree | None = None
        for counts in product(*(range(len(group) + 1) for group in groups)):
            if meter.over():
                return None
            pairs = zip(groups, counts, strict=True)
            chosen = frozenset(v for group, k in pairs for v in group[:k])
            found = self._tree(cost, root, chosen, meter)
            if found is not None and (best is None or found.cost < best.cost):
                best = found
        return best

    def _searched(
        self, cost: Floats, root: int, chosen: frozenset[int], meter: Meter
    ) -> Tree | None:
        best = self._tree(cost, root, chosen, meter)
        while best is None or not meter.over():
            used = frozenset(v for _, v in best.arcs if v >= self.ranks) if best else chosen
            improved = False
            for changed in self._changes(used):
                found = self._tree(cost, root, changed, meter)
                if found is not None and (best is None or found.cost < best.cost * (1 - 1e-12)):
                    best, improved = found, True
                    break
            if not improved:
                return best
        return best

    def _changes(self, used: frozenset[int]) -> list[frozenset[int]]:
        """Return sets next to one: like switches added or dropped, all or one of them."""
        found = []
        for group in self.alike:
            there = [v for v in group if v in used]
            absent = [v for v in group if v not in used]
            for some in (there, there[:1] if there[1:] else []):
                found += [used - frozenset(some)] if some else []
            for some in (absent, absent[:1] if absent[1:] else []):
                found += [used | frozenset(some)] if some else []
        return found

    def _tree(self, cost: Floats, root: int, chosen: frozenset[int], meter: Meter) -> Tree | None:
        """Return the minimum arborescence over all ranks and these switches, useless ones cut."""
        switches = chosen | {root} if root >= self.ranks else chosen
        at = np.array([*range(self.ranks), *sorted(switches)], np.int64)
        meter.spend(1 + len(at) ** 2 // STEINER_EFFORT.cells)
        place = int(np.searchsorted(at, root))
        parents = least_parents(cost[np.ix_(at, at)], place)
        if parents is None:
            return None
        arcs = {int(v): int(at[p]) for v, p in zip(at, parents, strict=True) if p >= 0}
        return _pruned(cost, root, arcs, self.ranks)


def _as_far(cost: Floats, root: int, group: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return like switches in groups that cost the same to reach from a root."""
    found: dict[str, list[int]] = {}
    for v in group:
        found.setdefault(f"{cost[root, v]:.9g}" if v != root else "", []).append(v)
    return [tuple(part) for part in found.values()]


def _exchangeable(
    cost: Floats, root: int, group: tuple[int, ...], ranks: int
) -> list[tuple[int, ...]]:
    """Return switches in groups of which a symmetry of the costs exchanges each with the next."""
    scale = np.max(cost, where=np.isfinite(cost), initial=0.0) or 1.0
    label = np.unique(np.round(cost / scale, 9), return_inverse=True)[1].reshape(cost.shape)
    found: list[list[int]] = []
    for v in group:
        if (
            found
            and root not in (v, found[-1][-1])
            and _exchanges(label, root, found[-1][-1], v, ranks)
        ):
            found[-1].append(v)
        else:
            found.append([v])
    return [tuple(part) for part in found]


def _exchanges(label: Ints, root: int, one: int, other: int, ranks: int) -> bool:
    """Return True if costs stay equal when two switches change places, and ranks accordingly.

    ``label``: a number for each cost, equal ones having the same. Ranks follow by their costs to
    and from all switches.
    """
    n = len(label)
    image = np.arange(n)
    image[[one, other]] = other, one
    beside = np.hstack([label[:ranks, ranks:], label[ranks:, :ranks].T])
    moved = np.hstack([label[:ranks, image[ranks:]], label[image[ranks:], :ranks].T])
    of_root = np.arange(ranks) == root
    before, after = (np.lexsort((*keys.T, of_root)) for keys in (beside, moved))
    image[before] = after
    return bool((label[np.ix_(image, image)] == label).all()) and int(image[root]) == root


def _pruned(cost: AnyArray, root: int, parent: dict[int, int], ranks: int) -> Tree:
    """Return the tree without switches that lead nowhere, and past those that copy nothing."""
    while True:
        children: dict[int, list[int]] = {}
        for v, above in parent.items():
            children.setdefault(above, []).append(v)
        for v in [v for v in parent if v >= ranks]:
            below = children.get(v, [])
            if not below:
                del parent[v]
                break
            if len(below) == 1 and cost[parent[v], below[0]] <= (
                cost[parent[v], v] + cost[v, below[0]]
            ) * (1 + 1e-9):
                parent[below[0]] = parent.pop(v)
                break
        else:
            total = float(sum(cost[above, v] for v, above in parent.items()))
            return Tree(total, root, tuple(sorted((a, v) for v, a in parent.items())))


def groups_alike(labels: Sequence[int], first: int) -> tuple[tuple[int, ...], ...]:
    """Return the vertices from ``first`` on in groups of equal labels."""
    groups: dict[int, list[int]] = {}
    for k, label in enumerate(labels):
        groups.setdefault(label, []).append(first + k)
    return tuple(tuple(group) for group in groups.values())
