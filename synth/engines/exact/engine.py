"""The engine: its options, what it refuses, how a problem becomes a search."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

from weft.dsl.base.errors import UserError
from weft.dsl.nouns.problem import Objective, Problem

from ...base.conflict import smallest_conflict
from ...base.engine import Budget, Observer, Outcome, Status
from ...frontier.objective import meets_bound
from . import paper, realize, rules
from .demands import demands
from .effort import ExactEffort
from .ending import how_it_ended, never_ends
from .frontier import Clock, Solver, any_point, first_at_best, walk
from .prepare import Prepared, prepare


@dataclass(frozen=True, slots=True)
class Exact:
    """k-synchronous schedules with proofs (SCCL's problem), complete over all chunk counts.

    Options:
        solver: ``cp-sat``, or ``z3`` with the paper's own encoding (a cross-check; needs weft[z3]).
        chunks: exactly this many chunks per unit; 0 lets the flow LP name the number.
        max_chunks: the largest number of chunks per unit that is tried.
        max_steps: where the search over steps ends; 0 means four more than the least.
        symmetry: look for schedules invariant under the machine's declared symmetries first.
    """

    name: ClassVar[str] = "exact"
    cites: ClassVar[str] = (
        "Cai et al., Synthesizing Optimal Collective Algorithms, PPoPP 2021, arXiv:2008.08708"
    )

    solver: str = "cp-sat"
    chunks: int = 0
    max_chunks: int = 64
    max_steps: int = 0
    symmetry: bool = True
    effort: ExactEffort = field(default_factory=ExactEffort)

    def __post_init__(self) -> None:
        for option in ("chunks", "max_steps"):
            if getattr(self, option) < 0:
                raise UserError(f"exact: {option} is {getattr(self, option)}", hint="0 or more")
        if self.max_chunks < 1:
            raise UserError(f"exact: max_chunks is {self.max_chunks}", hint="at least 1")

    @classmethod
    def availability(cls) -> str | None:
        """OR-Tools is an ordinary dependency; z3 is looked for when it is asked for."""
        return None

    def refuses(self, problem: Problem) -> str | None:
        """Combining collectives (left to the reductions), rules it has no words for, size."""
        if self.solver not in _SOLVERS:
            return f"solver {self.solver!r} is not one of {', '.join(_SOLVERS)}"
        if problem.collective.combining:
            return "exact copies only; combining collectives reach it reversed or composed"
        if problem.sketch is not None and (why := rules.refusal(problem.sketch, self.solver)):
            return why
        targets = sum(len(d.targets) for d in demands(problem.collective))
        if targets == 0:
            return "nothing has to move: every rank holds already what it wants"
        columns = targets * len(problem.topology.links) * 2
        most = self.effort.most_columns
        if columns > most and not problem.topology.symmetries:
            return (
                f"the flow problem would have about {columns:,} columns, more than {most:,}: "
                "exact is for machines of up to some 32 ranks (more with declared symmetries)"
            )
        return None

    def solve(self, problem: Problem, budget: Budget, observer: Observer) -> Outcome:
        """The frontier, or the part of it that the objective asks for."""
        # The rest is kept for any schedule at all, should the search find none.
        clock = Clock.start(replace(budget, seconds=budget.seconds * self.effort.search_share))
        # The paper's encoding cannot say that two sends are one decision.
        symmetric = self.symmetry and self.solver == "cp-sat"
        solver = _SOLVERS[self.solver]
        prepared = prepare(problem, solver, self.chunks, self.max_chunks, symmetric, self.effort)
        first, last = prepared.least_steps, prepared.last_steps(self.max_steps)
        if prepared.rules:
            fitting = prepared.first_feasible(prepared.most_steps, clock, observer)
            if fitting is None:
                return _impossible(prepared, clock, observer)
            if self.max_steps and fitting > last:
                return Outcome(
                    Status.NOTHING,
                    statements=(f"the rules need {fitting} steps, max_steps is {last}",),
                )
            first, last = fitting, max(last, fitting)
        outcome = _answer(prepared, problem, first, last, clock, observer)
        if outcome.points or observer.cancelled():
            return outcome
        spare_seconds = budget.seconds * (1 - self.effort.search_share)
        spare = Clock.start(replace(budget, seconds=spare_seconds))
        point = any_point(prepared.search, range(first, last + 1), spare, observer)
        if point is None:
            return outcome
        return replace(outcome, status=Status.FEASIBLE, points=(point,))


def _impossible(prepared: Prepared, clock: Clock, observer: Observer) -> Outcome:
    """Infeasible, with the smallest set of rules that conflict, if that is proved."""
    conflict = smallest_conflict(prepared.rules, prepared.impossible(clock, observer))
    if not conflict:
        return Outcome(Status.NOTHING, statements=("no schedule was found that obeys the rules",))
    return Outcome(Status.INFEASIBLE, conflict=tuple(rule.label for rule in conflict))


_SOLVERS: dict[str, Solver] = {"cp-sat": realize.solve, "z3": paper.solve}


def _answer(
    prepared: Prepared,
    problem: Problem,
    first: int,
    last: int,
    clock: Clock,
    observer: Observer,
) -> Outcome:
    """The part of the frontier that the objective asks for, and what was proved of it."""
    search, objective = prepared.search, problem.objective
    if objective is Objective.LATENCY:
        found = walk(search, range(first, last + 1), clock, observer, points=1)
    elif objective is Objective.BANDWIDTH:
        goal = first_at_best(search, first, last, clock)
        found = walk(search, range(goal, goal + 1), clock, observer)
        if not found.complete:
            found = walk(search, range(first, last + 1), clock, observer)
        found = replace(found, points=found.points[-1:])
    else:
        found = walk(search, range(first, last + 1), clock, observer)
    statements = (*found.gaps, *how_it_ended(search, found))
    if not found.points:
        return Outcome(Status.NOTHING, statements=statements)
    ends = found.complete or last == rules.step_limit(prepared.rules)
    if objective is Objective.FRONTIER or objective is Objective.TIME:
        ends = ends or never_ends(search, found)
    ends = ends or objective is Objective.LATENCY
    proved = ends and not found.gaps and all(p.optimal for p in found.points)
    # Steps and rounds are proved; time is their sum only for whole rounds.
    if objective is Objective.TIME:
        proved = any(meets_bound(point, problem) for point in found.points)
    return Outcome(Status.OPTIMAL if proved else Status.FEASIBLE, found.points, statements)
