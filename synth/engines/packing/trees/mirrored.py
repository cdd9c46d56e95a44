"""Allreduce from trees of an allgather: sums climb each tree first, over the opposite links.

Where cables are as wide in both directions that loads no resource more than a reduce_scatter and an
allgather. So where the bound of the allreduce is theirs together nothing is lost, and one direction
is searched instead of two at once.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np

from weft.dsl.base.arrays import Ints32
from weft.dsl.base.units import BYTES_PER_US_PER_GBPS
from weft.dsl.nouns.collective import Collective
from weft.dsl.nouns.topology import Topology
from weft.dsl.symmetry.orbits import orbits_of

from ....bounds.bounds import bandwidth_bound
from ....bounds.effort import BOUND_EFFORT
from .model import PackedTree, Packing
from .templates import busiest, pair


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
    time = busiest(topology, orbits_of(topology), trees)
    return replace(
        packing,
        collective=collective,
        trees=trees,
        us_per_byte=time / (collective.message_chunks * BYTES_PER_US_PER_GBPS),
        bound=found.us_per_byte,
        certificate=found.certificate,
    )


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
