"""Machine arrays for the kernels: arcs from GPU to GPU, per orbit of the symmetry group."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from weft.dsl.base.arrays import Bools, Ints
from weft.dsl.base.errors import BadTopology
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.topology import Topology
from weft.dsl.symmetry.orbits import Orbits

from ....fabric.fabric import fabric_of
from .effort import TREE_EFFORT


@dataclass(frozen=True, eq=False)
class TreeMachine:
    """A topology with a group of symmetries, ready for the kernels.

    ``turned``: links are walked backwards (index kept), for trees that reduce. ``net`` is a
    :class:`.TreeNet`. ``steps``: links of the shortest route of its cells.
    """

    topology: Topology
    orbits: Orbits
    turned: bool
    net: Any
    steps: Ints

    @staticmethod
    def of(
        topology: Topology,
        orbits: Orbits,
        *,
        turned: bool = False,
        allowed: Bools | None = None,
        detour: int = TREE_EFFORT.detour,
    ) -> TreeMachine:
        """Return the arrays of a machine; ``turned``: with every link reversed.

        ``allowed``: which ranks the representatives may send to, shape (representatives, ranks).
        ``detour``: as in :class:`.TreeEffort`.

        Raises:
            BadTopology: some rank cannot send to any other.
        """
        machine = topology.reversed() if turned else topology
        if turned and allowed is not None:
            allowed = _allowed_senders(allowed, orbits)
        return TreeMachine(topology, orbits, turned, *_net(machine, orbits, allowed, detour))

    @cached_property
    def eccentricity(self) -> Ints:
        """Hops to the farthest rank, per representative; -1: some rank is out of reach."""
        from .kernels import eccentricities

        found: Ints = eccentricities(self.net)
        return found


def _allowed_senders(allowed: Bools, orbits: Orbits) -> Bools:
    """Senders allowed to each representative: the same hops, indexed by their heads."""
    k, head = np.nonzero(allowed)
    # The element that brings the head to its representative brings the source along.
    back = orbits.inverses()[orbits.element_of[head]]
    found = np.zeros_like(allowed)
    found[orbits.rank_orbit[head], orbits.images[back, orbits.representatives[k]]] = True
    return found


def _net(machine: Topology, orbits: Orbits, allowed: Bools | None, detour: int) -> tuple[Any, Ints]:
    from .kernels import TreeNet

    fabric = fabric_of(machine)
    ranks, nodes = fabric.ranks, fabric.nodes
    out_start, out_link = fabric.leaving
    sources = orbits.representatives.astype(np.int64)
    source, head, steps = _cells(machine, sources, out_start, out_link, fabric.dst)
    if allowed is not None:
        kept = allowed[source, head]
        source, head, steps = source[kept], head[kept], steps[kept]
    width = min(int(steps.max()) + detour, nodes - ranks + 1)
    cell_start = np.searchsorted(source, np.arange(len(sources) + 1))
    tail, arc_head, cell = _arcs(orbits, cell_start, head)
    by_head = np.argsort(arc_head, kind="stable")
    net = TreeNet(
        ranks,
        width,
        fabric.src,
        fabric.dst,
        out_start,
        out_link,
        fabric.first,
        orbits.row_orbit.astype(np.int64)[fabric.resource],
        sources,
        cell_start,
        source,
        head,
        np.searchsorted(tail, np.arange(ranks + 1)),
        tail,
        arc_head,
        cell,
        np.searchsorted(arc_head[by_head], np.arange(ranks + 1)),
        by_head,
    )
    return net, steps


def _cells(
    machine: Topology, sources: Ints, out_start: Ints, out_link: Ints, link_dst: Ints
) -> tuple[Ints, Ints, Ints]:
    """Hops that leave a representative: which one, where to, links of the shortest route."""
    from .kernels import reached

    source, head, steps = reached(machine.ranks, sources, out_start, out_link, link_dst)
    if not len(head):
        raise BadTopology(f"{machine.name}: no rank can send to another")
    return source, head, steps


def _arcs(orbits: Orbits, cell_start: Ints, head: Ints) -> tuple[Ints, Ints, Ints]:
    """Images of the cells, sorted by tail: tails, heads, cells."""
    tails, heads, cells = [], [], []
    for k in range(len(orbits.representatives)):
        mine = np.arange(cell_start[k], cell_start[k + 1])
        members = np.flatnonzero(orbits.rank_orbit == k)
        images = orbits.images[np.ix_(orbits.element_of[members], head[mine])]
        tails.append(np.repeat(members, len(mine)))
        heads.append(images.ravel())
        cells.append(np.tile(mine, len(members)))
    tail = np.concatenate(tails).astype(np.int64)
    order = np.argsort(tail, kind="stable")
    head_of, cell = np.concatenate(heads).astype(np.int64), np.concatenate(cells)
    return tail[order], head_of[order], cell[order]
