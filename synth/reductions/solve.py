"""Solve a problem with one engine: directly where it takes the problem, else by a reduction."""

from __future__ import annotations

from weft.dsl.base.errors import Refusal
from weft.dsl.nouns.problem import Problem

from ..base.engine import Budget, Engine, Observer, Outcome
from .allreduce import Composed
from .phases import Phased
from .reduction import Reduction, Subproblem, run
from .reverse import Reversed

REDUCTIONS: tuple[Reduction, ...] = (Phased(), Composed(), Reversed())
"""All reductions; of those that fit a problem the first is applied."""


def solve(problem: Problem, engine: Engine, budget: Budget, observer: Observer) -> Outcome:
    """Solve directly if the engine takes the problem, else through the reduction that fits.

    Raises:
        Refusal: the engine refuses, and no reduction leads to a problem that it takes.
    """
    reason = engine.refuses(problem)
    if reason is None:
        return engine.solve(problem, budget, observer)

    def part(of: Subproblem) -> Outcome:
        return solve(of.problem, engine, of.budget, of.observer)

    for reduction in REDUCTIONS:
        if reduction.fits(problem):
            return run(reduction.apply(problem, budget, observer, engine.name), part)
    raise Refusal(engine.name, reason)
