"""Hosts times fabric: trees over hosts on the fabric, trees over GPUs inside each host.

Inside a host every GPU gets all data, so any of them may forward it: for the fabric a host is one
node, and inside the host the data that enters at each GPU is broadcast to the others. The fabric
is solved first, then every host; equal hosts are solved once. Nothing is lost where hosts have
more bandwidth inside than outwards; the loss against the bound is computed from the trees and
reported.

Used where symmetry is missing or partial: a broken NIC in one of 128 hosts, irregular numbers of
NICs, hosts of several kinds.
"""

from __future__ import annotations

from fractions import Fraction
from math import lcm

import numpy as np

from weft.dsl.base.units import BYTES_PER_US_PER_GBPS
from weft.dsl.nouns.collective import Collective, Kind
from weft.dsl.nouns.topology import Topology

from ....base.meets import MET
from ....base.meter import STEPS, Meter
from ....bounds import bounds
from ....fabric.fabric import fabric_of
from ....fabric.hosts import Hosts, hosts_of
from ..trees.model import PackedTree, Packing
from .fabric import shares_of
from .inner import solve_inside
from .search import HOST_EFFORT, HostEffort, loads_of
from .trees import ChunkShares, entering, trees_of

KINDS = frozenset(
    {
        Kind.ALLGATHER,
        Kind.BROADCAST,
        Kind.MULTIROOT_BROADCAST,
        Kind.REDUCE_SCATTER,
        Kind.REDUCE,
        Kind.ALLREDUCE,
    }
)


def pack_hosts(
    topology: Topology,
    collective: Collective,
    *,
    meter: Meter | None = None,
    seed: int = 0,
    effort: HostEffort = HOST_EFFORT,
) -> Packing | None:
    """A packing of a plain collective from trees over hosts and trees inside hosts.

    None where the machine has no hosts, one of them does not hang together, or the collective is
    of a kind that trees do not serve. Once ``meter`` is over every search
    makes a few passes only; None: 30 units of effort.

    Raises:
        BadTopology: ranks that cannot reach each other.
    """

    meter = meter or Meter(30 * STEPS)
    hosts = hosts_of(topology)
    if hosts is None or collective.kind not in KINDS:
        return None
    known = bounds(topology, collective)
    per_chunk = collective.message_chunks * BYTES_PER_US_PER_GBPS
    time = float(known.us_per_byte * per_chunk)
    shares = shares_of(hosts, collective, time, seed, meter, effort)
    if shares is None:
        return None
    made = _whole(hosts, shares, time, seed, meter, effort)
    if made is None:
        return None
    rate = busiest(topology, made) / per_chunk
    return Packing(
        topology,
        collective,
        made,
        np.arange(len(topology.nodes), dtype=np.int32)[None],
        np.arange(len(topology.links), dtype=np.int32)[None],
        rate,
        known.us_per_byte,
        known.certificate,
        remark(rate, known.us_per_byte),
    )


def remark(rate: Fraction, bound: Fraction) -> str:
    """Return the loss of rate against the bound, as text."""
    loss = 100 * (rate / bound - 1)
    return f"boxes × fabric: {float(loss):.2g} % above the bound"


def busiest(topology: Topology, trees: tuple[PackedTree, ...]) -> Fraction:
    """Chunks per GB/s of the busiest resource, exactly. O(links of all routes)."""
    fabric = fabric_of(topology)
    unit = lcm(*(t.weight.denominator for t in trees))
    links = fabric.links
    by_link = np.zeros(links, np.int64 if unit < 1 << 42 else object)
    for tree in trees:
        uses = np.bincount(tree.route_links, minlength=links)
        by_link += uses.astype(by_link.dtype) * int(tree.weight * unit)
    load = np.zeros(fabric.resources, by_link.dtype)
    np.add.at(load, fabric.pairs[0], by_link[fabric.pairs[1]])
    return max(Fraction(int(x), unit) / b for x, b in zip(load, fabric.bandwidth, strict=True))


def _whole(
    hosts: Hosts, shares: ChunkShares, time: float, seed: int, meter: Meter, effort: HostEffort
) -> tuple[PackedTree, ...] | None:
    """The trees inside the hosts, and all of it together."""
    resources = hosts.machine.resources
    weights = np.array([float(w) for w in shares.weights])
    base = np.zeros(resources)
    for turned, tree_set in shares.tree_sets.items():
        base += loads_of(tree_set, hosts.fabric(turned=turned), resources).T @ weights
    fabric = max(load / float(b) for load, b in zip(base, hosts.machine.bandwidth, strict=True))
    enters = {turned: entering(hosts, shares, turned) for turned in shares.tree_sets}
    goal = max(fabric, time) * (1 + MET)
    insides, worst = solve_inside(hosts, enters, base, goal, seed=seed, meter=meter, effort=effort)
    return trees_of(hosts, shares, insides, effort.pieces) if np.isfinite(worst) else None
