"""When every slice of every transfer moved, and why not sooner: a schedule's run, in columns.

:func:`~.simulate.simulate` gives the first start and the last arrival of each transfer; pictures
and traces need all of them, what each one held and until when, and whose arrival it waited for.
The rule is the one documented in :mod:`.simulate`.

>>> from weft.dsl.nouns.collective import make
>>> from weft.dsl.nouns.schedule import Schedule, Transfer
>>> from weft.dsl.nouns.topology import Topology, both_ways, gpu
>>> pair = Topology("pair", (gpu(0), gpu(1)), both_ways(0, 1, 25, "0.7"))
>>> both = [Transfer(r, r, 1 - r, (r,)) for r in range(2)]
>>> run = timeline(Schedule.of(pair, make("allgather", 2), both), 1_000_000)
>>> run.end_us.tolist(), run.held_row.tolist(), run.held_until_us.tolist()
([20.7, 20.7], [0, 1], [20.0, 20.0])
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from weft.dsl.base.arrays import Floats, Ints
from weft.dsl.base.errors import UserError
from weft.dsl.nouns.schedule import Schedule

from .serve import Jobs, Leg
from .simulate import CostModel, Ticked, in_us, run_in_ticks

MOST_PASSAGES = 200_000
"""Of more transfers times slices nothing is drawn: nobody could look at it."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Timeline:
    """What a schedule does when. A **passage** is one slice of one transfer on its whole route.

    Attributes:
        schedule, message_bytes: what was run.
        time_us: until the last arrival.
        transfer, slice: of each passage, slice by slice in the schedule's order; so passage
            ``k * len(schedule) + i`` is slice k of transfer i.
        bytes: what it carries.
        ready_us: when its data was there (and the slice before it had left).
        start_us, left_us, end_us: when it started, had left its source, had arrived (all of the
            route's α later).
        held_start: shape (passages + 1,); ``held_row[held_start[p]:held_start[p+1]]`` are the rows
            (links, then shared resources) that passage p held from its start, each one until
            ``held_until_us``.
        cause: the passage whose arrival it waited for last; −1: its data was there at the start.
        feeds: shape (n, 2): (an arrival, a later passage that needed it); from each arrival to the
            first passage it is needed by, and to each passage from its cause.
    """

    schedule: Schedule
    message_bytes: int
    time_us: float
    transfer: Ints
    slice: Ints
    bytes: Floats
    ready_us: Floats
    start_us: Floats
    left_us: Floats
    end_us: Floats
    held_start: Ints
    held_row: Ints
    held_until_us: Floats
    cause: Ints
    feeds: Ints

    def __len__(self) -> int:
        return len(self.transfer)


def timeline(schedule: Schedule, message_bytes: int) -> Timeline:
    """Run a verified schedule for a message of M bytes and keep everything. Some 20 µs a passage.

    Raises:
        UserError: a size below one byte, or more than ``MOST_PASSAGES`` passages.
    """
    passages = len(schedule) * schedule.segments
    if message_bytes < 1:
        raise UserError(f"a message of {message_bytes} bytes cannot be simulated")
    if passages > MOST_PASSAGES:
        raise UserError(
            f"{passages:,} slices of transfers are more than the {MOST_PASSAGES:,} that a timeline "
            "holds",
            hint="`weft simulate` tells the time; a smaller schedule can be drawn",
        )
    run = run_in_ticks(schedule, message_bytes, CostModel())
    jobs, served, unit = run.jobs, run.served, run.unit
    legs = [run.legs[r][0] for r in jobs.route]  # cut-through: one leg for the whole route
    cause, feeds = _causes(jobs, served.start, served.end)
    ready = [0 if c < 0 else served.end[c] for c in cause]
    for job in range(jobs.stride, passages):
        before = job - jobs.stride
        ready[job] = max(ready[job], served.start[before] + legs[before].leaves)
    grains = np.tile(schedule.collective.grains[schedule.chunk], schedule.segments)
    per_grain = message_bytes / (schedule.collective.message_chunks * schedule.segments)
    start, rows, until = _held(legs, run)
    return Timeline(
        schedule=schedule,
        message_bytes=message_bytes,
        time_us=max(served.end, default=0) / unit,
        transfer=np.tile(np.arange(len(schedule)), schedule.segments),
        slice=np.repeat(np.arange(schedule.segments), len(schedule)),
        bytes=np.asarray(grains * per_grain, np.float64),
        ready_us=in_us(ready, unit),
        start_us=in_us(served.start, unit),
        left_us=in_us((s + leg.leaves for s, leg in zip(served.start, legs, strict=True)), unit),
        end_us=in_us(served.end, unit),
        held_start=start,
        held_row=rows,
        held_until_us=until,
        cause=np.array(cause, np.int64),
        feeds=feeds,
    )


def _held(legs: list[Leg], run: Ticked) -> tuple[Ints, Ints, Floats]:
    """The rows that each job holds, and until when."""
    start = np.concatenate([[0], np.cumsum([len(leg.rows) for leg in legs], dtype=np.int64)])
    rows = np.array([row for leg in legs for row in leg.rows], np.int64)
    ticks = (s + hold for s, leg in zip(run.served.start, legs, strict=True) for hold in leg.holds)
    return start, rows, in_us(ticks, run.unit)


def _causes(jobs: Jobs, start: list[int], end: list[int]) -> tuple[list[int], Ints]:
    """The latest of the arrivals each job needs (of equals the first), and who needs whom.

    A job needs a prefix of the arrivals at its source, so one pass over them tells the latest of
    every prefix.
    """
    brought = [0] * jobs.first_slot[-1]
    for job, slot in enumerate(jobs.slot):
        if slot >= 0:
            brought[slot] = job
    latest = brought.copy()
    for begin, stop in zip(jobs.first_slot, jobs.first_slot[1:], strict=False):
        for slot in range(begin + 1, stop):
            if end[latest[slot]] <= end[latest[slot - 1]]:
                latest[slot] = latest[slot - 1]
    cause = [
        latest[jobs.first_slot[place] + need - 1] if need else -1
        for place, need in zip(jobs.source, jobs.needs, strict=True)
    ]
    pairs = {(before, job) for job, before in enumerate(cause) if before >= 0}
    told = jobs.first_slot[:-1].copy()  # per place: the first arrival nobody has needed yet
    for job in sorted(range(len(cause)), key=lambda job: (jobs.needs[job], start[job])):
        place, need = jobs.source[job], jobs.first_slot[jobs.source[job]] + jobs.needs[job]
        pairs.update((brought[slot], job) for slot in range(told[place], need))
        told[place] = max(told[place], need)
    return cause, np.array(sorted(pairs), np.int64).reshape(-1, 2)
