"""Entry point of synthesis: choose an engine, reduce the problem, solve it, undo the reduction,
verify the schedule and add its provenance.

An engine that only copies (allgather, alltoall …) solves the combining collectives through
reductions: reduce_scatter is allgather reversed in time, allreduce is composed of both. Every
schedule is verified here, always: engines are not trusted.

>>> from weft.dsl.nouns.collective import make
>>> from weft.dsl.nouns.problem import Problem
>>> from weft.dsl.nouns.topology import Topology, both_ways, gpu
>>> pair = Topology("pair", (gpu(0), gpu(1)), both_ways(0, 1, 25, "0.7"))
>>> outcome = synthesize(Problem(pair, make("allgather", 2)))
>>> outcome.status, outcome.points[0].steps
(<Status.OPTIMAL: 'optimal'>, 1)
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import field, replace
from typing import Any, cast

import numpy as np

from weft import __version__
from weft.dsl.base.environment import solver_memory
from weft.dsl.base.errors import Missing, NothingFound, UserError, WrongType, an
from weft.dsl.base.json_text import compact
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.registry import ENGINES
from weft.dsl.base.spec import format_spec
from weft.dsl.nouns.problem import Objective, Problem
from weft.dsl.nouns.schedule import Schedule

from .base.cancellable import CutOff, run_cancellable
from .base.engine import (
    GIVEN_UP,
    SOLVER_DIED,
    Budget,
    Engine,
    Observer,
    Outcome,
    Point,
    Silent,
    Status,
)
from .base.meter import Meter
from .bounds.bounds import fewest_steps
from .frontier.objective import Incumbents, is_of_least_latency
from .judge.point import require_right
from .reductions.solve import solve
from .time.margin import JITTER_US, MARGIN_EFFORT, steadied, worst_us
from .time.order import LARGE, arranged, in_start_order
from .time.schedule_time import simulate

RACE = "portfolio"
"""The engine that runs all others, with default options."""

CUT_OFF = "stopped by --time"
"""Beginning of the statement of a search that the clock ended."""


def synthesize(
    problem: Problem,
    engine: str | Engine = RACE,
    budget: Budget | None = None,
    observer: Observer | None = None,
) -> Outcome:
    """Solve a problem with one engine; every schedule is verified and gets its provenance.

    ``engine`` is an instance or its text, ``exact{solver=z3}``; ``portfolio`` runs all others
    that fit, and its schedules name the one that found them (``found_by``). If the engine is
    interrupted (KeyboardInterrupt), or cut off after ``budget.seconds``, the schedules found so
    far are the answer; a race that is cut off before any answers with a classic algorithm. For the
    objective ``time`` the points are those of the frontier, the fastest at ``problem.bytes`` first.

    Raises:
        UnknownName, SyntaxProblem, UserError: the engine's text, or its refusal of the problem;
            ``$WEFT_SOLVER_MEMORY`` is not a size.
        Missing: its solver is not installed.
        WeftError: a schedule of the engine is wrong or beats its own bound (our bug).
        PluginFault: the same of an engine of another package, or it fails.
    """
    budget = budget or Budget()
    solver_memory()  # a race would leave out the engines that a wrong one refuses
    chosen = choose_engine(engine)
    limit = None if budget.seconds is None else CutOff(observer or Silent(), budget.seconds)
    recorder = _SolveRecorder(limit or observer or Silent(), Incumbents(problem))
    meter = Meter(sys.maxsize, outer=budget.outer, told=recorder.stage)
    try:
        outcome = run_cancellable(
            lambda: solve(problem, chosen, replace(budget, outer=meter), recorder),
            recorder.cancelled,
            lambda: bool(recorder.found.points),
        )
    except KeyboardInterrupt:
        recorder.close()
        late = limit is not None and limit.fired
        if not recorder.found.points and not late:
            raise
        found = recorder.found.best()
        status = Status.FEASIBLE if found else Status.NOTHING
        outcome = Outcome(status, found, () if late else ("interrupted",))
    if limit is not None and limit.fired and outcome.status in (Status.FEASIBLE, Status.NOTHING):
        outcome = outcome if outcome.points else _simplest(problem, chosen) or outcome
        told = f"{CUT_OFF} after {limit.used:.1f} s of CPU; another run may answer differently"
        outcome = replace(outcome, statements=(*outcome.statements, told))
    outcome = replace(outcome, statements=(*outcome.statements, *recorder.given_up))
    (observer or Silent()).stage("verify")
    stamp = provenance(problem, chosen, budget)
    size = problem.bytes or LARGE
    points = []
    for point in outcome.points:
        quick = in_start_order(arranged(point.schedule, size, budget.seed), size)
        if problem.objective in (Objective.TIME, Objective.FRONTIER):
            quick = steadied(quick, size)
        points.append(_checked(replace(point, schedule=quick), problem, chosen, stamp))
    points = _distinct(points)
    if not all(p.step_optimal for p in points):
        least = fewest_steps(problem.topology, problem.collective)
        points = [replace(p, step_optimal=p.step_optimal or p.steps == least) for p in points]
    if problem.objective is Objective.TIME:
        if problem.bytes is None:
            raise UserError("the objective time needs a message size", hint="--size 1MiB")
        if len(points) > 1:  # to simulate a large one takes seconds
            points.sort(key=lambda p: simulate(p.schedule, size).time_us)
    outcome = replace(outcome, points=tuple(points))
    if problem.objective is Objective.LATENCY and outcome.status is Status.OPTIMAL:
        # A proof of fewest steps makes none optimal in latency by itself.
        if not all(is_of_least_latency(point, problem) for point in points):
            outcome = replace(outcome, status=Status.FEASIBLE)
    return replace(outcome, statements=(*outcome.statements, *_fragile(outcome, problem)))


def _fragile(outcome: Outcome, problem: Problem) -> Iterator[str]:
    """Yield a statement if the best schedule at the size needs ties to fall its way."""
    size, best = problem.bytes, next(iter(outcome.points), None)
    if size is None or best is None or problem.objective is not Objective.TIME:
        return
    nominal, worst = simulate(best.schedule, size).time_us, worst_us(best.schedule, size)
    if worst > MARGIN_EFFORT.fragile * nominal:
        yield (
            f"its order is fragile: {nominal:,.3f} µs, but {worst:,.3f} µs where latencies are "
            f"longer by up to {float(JITTER_US) * 1000:g} ns, since transfers that tie go in "
            "another order; nothing steadier was found"
        )


def lacking(outcome: Outcome) -> str:
    """Return the flag that a search needed more of: ``--time`` if that ended it."""
    cut = any(told.startswith(CUT_OFF) for told in outcome.statements)
    return "a longer --time" if cut else "more --effort"


def _simplest(problem: Problem, chosen: Engine) -> Outcome | None:
    """Return the first classic algorithm that fits, as the answer of a race that found nothing.

    None if none fits, for more than ``simple_ranks`` ranks, and where an engine was named.
    """
    classic = ENGINES.make("classic")
    if format_spec(chosen) != RACE or problem.topology.ranks > classic.effort.simple_ranks:
        return None
    try:
        outcome = solve(problem, classic, Budget(effort=0), Silent())
    except (UserError, NothingFound):
        return None
    points = [
        replace(one, schedule=one.schedule.with_provenance(found_by="classic", cites=classic.cites))
        for one in outcome.points
    ]
    told = "nothing was found in time: this is the first classic algorithm that fits"
    return replace(outcome, points=tuple(points), statements=(told,))


def choose_engine(engine: str | Engine) -> Engine:
    """Return the engine of a text such as ``exact{solver=z3}``, checked to be able to run here.

    Raises:
        As :func:`synthesize`.
    """
    chosen: Engine = ENGINES.make(engine, "--engine") if isinstance(engine, str) else engine
    if not hasattr(chosen, "availability"):
        told = f"engine is the text of one, or an Engine, not {an(type(chosen).__name__)}"
        raise WrongType(told, hint='"portfolio", or "exact{solver=z3}"')
    reason = chosen.availability()
    if reason is not None:
        raise Missing(f"the engine {chosen.name} cannot run here", hint=reason)
    return chosen


def provenance(problem: Problem, engine: Engine, budget: Budget) -> dict[str, Any]:
    """Return the provenance of a schedule as its file holds it: all that is needed to remake it."""
    parts = {
        "topology": problem.topology.digest(),
        "collective": problem.collective.described(),
        "sketch": None if problem.sketch is None else [r.label for r in problem.sketch.rules],
        "objective": str(problem.objective),
        "bytes": problem.bytes,
    }
    if problem.message_us is not None:
        parts["message_us"] = str(problem.message_us)
    return {
        "engine": format_spec(engine),
        "cites": engine.cites,
        "seed": budget.seed,
        "weft": __version__,
        "objective": str(problem.objective),
        "problem": hashlib.sha256(compact(parts).encode()).hexdigest()[:16],
    }


@dataclass(slots=True)
class _SolveRecorder:
    """Observer that forwards all calls and keeps incumbents in case the engine is interrupted."""

    inner: Observer
    found: Incumbents
    closed: bool = False
    given_up: list[str] = field(default_factory=list)

    def stage(self, name: str) -> None:
        if not self.closed:
            ended = name.startswith(SOLVER_DIED) and name.endswith(GIVEN_UP)
            if ended and name not in self.given_up:
                self.given_up.append(name)
            self.inner.stage(name)

    def incumbent(self, point: Point) -> None:
        if not self.closed and self.found.add(point):
            self.inner.incumbent(point)

    def cancelled(self) -> bool:
        return self.closed or self.inner.cancelled()

    def close(self) -> None:
        """Ignore further calls of an abandoned engine, and request it to stop."""
        self.closed = True


def _checked(point: Point, problem: Problem, engine: Engine, stamp: dict[str, Any]) -> Point:
    require_right(point, problem, engine)
    schedule = point.schedule
    if "found_by" in schedule.provenance:
        stamp = {**stamp, "cites": schedule.provenance["cites"]}
    stamped = schedule.with_provenance(
        **stamp,
        rounds_per_chunk=str(point.rounds_per_chunk),
        bound=str(point.bound),
        certificate=point.certificate.text,
    )
    return replace(point, schedule=replace(stamped, bytes=problem.bytes))


def _distinct(points: Sequence[Point]) -> list[Point]:
    kept: list[Point] = []
    for point in points:
        for i, other in enumerate(kept):
            if _same(other.schedule, point.schedule):
                sizes = tuple(sorted({*other.sizes, *point.sizes}))
                kept[i] = replace(other, sizes=sizes)
                break
        else:
            kept.append(point)
    return kept


def _same(one: Schedule, other: Schedule) -> bool:
    if (len(one), one.segments, one.stride) != (len(other), other.segments, other.stride):
        return False
    columns = ("chunk", "src", "dst", "step", "reduce", "route_start", "route_links")
    if not all(np.array_equal(getattr(one, c), getattr(other, c)) for c in columns):
        return False
    if list(one.casts) != list(other.casts):
        return False
    if (one.priority is None) != (other.priority is None) or one.rounds != other.rounds:
        return False
    ordered = one.priority is None or np.array_equal(one.priority, cast(Any, other.priority))
    return ordered and one.collective == other.collective
