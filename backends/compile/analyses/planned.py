"""Steps in the planned order: among those that could go, a connection serves the least priority.

Before (a schedule whose steps are how deep in its trees each hop is)::

    step 0: chunk 0: 0 -> 1, priority 5     step 0: chunk 1: 2 -> 0     step 1: chunk 1: 0 -> 1, 2

After (rank 1 waits for chunk 1 more urgently, but it is not there yet)::

    step 0: chunk 0: 0 -> 1                 step 0: chunk 1: 2 -> 0     step 1: chunk 1: 0 -> 1

Thread blocks run in the order of steps, so steps are where a plan can set priorities. They are
renumbered by list scheduling (Graham 1966): every connection takes the least priority among its
ready transfers, for as long as the chunk has grains. Those of one step and priority stay together.

The values read by transfers must not change. Arrivals and departures of a chunk on a rank come
in *groups*, by their old steps: departures read what all arrivals before them have brought; an
arrival may come with those that leave at its step, but not before them. Ranks that exchange a chunk
within one step are such a pair in both directions; no order of one transfer at a time will do, and
the schedule is left as it is.
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum

import numpy as np

from weft.dsl.base.arrays import Bools, Floats, Ints
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.schedule import Schedule

from .landing import same_as_before


class Order(StrEnum):
    """Orders in which the transfers of a schedule become instructions."""

    PRIORITY = "priority"  #: by its priorities, as if all connections were alike
    BANDWIDTH = "bandwidth"  #: by its priorities, connections as quick as their links
    STEPS = "steps"  #: by its steps


def planned(schedule: Schedule, order: Order = Order.PRIORITY) -> Schedule:
    """Return the schedule with steps in the order of its priorities; as it is where it has none,
    or has rounds: those are of its steps, and priorities only settle ties."""
    if order is Order.STEPS or schedule.priority is None or not len(schedule) or schedule.rounds:
        return schedule
    from .list_scheduling import start_times

    groups = _Groups.of(schedule)
    pair = schedule.src.astype(np.int64) * schedule.topology.ranks + schedule.dst
    _, connection = np.unique(pair, return_inverse=True)
    # Ties are broken by the old step, then by the place in the schedule, which goes by steps.
    steps = np.int64(schedule.steps)
    wish, turn = np.unique(schedule.priority * steps + schedule.step, return_inverse=True)
    assert len(wish) < 1 << 31
    start = start_times(
        connection.reshape(-1).astype(np.int64),
        turn.reshape(-1).astype(np.int64),
        _durations(schedule, order),
        groups.leaving,
        groups.arriving,
        groups.follows,
    )
    if (start < 0).any():
        return schedule
    columns = schedule.columns()
    columns["step"] = np.unique(start, return_inverse=True)[1].reshape(-1)
    done = Schedule.from_columns(
        schedule.topology,
        schedule.collective,
        **columns,
        stride=schedule.stride,
        segments=schedule.segments,
        provenance=schedule.provenance,
    )
    return replace(done, bytes=schedule.bytes)


def distinct_orders(schedule: Schedule) -> list[Order]:
    """Return the orders that differ for a schedule: one if it lacks priorities."""
    if schedule.priority is None or not len(schedule) or schedule.rounds:
        return [Order.PRIORITY]
    speeds = _us_per_byte(schedule)
    alike = bool(speeds.max() == speeds.min())
    return [Order.PRIORITY, *([] if alike else [Order.BANDWIDTH]), Order.STEPS]


TICKS = 1 << 10
"""Ticks in which the fastest connection moves a grain."""


def _durations(schedule: Schedule, order: Order) -> Ints:
    """Return how long each transfer holds its connection, in ticks."""
    grains = schedule.collective.grains[schedule.chunk]
    if order is Order.PRIORITY:
        return grains
    slowest = _us_per_byte(schedule)
    ticks: Ints = np.rint(grains * (TICKS / slowest.min()) * slowest).astype(np.int64)
    return ticks


def _us_per_byte(schedule: Schedule) -> Floats:
    """Return the µs of a byte on the slowest link or shared resource of each transfer's route."""
    topology = schedule.topology
    slow = [1 / float(link.bandwidth) for link in topology.links]
    for resource in topology.resources:
        for link in resource.links:
            slow[link] = max(slow[link], 1 / float(resource.bandwidth))
    of_links = np.array(slow, np.float64)[schedule.route_links]
    return np.asarray(np.maximum.reduceat(of_links, schedule.route_start[:-1]), np.float64)


@dataclass(frozen=True, eq=False)
class _Groups:
    """Arrivals and departures of a chunk on a rank, in groups that come one after another.

    ``leaving[t]`` is the group of transfer t at its source, ``arriving[t]`` the one at its
    destination. ``follows[g]``: group g comes after g - 1; else it is the first of its place.
    """

    leaving: Ints
    arriving: Ints
    follows: Bools

    @staticmethod
    def of(s: Schedule) -> _Groups:
        """Sort the ends of all transfers by place, old step, departures first."""
        n, wide = len(s), np.int64(s.collective.chunks)
        place = np.concatenate([s.src * wide + s.chunk, s.dst * wide + s.chunk])
        arrives = np.arange(2 * n) >= n
        stores = arrives & ~np.concatenate([s.reduce, s.reduce])
        step = np.concatenate([s.step, s.step])
        order = np.lexsort((arrives, step, place))
        place, step, arrives, stores = place[order], step[order], arrives[order], stores[order]
        here = same_as_before(place)
        # Sums commute, so all that are added between two departures are one group; what is stored
        # keeps its step.
        joined = here & same_as_before(arrives.astype(np.int64))
        apart = stores.copy()
        apart[1:] |= stores[:-1]
        joined &= ~(arrives & apart) | same_as_before(step)
        group = np.empty(2 * n, np.int64)
        group[order] = np.cumsum(~joined) - 1
        return _Groups(group[:n], group[n:], here[~joined])
