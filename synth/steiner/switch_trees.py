"""Trees through switches that copy or sum: planes of a host's ranks, and trees of a fabric.

A *plane* is a switch that every rank of a group is attached to, over nothing but NICs and switches
of its own host: an NVSwitch of a box, or the rail or leaf switch of all its members. A *fabric
tree* leads from a switch over other switches to ranks, each switch and rank over its cheapest way.
Trees are written as pairs of nodes, (above, below); :class:`SwitchRoutes` finds their links.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cached_property
from heapq import heappop, heappush
from itertools import pairwise

import numpy as np

from weft.dsl.base.errors import UserError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.parts import NodeKind
from weft.dsl.nouns.topology import Topology

from ..fabric.fabric import fabric_of
from .graph import STEINER_EFFORT, Arcs, SteinerGraph, Tree
from .packing import RoutedTree, routed


@dataclass(frozen=True, slots=True)
class NodeTree:
    """A tree of nodes: its root, and (above, below) of every other node in it."""

    root: int
    pairs: tuple[tuple[int, int], ...]

    def joined(self, others: Iterable[NodeTree]) -> NodeTree:
        """Return the tree with other trees hung on; their roots are nodes of it."""
        return NodeTree(self.root, (*self.pairs, *(p for one in others for p in one.pairs)))

    def rooted_at(self, root: int) -> NodeTree:
        """Return the same tree from another of its nodes on."""
        beside: dict[int, list[int]] = defaultdict(list)
        for above, below in self.pairs:
            beside[above].append(below)
            beside[below].append(above)
        pairs, queue, seen = [], [root], {root}
        for node in queue:
            for other in beside[node]:
                if other not in seen:
                    seen.add(other)
                    pairs.append((node, other))
                    queue.append(other)
        return NodeTree(root, tuple(pairs))


def star(root: int, members: Iterable[int], over: int | None = None) -> NodeTree:
    """Return the tree from a rank to others of a group, through a switch if one is given."""
    others = [r for r in members if r != root]
    if over is None:
        return NodeTree(root, tuple((root, r) for r in others))
    return NodeTree(root, ((root, over), *((over, r) for r in others)))


def chain(along: Sequence[int]) -> NodeTree:
    """Return the tree in which each leads to the next."""
    return NodeTree(along[0], tuple(pairwise(along)))


@dataclass(frozen=True, eq=False)
class SwitchRoutes:
    """The ways between ranks and computing switches of a machine, towards a root and from it."""

    topology: Topology

    @cached_property
    def ways(self) -> tuple[tuple[SteinerGraph, Arcs], tuple[SteinerGraph, Arcs]]:
        """Return the graph of inward trees with its cheapest ways, then that of outward ones."""
        fabric = fabric_of(self.topology)
        rows = fabric.byte_us * STEINER_EFFORT.way_bytes
        rows[: len(self.topology.links)] += [float(x.latency) for x in self.topology.links]
        graphs = [SteinerGraph.of(self.topology, outward=way) for way in (False, True)]
        inward, outward = ((graph, graph.arcs(rows)) for graph in graphs)
        return inward, outward

    def tree(self, nodes: NodeTree, *, inward: bool) -> RoutedTree:
        """Return a tree with the links of its arcs.

        Raises:
            UserError: a switch on it lacks the capability, nothing leads between two nodes, or it
                is not a tree: a switch is both a box's and on the way of a rail.
        """
        reached = [nodes.root, *(v for _, v in nodes.pairs)]
        if len(set(reached)) < len(reached):
            twice = next(v for v in reached if reached.count(v) > 1)
            name = self.topology.nodes[twice].name
            raise UserError(f"expected a tree through switches, got one that leads to {name} twice")
        graph, arcs = self.ways[not inward]
        vertex = {node: v for v, node in enumerate(graph.node)}
        pairs = []
        for above, below in nodes.pairs:
            ends = vertex.get(above), vertex.get(below)
            if ends[0] is None or ends[1] is None or not np.isfinite(arcs.cost[ends[0], ends[1]]):
                here, there = (self.topology.nodes[v].name for v in (above, below))
                raise UserError(f"nothing leads between {here} and {there} as a cast needs it")
            pairs.append((ends[0], ends[1]))
        return routed(graph, arcs, Tree(0.0, vertex[nodes.root], tuple(pairs)), inward=inward)

    def planes(self, ranks: Sequence[int], *, sums: bool, copies: bool) -> tuple[int, ...]:
        """Return the switches with these capabilities that all of the ranks are attached to."""
        wanted = [way for way, needed in enumerate((sums, copies)) if needed]
        able = [set(self.ways[way][0].switches) for way in wanted]
        return tuple(
            v
            for v in sorted(set.intersection(*able))
            if all(self._attached(way, r, v) for way in wanted for r in ranks)
        )

    def _attached(self, way: int, rank: int, switch: int) -> bool:
        graph, arcs = self.ways[way]
        v = graph.ranks + graph.switches.index(switch)
        nodes, links = self.topology.nodes, graph.topology.links
        for tail, head in ((rank, v), (v, rank)):
            reached = np.isfinite(arcs.cost[tail, head])
            if not reached and not (head >= graph.ranks and graph.in_group[head - graph.ranks]):
                return False
            passed = [nodes[links[i].dst] for i in arcs.route(tail, head)[:-1]] if reached else []
            if any(x.kind is NodeKind.SWITCH and x.host is None for x in passed):
                return False
        return True

    def fabric_trees(self, ranks: Sequence[int]) -> list[NodeTree]:
        """Return the flattest trees from switches that sum and copy to ranks over such switches.

        All of those that are equally flat; from switches that turn sums round, if there are any.
        """
        turning, others = list[tuple[float, NodeTree]](), list[tuple[float, NodeTree]]()
        for root in self._able:
            found = self._flattest(root, ranks)
            if found is not None:
                (turning if self.topology.nodes[root].turns else others).append(found)
        trees = turning or others
        least = min((depth for depth, _ in trees), default=0.0)
        return [tree for depth, tree in trees if depth <= least * (1 + 1e-9)]

    @cached_property
    def _able(self) -> tuple[int, ...]:
        """Switches that sum and copy, and need no issuer in their group."""
        (inward, _), (outward, _) = self.ways
        nodes = self.topology.nodes
        both = set(inward.switches) & set(outward.switches)
        return tuple(v for v in sorted(both) if not nodes[v].issuer_in_group)

    @cached_property
    def _beside(self) -> dict[int, list[tuple[float, int]]]:
        """Switches and ranks that each such switch leads to, both ways at the same cost."""
        (inward, up), (outward, down) = self.ways
        places = [{node: v for v, node in enumerate(graph.node)} for graph in (inward, outward)]
        found: dict[int, list[tuple[float, int]]] = {}
        for switch in self._able:
            ends = [*range(self.topology.ranks), *(v for v in self._able if v != switch)]
            costs = (
                up.cost[places[0][switch], [places[0][v] for v in ends]]
                + down.cost[places[1][switch], [places[1][v] for v in ends]]
            )
            found[switch] = [
                (float(cost), v) for cost, v in zip(costs, ends, strict=True) if np.isfinite(cost)
            ]
        return found

    def _flattest(self, root: int, ranks: Sequence[int]) -> tuple[float, NodeTree] | None:
        """Return the tree of cheapest ways from a switch to ranks, and the cost of its longest."""
        wanted, queue, done = set(ranks), [(0.0, root, -1)], dict[int, tuple[float, int]]()
        while queue:
            cost, node, above = heappop(queue)
            if node in done:
                continue
            done[node] = cost, above
            for step, other in self._beside.get(node, ()):
                if other not in done and (other >= self.topology.ranks or other in wanted):
                    heappush(queue, (cost + step, other, node))
        if not wanted <= done.keys():
            return None
        kept, pairs = {root}, []
        for rank in ranks:
            node = rank
            while node not in kept:
                kept.add(node)
                pairs.append((done[node][1], node))
                node = done[node][1]
        return max(done[r][0] for r in ranks), NodeTree(root, tuple(pairs))
