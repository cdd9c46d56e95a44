"""From a problem to checked schedules: reduce, solve, undo, verify, stamp.

An engine that copies only (allgather, alltoall …) gets the combining collectives through
reductions: ``reverse`` (reduce_scatter is allgather turned round), ``compose`` (allreduce is
reduce_scatter then allgather, or an allgather and a local sum). Whatever an engine returns is
verified here, always; engines are not trusted.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from weft.dsl.collective import Kind
from weft.dsl.errors import UserError
from weft.dsl.problem import Objective, Problem

from .engine import Budget, Engine, Observer, Outcome, Point, Silent, Status
from .order import by_urgency
from .reductions.allreduce import solve_allreduce
from .reductions.reverse import reverse
from .simulate import simulate
from .verify import require_valid


def synthesize(
    problem: Problem,
    engine: Engine,
    budget: Budget | None = None,
    observer: Observer | None = None,
) -> Outcome:
    """Solve a problem with an engine; every schedule of the outcome is verified and stamped.

    For the objective ``time`` the points are those of the frontier, the quickest at
    ``problem.bytes`` first.

    Raises:
        UserError: no reduction leads to a problem that the engine takes; it says why.
        CheckFailed: an engine returned a wrong schedule (a bug; nothing is returned then).
    """
    budget, observer = budget or Budget(), observer or Silent()
    outcome = solve(problem, engine, budget, observer)
    for point in outcome.points:
        require_valid(point.schedule, problem.sketch)
    points = [_stamped(p, problem, engine, budget) for p in outcome.points]
    if problem.objective is Objective.TIME:
        points = _quickest_first(points, problem.bytes)
    return replace(outcome, points=tuple(points))


def solve(problem: Problem, engine: Engine, budget: Budget, observer: Observer) -> Outcome:
    """Solve directly if the engine takes the problem, else through the first reduction that fits."""
    why = engine.refuses(problem)
    if why is None:
        return engine.solve(problem, budget, observer)
    collective = problem.collective
    if collective.kind is Kind.ALLREDUCE and collective.combining:
        return solve_allreduce(problem, _solver(engine), budget, observer)
    if collective.combining:
        dual, undo = reverse(problem)
        outcome = solve(dual, engine, budget, observer)
        points = tuple(replace(p, schedule=by_urgency(undo(p.schedule))) for p in outcome.points)
        return replace(outcome, points=points)
    raise UserError(f"engine {engine.name} refuses: {why}")


def _solver(engine: Engine):  # type: ignore[no-untyped-def]
    return lambda problem, budget, observer: solve(problem, engine, budget, observer)


def _stamped(point: Point, problem: Problem, engine: Engine, budget: Budget) -> Point:
    """The point with where it came from written into its schedule."""
    schedule = point.schedule.with_provenance(
        engine=repr(engine),
        cites=engine.cites,
        seed=budget.seed,
        topology=problem.topology.digest(),
        sketch=problem.sketch.name if problem.sketch else None,
        rounds_per_chunk=str(point.rounds_per_chunk),
        bound=str(point.bound),
        certificate=point.certificate.text,
    )
    return replace(point, schedule=replace(schedule, bytes=problem.bytes))


def _quickest_first(points: Sequence[Point], size: int | None) -> list[Point]:
    if size is None:
        raise UserError("the objective time needs a message size", hint="--size 1MiB")
    return sorted(points, key=lambda p: simulate(p.schedule, size).time_us)
