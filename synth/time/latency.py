"""Latency of a schedule: the longest chain of α along its data dependences."""

from __future__ import annotations

import numpy as np

from weft.dsl.base.kept import kept
from weft.dsl.nouns.schedule import Schedule

from ..fabric.fabric import fabric_of
from .folded import folded
from .moves import moves_of, moves_with
from .schedule_tables import Waits, data_waits, routes_of, waits_of


@kept()
def latency_us(schedule: Schedule) -> float:
    """Return α alone, in µs: the simulated time if links took no time to transmit, to 10⁻⁶ µs.

    The rule is that of :mod:`.schedule_time` with transmission times of zero, so nothing queues: a
    transfer arrives when its source holds what it sends, plus the α of its route. One pass over
    the steps, O(transfers · log) in arrays.
    """
    if len(schedule.casts):
        return _longest_with_casts(schedule)
    if not len(schedule):
        return 0.0
    part = folded(schedule)
    if part is not None:  # its images have the same latencies
        return _longest(part.part, waits_of(moves_with(part.part, part.redundant)))
    return _longest(schedule, data_waits(schedule))


def _longest(schedule: Schedule, waits: Waits) -> float:
    routes = routes_of(schedule, False)
    latencies, of_link = fabric_of(schedule.topology).latencies
    per_link = np.array(latencies, np.float64)[of_link]
    alpha = np.add.reduceat(per_link[routes.links], routes.link_start[:-1])[routes.which]
    # Copies of what was there already (slot -1) are not waited for; their arrival still counts.
    counted = waits.slot >= 0
    ready = np.zeros(len(waits.slot_start) - 1)
    ends = np.zeros(len(schedule))
    bounds = np.searchsorted(schedule.step, np.arange(schedule.steps + 1))
    for first, last in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        step = slice(first, last)  # all of a step read the state before it
        ends[step] = ready[waits.source[step]] + alpha[step]
        some = np.flatnonzero(counted[step]) + first
        np.maximum.at(ready, waits.target[some], ends[some])
    return round(float(ends.max()), 6)


def _longest_with_casts(schedule: Schedule) -> float:
    """As :func:`_longest`, row by row: legs of one cast follow each other within a step."""
    m, (latencies, of_link) = moves_of(schedule), fabric_of(schedule.topology).latencies
    per_link = np.array(latencies, np.float64)[of_link]
    alpha = np.add.reduceat(per_link[m.route_links], m.route_start[:-1]).tolist()
    ready = [0.0] * (m.places + m.meetings)
    arrives: list[tuple[int, float]] = []
    latest, step = 0.0, 0
    columns = (m.step, m.source, m.target, m.redundant)
    for row, (now, source, target, useless) in enumerate(
        zip(*(column.tolist() for column in columns), strict=True)
    ):
        if now != step:  # all of a step read the state before it
            for place, end in arrives:
                ready[place] = max(ready[place], end)
            arrives, step = [], now
        end = ready[source] + alpha[row]
        latest = max(latest, end)
        if target >= m.places:
            ready[target] = max(ready[target], end)
        elif not useless:
            arrives.append((target, end))
    return round(latest, 6)
