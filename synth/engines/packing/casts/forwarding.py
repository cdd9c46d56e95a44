"""Packings of transfers on a machine whose switches compute, as if they only forwarded.

Their search then knows the bound that transfers can meet, and ends there: it is the search of the
machine without capabilities, to the last step. What it finds is told of the machine itself, with
the bound of all schedules.
"""

from __future__ import annotations

from dataclasses import replace

from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.problem import Objective, Problem

from ....base.engine import Observer, Outcome, Point, Status
from ....bounds import bounds
from ....frontier.objective import meets_bound

WORDS = "where switches only forward: "


def forwarding(problem: Problem) -> Problem:
    """Return the problem on the machine whose switches only forward."""
    return replace(problem, topology=problem.topology.without_capabilities())


@dataclass(frozen=True, slots=True)
class OnMachine:
    """An observer of the search without capabilities, which tells another one what it finds."""

    problem: Problem
    observer: Observer

    def stage(self, name: str) -> None:
        """Tell it."""
        self.observer.stage(name)

    def incumbent(self, point: Point) -> None:
        """Tell it, as a schedule of the machine itself."""
        self.observer.incumbent(on_machine(self.problem, point))

    def cancelled(self) -> bool:
        """Return what it says."""
        return self.observer.cancelled()


def on_machine(problem: Problem, point: Point) -> Point:
    """Return a schedule of transfers as one of the machine itself."""
    found = bounds(problem.topology, problem.collective)
    return replace(
        point,
        schedule=replace(point.schedule, topology=problem.topology),
        bound=found.rounds_per_chunk,
        certificate=found.certificate,
        bandwidth_optimal=point.rounds_per_chunk == found.rounds_per_chunk,
        words=f"{WORDS}{point.words}" if point.words else "",
    )


def outcome_on_machine(problem: Problem, plain: Outcome) -> Outcome:
    """Return an answer without capabilities as one of the machine itself: optimal only if it meets
    the bound of all schedules."""
    points = tuple(on_machine(problem, point) for point in plain.points)
    told = {point.words: f"{WORDS}{point.words}" for point in plain.points if point.words}
    statements = tuple(told.get(line, line) for line in plain.statements)
    status = plain.status
    if status is Status.OPTIMAL and not _optimal(problem, points):
        status = Status.FEASIBLE
    return replace(plain, status=status, points=points, statements=statements)


def _optimal(problem: Problem, points: tuple[Point, ...]) -> bool:
    if problem.objective is not Objective.TIME:
        return all(point.bandwidth_optimal for point in points)
    return any(meets_bound(point, problem) for point in points)
