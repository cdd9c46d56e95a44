"""From pairs of trees with casts to schedules: transfers, casts and steps.

A part of a tree that lies in switches is one cast: from the rank above it to the ranks below, or
the other way. Towards a root every rank waits for what comes from below it; a rank that a switch
with its issuer in the group sums for stores the sum, which contains its own copy, after all else
has been added; any other rank adds it. Away from the root ranks store.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import field, replace
from fractions import Fraction
from math import gcd, lcm

import numpy as np

from weft.dsl.base.arrays import Ints32
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.casts import PUSHED, Cast
from weft.dsl.nouns.collective import Collective
from weft.dsl.nouns.schedule import Schedule, Transfer
from weft.dsl.nouns.topology import Topology

from ....steiner.packing import CastPacking, RoutedArc, RoutedTree

Pair = tuple[Fraction, RoutedTree | None, RoutedTree | None]
"""A share of the message, the tree to its root and the tree from it; None: there is none."""


def lifted(packing: CastPacking) -> list[Pair]:
    """Return the pairs with all their images; equal images are one pair with their shares."""
    orbits = packing.orbits
    found: dict[tuple[RoutedTree, RoutedTree], Fraction] = {}
    for weight, forth, back in packing.pairs:
        for g in range(orbits.order):
            nodes, links = orbits.images[g], orbits.link_images[g]
            pair = _moved(forth, nodes, links), _moved(back, nodes, links)
            found[pair] = found.get(pair, Fraction(0)) + weight / orbits.order
    return [(weight, forth, back) for (forth, back), weight in found.items()]


def _moved(tree: RoutedTree, nodes: Ints32, links: Ints32) -> RoutedTree:
    arcs = tuple(
        RoutedArc(
            int(nodes[a.tail]),
            int(nodes[a.head]),
            tuple(links[list(a.links)].tolist()),
            -1 if a.back < 0 else int(links[a.back]),
        )
        for a in tree.arcs
    )
    return RoutedTree(int(nodes[tree.root]), tree.inward, arcs)


def schedule_of(topology: Topology, collective: Collective, pairs: Sequence[Pair]) -> Schedule:
    """Return the schedule in which each pair moves its share; ``collective`` is the plain one.

    Steps are dependences: an operation has the first step in which all that it reads is there.
    Transfers of a step are in the order of their distances, so that every rank has another peer
    at a time and ports meet in turn.
    """
    unit = lcm(*(weight.denominator for weight, _, _ in pairs))
    sizes = [int(weight * unit) for weight, _, _ in pairs]
    common = gcd(*sizes)
    sizes = [size // common for size in sizes]
    writer = TreeWriter(topology)
    for chunk, (_, forth, back) in enumerate(pairs):
        writer.write(chunk, forth, back)
    if len(set(sizes)) == 1:
        cut = collective.split(len(sizes)) if len(sizes) > 1 else collective
    else:
        cut = collective.cut([sizes])
    ranks = topology.ranks
    transfers = sorted(writer.transfers, key=lambda one: (one.dst - one.src) % ranks)
    return Schedule.of(topology, cut, transfers, casts=writer.casts)


@dataclass(eq=False)
class TreeWriter:
    """Writes the operations of one chunk after the other, along trees to a root and from it."""

    topology: Topology
    transfers: list[Transfer] = field(default_factory=list)
    casts: list[Cast] = field(default_factory=list)

    def write(self, chunk: int, forth: RoutedTree | None, back: RoutedTree | None) -> None:
        """Write the casts and transfers of a chunk; a tree that is None has nothing to do."""
        ready: dict[int, int] = defaultdict(int)
        if forth is not None:
            self._gather(chunk, _Below(forth, self.topology.ranks), forth.root, ready)
        root = forth.root if forth is not None else back.root if back is not None else 0
        if back is None:
            return
        if root >= self.topology.ranks:
            assert forth is not None
            self._turn(chunk, forth, back, ready)
        else:
            self._spread(chunk, _Below(back, self.topology.ranks), root, ready)

    # --- towards the root -------------------------------------------------------------------------

    def _gather(self, chunk: int, tree: _Below, root: int, ready: dict[int, int]) -> None:
        """Bring the sums of all ranks below one to it; a switch as root only waits."""
        for v in tree.deepest_first(root):
            arcs = tree.arcs[v]
            stores = [a for a in arcs if a.back >= 0]
            for arc in (a for a in arcs if a.back < 0):
                sources, links = tree.leaves(arc)
                step = max(ready[u] for u in sources)
                if arc.head in sources:
                    self.transfers.append(Transfer(chunk, arc.head, v, arc.links, step, True))
                else:
                    way = (*links, *arc.links)
                    self.casts.append(Cast(chunk, sources, (v,), way, step, True, v))
                ready[v] = max(ready[v], step + 1)
            for arc in stores:
                sources, links = tree.leaves(arc)
                step = max(ready[v], *(ready[u] for u in sources))
                way = (*links, arc.back, *arc.links)
                self.casts.append(Cast(chunk, (*sources, v), (v,), way, step, False, v))
                ready[v] = step + 1

    # --- away from it -----------------------------------------------------------------------------

    def _spread(self, chunk: int, tree: _Below, v: int, ready: dict[int, int]) -> None:
        queue = [v]
        while queue:
            u = queue.pop()
            for arc in tree.arcs[u]:
                targets, links = tree.leaves(arc)
                step = ready[u]
                if arc.head in targets:
                    self.transfers.append(Transfer(chunk, u, arc.head, arc.links, step))
                else:
                    way = (*arc.links, *links, *((arc.back,) if arc.back >= 0 else ()))
                    every = (*targets, *((u,) if arc.back >= 0 else ()))
                    self.casts.append(Cast(chunk, (u,), every, way, step, False, u))
                for w in targets:
                    ready[w] = step + 1
                queue += targets

    def _turn(self, chunk: int, forth: RoutedTree, back: RoutedTree, ready: dict[int, int]) -> None:
        """Sum and copy in one pass, at a switch that is the root; then go on from the ranks."""
        up, down = (_Below(tree, self.topology.ranks) for tree in (forth, back))
        sources, rising = up.all_leaves(forth.root)
        targets, falling = down.all_leaves(back.root)
        step = max(ready[u] for u in sources)
        self.casts.append(Cast(chunk, sources, targets, (*rising, *falling), step, False, PUSHED))
        for w in targets:
            ready[w] = step + 1
        for w in targets:
            self._spread(chunk, down, w, ready)


@dataclass(eq=False)
class _Below:
    """A tree by its vertices: the arcs to those below each."""

    tree: RoutedTree
    ranks: int
    arcs: dict[int, list[RoutedArc]] = field(default_factory=lambda: defaultdict(list))

    def __post_init__(self) -> None:
        for arc in self.tree.arcs:
            self.arcs[arc.tail].append(arc)

    def deepest_first(self, root: int) -> list[int]:
        """Return the ranks, each behind all that are below it."""
        order, queue = [root], [root]
        while queue:
            for arc in self.arcs[queue.pop()]:
                order.append(arc.head)
                queue.append(arc.head)
        return [v for v in reversed(order) if v < self.ranks]

    def leaves(self, arc: RoutedArc) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the ranks that an arc leads to through switches, and the links beyond it."""
        if arc.head < self.ranks:
            return (arc.head,), ()
        return self.all_leaves(arc.head)

    def all_leaves(self, switch: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the ranks below a switch, and all links between, in the order of the data."""
        ranks: list[int] = []
        links: list[int] = []
        for arc in self.arcs[switch]:
            below, beyond = self.leaves(arc)
            ranks += below
            links += (*beyond, *arc.links) if self.tree.inward else (*arc.links, *beyond)
        return tuple(ranks), tuple(links)


def planned(schedule: Schedule, lag: int) -> Schedule:
    """Return the schedule with slices in a planned order: slice by slice, later steps ``lag``
    slices behind (in halves of a slice)."""
    casts = schedule.casts
    order, of_casts = ((x * lag).astype(np.int32) for x in (schedule.step, casts.step))
    for column in (order, of_casts):
        column.setflags(write=False)  # results of the schedule are kept
    return replace(schedule, priority=order, casts=replace(casts, priority=of_casts), stride=2)
