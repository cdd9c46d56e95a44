"""The protocol of reductions: from a problem that an engine refuses to problems that it takes.

As in CVXPY (Agrawal et al., *A rewriting system for convex optimization problems*, 2018) a
reduction applies to some problems, and what solves the reduced problems is turned back into what
solves the original one. Here both directions are one generator, for the later subproblems may
depend on the answers to the earlier ones: it yields subproblems, receives their outcomes, and
returns the outcome of the whole, with bounds and certificates of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import ClassVar, Protocol

from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.problem import Problem

from ..base.engine import Budget, Forwarding, Observer, Outcome, Point


@dataclass(frozen=True, slots=True)
class Subproblem:
    """One problem to solve, its part of the budget, and the observer of its solve."""

    problem: Problem
    budget: Budget
    observer: Observer


Steps = Generator[Subproblem, Outcome, Outcome]
"""Yields subproblems, is sent their outcomes, returns the outcome of the whole problem."""


class Reduction(Protocol):
    """The protocol of reductions; implementations are frozen dataclasses."""

    name: ClassVar[str]

    def fits(self, problem: Problem) -> bool:
        """Return True if the reduction applies to this problem; cheap."""
        ...

    def apply(self, problem: Problem, budget: Budget, observer: Observer, solver: str) -> Steps:
        """Reduce a problem that fits; ``solver`` names the engine, for schedules without a finder.

        Raises:
            UserError: the collective or the sketch cannot be reduced, or no combination of the
                answers obeys the sketch.
        """
        ...


def run(steps: Steps, solve: Callable[[Subproblem], Outcome]) -> Outcome:
    """Solve the subproblems of a reduction one after the other; its outcome for the whole."""
    try:
        part = next(steps)
        while True:
            part = steps.send(solve(part))
    except StopIteration as end:
        outcome: Outcome = end.value
        return outcome


@dataclass(frozen=True, slots=True)
class Quiet(Forwarding):
    """Observer that forwards all but incumbents, which solve only a subproblem."""

    inner: Observer

    def incumbent(self, point: Point) -> None:
        """Ignore it."""


@dataclass(frozen=True, slots=True)
class Translated(Forwarding):
    """Observer that forwards all; incumbents become schedules of the whole problem."""

    inner: Observer
    back: Callable[[Point], Point]

    def incumbent(self, point: Point) -> None:
        """Pass it on, turned back."""
        self.inner.incumbent(self.back(point))
