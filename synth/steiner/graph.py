"""The graph of trees with casts: its vertices are the ranks and the switches that compute.

An arc is a cheapest route between two vertices over nodes that pass one copy on. From rank to rank
any switch does; a route from or to a computing switch passes plain nodes only, so that what meets
at one is told by the vertices alone. A switch with its issuer in the group passes one copy on as
plain ones do: copies meet there only where an issuer next to it has one. For trees that lead away
from a root (``outward``) a switch computes if it multicasts; for those that lead to one, if it
reduces: they are trees that lead away on the reversed machine. A rank that feeds a switch with its
issuer in the group pays for its own copy too, back over the cheapest link from the switch.

Limits of the search for trees with casts and for bounds that know of them.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from weft.dsl.base.arrays import Bools, Floats, Ints, Ints32
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.topology import Topology

from ..base.effort import Effort, setting
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
    """Return what routes pay for each link beside its price: of equal ones the shorter is taken."""
    return STEINER_EFFORT.close * float(price.mean() or 1.0)


@dataclass(frozen=True, eq=False)
class Arcs:
    """The cheapest routes under some prices.

    Attributes:
        cost: of each arc with the issuer's own copy, infinite where there is none; shape
            (vertices, vertices).
        before: the state before each one on the way from each vertex, -9999: none.
        ends: the state in which each arc ends.
        link: the cheapest link between two states, by ``tail * states + head``.
        back: the link of the issuer's own copy, from each switch to each rank, or -1; shape
            (switches, ranks).
        own: the link of the issuer to each switch with its issuer in the group, or -1; same shape.
    """

    cost: Floats
    before: Ints32
    ends: Ints
    link: dict[int, int]
    back: Ints
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
    """Ranks, then the switches that compute in one direction of trees.

    Attributes:
        topology: the machine, reversed for trees that lead to a root.
        switches: nodes of the vertices behind the ranks.
    """

    topology: Topology
    switches: tuple[int, ...]

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
