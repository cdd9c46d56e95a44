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
"""Slices times transfers of a run at most, and of those that compare ways to mend."""

_SLICES = 256
_POWERS = tuple(1 << n for n in range(9))
_HELPS = 0.997  # twice as many slices help if they bring the time below this share of it
_NEAR = 1.015  # so near to what its busiest row takes nothing more is tried
_CUTS = (2, 4)  # pieces of a chunk that are mended on their own
_ENOUGH = Fraction(41, 40)  # of what unequal shares load: then chunks are not cut any finer
_MOST_CUT = 70_000  # transfers of a schedule that is cut
_WORTH = Fraction(99, 100)  # what is cut loads its busiest row so much less
_LOST = 0.25  # of that, at least, many slices lose as well
_REACH = 1.08  # what needs so many times another one's time for its busiest row is not run


def repairs(
    schedule: Schedule, left: Degraded, message_bytes: int | None = None
) -> Iterator[tuple[str, Schedule]]:
    """The schedule mended as a whole; in shares, and in fewer equal pieces, as far as it allows
    that; with every chunk cut into more and more equal pieces: where that loads the busiest row
    less. With a word for each.

    Raises:
        UserError, BadTopology: it cannot be mended, see :func:`~.mend.repair`.
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
    """The quickest mended schedule for a message, by its simulated time; not verified.

    Cost: a run of the simulator in few slices for each way to mend it, and some in more slices for
    the best of them while that helps. What loads its busiest row for much longer than another one
    takes is not run.

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
    """As it is, and slice after slice: pieces that are late hold up fewer others then."""
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
    """In more slices while that helps, else in fewer."""
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
