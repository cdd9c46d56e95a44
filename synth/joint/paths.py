"""Paths from the flows of the joint solution: what each pair sends, and over which links.

The flow of one source is the average of those that the solution uses, over all symmetries. It is
taken apart from its targets backwards; circles, which averages may have, are left out.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from weft.dsl.base.arrays import Floats, Ints
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.topology import Topology

from ..fabric.fabric import fabric_of
from .bound import JointBound, part_bytes
from .carried import Carrier, hops_of_route
from .demands import FlowPart
from .routes import PricedRoutes


@dataclass(frozen=True, slots=True)
class WeightedPath:
    """A route and the bytes that take it."""

    amount: float
    links: tuple[int, ...]


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
        paths = taken_apart(topology, part.source, wanted, part_loads(bound, k, p))
        for target, some in paths.items():
            if not some:  # so few bytes that the solution's loads do not show them
                _, before = shortest.reach([part.source])
                some = [WeightedPath(wanted[target], tuple(shortest.walk(before[0], target)))]
            found[part.source, target] = [
                Carrier(path.amount, tuple(hops_of_route(topology, path.links))) for path in some
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


def taken_apart(
    topology: Topology, source: int, wanted: dict[int, float], loads: Floats
) -> dict[int, list[WeightedPath]]:
    """Return paths to each target whose amounts are what it wants, from the loads of the links."""
    return _FlowPaths(topology, source, wanted, loads).paths()


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
        """Return the paths of all targets."""
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
            yield WeightedPath(amount, route)

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
        """Take out a circle."""
        least = min(self.left[i] for i in circle)
        for link in circle:
            self.left[link] -= least
