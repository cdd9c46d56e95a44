"""The engine ``intervals``: the least time of whole chunks, proved by CP-SAT on small machines.

A short local search gives the time to beat. The model of :mod:`.model` has a window for every
transfer that can be part of a quicker schedule; where there are few enough, CP-SAT finds the
quickest one, or proves that there is none. Its order is run by weft's own clock, and that time
counts. What is not proved in this way is searched on as ``sketched`` does.
"""

from __future__ import annotations

from dataclasses import field, replace
from typing import ClassVar

from weft.dsl.base.errors import UserError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.collective import Kind
from weft.dsl.nouns.problem import Objective, Problem
from weft.dsl.nouns.sketch import Chunks, Sketch

from ...base.engine import Budget, Observer, Outcome, Point, Status
from ...base.meets import meets
from ...bounds import bounds, lower_bound_us
from ...frontier.objective import point_of
from ...reductions.solve import solve as solve_by
from ...time.schedule_time import simulate
from ..sketched.engine import Sketched
from .cut import CopyTask, CutAnswer, solve_cut
from .effort import INTERVALS_EFFORT, IntervalsEffort


@dataclass(frozen=True, slots=True)
class Intervals:
    """The least time of whole chunks, proved by CP-SAT: every transfer is an optional interval.

    For one box and up to some 1,000 intervals. It keeps to the rules of a sketch, and needs none.

    Options:
        chunks: pieces that every unit of the collective is cut into; 0: as the sketch says, else
            1, 2 and 3 are tried.
        patience: turns of the local search that follows where nothing was proved; 0: none.
    """

    name: ClassVar[str] = "intervals"
    cites: ClassVar[str] = (
        "optional intervals: Laborie & Rogerie, FLAIRS 2008; CP-SAT: Perron, Didier & Gay, CP 2023"
    )

    chunks: int = 0
    patience: int = 2000
    effort: IntervalsEffort = field(default=INTERVALS_EFFORT, repr=False)

    def __post_init__(self) -> None:
        if self.chunks < 0 or self.patience < 0:
            raise UserError("intervals: chunks and patience are 0 or more")

    @classmethod
    def availability(cls) -> str | None:
        """OR-Tools is an ordinary dependency."""
        return None

    def refuses(self, problem: Problem) -> str | None:
        """Other objectives, allreduces (left to their halves), many ranks, what the local search
        refuses."""
        if problem.objective is not Objective.TIME:
            return "it plans for one message size (the objective time)"
        if problem.collective.ranks > self.effort.ranks:
            return f"its model is for {self.effort.ranks} ranks at most"
        if problem.collective.kind is Kind.ALLREDUCE and problem.collective.combining:
            return "it sums for one rank, and leaves an allreduce to its halves"
        try:
            return Sketched().refuses(CopyTask.of(problem, 1).copied)
        except UserError as error:
            return error.message

    def solve(self, problem: Problem, budget: Budget, observer: Observer) -> Outcome:
        """The best schedule at the size of the problem, and what is proved of each cut.

        Raises:
            UserError: a chunk cannot reach all ranks that want it, or the rules exclude each other.
        """
        size = problem.bytes or 1
        meter, cuts = budget.meter(observer.cancelled), self.cuts(problem)
        task = CopyTask.of(problem, size)
        limits = bounds(problem.topology, problem.collective)
        general = lower_bound_us(limits, size)
        found: list[CutAnswer] = []
        for place, pieces in enumerate(cuts):
            if found and (meter.over() or meets(min(x.us for x in found), general)):
                break
            part = budget.within(meter.part(1 / (len(cuts) - place)))
            found.append(solve_cut(task, pieces, part, observer, self.effort))
        best = min(found, key=lambda x: x.us)
        point = point_of(best.schedule, limits, us=best.us, least_us=float(general))
        whole = len(cuts) == 1 and not best.beyond  # its bound is one on all that was asked for
        if whole:
            point = replace(point, least_us=best.least_us)
        met = meets(best.us, general) or (whole and best.proved)
        said = [x.words for x in sorted(found, key=lambda x: x.us)]
        if self.patience and not all(x.proved for x in found) and not met:
            other = self._searched(problem, budget.within(meter), observer)
            us = simulate(other.schedule, size).time_us
            if us < best.us:
                other = replace(other, us=us, least_us=point.least_us)
                point, said = other, [f"local search: {us:,.6g} µs", *said]
        status = Status.OPTIMAL if met else Status.FEASIBLE
        return Outcome(status, (point,), tuple(said))

    def _searched(self, problem: Problem, budget: Budget, observer: Observer) -> Point:
        """The answer of the local search alone."""
        other = Sketched(self.chunks, self.patience)
        return solve_by(problem, other, budget, observer).points[0]

    def cuts(self, problem: Problem) -> tuple[int, ...]:
        """Return the numbers of pieces to cut units into."""
        rules = [r.count for r in (problem.sketch or Sketch("")).rules if isinstance(r, Chunks)]
        return tuple(rules[:1]) or ((self.chunks,) if self.chunks else self.effort.pieces)
