"""Max-flow on a machine: resources that are ports become vertices.

A resource whose links all leave one node (or all enter one) is that node's port: the links are
led through a new vertex, joined to the node by one arc of the resource's bandwidth. Resources of
other shapes do not limit cuts between vertices; they are left out here, which only makes the
machine faster, and the bound of a cut is computed with them (:mod:`.cut`).

Maximum flows by shortest augmenting paths (Edmonds and Karp 1972), in plain Python.

To load OR-Tools takes 35 CPU ms, as long as some hundred flows through the network of one host. The
value of a maximum flow and the smallest source side of its minimum cuts are unique: it
does not matter how they are found.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from weft.dsl.base.arrays import Bools, Ints
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.topology import Topology

from ..fabric.fabric import Fabric, as_integers, fabric_of


class SmallFlow:
    """A network of arcs, each with a reverse arc: numbers 2i and 2i + 1."""

    def __init__(self, tails: Sequence[int], heads: Sequence[int], vertices: int) -> None:
        self._head = [v for pair in zip(heads, tails, strict=True) for v in pair]
        self._leaving: list[list[int]] = [[] for _ in range(vertices)]
        for arc in range(len(self._head)):
            self._leaving[self._head[arc ^ 1]].append(arc)
        self._room: list[int] = []
        self._reached: list[int] = []
        self.steps = 0

    def solve(self, sizes: Sequence[int], source: int, sink: int) -> int:
        """The value of a maximum flow; ``steps`` counts the arcs that were looked at."""
        self._room = [x for size in sizes for x in (size, 0)]
        value = 0
        while (path := self._path(source, sink)) is not None:
            least = min(self._room[arc] for arc in path)
            for arc in path:
                self._room[arc] -= least
                self._room[arc ^ 1] += least
            value += least
        return value

    def source_side(self) -> list[int]:
        """The vertices that the source still reaches."""
        return self._reached

    def _path(self, source: int, sink: int) -> list[int] | None:
        """The arcs of a shortest path with room, from the sink back; None if there is none."""
        by: dict[int, int] = {source: -1}
        self._reached = [source]
        for vertex in self._reached:
            self.steps += len(self._leaving[vertex])
            for arc in self._leaving[vertex]:
                head = self._head[arc]
                if head in by or not self._room[arc]:
                    continue
                by[head] = arc
                self._reached.append(head)
                if head == sink:
                    path = [arc]
                    while (arc := by[self._head[path[-1] ^ 1]]) >= 0:
                        path.append(arc)
                    return path
        return None


_ROOM = 1 << 61

SMALL_ARCS, SMALL_STEPS = 256, 100_000
"""Up to which size plain Python finds flows, and after how many steps of it OR-Tools is worth
loading. Only speed depends on them."""


@dataclass(frozen=True, eq=False)
class Network:
    """Vertices 0 … nodes-1 are the machine's, the others are ports."""

    nodes: int
    vertices: int
    arcs: Ints  # shape (2, arcs), tails and heads
    size: Ints  # scaled bandwidth of each arc; times unit it is GB/s
    unit: Fraction
    faithful: bool  # every resource of the machine is a port here


def network(topology: Topology) -> Network:
    """The machine with its ports as vertices."""
    fabric = fabric_of(topology)
    tails, heads = fabric.src.tolist(), fabric.dst.tolist()
    bandwidth = [*fabric.bandwidth[: fabric.links]]
    vertices, faithful = fabric.nodes, True
    moved: tuple[set[int], set[int]] = (set(), set())
    for shared in range(fabric.links, fabric.resources):
        links = fabric.members[shared]
        if len(links) == 1:
            bandwidth[links[0]] = min(bandwidth[links[0]], fabric.bandwidth[shared])
            continue
        side = _port_side(fabric, links, moved)
        if side is None:
            faithful = False
            continue
        moved[side].update(links)
        ends = (tails, heads)[side]
        node = ends[links[0]]
        for i in links:
            ends[i] = vertices
        tails.append((node, vertices)[side])
        heads.append((vertices, node)[side])
        bandwidth.append(fabric.bandwidth[shared])
        vertices += 1
    size, unit = as_integers(bandwidth)
    arcs = np.array([tails, heads], np.int64).reshape(2, -1)
    return Network(fabric.nodes, vertices, arcs, size, unit, faithful)


def _port_side(
    fabric: Fabric, links: tuple[int, ...], moved: tuple[set[int], set[int]]
) -> int | None:
    """0: all links leave one node; 1: all enter one; None: neither, or a port has them already."""
    for side, ends in enumerate((fabric.src, fabric.dst)):
        one = len(set(ends[list(links)].tolist())) == 1
        if one and not moved[side].intersection(links):
            return side
    return None


class MaxFlow:
    """A max-flow solver on a network plus extra arcs, whose sizes can be set again and again.

    Sizes beyond 64 bits are scaled down, machine arcs rounded up and extra arcs down: a cut that
    is found is then still a cut, it may only be missed.
    """

    def __init__(self, net: Network, extra: Ints, vertices: int) -> None:
        self._net = net
        self._tails = np.concatenate([net.arcs[0], extra[0]]).astype(np.int32)
        self._heads = np.concatenate([net.arcs[1], extra[1]]).astype(np.int32)
        self._vertices = vertices
        self._sizes = np.zeros(len(self._tails), np.int64)
        self._small: SmallFlow | None = None
        if len(self._tails) <= SMALL_ARCS:
            self._small = SmallFlow(self._tails.tolist(), self._heads.tolist(), vertices)
        self._side: list[int] = []

    @cached_property
    def _large(self) -> tuple[Any, Any]:
        """OR-Tools' solver, and its numbers of the arcs."""
        from ortools.graph.python import max_flow

        solver: Any = max_flow.SimpleMaxFlow()
        none = np.zeros(len(self._tails), np.int64)
        return solver, solver.add_arcs_with_capacity(self._tails, self._heads, none)

    def set(self, factor: int, extra: list[int]) -> int:
        """Machine arcs get ``size * factor``, extra arcs the given sizes; returns the divisor."""
        total = int(self._net.size.sum()) * factor + sum(extra)
        divisor = 1 if total < _ROOM else -(-total // (_ROOM >> 2))
        if divisor == 1:
            machine = self._net.size * factor
        else:
            machine = np.array([-(-int(s) * factor // divisor) for s in self._net.size], np.int64)
        rest = np.array([x // divisor for x in extra], np.int64)
        self._sizes = np.concatenate([machine, rest])
        return divisor

    def solve(self, source: int, sink: int) -> int:
        """The value of a maximum flow, in the sizes as set (after division)."""
        if self._small is not None and self._small.steps < SMALL_STEPS:
            value = self._small.solve(self._sizes.tolist(), source, sink)
            self._side = self._small.source_side()
            return value
        solver, arcs = self._large
        solver.set_arcs_capacity(arcs, self._sizes)
        status = solver.solve(source, sink)
        if status != solver.OPTIMAL:
            raise AssertionError(f"max flow ended with {status}")
        self._side = solver.get_source_side_min_cut()
        return int(solver.optimal_flow())

    def source_side(self) -> Bools:
        """Mask of the vertices on the source side of a minimum cut of the last flow."""
        inside = np.zeros(self._vertices, bool)
        inside[self._side] = True
        return inside
