"""The search for allreduces with casts: steps against rounds per chunk, and what is proved of them.

What is proved here holds for schedules of the space (:mod:`.sums`) and for no others: an allreduce
may also sum one chunk at several places. So a point's own bound is the one for all schedules, of
any number of steps, and the least of the space is told in words.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

from weft.dsl.base.errors import Infeasible, NothingFound
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.tables import count
from weft.dsl.nouns.problem import Objective, Problem
from weft.dsl.nouns.schedule import Schedule

from ...base.engine import Observer, Outcome, Point, Status
from ...base.meter import Meter
from ...bounds.bounds import Bounds, bounds
from ...time.order import LARGE
from ...time.schedule_time import simulate
from ..packing.casts.schedule import planned
from ..packing.casts.search import in_slices
from . import sums_model
from .effort import ExactEffort
from .frontier import candidates, without_empty_steps
from .instance import ExactQuestion
from .realize import Realization, SolverVerdict
from .sums import SumSpace, sum_spaces
from .sums_bound import columns_of, sum_bound

CLASS = (
    "where every chunk is summed at one rank or in one switch and spread from there, each cast "
    "over one switch or over a tree to all ranks"
)


@dataclass(frozen=True)
class SumSearch:
    """The search of one allreduce; ``spaces`` are tried in turn, the last has no symmetry."""

    problem: Problem
    spaces: tuple[SumSpace, ...]
    static: Bounds
    factor: int | None
    max_chunks: int
    seed: int
    effort: ExactEffort

    def least(self, steps: int, meter: Meter) -> Fraction | None:
        """Return what S steps need in the space; None if they are too few for any schedule.

        Raises:
            NothingFound: that is not known with half of what is left.
        """
        space = self.spaces[0]
        if columns_of(space, steps) > self.effort.most_columns:
            raise NothingFound("the linear program of the sums is too large")
        try:
            flow = sum_bound(space, steps, meter.part(0.5))
        except Infeasible:
            return None
        return max(flow.rounds_per_chunk, self.static.rounds_per_chunk)

    def questions(self, space: SumSpace, steps: int, lower: Fraction) -> Iterator[tuple[int, int]]:
        """Yield (chunks, rounds), best ratio first; chunks are whole orbits of the symmetries."""
        part = space.order
        if self.factor is not None and self.factor % part:
            return
        scaled = replace(
            self,
            factor=None if self.factor is None else self.factor // part,
            max_chunks=self.max_chunks // part,
        )
        for pieces, rounds in candidates(scaled, steps, lower * part):
            yield pieces * part, rounds

    def realized(
        self, steps: int, lower: Fraction, worst: Fraction | None, meter: Meter, observer: Observer
    ) -> tuple[Realization, int] | None:
        """Return the first answer that is better than ``worst``, and its chunks."""
        for space in self.spaces:
            for chunks, rounds in self.questions(space, steps, lower):
                if meter.over() or (worst is not None and Fraction(rounds, chunks) >= worst):
                    break
                observer.stage(f"{steps} steps: {rounds} rounds for {chunks} chunks, with casts")
                question = ExactQuestion(chunks, steps, rounds)
                share = meter.part(self.effort.question_share)
                answer = sums_model.solve(space, question, share, self.seed, observer, self.effort)
                if answer.verdict is SolverVerdict.YES:
                    return answer, chunks
        return None

    def point(self, answer: Realization, chunks: int, meter: Meter) -> Point:
        """Return the point of an answer, with the bound for all schedules.

        First come first served lets sums of all steps go before what is copied; so the order of
        steps is tried, too, and for a time at one size slices.
        """
        answer = without_empty_steps(answer)
        schedule = Schedule.of(
            self.problem.topology,
            self.problem.collective.split(chunks),
            answer.transfers,
            rounds=answer.rounds,
            casts=answer.casts,
        )
        size = self.problem.bytes or LARGE
        if self.problem.objective is Objective.TIME:
            _, schedule = in_slices(schedule, size, meter)
        else:
            orders = schedule, planned(schedule, 1)
            schedule = min(orders, key=lambda one: simulate(one, size).time_us)
        value, static = Fraction(sum(answer.rounds), chunks), self.static
        return Point(
            schedule,
            schedule.steps,
            sum(answer.rounds),
            chunks,
            static.rounds_per_chunk,
            static.certificate,
            bandwidth_optimal=value == static.rounds_per_chunk,
        )


def search_sums(
    problem: Problem,
    max_chunks: int,
    max_steps: int,
    factor: int | None,
    seed: int,
    effort: ExactEffort,
    meter: Meter,
    observer: Observer,
) -> Outcome:
    """Return the best schedules of ever more steps, each with fewer rounds per chunk."""
    topology = problem.topology
    spaces = sum_spaces(topology)
    most = max_chunks * max(space.order for space in spaces)
    static = bounds(topology, problem.collective)
    search = SumSearch(problem, spaces, static, factor, most, seed, effort)
    points: list[Point] = []
    words: list[str] = []
    first: int | None = None
    steps, worst = 0, None
    while not meter.over() and worst != static.rounds_per_chunk:
        steps += 1
        if steps > (max_steps or (first or topology.ranks) + 4):
            break
        try:
            lower = search.least(steps, meter)
        except NothingFound as error:
            words.append(f"{count(steps, 'step')} unknown ({error})")
            break
        if lower is None:
            continue
        first = first or steps
        if worst is None or lower < worst:
            found = search.realized(steps, lower, worst, meter, observer)
            if found is not None:
                point = search.point(*found, meter)
                points.append(replace(point, step_optimal=point.steps == static.steps))
                worst = point.rounds_per_chunk
                observer.incumbent(points[-1])
        words.append(_proved(steps, lower, worst))
        if problem.objective is Objective.LATENCY and points:
            break
    least = f"the least rounds per chunk {CLASS}: {', '.join(words)}"
    return _outcome(problem, points, (least,) if words else ())


def _proved(steps: int, lower: Fraction, worst: Fraction | None) -> str:
    """Words on what is known of S steps."""
    found = "" if worst == lower else f" (found {worst or 'none'})"
    return f"{count(steps, 'step')} {lower}{found}"


def _outcome(problem: Problem, points: list[Point], words: tuple[str, ...]) -> Outcome:
    if not points:
        return Outcome(Status.NOTHING, statements=words)
    if problem.objective is Objective.BANDWIDTH:
        points = points[-1:]
    status = Status.OPTIMAL if points[-1].bandwidth_optimal else Status.FEASIBLE
    return Outcome(status, tuple(points), words)
