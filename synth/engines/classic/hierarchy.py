"""Detect the structure of a machine: hosts and levels above them, a torus, a product of cliques.

>>> from weft.dsl.catalogue import topology
>>> torus(topology("torus:3x4")).shape
(3, 4)
>>> host_grid(topology("dgx-a100:nodes=2")).shape
(8, 2)
>>> product_grid(topology("dgx1")).shape
(4, 2)
>>> product_grid(topology("torus:4x4")).shape
(2, 2, 2, 2)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import combinations, product
from math import prod

import numpy as np

from weft.dsl.base.arrays import Floats, distinct_values
from weft.dsl.base.assignment import best_assignment
from weft.dsl.base.components import components
from weft.dsl.base.errors import BadTopology, UserError
from weft.dsl.nouns.hops import gpu_neighbours, islands
from weft.dsl.nouns.topology import Topology

from ...base.meter import Meter
from .effort import CLASSIC_EFFORT, ClassicEffort
from .grid import NestedPartitions, Partition, RankGrid, grid_at
from .mapping import PairPaths, hosts_of, ring_order


def hop_costs(topology: Topology) -> Floats:
    """α in µs of the hop of every ordered pair of ranks, shape (ranks, ranks).

    As in :class:`~.mapping.PairPaths`: infinite where there is none, 0 on the diagonal.
    """
    costs = PairPaths.of(topology).latency.copy()
    np.fill_diagonal(costs, 0)
    return costs


# --- levels ---------------------------------------------------------------------------------------


def levels(topology: Topology, costs: Floats | None = None) -> NestedPartitions:
    """Nested groups of ranks that are nearer to each other than to the others, innermost first.

    Hosts are a level where the topology names them. Below and above, a level is a partition into
    groups in which all ranks are within a distance of each other, and farther from all ranks
    outside: the GPUs of an edge switch, the hosts of a pod. No level without either.
    """
    costs = hop_costs(topology) if costs is None else costs
    n = topology.ranks
    hosts = hosts_of(topology)
    if len(hosts) == 1 or len(hosts) == n:
        found = _classes(costs)
        return NestedPartitions(n, tuple(found or _fast_islands(topology)))
    inner = [p for p in _classes(costs) if _refines(p, hosts)]
    between = np.array([[costs[np.ix_(a, b)].min() for b in hosts] for a in hosts])
    outer = [
        tuple(tuple(r for h in group for r in hosts[h]) for group in partition)
        for partition in _classes(between)
    ]
    return NestedPartitions(n, (*inner, hosts, *outer))


def _classes(costs: Floats) -> list[Partition]:
    """Partitions into groups nearer than a threshold, each group complete, finest first."""
    n = len(costs)
    far = np.maximum(costs, costs.T)
    found: list[Partition] = []
    for threshold in distinct_values(far[np.isfinite(far) & (far > 0)]).tolist():
        near = far <= threshold * (1 + 1e-9)
        np.fill_diagonal(near, True)
        # Near must be an equivalence: all members of a group see the same ranks.
        first = near.argmax(axis=1)
        if not (near == near[first]).all():
            continue
        groups: dict[int, list[int]] = {}
        for rank, head in enumerate(first.tolist()):
            groups.setdefault(head, []).append(rank)
        if 1 < len(groups) < n:
            found.append(tuple(map(tuple, groups.values())))
    return found


def _refines(fine: Partition, coarse: Partition) -> bool:
    group = {rank: number for number, members in enumerate(coarse) for rank in members}
    inside = all(len({group[r] for r in members}) == 1 for members in fine)
    return inside and len(fine) > len(coarse)


def _fast_islands(topology: Topology) -> list[Partition]:
    """Groups that the widest links join, where these do not join everything."""

    widest = max((x.bandwidth for x in topology.links), default=0)
    slow = [i for i, x in enumerate(topology.links) if x.bandwidth < widest]
    groups = islands(topology.without_links(slow))
    return [groups] if 1 < len(groups) < topology.ranks else []


# --- grids ----------------------------------------------------------------------------------------


def host_grid(
    topology: Topology,
    levels_used: int | None = None,
    effort: ClassicEffort = CLASSIC_EFFORT,
    meter: Meter | None = None,
) -> RankGrid:
    """The hierarchy as a grid: the ranks of a host along axis 0, then one axis per further level.

    Where no hosts are named the innermost groups stand for them. ``levels_used``: number of
    partitions, from the hosts on (1: all hosts are one axis).

    Ranks of equal coordinate in neighbouring groups reach each other directly, where the fabric
    has such pairs (rails).

    Raises:
        UserError: no level, or groups of different sizes.
    """
    costs = hop_costs(topology)
    partitions = levels(topology, costs).partitions
    if not partitions:
        raise UserError(
            f"expected a machine with a hierarchy, got {topology.name}, whose GPUs are all alike",
            hint="name one, innermost first: shape=4+2",
        )
    hosts = hosts_of(topology)
    partitions = partitions[partitions.index(hosts) if hosts in partitions else 0 :]
    return grid_of(topology, partitions[:levels_used], costs, effort, meter)


def grid_of(
    topology: Topology,
    partitions: Sequence[Partition],
    costs: Floats,
    effort: ClassicEffort = CLASSIC_EFFORT,
    meter: Meter | None = None,
) -> RankGrid:
    """Nested partitions of equal groups as a grid, the innermost along axis 0.

    The ranks of an innermost group stand along its best ring, where it has one.

    Raises:
        UserError: groups of different sizes.
    """
    _check_even(topology, partitions[0])
    order = _rings(topology, partitions[0], costs, effort, meter)
    shape = [len(order[0])]
    for partition in (*partitions[1:], (tuple(range(topology.ranks)),)):
        _check_even(topology, partition)
        number = {rank: i for i, group in enumerate(partition) for rank in group}
        outer: dict[int, list[list[int]]] = {}
        for group in order:
            outer.setdefault(number[group[0]], []).append(group)
        shape.append(len(next(iter(outer.values()))))
        order = [_align_groups(groups, costs) for groups in outer.values()]
    names = ("local", *(f"level{i}" for i in range(1, len(shape) - 1)), "host_grid")
    return RankGrid(tuple(shape), tuple(order[0]), names)


def _rings(
    topology: Topology,
    partition: Partition,
    costs: Floats,
    effort: ClassicEffort,
    meter: Meter | None,
) -> list[list[int]]:
    """The groups, each along its ring; hosts that are alike inside get the same order."""
    known: dict[bytes, tuple[int, ...]] = {}
    order = []
    for group in partition:
        key = costs[np.ix_(group, group)].tobytes()
        if key not in known:
            try:
                known[key] = ring_order(topology.restricted_to(group), effort, meter)
            except BadTopology:
                known[key] = tuple(range(len(group)))
        order.append([group[i] for i in known[key]])
    return order


def _check_even(topology: Topology, partition: Partition) -> None:
    sizes = sorted({len(group) for group in partition})
    if len(sizes) > 1:
        raise UserError(
            f"{topology.name}: groups of {' and '.join(map(str, sizes))} ranks form no grid",
            hint="a process group with as many ranks in every host, or an algorithm with leaders",
        )


def _align_groups(groups: Sequence[list[int]], costs: Floats) -> list[int]:
    """Groups one after another, each in the order in which its ranks face those of the one before.

    A matching of least cost; among equals the ranks keep their positions.
    """
    result = list(groups[0])
    previous = groups[0]
    size = len(previous)
    for group in groups[1:]:
        cost = costs[np.ix_(previous, group)]
        largest = cost[np.isfinite(cost)].max(initial=1.0)
        cost = np.where(np.isfinite(cost), cost, largest * 1e3 * size)
        place = np.arange(size)
        moved = np.abs(place[:, None] - place[None, :]) > 0
        _, match = best_assignment(-(cost + moved * largest * 1e-9))
        previous = [group[i] for i in match.tolist()]
        result += previous
    return result


def torus(topology: Topology, effort: ClassicEffort = CLASSIC_EFFORT) -> RankGrid | None:
    """The machine as a torus of two or more axes (hypercubes too), with any numbering.

    None if its direct cables are not exactly those of one.
    """
    near = [frozenset(x) for x in gpu_neighbours(topology)]
    n = topology.ranks
    degrees = {len(x) for x in near}
    if len(degrees) > 1 or n < 4:
        return None
    shapes = [s for s in _shapes(n) if sum(2 if size > 2 else 1 for size in s) in degrees]
    shapes.sort(key=len)  # C4 is a ring of four, not a torus of 2x2
    searched = partial(_embed, placements=effort.torus_placements)
    for numbered in (_natural, searched):
        for shape in shapes:
            if ranks := numbered(near, shape):
                return RankGrid(shape, ranks, tuple(f"axis{i}" for i in range(len(shape))))
    return None


def _shapes(n: int, least: int = 2) -> Iterator[tuple[int, ...]]:
    """Ordered factorizations of n into two or more factors."""
    for first in range(least, n // 2 + 1):
        if n % first == 0:
            rest = n // first
            yield (first, rest)
            for more in _shapes(rest, least):
                yield (first, *more)


def _places(shape: Sequence[int]) -> list[tuple[int, ...]]:
    return [at[::-1] for at in product(*(range(size) for size in reversed(shape)))]


def _beside(at: tuple[int, ...], shape: Sequence[int]) -> set[int]:
    """The numbers of the places next to one."""
    found = set()
    for axis, size in enumerate(shape):
        stride = prod(shape[:axis])
        number = sum(c * prod(shape[:a]) for a, c in enumerate(at))
        for step in (1, -1):
            found.add(number + ((at[axis] + step) % size - at[axis]) * stride)
    return found


def _natural(near: Sequence[frozenset[int]], shape: Sequence[int]) -> tuple[int, ...]:
    """Ranks in order, if they are numbered along the axes."""
    fits = all(near[i] == _beside(at, shape) for i, at in enumerate(_places(shape)))
    return tuple(range(len(near))) if fits else ()


def _embed(
    near: Sequence[frozenset[int]], shape: Sequence[int], placements: int
) -> tuple[int, ...]:
    """Ranks put on the places one by one, next to those that stand there already; with retreat."""
    places = _places(shape)
    beside = [_beside(at, shape) for at in places]
    order = sorted(
        range(len(places)),
        key=lambda i: sum(min(c, s - c) for c, s in zip(places[i], shape, strict=True)),
    )
    seen = {order[0]}
    known = []  # for each place, in order: its neighbours that stand already
    for place in order[1:]:
        known.append(sorted(beside[place] & seen))
        seen.add(place)
    at = {order[0]: 0}
    stack = [_fitting(near, at, known[0])]
    for _ in range(placements):
        depth = len(stack)
        rank = next(stack[-1], None)
        if rank is None:
            stack.pop()
            if not stack:
                return ()
            del at[order[depth - 1]]
            continue
        at[order[depth]] = rank
        if depth == len(order) - 1:
            fits = all({at[j] for j in beside[i]} == near[at[i]] for i in at)
            if fits:
                return tuple(at[i] for i in range(len(order)))
            del at[order[depth]]
            continue
        stack.append(_fitting(near, at, known[depth]))
    return ()


def _fitting(
    near: Sequence[frozenset[int]], at: dict[int, int], known: Sequence[int]
) -> Iterator[int]:
    """Ranks not placed yet that are next to all the neighbours that are."""
    common = frozenset.intersection(*(near[at[i]] for i in known))
    return iter(sorted(common - set(at.values())))


# --- products of cliques --------------------------------------------------------------------------

Neighbours = Sequence[frozenset[int]]
Edge = tuple[int, int]


def product_grid(topology: Topology, effort: ClassicEffort = CLASSIC_EFFORT) -> RankGrid | None:
    """The machine as a product of two or more complete graphs; larger axes first: hypercubes,
    cliques joined by rails, small tori.

    Ranks have coordinates, and one reaches another without a GPU in between exactly where one
    coordinate differs. DGX-1 is one (two cliques of four, joined pair by pair), hosts that only
    rails join are, a hypercube is, and a torus with sides of two, three and four (a ring of four is
    a square of 2x2). Along each axis every rank reaches all others at once, so an allreduce by
    exchanges of whole sums takes the α of one hop per axis, the least there is.

    In such a product two hops of one rank lie on one axis where their ends are neighbours too; else
    their ends have exactly one more common neighbour, and opposite sides of this square lie on one
    axis (Imrich & Klavžar, Product Graphs, 2000).

    None if it is none, or has more pairs of neighbours than ``effort.neighbour_pairs``.
    """
    near = [frozenset(x) for x in gpu_neighbours(topology)]
    if len({len(x) for x in near}) != 1 or any(
        v not in near[u] for v, x in enumerate(near) for u in x
    ):
        return None
    if topology.ranks * len(near[0]) ** 2 > effort.neighbour_pairs:
        return None
    pairs = [(u, v) for u, beside in enumerate(near) for v in sorted(beside) if u < v]
    number = {edge: i for i, edge in enumerate(pairs)}
    same: list[Edge] = []
    for both in _on_one_axis(near):
        if both is None:
            return None
        one, other = both
        same.append((number[min(one), max(one)], number[min(other), max(other)]))
    axes = components(len(pairs), *np.array(same, np.int64).reshape(-1, 2).T)
    if axes.max(initial=0) < 1:
        return None
    edges = np.array(pairs)
    apart = [components(len(near), *edges[axes != axis].T) for axis in range(axes.max() + 1)]
    place = np.array(sorted(apart, key=lambda x: -int(x.max())))  # stable: equal ones as found
    grid = grid_at(place, tuple(f"axis{axis}" for axis in range(len(place))))
    # Neighbours differ in one coordinate only, and there are as many as ranks that do.
    differ = (place[:, edges[:, 0]] != place[:, edges[:, 1]]).sum(axis=0)
    if grid is None or (differ != 1).any() or len(near[0]) != sum(x - 1 for x in grid.shape):
        return None
    return grid


def _on_one_axis(near: Neighbours) -> Iterator[tuple[Edge, Edge] | None]:
    """Two pairs of neighbours of one axis each; None where this is not a product."""
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
