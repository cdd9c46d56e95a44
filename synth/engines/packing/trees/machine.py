"""Limit on peers: select the hops of trees so that no rank has too many senders or receivers.

A runtime uses one thread block per peer of a rank, and their number is limited. Where every GPU
can reach every other through switches, trees of height two use all of them: a thousand GPUs are a
thousand peers. But a tree can also pass through a few hosts, and with peers at distances one, two,
four, … the height of trees is logarithmic.

Choice of far peers: always one that is farthest by the hops chosen so far (greedy k-centre rule,
Gonzalez, Clustering to minimize the maximum intercluster distance, TCS 38 (1985), on a graph that
grows by it). On a ring of hosts that gives the opposite, then the quarters, then the eighths.
Whole hop orbits are taken, so that symmetry stays; a group that is free on the ranks gives each of
them one peer for every hop of its representative.

Machine arrays for the kernels: arcs from GPU to GPU, per orbit of the symmetry group.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from weft.dsl.base.arrays import Bools, Ints, distinct_values
from weft.dsl.base.errors import BadTopology, UserError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.topology import Topology
from weft.dsl.symmetry.orbits import Orbits

from ....fabric.fabric import fabric_of
from ....fabric.hosts import hosts_of
from .effort import TREE_EFFORT
from .model import Packing


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
    from .kernels import TreeNet, reached

    fabric = fabric_of(machine)
    ranks, nodes = fabric.ranks, fabric.nodes
    out_start, out_link = fabric.leaving
    sources = orbits.representatives.astype(np.int64)
    source, head, steps = reached(ranks, sources, out_start, out_link, fabric.dst)
    if not len(head):
        raise BadTopology(f"{machine.name}: no rank can send to another")
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


def few_peers(
    topology: Topology, orbits: Orbits, peers: int, detour: int = TREE_EFFORT.detour
) -> Bools | None:
    """Return the ranks each representative may send to, shape (representatives, ranks); None: all.

    Every rank has at most ``peers`` receivers and ``peers`` senders. GPUs of one host are taken
    first, else the nearest ones, if the limit admits all of them.

    Raises:
        BadTopology: some rank cannot send to any other.
        UserError: with so few some rank is out of reach.
    """
    machine = TreeMachine.of(topology, orbits, detour=detour)
    net = machine.net
    source, head = net.cell_source, net.cell_head
    reps = len(net.sources)
    into = orbits.rank_orbit[head]
    if _most_peers(source, into, reps) <= peers:
        return None
    near = _near(topology, machine)
    if _most_peers(source[near], into[near], reps) > peers:
        near = np.zeros(len(head), np.bool_)
    from .peers_kernel import farthest_first

    allowed = near.copy()
    farthest_first(
        net,
        orbits.images.astype(np.int64),
        orbits.rank_orbit.astype(np.int64),
        orbits.element_of.astype(np.int64),
        machine.steps,
        near,
        peers,
        allowed,
    )
    found = np.zeros((reps, topology.ranks), np.bool_)
    found[source[allowed], head[allowed]] = True
    kept = TreeMachine.of(topology, orbits, allowed=found, detour=detour)
    if kept.eccentricity.min() < 0:
        raise UserError(
            f"packing: with peers={peers} some rank is out of reach", hint="allow more peers"
        )
    return found


def peers_of(packing: Packing) -> int:
    """Return the largest number of peers of a rank, per direction, over all images of all trees."""
    n = packing.topology.ranks
    if not packing.trees:
        return 0
    pairs = distinct_values(
        np.concatenate([t.src.astype(np.int64) * n + t.dst for t in packing.trees])
    )
    src, dst = packing.images[:, pairs // n], packing.images[:, pairs % n]
    every = distinct_values(src.astype(np.int64).ravel() * n + dst.ravel())
    return int(max(np.bincount(every // n).max(), np.bincount(every % n).max()))


def _most_peers(source: Ints, into: Ints, reps: int) -> int:
    """Return the largest number of peers of a rank in one direction, from representatives' hops."""
    counts = [np.bincount(x, minlength=reps).max(initial=0) for x in (source, into)]
    return int(max(counts))


def _near(topology: Topology, machine: TreeMachine) -> Bools:
    """The hops inside hosts; where there are none, those of fewest links."""
    net, hosts = machine.net, hosts_of(topology)
    near: Bools
    if hosts is not None:
        near = hosts.host[net.sources][net.cell_source] == hosts.host[net.cell_head]
    else:
        near = machine.steps == machine.steps.min()
    return near
