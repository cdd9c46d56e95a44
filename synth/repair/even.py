"""Repair by fewer pieces of one size, so that transfers that start together stay synchronous.

Where transfers occupy several resources at once, equal ones that start together fit together;
pieces of different sizes do not, and leave ports idle. So where pieces may be dropped because the
others can carry their data (the sums of an allreduce may be computed on any rank), those that load
the overloaded resources most are dropped, and the broken chunks use the capacity that this frees.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from weft.dsl.base.arrays import Bools, Floats
from weft.dsl.base.errors import UserError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.unique_rows import rows_of
from weft.dsl.machines.failures import Degraded
from weft.dsl.nouns.schedule import Schedule

from ..fabric.fabric import fabric_of
from ..time.order import LARGE
from .damage import Damage
from .effort import REPAIR_EFFORT, RepairEffort
from .mend import assembled
from .prices import CongestionPrices
from .trees import Way, load_matrix, other_way

_EPS = 1e-9


def even(
    schedule: Schedule,
    left: Degraded,
    effort: RepairEffort = REPAIR_EFFORT,
) -> Schedule:
    """Repair as :func:`~.mend.repair`, but with fewer pieces where that is better.

    Raises:
        UserError, BadTopology: as ``repair``; or its pieces are not all of one size, or they are of
            several chunks.
    """
    c = schedule.collective
    if len(set(c.grains.tolist())) != 1 or c.local_reduce or c.plain().chunks != 1:
        raise UserError(
            f"{c} is not made of equal pieces of one chunk", hint="repair it as a whole"
        )
    damage = Damage.of(_finer(schedule, effort.pieces), left)
    c = damage.schedule.collective
    size = schedule.bytes or LARGE
    before = _load_before(damage)
    stay = np.ones(c.chunks, bool)
    best = now = _tried(damage, stay, size, effort)
    most = int(effort.leave * c.chunks)
    turns = max(1, min(most, effort.trees // max(1, effort.regrown * len(damage.chunks))))
    for _ in range(turns):
        left_out = _relieving(now, before, max(1, most // turns))
        if not left_out:
            break
        stay[left_out] = False
        now = _tried(damage, stay, size, effort)
        best = min(best, now, key=lambda one: one.price)
    pieces = len(best.ways)
    cut = c.plain().cut_in(np.ones(pieces, np.int64), np.array([pieces]))
    return assembled(damage, best.ways, cut)


@dataclass(frozen=True, slots=True, eq=False)
class _Try:
    """Pieces kept, their routings, and loads of a grain of each, shape (resources, routings)."""

    ways: list[Way]
    loads: Floats

    @property
    def load(self) -> Floats:
        """Load of each resource by all pieces."""
        total: Floats = self.loads.sum(axis=1)
        return total

    @property
    def price(self) -> float:
        """The time of the busiest resource for the whole message, up to a factor."""
        return float(self.load.max(initial=0.0)) / len(self.ways)


def _tried(damage: Damage, stay: Bools, size: int, effort: RepairEffort) -> _Try:
    """Damage pieces that stay, grown one by one, and again when all of them are there."""
    schedule = damage.schedule
    kept = stay[schedule.chunk] & ~damage.hit
    prices = CongestionPrices.of(
        damage.left.topology, schedule, damage.moved, kept, size, effort.idle
    )
    prices.hop = prices.busiest / max(max(prices.alpha, default=0.0), 1e-9)
    grains = float(schedule.collective.grains[0])
    ways = {i: Way(i, damage.by_chunk.of_chunk(i)) for i in np.flatnonzero(stay).tolist()}
    broken_here = [i for i in damage.chunks if stay[i]]
    for again in range(effort.regrown):
        for chunk in broken_here:
            if again:
                _take_back(damage, ways[chunk], prices, grains)
            ways[chunk] = other_way(damage, chunk, prices, grains)
    listed = list(ways.values())
    return _Try(listed, load_matrix(damage, listed).toarray())


def _take_back(damage: Damage, way: Way, prices: CongestionPrices, grains: float) -> None:
    """Subtract the load of a routing's new hops; add again the load :func:`other_way` assumes."""
    for new in way.fresh:
        prices.take(new.transfer.route, -grains)
    if not len(way.kept):
        mine = damage.by_chunk.of_chunk(way.chunk)
        for row in mine[~damage.hit[mine]].tolist():
            prices.take(damage.route(row), grains)


def _load_before(damage: Damage) -> Floats:
    """The largest load before the failure, once for each remaining resource."""
    old = damage.schedule
    whole = damage.left.whole
    fabric = fabric_of(whole)
    _, row = fabric.resources_of(old.route_links.astype(np.int64))
    hold = 1 / fabric.GBps
    load = np.bincount(row, weights=hold[row], minlength=len(hold))
    return np.full(len(damage.left.topology.capacities()), load.max(initial=0.0))


def _relieving(now: _Try, before: Floats, count: int) -> list[int]:
    """Pieces with the largest loads on resources that exceed ``before``."""
    over = np.maximum(now.load - before * (1 + _EPS), 0)
    open_ways = np.ones(len(now.ways), bool)
    found: list[int] = []
    while len(found) < count and over.any():
        # Not only what is over counts: what is broken moves to where there is room.
        worst = int(np.where(open_ways, over @ now.loads, -1.0).argmax())
        found.append(now.ways[worst].chunk)
        open_ways[worst] = False
        over = np.maximum(over - now.loads[:, worst], 0)
    return found


def _finer(schedule: Schedule, least: int) -> Schedule:
    """Every piece cut in as many as make ``least`` of them, one after the other."""
    pieces = schedule.collective.chunks
    each = -(-least // pieces)
    if each == 1:
        return schedule
    columns: dict[str, Any] = {
        k: np.repeat(v, each) for k, v in schedule.columns().items() if k != "route_links"
    }
    copy = np.tile(np.arange(each), len(schedule))
    if schedule.priority is not None:
        columns["priority"] = columns["priority"] * each + copy
    which = np.repeat(np.arange(len(schedule)), each)
    cut = np.ones(each * pieces, np.int64)
    made = Schedule.from_columns(
        schedule.topology,
        schedule.collective.plain().cut_in(cut, np.array([each * pieces])),
        **{**columns, "chunk": columns["chunk"] * each + copy},
        route_links=schedule.route_links[rows_of(schedule.route_start, which)[1]],
        stride=schedule.stride * each,
        segments=schedule.segments,
        provenance=schedule.provenance,
    )
    return replace(made, bytes=schedule.bytes)
