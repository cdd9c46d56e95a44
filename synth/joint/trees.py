"""Schedules from the trees of the joint solution: a tree in, a tree out, or both for each chunk.

The trees of one part of an orbit are copied to all. What passes a GPU on its way stops there, so
hops, not routes, become transfers; of several ways to a rank one is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from weft.dsl.base.arrays import Ints32
from weft.dsl.nouns.collective import ROOTED, Collective, make
from weft.dsl.nouns.schedule import Schedule
from weft.dsl.nouns.topology import Topology
from weft.dsl.nouns.workload import WorkloadOperation

from .bound import JointBound
from .demands import CollectiveDemand, SumPart, TreePart
from .merge import MergePiece, embedded
from .pricing import TreeShape


@dataclass(frozen=True, slots=True)
class WeightedShapes:
    """Trees of one part, and the share of its bytes that takes them."""

    part: int
    shapes: tuple[TreeShape, ...]
    weight: float


def is_trees(demand: CollectiveDemand) -> bool:
    """Return True if all parts of a demand are trees or sums."""
    return all(isinstance(part, TreePart | SumPart) for part in demand.parts)


def tree_pieces(
    topology: Topology, bound: JointBound, which: Iterable[int]
) -> Iterator[MergePiece]:
    """Yield the schedules of some demands, all of trees, from the joint solution."""
    for k in which:
        demand = bound.demands[k]
        yield _piece(topology, demand, shapes_of(bound, k))


# --- the trees of a demand ------------------------------------------------------------------------


def shapes_of(bound: JointBound, k: int) -> list[WeightedShapes]:
    """Return the trees of a demand with their shares, which add up to 1 for each part."""
    symmetry = bound.symmetry
    number = {part: i for i, part in enumerate(symmetry.parts)}
    found: list[WeightedShapes] = []
    for p in range(len(bound.demands[k].parts)):
        target = number[k, p]
        source = int(symmetry.part_orbit[target])
        mine = [c for c in bound.chosen if (c.demand, c.part) == symmetry.parts[source]]
        there = np.flatnonzero(symmetry.part_images[:, source] == target).tolist()
        total = sum(c.amount for c in mine) * len(there)
        for c in mine:
            for h in there:
                moved = _moved(c.column.shapes, symmetry.images[h], symmetry.rows[h])
                found.append(WeightedShapes(p, moved, c.amount / total))
    return _together(found)


def _key(one: WeightedShapes) -> object:
    return one.part, tuple((s.root, s.backwards, frozenset(s.arcs)) for s in one.shapes)


def _together(given: list[WeightedShapes]) -> list[WeightedShapes]:
    """Join equal trees."""
    found: dict[object, WeightedShapes] = {}
    for one in given:
        old = found.get(_key(one))
        found[_key(one)] = one if old is None else replace(one, weight=one.weight + old.weight)
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
        )
        for s in shapes
    )


# --- their schedule -------------------------------------------------------------------------------


def _piece(
    topology: Topology, demand: CollectiveDemand, shapes: Sequence[WeightedShapes]
) -> MergePiece:
    """Return the schedule of a demand along its trees, on the whole machine."""
    operation = demand.operation
    parts = [[one for one in shapes if one.part == p] for p in range(len(demand.parts))]
    cuts = [_quantized([one.weight for one in some]) for some in parts]
    unit = int(np.lcm.reduce([sum(cut) for cut in cuts]))
    sizes = [[x * (unit // sum(cut)) for x in cut] for cut in cuts]
    kept = [
        [one for one, x in zip(some, cut, strict=True) if x]
        for some, cut in zip(parts, sizes, strict=True)
    ]
    collective = collective_of(operation).cut([[x for x in cut if x] for cut in sizes])
    rows: list[tuple[int, int, int, int, bool, tuple[int, ...]]] = []
    chunk = 0
    for some in kept:
        for one in some:
            rows += _transfers(topology, demand, one, chunk)
            chunk += 1
    columns = [np.array(x) for x in zip(*(row[:5] for row in rows), strict=True)]
    schedule = Schedule.from_columns(
        topology,
        embedded(collective, operation.group, topology.ranks),
        columns[0],
        columns[1],
        columns[2],
        columns[3],
        columns[4],
        np.array([len(row[5]) for row in rows]),
        np.array([i for row in rows for i in row[5]]),
    )
    every = tuple(range(topology.ranks))
    return MergePiece(
        operation, schedule, every, tuple(range(len(topology.links))), operation.bytes
    )


def collective_of(one: WorkloadOperation) -> Collective:
    """Return the collective of an operation, on the ranks of its group."""
    roots: tuple[int, ...] = ()
    if one.kind in ROOTED:
        roots = (0 if one.root is None else one.group.index(one.root),)
    return make(one.kind, len(one.group), roots=roots)


def _quantized(weights: Sequence[float], most: int = 512, tolerance: float = 2e-3) -> list[int]:
    """Return the weights as integers: over the least denominator that is near, else over ``most``.

    Few grains matter more than the last digits: runtimes cut messages into them.
    """
    values = np.array(weights)
    values = values / values.sum()
    for denominator in range(len(values), most):
        found = np.rint(values * denominator).astype(int)
        near = np.abs(values * denominator - found).max() < tolerance
        if near and found.sum() == denominator and found.min() > 0:
            return [int(x) for x in found]
    whole = np.floor(values * most).astype(int)
    rest = np.argsort(-(values * most - whole), kind="stable")[: most - int(whole.sum())]
    whole[rest] += 1
    return [int(x) for x in whole]


def _transfers(
    topology: Topology, demand: CollectiveDemand, one: WeightedShapes, chunk: int
) -> Iterator[tuple[int, int, int, int, bool, tuple[int, ...]]]:
    """Yield chunk, source, destination, step, reduce and route of the hops of its trees."""
    begin = 0
    members = set(demand.operation.members)
    for shape in one.shapes:
        hops = _hops(topology, shape, members)
        depth = {shape.root: 0}
        for u, v, _ in hops:
            depth[v] = depth[u] + 1
        deepest = max(depth.values(), default=0)
        for u, v, route in hops:
            if shape.backwards:
                # A rank sends after all that it receives: the deepest go first.
                yield chunk, v, u, begin + deepest - depth[v], True, route
            else:
                yield chunk, u, v, begin + depth[u], False, route
        begin += deepest


def _hops(
    topology: Topology, shape: TreeShape, members: set[int]
) -> list[tuple[int, int, tuple[int, ...]]]:
    """Return the tree as hops between GPUs, parents first, without ends that nobody needs."""
    out: dict[int, list[tuple[int, tuple[int, ...]]]] = {}
    for _, _, route in shape.arcs:
        for u, v, links in _cut_at_gpus(topology, route):
            tail, head = (v, u) if shape.backwards else (u, v)
            out.setdefault(tail, []).append((head, links))
    seen, order = {shape.root}, []
    queue = [shape.root]
    for u in queue:  # grows: breadth first
        for v, links in out.get(u, ()):
            if v not in seen:
                seen.add(v)
                queue.append(v)
                order.append((u, v, links))
    useful = set(members)
    kept = []
    for u, v, links in reversed(order):
        if v in useful:
            useful.add(u)
            kept.append((u, v, links))
    return kept[::-1]


def _cut_at_gpus(
    topology: Topology, route: Sequence[int]
) -> Iterator[tuple[int, int, tuple[int, ...]]]:
    """Yield the pieces of a route between GPUs, in the order of the data."""
    begin = 0
    for i, link in enumerate(route):
        if topology.nodes[topology.links[link].dst].stores:
            piece = tuple(route[begin : i + 1])
            yield topology.links[piece[0]].src, topology.links[link].dst, piece
            begin = i + 1
