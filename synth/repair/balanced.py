"""Repair by fractions: broken chunks are split over several routings so that the loads balance.

Several routings of each broken chunk are found, each under the load of those found before; then a
linear program chooses the fraction of each. It also chooses sizes that are free: pieces of one
chunk of the plain collective may change their sizes at constant sum, so that in an allreduce, whose
sums may be computed on any rank, hosts with less bandwidth own less.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from weft.dsl.base.arrays import Floats, Ints
from weft.dsl.base.errors import NothingFound, UserError
from weft.dsl.machines.failures import Degraded
from weft.dsl.nouns.collective import Kind
from weft.dsl.nouns.placement import LARGEST_OFFSET
from weft.dsl.nouns.schedule import Schedule

from ..engines.packing.trees.quantize import largest_remainder
from ..lp.congestion import Congestion
from ..time.order import LARGE
from .damage import Damage
from .effort import REPAIR_EFFORT, RepairEffort
from .mend import assembled
from .prices import CongestionPrices
from .trees import Way, heights, load_matrix, other_way, plain_of

_MOST = LARGEST_OFFSET // 4


def balanced(
    schedule: Schedule,
    left: Degraded,
    effort: RepairEffort = REPAIR_EFFORT,
) -> Schedule:
    """Repair as :func:`~.mend.repair`, but broken chunks are split over several routings.

    Cost: ``effort.ways`` times that of a repair, and a linear program with a column per routing.

    Raises:
        UserError, BadTopology: as ``repair``; or the collective cannot be cut.
    """
    damage = Damage.of(schedule, left)
    c = schedule.collective
    if c.local_reduce or c.kind is Kind.CUSTOM:
        raise UserError(f"{c} cannot be cut in shares", hint="repair it as a whole")
    ways = _ways(damage, schedule.bytes or LARGE, effort)
    plain = c.plain()
    group = plain_of(damage)[[way.chunk for way in ways]]
    share = _shares(damage, ways, group, plain.chunks, effort.high)
    most = np.bincount(group[share > 0], minlength=plain.chunks).max()
    grid = max(most, min(effort.grains * most, _MOST // plain.message_chunks))
    grains = np.zeros(len(ways), np.int64)
    for chunk in range(plain.chunks):
        mine = np.flatnonzero(group == chunk)
        parts = [Fraction(x) for x in share[mine].tolist()]
        grains[mine] = largest_remainder([x / sum(parts) for x in parts], int(grid))
    kept = np.flatnonzero(grains)
    kept = kept[np.argsort(group[kept], kind="stable")]
    cut = plain.cut_in(grains[kept], np.bincount(group[kept], minlength=plain.chunks))
    return assembled(damage, [ways[i] for i in kept.tolist()], cut)


def _ways(damage: Damage, size: int, effort: RepairEffort) -> list[Way]:
    """The routing of each intact chunk, several of each broken one; every second one is low."""
    c = damage.schedule.collective
    prices = CongestionPrices.of(
        damage.left.topology, damage.schedule, damage.moved, ~damage.hit, size, effort.idle
    )
    low = effort.low * prices.busiest / max(max(prices.alpha, default=0.0), 1e-9)
    broken = set(damage.chunks)
    ways = [Way(i, damage.by_chunk.of_chunk(i)) for i in range(c.chunks) if i not in broken]
    for turn in range(effort.ways):
        prices.hop = low if turn % 2 == 0 else 1.0
        for chunk in damage.chunks:
            ways.append(other_way(damage, chunk, prices, float(c.grains[chunk]) / effort.ways))
    return ways


def _shares(damage: Damage, ways: list[Way], group: Ints, chunks: int, high: float) -> Floats:
    """The fraction of its plain chunk on each routing: the time of the busiest resource is least,
    and trees are of small depth where that costs no more than ``high`` of it."""
    loads: Any = load_matrix(damage, ways)
    rows, count = loads.shape
    scale = max(float(loads.max()), 1e-30)
    tall = heights(damage, ways)
    least = float((loads.sum(axis=0) / rows).sum()) / scale * chunks / count
    cost = high * least / chunks * tall / tall.max(initial=1)
    found = Congestion(loads / scale, group, np.ones(chunks)).least(cost)
    if found.x is None:
        raise NothingFound(f"shares of ways: {found.message}")
    share: Floats = np.where(found.x[:-1] > 1e-6, found.x[:-1], 0.0)
    return share
