"""The reduction of chunks of unequal sizes to grains, which are equal.

Engines that plan in rounds take every chunk for one unit. A chunk of k grains is k chunks of one
grain each, at places one after the other; M and the buffers stay the same, so that the schedule of
the grains is a schedule of the collective, and bounds count grains too.
"""

from __future__ import annotations

from dataclasses import field, replace
from typing import ClassVar

from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.problem import Problem

from ..base.effort import Effort, setting
from ..base.engine import Budget, Observer
from .reduction import Steps, Subproblem


@dataclass(frozen=True, slots=True)
class GrainsEffort(Effort):
    """Limits of the reduction to grains."""

    most: int = setting(1 << 14, "grains of a collective, at most: engines look at each")


@dataclass(frozen=True, slots=True)
class Grains:
    """Reduction of a collective with chunks of unequal sizes to one with a chunk per grain."""

    name: ClassVar[str] = "grains"

    effort: GrainsEffort = field(default_factory=GrainsEffort)

    def fits(self, problem: Problem) -> bool:
        """Sizes that are not too many grains; groups summed at home name whole chunks."""
        collective = problem.collective
        if not collective.sizes or collective.local_reduce:
            return False
        return sum(collective.coarsest().sizes) <= self.effort.most

    def apply(self, problem: Problem, budget: Budget, observer: Observer, solver: str) -> Steps:
        """Solve in grains: what solves that solves the problem."""
        collective = problem.collective.coarsest().in_grains()
        outcome = yield Subproblem(replace(problem, collective=collective), budget, observer)
        return outcome
