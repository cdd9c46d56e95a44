"""Latency of a schedule: the longest chain of α along its data dependences."""

from __future__ import annotations

import numpy as np

from weft.dsl.base.kept import kept
from weft.dsl.nouns.schedule import Schedule

from ..fabric.fabric import fabric_of
from .folded import folded
from .moves import QueuedRows, moves_of, moves_with
from .schedule_tables import Waits, data_waits, routes_of, waits_of


@kept()
def latency_us(schedule: Schedule) -> float:
    """Return α alone, in µs: the simulated time if links took no time to transmit, to 10⁻⁶ µs.

    The rule is that of :mod:`.schedule_time` with transmission times of zero, so nothing queues: a
    transfer arrives when its source holds what it sends, plus the α of its route. One pass over
    the steps, O(transfers · log) in arrays.
    """
    if not schedule.moves:
        return 0.0
    part = folded(schedule)
    if part is not None:  # its images have the same latencies
        rows = moves_with(part.part, part.redundant)
        return _longest(part.part, rows, waits_of(rows))
    return _longest(schedule, moves_of(schedule), data_waits(schedule))


def _longest(schedule: Schedule, m: QueuedRows, waits: Waits) -> float:
    routes = routes_of(schedule, False)
    latencies, of_link = fabric_of(schedule.topology).latencies
    per_link = np.array(latencies, np.float64)[of_link]
    alpha = np.add.reduceat(per_link[routes.links], routes.link_start[:-1])[routes.which]
    # Copies of data already there (slot -1) are not waited for; their arrival still counts.
    counted, feeds = waits.slot >= 0, m.feeds
    ready = np.zeros(len(waits.slot_start) - 1)
    ends = np.zeros(len(m))
    bounds = np.searchsorted(m.step, np.arange(int(m.step[-1]) + 2))
    for first, last in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        step = slice(first, last)  # all of a step read the state before it
        inner = waits.target[step][feeds[step]]
        while True:  # but legs of a cast follow each other within it
            ends[step], known = ready[waits.source[step]] + alpha[step], ready[inner]
            np.maximum.at(ready, inner, ends[step][feeds[step]])
            if (known == ready[inner]).all():
                break
        some = np.flatnonzero(counted[step] & ~feeds[step]) + first
        np.maximum.at(ready, waits.target[some], ends[some])
    return round(float(ends.max()), 6)
