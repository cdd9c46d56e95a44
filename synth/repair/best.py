"""The fastest repair of a schedule, with the best number of slices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import numpy as np

from weft.dsl.base.errors import UserError
from weft.dsl.machines.failures import Degraded
from weft.dsl.nouns.schedule import Schedule

from ..fabric.occupancy import us_per_byte
from ..reductions.refine import refine
from ..time.order import LARGE
from ..time.schedule_tables import prepare
from .balanced import balanced
from .even import even
from .mend import repair

_JOBS, _FEW_JOBS = 2_200_000, 250_000
"""Limits on slices times transfers of a run, and of the runs that compare repairs."""

_SLICES = 256
_POWERS = tuple(1 << n for n in range(9))
_HELPS = 0.997  # twice as many slices help if they bring the time below this fraction of it
_NEAR = 1.015  # within this factor of its busiest resource's time nothing more is tried
_CUTS = (2, 4)  # pieces of a chunk that are repaired separately
_ENOUGH = Fraction(41, 40)  # over the load with unequal fractions: chunks are not cut finer
_MOST_CUT = 70_000  # transfers of a schedule that is cut
_WORTH = Fraction(99, 100)  # a cut schedule must have less than this times the load
_LOST = 0.25  # of that, at least, many slices lose as well
_REACH = 1.08  # times another one's time: larger loads are not simulated


def repairs(
    schedule: Schedule, left: Degraded, message_bytes: int | None = None
) -> Iterator[tuple[str, Schedule]]:
    """Yield repairs of the schedule, each with a word for its kind: by whole chunks; by fractions
    and by fewer equal pieces, if the schedule allows it; with every chunk cut into more and more
    equal pieces, where that reduces the load of the busiest resource.

    Raises:
        UserError, BadTopology: it cannot be repaired, see :func:`~.mend.repair`.
    """
    whole = repair(schedule, left, message_bytes)
    yield "mended", whole
    rate = us_per_byte(whole)
    shared: Fraction | None = None
    for word, mend in (("balanced", balanced), ("even", even)):
        try:
            other = mend(schedule, left, message_bytes)
        except UserError:
            continue
        if us_per_byte(other) < _WORTH * rate:
            shared = min(shared or rate, us_per_byte(other))
            yield word, other
    # What went over a dead NIC is dealt out to the others in whole pieces: 120 chunks to 7 of them
    # are 18 to one of them, 5 % more than a seventh; of 240 halves one has 35, 2 % more.
    for pieces in (n for n in _CUTS if n * len(schedule) <= _MOST_CUT):
        if shared is None or rate <= _ENOUGH * shared:
            return
        finer = repair(refine(schedule, pieces), left, message_bytes)
        if us_per_byte(finer) < _WORTH * rate:
            rate = us_per_byte(finer)
            yield f"mended in {pieces} pieces", finer


def quickest_repair(
    schedule: Schedule, left: Degraded, message_bytes: int | None = None
) -> Schedule:
    """Return the fastest repaired schedule for a message, by its simulated time; not verified.

    Cost: a simulation in few slices for each kind of repair, and some in more slices for the best
    of them while that helps. A repair that loads its busiest resource for much longer than the time
    of another one is not simulated.

    Raises:
        UserError, BadTopology: as :func:`repairs`.
    """
    size = message_bytes or schedule.bytes or LARGE
    best, hope, time = None, float("inf"), float("inf")
    least = float("inf")
    found = [one for _, one in repairs(schedule, left, message_bytes)]
    for one in sorted(found, key=us_per_byte):
        rate = float(us_per_byte(one)) * size
        least = min(least, rate)
        if rate >= hope or rate > _REACH * least:
            continue
        few = replace(one, segments=_slices(one, _FEW_JOBS))
        # Of what is lost between slices, more of them leave less.
        lost = max(_LOST, few.segments / _slices(one, _JOBS))
        for ordered in _orders(few):
            us = prepare(ordered).time(size)
            if rate + lost * (us - rate) < hope:
                best, hope, time = ordered, rate + lost * (us - rate), us
    assert best is not None
    return replace(_sliced(best, time, size), bytes=size)


def _orders(schedule: Schedule) -> Iterator[Schedule]:
    """Yield the schedule as it is and slice by slice, where late pieces delay fewer others."""
    yield schedule
    own = np.arange(len(schedule)) if schedule.priority is None else schedule.priority
    stride = int(own.max(initial=0)) + 1
    if schedule.stride < stride and schedule.segments > 1:
        yield replace(schedule, priority=own.astype(np.int32), stride=stride)


def _slices(schedule: Schedule, jobs: int) -> int:
    """Return the largest power of two of slices that makes at most ``jobs`` jobs."""
    most = max(1, min(_SLICES, jobs // max(1, len(schedule))))
    return 1 << (most.bit_length() - 1)


def _sliced(schedule: Schedule, time: float, size: int) -> Schedule:
    """Return the schedule in more slices while that helps, else in fewer."""
    runs, first = prepare(schedule), schedule.segments
    best, most = first, _slices(schedule, _JOBS)
    goal = _NEAR * float(us_per_byte(schedule)) * size
    for slices in (n for n in _POWERS if first < n <= most):
        if time <= goal:
            break
        us = runs.time(size, segments=slices)
        if us > _HELPS * time:
            break
        best, time = slices, us
    for slices in (n for n in reversed(_POWERS) if n < best == first):
        us = runs.time(size, segments=slices)
        if us > time:
            break
        best, time, first = slices, us, slices
    return replace(schedule, segments=best)
