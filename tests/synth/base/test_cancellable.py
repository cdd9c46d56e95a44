"""Engines that do not listen: whoever asked to stop gets what was found until then."""

import threading
from dataclasses import dataclass, field
from typing import ClassVar

import pytest
from until import HANGS, until

from weft.dsl.catalogue import topology
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.problem import Objective, Problem
from weft.synth.api import synthesize
from weft.synth.base import cancellable
from weft.synth.base.engine import Budget, Observer, Outcome, Point
from weft.synth.engines.sketched.engine import Sketched
from weft.synth.time.schedule_time import simulate

RING = topology("ring:4")
PROBLEM = Problem(RING, make("allgather", 4), None, Objective.TIME, 1 << 20)


@dataclass(frozen=True)
class Deaf:
    """Tells of the schedules of ``classic``, then works on until it is released."""

    name: ClassVar[str] = "deaf"
    cites: ClassVar[str] = "nobody"
    tells: bool = True
    release: threading.Event = field(default_factory=threading.Event)

    @classmethod
    def availability(cls) -> str | None:
        return None

    def refuses(self, problem: Problem) -> str | None:
        return None

    def solve(self, problem: Problem, budget: Budget, observer: Observer) -> Outcome:
        if self.tells:
            for name in ("ring", "bruck"):
                (point,) = synthesize(problem, f"classic{{algorithm={name}}}").points
                observer.incumbent(point)
        self.release.wait(HANGS)
        observer.incumbent(None)  # type: ignore[arg-type]
        return Outcome(None)  # type: ignore[arg-type]


@dataclass
class Impatient:
    """Asks to stop after some schedules."""

    after: int = 0
    heard: list[Point] = field(default_factory=list)

    def stage(self, name: str) -> None:
        """Ignore it."""

    def incumbent(self, point: Point) -> None:
        self.heard.append(point)

    def cancelled(self) -> bool:
        return len(self.heard) >= self.after


def test_an_engine_that_does_not_stop_is_left_to_itself() -> None:
    deaf, observer = Deaf(), Impatient(after=2)
    outcome = synthesize(PROBLEM, deaf, observer=observer)
    assert cancellable.engine_at_work()
    deaf.release.set()
    assert outcome.statements == ("interrupted",)
    took = [simulate(p.schedule, 1 << 20).time_us for p in observer.heard]
    assert simulate(outcome.points[0].schedule, 1 << 20).time_us == min(took)
    until(lambda: not cancellable.engine_at_work())
    assert len(observer.heard) == 2, "what it says afterwards is not heard"


def test_with_nothing_found_it_is_an_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cancellable, "GRACE_NOTHING", 0.1)
    deaf = Deaf(tells=False)
    with pytest.raises(KeyboardInterrupt):
        synthesize(PROBLEM, deaf, observer=Impatient())
    deaf.release.set()


def test_an_error_of_the_engine_is_raised_where_it_was_asked() -> None:
    def fail() -> None:
        raise ZeroDivisionError("inside")

    with pytest.raises(ZeroDivisionError, match="inside"):
        cancellable.run_cancellable(fail, lambda: False, lambda: False)


def test_sketched_tells_of_what_it_finds_and_how_good_it_is() -> None:
    where = topology("dgx2:nodes=2")
    problem = Problem(where, make("allgather", 32), None, Objective.TIME, 64 << 20)
    observer = Impatient(after=1 << 30)
    outcome = synthesize(problem, Sketched(chunks=1, patience=200), observer=observer)
    heard = observer.heard
    assert len(heard) > 2
    assert all(p.us is not None and p.least_us and p.us >= p.least_us for p in heard)
    assert [p.us for p in heard] == sorted([p.us for p in heard], reverse=True)
    (best,) = outcome.points
    # What counts is the simulator's time, which is not that of the plan.
    assert best.us == heard[-1].us == simulate(best.schedule, 64 << 20).time_us
