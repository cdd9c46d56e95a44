"""Schedules that an engine has reported so far: the answer if it is stopped early."""

from __future__ import annotations

from dataclasses import field

from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.problem import Objective, Problem

from ..base.engine import Point
from ..time.schedule_time import simulate
from .objective import pareto


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
        if point.us is not None:  # engines that tell times search long, and find many
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
