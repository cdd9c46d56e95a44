"""The engine ``portfolio``: runs the engines that fit, and keeps the best schedule per size.

No single engine is best everywhere. In steps and rounds on a small machine ``exact`` has proofs;
at one message size the packings win on large messages, classic algorithms and exact schedules on
small ones; where even packing is too slow, ``greedy`` remains. They run one after the other, the
most promising first, until one meets the bound or the budget ends; all share the caller's observer.
Work is counted (:mod:`weft.synth.base.meter`): the result is the same on every machine.
"""

from __future__ import annotations

from dataclasses import field, replace
from functools import partial
from typing import ClassVar

from weft.dsl.base.errors import (
    UserError,
)
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.registry import ENGINES
from weft.dsl.nouns.problem import Objective, Problem

from ...base.engine import Budget, Observer, Outcome
from ...bounds.switch_gain import switch_gain
from ...reductions.phases import phases_of
from .members import ONE_TRY, DeferredEngine, PortfolioEffort, agrees, likely, plugins
from .race import Race


@dataclass(frozen=True, slots=True)
class Portfolio:
    """Races the other engines and takes the best schedule of each size.

    Options:
        engines: names of those that may take part (``exact+packing``); by default all that fit.
    """

    name: ClassVar[str] = "portfolio"
    cites: ClassVar[str] = "each schedule names the engine that found it, and what that one cites"

    engines: tuple[str, ...] = ()
    effort: PortfolioEffort = field(default_factory=PortfolioEffort)

    def __post_init__(self) -> None:
        for name in self.engines:
            if name == self.name:
                raise UserError("portfolio: it cannot race itself", hint="engines=exact+packing")
            ENGINES.load(name)

    @classmethod
    def availability(cls) -> str | None:
        """It needs nothing; an engine that cannot run here does not take part."""
        return None

    def refuses(self, problem: Problem) -> str | None:
        """It takes any problem that another takes, directly or through a reduction."""
        return None

    def solve(self, problem: Problem, budget: Budget, observer: Observer) -> Outcome:
        """The best of all engines for the objective; for the frontier, all that are best somewhere.

        Raises:
            UserError: the question is wrong, or every engine refuses it.
        """
        return _with_gain(self.solve_part(problem, budget, observer, ()), problem)

    def solve_part(
        self, problem: Problem, budget: Budget, observer: Observer, joined: tuple[str, ...]
    ) -> Outcome:
        """As :meth:`solve`, for a part of a problem that these joiners (:mod:`.parts`) join."""
        race = Race(
            problem,
            budget,
            observer,
            budget.meter(observer.cancelled),
            self._engines_of(problem, joined),
            self.effort,
        )
        race.run()
        return race.outcome()

    def _engines_of(self, problem: Problem, joined: tuple[str, ...]) -> list[DeferredEngine]:
        if self.engines:  # a wrong one is reported before any runs
            named = (ENGINES.make(name) for name in self.engines)
            made = [DeferredEngine.of(engine) for engine in named if agrees(engine.availability)]
        else:
            names = (x for x in likely(problem, self.effort) if x != ONE_TRY or not joined)
            made = [
                DeferredEngine(x.partition("{")[0], partial(ENGINES.make, x), once=x == ONE_TRY)
                for x in names
            ]
            made += [
                DeferredEngine.of(engine) for engine in plugins() if agrees(engine.availability)
            ]
        if phases_of(problem) is not None:  # the best engine for each phase
            from .parts import InPhases  # with it the classic algorithms are loaded

            ready = (entry.engine for entry in made)
            takes = [
                DeferredEngine.of(e)
                for e in ready
                if e is not None and agrees(partial(e.refuses, problem))
            ]
            return [*takes, DeferredEngine.of(InPhases(self.solve_part, joined))]
        if problem.objective is Objective.TIME and not self.engines and len(made) > 1:
            from .parts import InHalves, InPhases

            joiners = [InPhases(self.solve_part, joined), InHalves(self.solve_part, joined)]
            left = (
                e for e in joiners if e.name not in joined and agrees(partial(e.refuses, problem))
            )
            made += map(DeferredEngine.of, left)
        if problem.topology.ranks >= self.effort.greedy_ranks:
            # Matching looks at every pair of ranks: compositions of quicker answers come first.
            made.sort(key=lambda entry: entry.name == "greedy")
        return made


def _with_gain(outcome: Outcome, problem: Problem) -> Outcome:
    """The outcome, and the gain of switches that compute, which a sketch may forbid."""
    gain = None if problem.sketch else switch_gain(problem.topology, problem.collective)
    if gain is None or not outcome.points:
        return outcome
    schedules = [p.schedule.with_provenance(switches=gain.words) for p in outcome.points]
    pairs = zip(outcome.points, schedules, strict=True)
    points = tuple(replace(point, schedule=schedule) for point, schedule in pairs)
    return replace(outcome, points=points, statements=(*outcome.statements, gain.words))
