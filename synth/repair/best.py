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
from ..time.order import LARGE, in_start_order
from ..time.schedule_tables import prepare
from .balanced import balanced
from .cast_trees import repair_casts
from .effort import REPAIR_EFFORT, RepairEffort
from .even import even
from .mend import repair


def repairs(
    schedule: Schedule,
    left: Degraded,
    message_bytes: int | None = None,
    effort: RepairEffort = REPAIR_EFFORT,
) -> Iterator[tuple[str, Schedule]]:
    """Yield repairs of the schedule, each with a word for its kind: by whole chunks; by fractions
    and by fewer equal pieces, if the schedule allows it; with every chunk cut into more and more
    equal pieces, where that reduces the load of the busiest resource.

    Raises:
        UserError, BadTopology: it cannot be repaired, see :func:`~.mend.repair`.
    """
    if len(schedule.casts):
        yield "mended", repair_casts(schedule, left, message_bytes)
        return
    whole = repair(schedule, left, message_bytes, effort)
    yield "mended", whole
    rate = us_per_byte(whole)
    shared: Fraction | None = None
    for word, mend in (("balanced", balanced), ("even", even)):
        try:
            other = mend(schedule, left, message_bytes, effort)
        except UserError:
            continue
        if us_per_byte(other) < effort.worth * rate:
            shared = min(shared or rate, us_per_byte(other))
            yield word, other
    # What went over a dead NIC is dealt out to the others in whole pieces: 120 chunks to 7 of them
    # are 18 to one of them, 5 % more than a seventh; of 240 halves one has 35, 2 % more.
    for pieces in (n for n in effort.cuts if n * len(schedule) <= effort.most_cut):
        if shared is None or rate <= effort.enough * shared:
            return
        finer = repair(refine(schedule, pieces), left, message_bytes, effort)
        if us_per_byte(finer) < effort.worth * rate:
            rate = us_per_byte(finer)
            yield f"mended in {pieces} pieces", finer


def quickest_repair(
    schedule: Schedule,
    left: Degraded,
    message_bytes: int | None = None,
    effort: RepairEffort = REPAIR_EFFORT,
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
    found = [one for _, one in repairs(schedule, left, message_bytes, effort)]
    for one in sorted(found, key=us_per_byte):
        rate = float(us_per_byte(one)) * size
        least = min(least, rate)
        if rate >= hope or rate > effort.reach * least:
            continue
        few = replace(one, segments=_slices(one, effort.few_jobs, effort.slices))
        # Of what is lost between slices, more of them leave less.
        lost = max(effort.lost, few.segments / _slices(one, effort.jobs, effort.slices))
        for ordered in _orders(few):
            us = prepare(ordered).time(size)
            if rate + lost * (us - rate) < hope:
                best, hope, time = ordered, rate + lost * (us - rate), us
    assert best is not None
    done = replace(_sliced(best, time, size, effort), bytes=size)
    return in_start_order(done, size)


def _orders(schedule: Schedule) -> Iterator[Schedule]:
    """Yield the schedule as it is and slice by slice, where late pieces delay fewer others."""
    yield schedule
    if len(schedule.casts):  # in the order that they had
        return
    own = np.arange(len(schedule)) if schedule.priority is None else schedule.priority
    stride = int(own.max(initial=0)) + 1
    if schedule.stride < stride and schedule.segments > 1:
        yield replace(schedule, priority=own.astype(np.int32), stride=stride)


def _slices(schedule: Schedule, jobs: int, slices: int) -> int:
    """Return the largest power of two, at most ``slices``, that makes at most ``jobs`` jobs."""
    most = max(1, min(slices, jobs // max(1, schedule.moves)))
    return 1 << (most.bit_length() - 1)


def _sliced(schedule: Schedule, time: float, size: int, effort: RepairEffort) -> Schedule:
    """Return the schedule in more slices while that helps, else in fewer."""
    runs, first = prepare(schedule), schedule.segments
    best, most = first, _slices(schedule, effort.jobs, effort.slices)
    powers = [1 << n for n in range(effort.slices.bit_length())]
    goal = effort.near * float(us_per_byte(schedule)) * size
    for slices in (n for n in powers if first < n <= most):
        if time <= goal:
            break
        us = runs.time(size, segments=slices)
        if us > effort.helps * time:
            break
        best, time = slices, us
    for slices in (n for n in reversed(powers) if n < best == first):
        us = runs.time(size, segments=slices)
        if us > time:
            break
        best, time, first = slices, us, slices
    return replace(schedule, segments=best)
