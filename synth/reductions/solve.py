"""Solve a problem with one engine: directly where it takes the problem, else by a reduction."""

from __future__ import annotations

from weft.dsl.base.errors import Refusal
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.plugins import expect, plugin_of
from weft.dsl.nouns.problem import Problem

from ..base.engine import Budget, Certificate, Engine, Observer, Outcome, Point
from ..judge.point import require_right
from .allreduce import Composed
from .claims import with_our_bounds, without_claims
from .grains import Grains
from .narrowed import Narrowed
from .phases import Phased
from .reduction import Reduction, Subproblem, run
from .reverse import Reversed

NARROWED = Narrowed()
"""Of rules that no engine has to know: applied before an engine is asked."""

REDUCTIONS: tuple[Reduction, ...] = (Phased(), Grains(), Composed(), Reversed())
"""All reductions; of those that fit a problem the first is applied."""


def solve(problem: Problem, engine: Engine, budget: Budget, observer: Observer) -> Outcome:
    """Solve directly if the engine takes the problem, else through the reduction that fits.

    Raises:
        Refusal: the engine refuses, and no reduction leads to a problem that it takes.
        PluginFault: the engine of another package fails.
    """

    def part(of: Subproblem) -> Outcome:
        return solve(of.problem, engine, of.budget, of.observer)

    if NARROWED.fits(problem):
        return run(NARROWED.apply(problem, budget, observer, engine.name), part)
    reason = engine.refuses(problem)
    if reason is None:
        return _direct(problem, engine, budget, observer)
    for reduction in REDUCTIONS:
        if reduction.fits(problem):
            return run(reduction.apply(problem, budget, observer, engine.name), part)
    raise Refusal(engine.name, reason)


def _direct(problem: Problem, engine: Engine, budget: Budget, observer: Observer) -> Outcome:
    """Solve with the engine itself; the answers of another package's are judged at once, so that
    a wrong one takes no part in a race or in what a reduction makes of it, and stated with weft's
    own bounds."""
    if plugin_of(engine) is None:
        return engine.solve(problem, budget, observer)
    judged = _Judged(observer, problem, engine)
    outcome = expect(Outcome, engine.solve(problem, budget, judged), engine, "solve")
    for point in expect(tuple, outcome.points, engine, "solve as its points"):
        judged.require_right(point)
    return without_claims(outcome, problem, engine)


@dataclass(frozen=True, slots=True)
class _Judged:
    """Observer that forwards all; a wrong incumbent is the fault of the engine's package."""

    inner: Observer
    problem: Problem
    engine: Engine

    def stage(self, name: str) -> None:
        self.inner.stage(name)

    def incumbent(self, point: Point) -> None:
        self.require_right(point)
        self.inner.incumbent(with_our_bounds(point, self.problem))

    def cancelled(self) -> bool:
        return self.inner.cancelled()

    def require_right(self, point: Point) -> None:
        expect(Point, point, self.engine, "solve")
        expect(Certificate, point.certificate, self.engine, "solve")
        require_right(point, self.problem, self.engine)
