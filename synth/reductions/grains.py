"""The reduction of chunks of unequal sizes to grains, which are equal.

Engines that plan in rounds take every chunk for one unit. A chunk of k grains is k chunks of one
grain each, at places one after the other; M and the buffers stay the same, so that the schedule of
the grains is a schedule of the collective, and bounds count grains too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import ClassVar

from weft.dsl.nouns.collective import Collective
from weft.dsl.nouns.placement import Placement
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
        return sum(_coarsest(collective).sizes) <= self.effort.most

    def apply(self, problem: Problem, budget: Budget, observer: Observer, solver: str) -> Steps:
        """Solve in grains: what solves that solves the problem."""
        collective = _coarsest(problem.collective).in_grains()
        outcome = yield Subproblem(replace(problem, collective=collective), budget, observer)
        return outcome


def _coarsest(collective: Collective) -> Collective:
    """Return the collective in the largest grains that divide all sizes and places."""
    if collective.factor != 1:  # the factor counts grains of a plain chunk
        return collective
    unit = math.gcd(*collective.sizes, *_offsets(collective))
    if unit == 1:
        return collective

    def coarse(p: Placement) -> Placement:
        return replace(p, offsets=p.offsets // unit)

    sizes = tuple(size // unit for size in collective.sizes)
    return replace(
        collective, pre=coarse(collective.pre), post=coarse(collective.post), sizes=sizes
    )


def _offsets(collective: Collective) -> Iterator[int]:
    yield from map(int, collective.pre.offsets)
    yield from map(int, collective.post.offsets)
