"""Schedules from the trees of the joint solution: a tree in, a tree out, or both for each chunk.

The trees of one part of an orbit are copied to all. What passes a GPU on its way stops there, so
hops, not routes, become transfers; of several ways to a rank one is kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from weft.dsl.base.arrays import Floats, Ints, Ints32
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.topology import Topology

from ..fabric.fabric import fabric_of
from .bound import JointBound, part_bytes
from .carried import Carrier, Hop, cut_at_gpus
from .demands import CollectiveDemand, FlowPart, SumPart, TreePart
from .pricing import TreeShape
from .routes import PricedRoutes


@dataclass(frozen=True, slots=True)
class WeightedShapes:
    """Trees of one part, and the share of its bytes that takes them."""

    part: int
    shapes: tuple[TreeShape, ...]
    weight: float


def is_trees(demand: CollectiveDemand) -> bool:
    """Return True if all parts of a demand are trees or sums."""
    return all(isinstance(part, TreePart | SumPart) for part in demand.parts)


def shapes_of(bound: JointBound, k: int) -> list[WeightedShapes]:
    """Return the trees of a demand with their shares, which add up to 1 for each part."""
    symmetry = bound.symmetry
    number = {part: i for i, part in enumerate(symmetry.parts)}
    found: dict[object, WeightedShapes] = {}
    for p in range(len(bound.demands[k].parts)):
        target = number[k, p]
        source = int(symmetry.part_orbit[target])
        mine = [c for c in bound.chosen if (c.demand, c.part) == symmetry.parts[source]]
        there = np.flatnonzero(symmetry.part_images[:, source] == target).tolist()
        total = sum(c.amount for c in mine) * len(there)
        for c in mine:
            for h in there:
                moved = _moved(c.column.shapes, symmetry.images[h], symmetry.rows[h])
                key = p, tuple((s.root, s.backwards, frozenset(s.arcs)) for s in moved)
                weight = c.amount / total + (found[key].weight if key in found else 0.0)
                found[key] = WeightedShapes(p, moved, weight)
    return list(found.values())


def _moved(shapes: Sequence[TreeShape], nodes: Ints32, links: Ints32) -> tuple[TreeShape, ...]:
    return tuple(
        TreeShape(
            int(nodes[s.root]),
            tuple(
                (int(nodes[u]), int(nodes[v]), tuple(int(links[i]) for i in route))
                for u, v, route in s.arcs
            ),
            s.backwards,
            tuple(int(nodes[v]) for v in s.also),
        )
        for s in shapes
    )


def tree_carriers(topology: Topology, bound: JointBound, k: int) -> list[list[Carrier]]:
    """Return how each part of a demand, all of trees, is served."""
    demand = bound.demands[k]
    found: list[list[Carrier]] = [[] for _ in demand.parts]
    for one in shapes_of(bound, k):
        hops = tuple(_transfers(topology, demand, one))
        found[one.part].append(Carrier(one.weight, hops))
    return found


def _transfers(topology: Topology, demand: CollectiveDemand, one: WeightedShapes) -> Iterator[Hop]:
    begin = 0
    part = demand.parts[one.part]
    assert isinstance(part, TreePart | SumPart)
    wanting = set(part.receivers if isinstance(part, TreePart) else part.members)
    for shape in one.shapes:
        hops = _hops(topology, shape, wanting)
        depth = dict.fromkeys((shape.root, *shape.also), 0)
        for u, v, _ in hops:
            depth[v] = depth[u] + 1
        deepest = max(depth.values(), default=0)
        for u, v, route in hops:
            if shape.backwards:
                # A rank sends after all that it receives: the deepest go first.
                yield v, u, begin + deepest - depth[v], True, route
            else:
                yield u, v, begin + depth[u], False, route
        begin += deepest


def _hops(
    topology: Topology, shape: TreeShape, wanting: set[int]
) -> list[tuple[int, int, tuple[int, ...]]]:
    """Return the tree as hops between GPUs, parents first, without unneeded ends."""
    out: dict[int, list[tuple[int, tuple[int, ...]]]] = {}
    for _, _, route in shape.arcs:
        for u, v, links in cut_at_gpus(topology, route):
            tail, head = (v, u) if shape.backwards else (u, v)
            out.setdefault(tail, []).append((head, links))
    queue = [shape.root, *shape.also]
    seen, order = set(queue), []
    for u in queue:  # grows: breadth first
        for v, links in out.get(u, ()):
            if v not in seen:
                seen.add(v)
                queue.append(v)
                order.append((u, v, links))
    useful = set(wanting)
    kept = []
    for u, v, links in reversed(order):
        if v in useful:
            useful.add(u)
            kept.append((u, v, links))
    return kept[::-1]


# --- paths from the flows of the joint solution ---------------------------------------------------


WeightedPath = tuple[float, tuple[int, ...]]
"""The bytes that take a route, and its links."""


def path_carriers(
    topology: Topology, bound: JointBound, k: int
) -> dict[tuple[int, int], list[Carrier]]:
    """Return how each pair (source, target) of a demand of flows is served."""
    found: dict[tuple[int, int], list[Carrier]] = {}
    through = np.zeros(topology.ranks, bool)
    through[list(bound.demands[k].forwarders)] = True
    shortest = PricedRoutes(fabric_of(topology), np.ones(len(topology.links)), through)
    for p, part in enumerate(bound.demands[k].parts):
        assert isinstance(part, FlowPart)
        wanted = {v: float(x) for v, x in part.pairs() if x and v != part.source}
        paths = _FlowPaths(topology, part.source, wanted, part_loads(bound, k, p)).paths()
        for target, some in paths.items():
            if not some:  # so few bytes that the solution's loads do not show them
                _, before = shortest.reach([part.source])
                some = [(wanted[target], tuple(shortest.walk(before[0], target)))]
            found[part.source, target] = [
                Carrier(
                    amount,
                    tuple(
                        (u, v, step, False, hop)
                        for step, (u, v, hop) in enumerate(cut_at_gpus(topology, links))
                    ),
                )
                for amount, links in some
            ]
    return found


def part_loads(bound: JointBound, k: int, p: int) -> Floats:
    """Return the bytes of a part of flows on each link, in the joint solution."""
    symmetry = bound.symmetry
    target = symmetry.parts.index((k, p))
    source = int(symmetry.part_orbit[target])
    there = np.flatnonzero(symmetry.part_images[:, source] == target)
    mine = [c for c in bound.chosen if (c.demand, c.part) == symmetry.parts[source]]
    links = symmetry.rows.shape[1]
    total = np.zeros(links)
    amount = sum(c.amount for c in mine)
    whole = float(part_bytes(bound.demands[k].parts[p]))
    for c in mine:
        share = c.amount / amount * whole / len(there)
        for h in there.tolist():
            np.add.at(total, symmetry.rows[h][c.column.links], c.column.load * share)
    return total


class _FlowPaths:
    """A flow from one source; each path that is found is taken out of it.

    ``nothing``: the part of the bytes of the source that counts as none.
    """

    def __init__(
        self,
        topology: Topology,
        source: int,
        wanted: dict[int, float],
        loads: Floats,
        nothing: float = 1e-7,
    ) -> None:
        fabric = fabric_of(topology)
        self.source, self.wanted = source, wanted
        self.least = nothing * sum(wanted.values())
        self.left = loads[: fabric.links].tolist()
        self.tail: list[int] = fabric.src.tolist()
        self.into: dict[int, list[int]] = {}
        used: Ints = np.flatnonzero(loads[: fabric.links] > self.least)
        for link in used.tolist():
            self.into.setdefault(int(fabric.dst[link]), []).append(link)

    def paths(self) -> dict[int, list[WeightedPath]]:
        return {target: list(self._to(target)) for target in sorted(self.wanted)}

    def _to(self, target: int) -> Iterator[WeightedPath]:
        missing = self.wanted[target]
        while missing > self.least:
            route = self._route(target)
            if route is None:
                return
            amount = min(missing, *(self.left[i] for i in route))
            for link in route:
                self.left[link] -= amount
            missing -= amount
            yield amount, route

    def _route(self, target: int) -> tuple[int, ...] | None:
        """Return a route that is left, the widest link first, going back from the target."""
        route: list[int] = []
        nodes = [target]
        while nodes[-1] != self.source:
            link = max(self.into.get(nodes[-1], ()), key=self.left.__getitem__, default=-1)
            if link < 0 or self.left[link] <= self.least / 16:
                return None
            route.append(link)
            if self.tail[link] in nodes:
                self._cancel(route[nodes.index(self.tail[link]) :])
                route, nodes = [], [target]
            else:
                nodes.append(self.tail[link])
        return tuple(route[::-1])

    def _cancel(self, circle: list[int]) -> None:
        least = min(self.left[i] for i in circle)
        for link in circle:
            self.left[link] -= least
