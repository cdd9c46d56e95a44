"""Margin of an order: what a schedule takes where latencies are a little longer.

Transfers compete first come first served. Where two are ready at almost one time, rounding decides
which goes first, and a schedule that is quick in one file is slower in another. So a schedule is
run again in several **patterns**: in each, every link's latency is longer by a seeded part of
:data:`JITTER_US`, which no real machine keeps more exactly. One pattern is not enough: a schedule
that passes one may fail a quarter of the others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from fractions import Fraction
from typing import TypeVar

import numpy as np

from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.schedule import Schedule

from ..base.effort import Effort, setting
from ..base.meter import Meter
from .schedule_tables import CostModel, prepare
from .schedule_time import simulate

JITTER_US = Fraction(7, 10_000)
"""Longest that a latency is extended by, in µs: 0.7 ns."""


@dataclass(frozen=True, slots=True)
class MarginEffort(Effort):
    """Thresholds of fragile schedules, and the work to find those that are not."""

    fragile: float = setting(1.01, "times its own time that a fragile schedule takes, at least")
    steady: float = setting(
        1.002, "times its own time that a schedule takes at most, to be left as it is"
    )
    near: float = setting(
        1.005, "times the least time: of schedules up to there the steadiest is taken"
    )
    alike: float = setting(
        1.0001, "times its own time that the worst may take, for no other schedule to be run"
    )
    levels: int = setting(7, "steps in which latencies are longer, up to the longest")
    patterns: int = setting(32, "patterns of longer latencies, at most")
    slices: int = setting(
        200_000,
        "transfers times segments in all patterns of a schedule; larger ones pass",
    )


MARGIN_EFFORT = MarginEffort()

T = TypeVar("T")


def jittered_us(schedule: Schedule, message_bytes: int) -> Iterator[float]:
    """Yield the µs in each pattern; else as :func:`.simulate`. Large schedules get fewer patterns,
    down to none."""
    jobs = max(1, schedule.moves * schedule.segments)
    ready, links = prepare(schedule), len(schedule.topology.links)
    rng = np.random.default_rng(0)
    for _ in range(min(MARGIN_EFFORT.patterns, MARGIN_EFFORT.slices // jobs)):
        levels = rng.integers(0, MARGIN_EFFORT.levels + 1, links)
        yield ready.longer_us(message_bytes, levels, JITTER_US / MARGIN_EFFORT.levels)


def worst_us(schedule: Schedule, message_bytes: int, meter: Meter | None = None) -> float:
    """Return the longest of the times in all patterns, and without.

    With a ``meter``, which counts the runs, the first clearly longer one of a search is enough.
    """
    worst = simulate(schedule, message_bytes).time_us
    enough = MARGIN_EFFORT.fragile * worst if meter else math.inf
    for us in jittered_us(schedule, message_bytes):
        if meter is not None:
            meter.spend(schedule.moves * schedule.segments)
        worst = max(worst, us)
        if worst > enough:
            break
    return worst


def steadiest(candidates: Iterable[tuple[float, T]], worst: Callable[[T], float]) -> T:
    """Return the candidate of the least worst time, of those that take little more than the least.

    ``candidates``: each with its time, at most its worst. Of equals the first.
    """
    ordered = sorted(candidates, key=lambda one: one[0])
    most = MARGIN_EFFORT.near * ordered[0][0]
    best, least = ordered[0][1], float("inf")
    if len(ordered) > 1:
        for us, one in ordered:
            if us > most or us >= least:
                break
            took = worst(one)
            if took < least:
                best, least = one, took
            if took <= MARGIN_EFFORT.alike * us:
                break  # the others take no less
    return best


def steadied(schedule: Schedule, message_bytes: int) -> Schedule:
    """Return the schedule in a planned order in which it takes less in the worst pattern, if any.

    The orders tried are those by the starts of its own run, by the starts of a run with barriers,
    and by steps. An order is taken only if it is not slower in any pattern, nor without one. A
    schedule that is steady already, or has a planned order, casts or no rounds, is returned as is.
    """
    if schedule.planned or len(schedule.casts) or not schedule.rounds:
        return schedule
    run = simulate(schedule, message_bytes)
    time = run.time_us
    before = list(jittered_us(schedule, message_bytes))
    best, least = schedule, max(before, default=time)
    if least <= MARGIN_EFFORT.steady * time:
        return schedule
    behind = simulate(schedule, message_bytes, CostModel(barrier=True)).start_us
    for keys in ((run.start_us,), (behind,), (schedule.step,)):
        order = np.lexsort((np.arange(len(schedule)), *keys))
        plan = np.empty(len(schedule), np.int32)
        plan[order] = np.arange(len(schedule), dtype=np.int32)
        other = replace(schedule, priority=plan)
        if simulate(other, message_bytes).time_us > time:
            continue
        after = list(jittered_us(other, message_bytes))
        slower = any(a > b for a, b in zip(after, before, strict=True))
        if not slower and max(after) < least:
            best, least = other, max(after)
    return best
