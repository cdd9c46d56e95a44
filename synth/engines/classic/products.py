"""Machines that are a product of complete graphs: hypercubes, cliques joined by rails, small tori.

Ranks have coordinates, and one reaches another without a GPU in between exactly where one
coordinate differs. DGX-1 is one (two cliques of four, joined pair by pair), hosts that only rails
join are, a hypercube is, and a torus with sides of two, three and four (a ring of four is a square
of 2x2). Along each axis every rank reaches all others at once, so an allreduce by exchanges of
whole sums takes the α of one hop per axis, the least there is.

>>> from weft.dsl.catalogue import topology
>>> product_grid(topology("dgx1")).shape
(4, 2)
>>> product_grid(topology("torus:4x4")).shape
(2, 2, 2, 2)

In such a product two hops of one rank lie on one axis where their ends are neighbours too; else
their ends have exactly one more common neighbour, and opposite sides of this square lie on one axis
(Imrich & Klavžar, Product Graphs, 2000).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from math import prod

import numpy as np

from weft.dsl.base.arrays import Ints, distinct_values
from weft.dsl.base.components import components
from weft.dsl.nouns.hops import gpu_neighbours
from weft.dsl.nouns.topology import Topology

from .effort import CLASSIC_EFFORT, ClassicEffort
from .grid import RankGrid

Neighbours = Sequence[frozenset[int]]
Edge = tuple[int, int]


def product_grid(topology: Topology, effort: ClassicEffort = CLASSIC_EFFORT) -> RankGrid | None:
    """The machine as a product of two or more complete graphs; larger axes first.

    None if it is none, or has more pairs of neighbours than ``effort.neighbour_pairs``.
    """
    near = [frozenset(x) for x in gpu_neighbours(topology)]
    if len({len(x) for x in near}) != 1 or any(
        v not in near[u] for v, x in enumerate(near) for u in x
    ):
        return None
    if topology.ranks * len(near[0]) ** 2 > effort.neighbour_pairs:
        return None
    axes = _axes(near)
    if axes is None or axes.max(initial=0) < 1:
        return None
    edges = np.array(_edges(near))
    apart = [components(len(near), *edges[axes != axis].T) for axis in range(axes.max() + 1)]
    place = np.array(sorted(apart, key=lambda x: -int(x.max())))  # stable: equal ones as found
    return _checked(place, edges, len(near[0]))


def _edges(near: Neighbours) -> list[Edge]:
    """All pairs of neighbours, the lesser rank first."""
    return [(u, v) for u, beside in enumerate(near) for v in sorted(beside) if u < v]


def _axes(near: Neighbours) -> Ints | None:
    """The axis of each pair of neighbours; None where a square says that this is no product."""
    number = {edge: i for i, edge in enumerate(_edges(near))}
    same: list[Edge] = []
    for pair in _on_one_axis(near):
        if pair is None:
            return None
        one, other = pair
        same.append((number[min(one), max(one)], number[min(other), max(other)]))
    ends = np.array(same, np.int64).reshape(-1, 2)
    return components(len(number), *ends.T)


def _on_one_axis(near: Neighbours) -> Iterator[tuple[Edge, Edge] | None]:
    """Two pairs of neighbours of one axis each; None where this is no product."""
    for v, beside in enumerate(near):
        for u, w in combinations(sorted(beside), 2):
            if w in near[u]:
                yield (v, u), (v, w)
                continue
            common = near[u] & near[w]
            if len(common) != 2:
                yield None
                return
            (x,) = common - {v}
            yield (v, u), (w, x)
            yield (v, w), (u, x)


def _checked(place: Ints, edges: Ints, degree: int) -> RankGrid | None:
    """The grid of coordinates, shape (axes, ranks); None if its lines are not complete."""
    shape = tuple(int(x) + 1 for x in place.max(axis=1))
    number = place.T @ [prod(shape[:axis]) for axis in range(len(shape))]
    differ = (place[:, edges[:, 0]] != place[:, edges[:, 1]]).sum(axis=0)
    ranks = place.shape[1]
    # Neighbours differ in one coordinate only, and there are as many as ranks that do.
    if prod(shape) != ranks or len(distinct_values(number)) != ranks or (differ != 1).any():
        return None
    if degree != sum(size - 1 for size in shape):
        return None
    names = tuple(f"axis{axis}" for axis in range(len(shape)))
    return RankGrid(shape, tuple(np.argsort(number).tolist()), names)
