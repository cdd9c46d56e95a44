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
"""

from __future__ import annotations

import numpy as np

from weft.dsl.base.arrays import Bools, Ints, distinct_values
from weft.dsl.base.errors import UserError
from weft.dsl.nouns.topology import Topology
from weft.dsl.symmetry.orbits import Orbits

from ....fabric.hosts import hosts_of
from .effort import TREE_EFFORT
from .machine import TreeMachine
from .model import Packing


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
