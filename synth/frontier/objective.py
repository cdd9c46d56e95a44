"""Message sizes of an objective, and the Pareto frontier of points."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.problem import Objective, Problem
from weft.dsl.nouns.schedule import Schedule

from ..base.engine import Point
from ..base.meets import meets
from ..bounds.bounds import Bounds, bounds, lower_bound_us
from ..bounds.distance import Lengths
from ..fabric.occupancy import rounds_per_chunk
from ..time.latency import latency_us
from ..time.order import LARGE
from ..time.schedule_time import simulate


def point_of(schedule: Schedule, known: Bounds, **more: Any) -> Point:
    """Return the point of a schedule by the load of its busiest resource, beside the bounds of its
    problem; ``more``: other fields of the point."""
    rate = rounds_per_chunk(schedule)
    return Point(
        schedule,
        schedule.steps,
        0,
        schedule.collective.factor,
        known.rounds_per_chunk,
        known.certificate,
        step_optimal=schedule.steps == known.steps,
        bandwidth_optimal=rate == known.rounds_per_chunk,
        rate=rate,
        **more,
    )


def sizes_of(problem: Problem, ladder: Sequence[int]) -> tuple[int, ...]:
    """Return the message sizes in bytes to optimize for; for the frontier, ``ladder``."""
    match problem.objective:
        case Objective.LATENCY:
            return (1,)
        case Objective.BANDWIDTH:
            return (problem.bytes or LARGE,)
        case Objective.TIME:
            return (problem.bytes or 1,)
        case _:
            return tuple(ladder)


def pareto(points: Iterable[Point]) -> list[Point]:
    """Return the Pareto points of (steps, rounds per chunk), by steps; the first of equals."""
    kept: list[Point] = []
    for point in sorted(points, key=lambda p: (p.steps, p.rounds_per_chunk)):
        if not kept or point.rounds_per_chunk < kept[-1].rounds_per_chunk:
            kept.append(point)
    return kept


def meets_bound(point: Point, problem: Problem) -> bool:
    """Return True if a schedule attains the proved bound at the message size of the problem."""
    size = problem.bytes or 1
    least = lower_bound_us(bounds(problem.topology, problem.collective), size)
    return meets(simulate(point.schedule, size).time_us, least)


def is_of_least_latency(point: Point, problem: Problem) -> bool:
    """Return True if a schedule of proved fewest steps has the least α: that of the bound, or of as
    many of the machine's quickest hops as it has steps."""
    took = latency_us(point.schedule)
    if meets(took, bounds(problem.topology, problem.collective).latency_us):
        return True
    lengths, ranks = Lengths.of(problem.topology), problem.topology.ranks
    apart = lengths.from_each(np.ones(len(lengths.alpha), bool), np.arange(ranks))
    between = apart[:, :ranks][~np.eye(ranks, dtype=bool)]
    quickest = int(between[between >= 0].min(initial=between.max(initial=0)))
    return meets(took, point.steps * quickest * lengths.unit)


@dataclass(slots=True)
class Incumbents:
    """The best schedules for one problem so far; dominated ones are dropped."""

    problem: Problem
    points: list[Point] = field(default_factory=list)

    def add(self, point: Point) -> bool:
        """Add a schedule; return False if another one dominates it."""
        if self.problem.objective is not Objective.TIME:
            self.points = pareto(sorted([*self.points, point], key=lambda p: p.factor))
            return any(p is point for p in self.points)
        if point.us is not None:  # engines that report times search long, and find many
            if any(p.us is not None and p.us <= point.us for p in self.points):
                return False
            self.points = [p for p in self.points if p.us is None]
        self.points.append(point)
        return True

    def best(self) -> tuple[Point, ...]:
        """Return the schedules that are best for the problem's objective."""
        if self.problem.objective is not Objective.TIME or len(self.points) < 2:
            return tuple(self.points)
        size = self.problem.bytes or 1
        return (min(self.points, key=lambda p: simulate(p.schedule, size).time_us),)
