"""The frontier in time: for each message size and number of pieces the least time, proved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from weft.dsl.base.errors import NothingFound, UserError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.problem import Objective, Problem
from weft.dsl.nouns.schedule import Schedule

from ...base.engine import Budget, Observer, Silent
from ...base.meets import meets
from ...bounds import bounds, lower_bound_us
from ...judge.point import require_right
from ...reductions.solve import solve
from ...time.schedule_time import simulate
from .engine import Intervals


@dataclass(frozen=True, slots=True, eq=False)
class TimedCut:
    """The best schedule found for one size in one number of pieces, and a bound on all of these."""

    pieces: int  # of every unit
    schedule: Schedule
    us: float
    least_us: float  # µs that any schedule in these pieces takes

    @property
    def proved(self) -> bool:
        """True if no schedule in these pieces is quicker."""
        return meets(self.us, self.least_us)


@dataclass(frozen=True, slots=True, eq=False)
class TimedSize:
    """The cuts of one message size."""

    bytes: int
    cuts: tuple[TimedCut, ...]
    bound_us: float  # µs that any schedule takes, in whatever pieces

    @property
    def best(self) -> TimedCut:
        """The quickest; of equal ones that of the fewest pieces."""
        return min(self.cuts, key=lambda cut: (round(cut.us, 9), cut.pieces))

    @property
    def least_us(self) -> float:
        """µs that any schedule in one of these numbers of pieces takes."""
        return min(min(cut.least_us for cut in self.cuts), self.best.us)

    @property
    def proved(self) -> bool:
        """True if no schedule in one of these numbers of pieces is quicker."""
        return meets(self.best.us, self.least_us)


def time_frontier(
    problem: Problem,
    sizes: Sequence[int],
    engine: Intervals | None = None,
    budget: Budget | None = None,
    observer: Observer | None = None,
) -> tuple[TimedSize, ...]:
    """Return the least times in µs at message sizes in bytes, by the number of pieces.

    The pieces are those that the sketch names, else those of ``engine`` (1, 2 and 3). Every
    question gets an equal part of the effort that is left. Where the observer cancels it, the
    sizes that are complete are the answer.

    Raises:
        UserError: no sizes; the engine refuses the problem; rules exclude each other.
        NothingFound: it was cancelled before the first size was complete.
    """
    engine, observer = engine or Intervals(), observer or Silent()
    meter = (budget or Budget()).meter(observer.cancelled)
    if not sizes:
        raise UserError("a frontier in time needs message sizes", hint="[1 << 10, 1 << 20]")
    limits, found = bounds(problem.topology, problem.collective), list[TimedSize]()
    for i, size in enumerate(sizes):
        asked = replace(problem, objective=Objective.TIME, bytes=size)
        pieces, cuts = engine.cuts(asked), list[TimedCut]()
        least = float(lower_bound_us(limits, size))
        for place, count in enumerate(pieces):
            if observer.cancelled():
                break
            share = meter.left // ((len(sizes) - i) * len(pieces) - place)
            part = (budget or Budget()).within(meter, share)
            one = replace(engine, chunks=count)
            points = solve(asked, one, part, observer).points
            point = min(points, key=lambda p: simulate(p.schedule, size).time_us)
            require_right(point, asked, one)
            us = simulate(point.schedule, size).time_us
            cuts.append(TimedCut(count, point.schedule, us, max(least, point.least_us or 0.0)))
        if len(cuts) < len(pieces):
            break
        found.append(TimedSize(size, tuple(cuts), least))
    if not found:
        raise NothingFound("the frontier was cancelled before its first size was complete")
    return tuple(found)
