"""Boxes times fabric: trees over boxes on the fabric, trees over GPUs inside each box.

Inside a box every GPU gets everything, so any of them may send it on: from the fabric a box is
one node, and the box only has to spread what enters at each of its GPUs. The fabric is solved
first, every box after it, equal boxes once. That loses nothing where boxes are wide compared
with their way out, and the loss against the bound is counted from the trees and said.

Used where symmetry is gone or partial: a broken NIC in one of 128 boxes, irregular numbers of
NICs, boxes of several kinds.
"""

from __future__ import annotations

from fractions import Fraction
from math import lcm

import numpy as np

from weft.dsl.base.units import BYTES_PER_US_PER_GBPS
from weft.dsl.nouns.collective import Collective, Kind
from weft.dsl.nouns.topology import Topology

from ....fabric.occupancy import LinkTable
from ..trees.hosts_net import Boxes, boxes_of
from ..trees.model import Packing, Tree
from .fabric import shares_of
from .inner import solve_inside
from .search import MET, loads_of
from .trees import Shares, entering, trees_of

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


def pack_boxes(
    topology: Topology, collective: Collective, *, seconds: float = 30, seed: int = 0
) -> Packing | None:
    """A packing of a plain collective from trees over boxes and trees inside boxes.

    None where the machine has no boxes, one of them does not hang together, or the collective is
    of a kind that trees do not serve. ``seconds`` is not reached on a thousand GPUs.

    Raises:
        BadTopology: ranks that cannot reach each other.
    """
    from ....bounds import bounds

    boxes = boxes_of(topology)
    if boxes is None or collective.kind not in KINDS:
        return None
    known = bounds(topology, collective)
    per_chunk = collective.message_chunks * BYTES_PER_US_PER_GBPS
    time = float(known.us_per_byte * per_chunk)
    shares = shares_of(boxes, collective, time, seed)
    if shares is None:
        return None
    made = _whole(boxes, shares, time, seed)
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
    """What was lost, in words."""
    loss = 100 * (rate / bound - 1)
    return f"boxes × fabric: {float(loss):.2g} % above the bound"


def busiest(topology: Topology, trees: tuple[Tree, ...]) -> Fraction:
    """Chunks per GB/s of the busiest row, exactly. O(links of all routes)."""
    table = LinkTable.of(topology)
    unit = lcm(*(t.weight.denominator for t in trees))
    links = len(topology.links)
    by_link = np.zeros(links, np.int64 if unit < 1 << 42 else object)
    for tree in trees:
        uses = np.bincount(tree.route_links, minlength=links)
        by_link += uses.astype(by_link.dtype) * int(tree.weight * unit)
    capacities = topology.capacities()
    load = np.zeros(len(capacities), by_link.dtype)
    at, rows = table.rows_of(np.arange(links))
    np.add.at(load, rows, by_link[at])
    return max(Fraction(int(x), unit) / b for x, b in zip(load, capacities, strict=True))


def _whole(boxes: Boxes, shares: Shares, time: float, seed: int) -> tuple[Tree, ...] | None:
    """The trees inside the boxes, and all of it together."""
    rows = len(boxes.bandwidth)
    weights = np.array([float(w) for w in shares.weights])
    base = np.zeros(rows)
    for turned, grove in shares.groves.items():
        base += loads_of(grove, boxes.fabric(turned=turned), rows).T @ weights
    fabric = max(load / float(b) for load, b in zip(base, boxes.bandwidth, strict=True))
    enters = {turned: entering(boxes, shares, turned) for turned in shares.groves}
    insides, worst = solve_inside(boxes, enters, base, max(fabric, time) * (1 + MET), seed=seed)
    return trees_of(boxes, shares, insides) if np.isfinite(worst) else None
