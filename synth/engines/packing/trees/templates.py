"""Convert weighted columns to :class:`PackedTree` objects, and recompute their rate from these.

Allreduce from trees of an allgather: sums climb each tree first, over the opposite links.

Where cables are as wide in both directions that loads no resource more than a reduce_scatter and an
allgather. So where the bound of the allreduce is theirs together nothing is lost, and one direction
is searched instead of two at once.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np

from weft.dsl.base.arrays import Ints32, distinct_values
from weft.dsl.nouns.collective import Collective
from weft.dsl.nouns.topology import Topology

from ....bounds.bounds import bandwidth_bound
from ....bounds.effort import BOUND_EFFORT
from ....lp.exact_finish import overlay
from .model import PackedTree, Packing
from .pool import Columns
from .task import TreeTask


def packing_of(task: TreeTask, columns: Columns, weights: list[Fraction]) -> Packing:
    """The packing that some columns with exact weights are.

    Trees of a family lie side by side on the interval of its share; what cuts the interval (the
    next chunk of the same root; allreduce: the next tree of the other direction) cuts trees.
    """
    half = len(task.orbits.representatives)
    order = np.argsort(columns.family, kind="stable").tolist()
    trees: list[PackedTree] = []
    for k in distinct_values(task.families).tolist():
        mine = [(t, weights[t]) for t in order if int(columns.family[t]) == k]
        if not task.joint:
            chunks = [(int(c), Fraction(1)) for c in task.chunks[task.families == k]]
            trees += [tree_of(task, columns, t, c, w) for t, c, w in overlay(mine, chunks)]
        elif k < half:
            back = [(t, weights[t]) for t in order if int(columns.family[t]) == k + half]
            trees += [
                pair(
                    tree_of(task, columns, into), tree_of(task, columns, out), w / task.orbits.order
                )
                for into, out, w in overlay(back, mine)
            ]
    return Packing(
        task.topology,
        task.collective,
        tuple(trees),
        task.orbits.images.astype(np.int32),
        task.orbits.link_images.astype(np.int32),
        Fraction(0),
        task.us_per_byte(task.bound),
        task.certificate,
    ).rated()


def pair(into: PackedTree, out: PackedTree, weight: Fraction) -> PackedTree:
    """A tree of an allreduce: sums go to the root, then results from it."""
    columns = ("src", "dst", "reduce", "lengths", "route_links")
    both = (np.concatenate([getattr(one, x) for one in (into, out)]) for x in columns)
    return PackedTree.of(0, weight, *both)


def tree_of(
    task: TreeTask, columns: Columns, t: int, chunk: int = 0, weight: Fraction = Fraction(1)
) -> PackedTree:
    """A tree in the kernels' form as hops, root first; a reducing one leaves first."""
    machine = task.machines[int(columns.family[t]) // len(task.orbits.representatives)]
    net, orbits = machine.net, machine.orbits
    depth = columns.trees.take([t]).depths(machine)[0]
    order = np.argsort(depth, kind="stable")
    order = order[depth[order] > 0]
    arcs, links = columns.trees.arcs[t], columns.trees.links[t][:, : net.width]
    src, dst = net.arc_tail[arcs[order]], order
    routes = links[order]
    element = orbits.element_of[src]
    used = routes >= 0
    routes = np.where(used, orbits.link_images[element[:, None], routes], -1)
    if machine.turned:
        src, dst, routes = dst[::-1], src[::-1], routes[::-1, ::-1]
        used = used[::-1, ::-1]
    reduce = np.full(len(src), machine.turned)
    return PackedTree.of(chunk, weight, src, dst, reduce, used.sum(axis=1), routes[used])


def mirrored(packing: Packing, collective: Collective) -> Packing | None:
    """The packing of an allreduce with equal shares for all roots; None if a link has no opposite.

    ``packing``: of the allgather of the same ranks, under the symmetries of the machine.
    """
    topology = packing.topology
    opposite = _opposite_links(topology)
    if opposite is None:
        return None
    share = Fraction(1, topology.ranks)
    trees = tuple(pair(_turned(t, opposite), t, share * t.weight) for t in packing.trees)
    found = bandwidth_bound(topology, collective, BOUND_EFFORT)
    return replace(
        packing,
        collective=collective,
        trees=trees,
        bound=found.us_per_byte,
        certificate=found.certificate,
    ).rated()


def _opposite_links(topology: Topology) -> Ints32 | None:
    """The link back of each link; of parallel ones in the order of their numbers."""
    between: dict[tuple[int, int], list[int]] = {}
    for i, link in enumerate(topology.links):
        between.setdefault((link.src, link.dst), []).append(i)
    back = np.empty(len(topology.links), np.int32)
    for (u, v), links in between.items():
        others = between.get((v, u), [])
        if len(others) != len(links):
            return None
        back[links] = others
    return back


def _turned(tree: PackedTree, opposite: Ints32) -> PackedTree:
    """The tree that brings sums to its root, over the opposite links: leaves first."""
    start = tree.route_start
    return replace(
        tree,
        src=tree.dst[::-1],
        dst=tree.src[::-1],
        reduce=np.ones(len(tree), bool),
        route_start=np.concatenate([[0], np.cumsum(np.diff(start)[::-1])]).astype(np.int32),
        route_links=opposite[tree.route_links[start[0] : start[-1]]][::-1],
    )
