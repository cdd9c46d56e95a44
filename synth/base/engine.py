"""The engine interface: the engine protocol, its budget, and the outcome that it returns.

An engine is a frozen dataclass whose fields are its options. It never verifies, prints, measures
its own time or reads files: its caller :mod:`weft.synth.api` does all that.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import field, replace
from enum import StrEnum
from fractions import Fraction
from typing import Any, ClassVar, Protocol

from weft.dsl.base.errors import UserError, WrongType
from weft.dsl.base.integers import plain
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.tables import count
from weft.dsl.base.views import Tabled, Viewed
from weft.dsl.nouns.problem import Problem
from weft.dsl.nouns.schedule import Schedule

from .meter import STEPS, Meter, never


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits of one solve.

    Attributes:
        effort: work; 1 is about a CPU second of a core, but it is counted (:class:`Meter`).
        threads: of solvers; they change no answer.
        seed: of every random choice.
        seconds: CPU seconds after which the search is cut off, with its finds so far. The
            answer depends on the machine then, and says so. None: never.
        outer: the meter of the search that this one is a part of.
    """

    effort: float = 20.0
    threads: int = 2
    seed: int = 0
    seconds: float | None = None
    outer: Meter | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        for name, kind in (("effort", int | float), ("threads", int), ("seed", int)):
            value = plain(getattr(self, name))
            object.__setattr__(self, name, value)
            if isinstance(value, bool) or not isinstance(value, kind):
                raise WrongType(
                    f"{name} is a number, not {value!r}", hint="Budget(effort=20, seed=0)"
                )
        object.__setattr__(self, "seconds", plain(self.seconds))
        if not (isinstance(self.seconds, int | float) or self.seconds is None):
            raise WrongType(f"seconds is a number or None, not {self.seconds!r}")
        if math.isnan(self.effort) or self.effort < 0:
            raise UserError(f"effort must be zero or more, not {self.effort}")

    def meter(self, stopped: Callable[[], bool] = never) -> Meter:
        """Return a meter that has spent nothing yet."""
        return Meter(round(self.effort * STEPS), stopped, self.outer)

    def within(self, meter: Meter, steps: int | None = None) -> Budget:
        """Return the budget of a part of the search that ``meter`` counts: by default, the rest."""
        return replace(self, effort=(meter.left if steps is None else steps) / STEPS, outer=meter)


SOLVER_DIED = "the solver's process died"
"""Beginning of the stage in which a solver is started again, or a question given up."""

GIVEN_UP = "it is given up"
"""End of the latter; the answer says it too."""


class Observer(Protocol):
    """Receives the progress of an engine, and can request it to stop (Ctrl-C, a finished race)."""

    def stage(self, name: str) -> None:
        """Report that a new phase of work begins."""

    def incumbent(self, point: Point) -> None:
        """Report a new schedule; it is kept in case the engine is interrupted."""

    def cancelled(self) -> bool:
        """Return True if the engine should stop and return the schedules found so far."""
        ...


class Forwarding:
    """An observer that passes everything on to ``inner``; others change a part of that."""

    __slots__ = ()
    inner: Observer

    def stage(self, name: str) -> None:
        """Pass it on."""
        self.inner.stage(name)

    def incumbent(self, point: Point) -> None:
        """Pass it on."""
        self.inner.incumbent(point)

    def cancelled(self) -> bool:
        """Pass it on."""
        return self.inner.cancelled()


class Silent:
    """An observer that ignores all progress and never requests a stop."""

    def stage(self, name: str) -> None:
        """Ignore it."""

    def incumbent(self, point: Point) -> None:
        """Ignore it."""

    def cancelled(self) -> bool:
        """Return False."""
        return False


class Status(StrEnum):
    """The ways in which a solve can end."""

    OPTIMAL = "optimal"  #: every point is proved best, and the frontier is complete
    FEASIBLE = "feasible"  #: there are schedules; the gap says how far from proved
    INFEASIBLE = "infeasible"  #: no schedule obeys the rules; ``conflict`` names them
    NOTHING = "nothing"  #: the budget ended before the first schedule


@dataclass(frozen=True, slots=True)
class Certificate:
    """Proof of a bound in a form that a reader can check by hand.

    ``kind`` names the argument (``cut``, ``path``, ``lp``, ``partition`` …), ``text`` states it
    with its numbers, ``data`` holds the same for programs (the nodes of the cut, the dual).
    """

    kind: str
    text: str
    data: dict[str, Any] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Point:
    """One schedule of a frontier, with the proof of how good it is.

    ``rounds_per_chunk`` = rounds / factor. ``bound`` is a proven lower bound on the rounds per
    chunk of *any* schedule of this many steps, whatever its number of chunks (or, where a sketch
    or an option demands a number of chunks, of any with that number); ``certificate`` proves it.
    ``step_optimal``: no schedule has fewer steps. ``bandwidth_optimal``: no schedule of any
    number of steps has fewer rounds per chunk. ``rate``: rounds per chunk of a schedule without
    rounds, in the limit of many segments: the load of its busiest resource. ``words``: remarks of
    its engine. ``sizes``: the message sizes tried, in bytes, at which no other schedule of the
    answer is faster. ``us``: its time in µs at the size that its engine optimized, by the engine's
    own cost model; ``least_us``: a lower bound in µs on that time, proved by the engine.
    ``finer_us``: the least time known at that size of the same in any number of slices, where its
    own were chosen with a cost of messages (:mod:`weft.synth.time.slices`).
    """

    schedule: Schedule
    steps: int
    rounds: int
    factor: int
    bound: Fraction
    certificate: Certificate
    step_optimal: bool = False
    bandwidth_optimal: bool = False
    rate: Fraction | None = None
    words: str = ""
    sizes: tuple[int, ...] = ()
    us: float | None = None
    least_us: float | None = None
    finer_us: float | None = None

    def __repr__(self) -> str:
        proved = ", optimal" if self.optimal else f", at least {self.bound}"
        steps = count(self.steps, "step")
        return f"<Point {steps}, {self.rounds_per_chunk} rounds per chunk{proved}>"

    @property
    def rounds_per_chunk(self) -> Fraction:
        """Rounds per chunk, exactly."""
        return Fraction(self.rounds, self.factor) if self.rate is None else self.rate

    @property
    def optimal(self) -> bool:
        """True if no schedule with this number of steps needs fewer rounds per chunk."""
        return self.rounds_per_chunk == self.bound


@dataclass(frozen=True, slots=True)
class Outcome(Viewed, Tabled):
    """Result of a solve: status, schedules, bound and reasons.

    ``statements`` are findings in words (*1/6 is approached, not reached*); ``conflict`` labels
    of rules that exclude each other; ``report`` numbers from the solvers.
    """

    _view: ClassVar = "frontier"
    _frame: ClassVar = "frontier"

    status: Status
    points: tuple[Point, ...] = ()
    statements: tuple[str, ...] = ()
    conflict: tuple[str, ...] = ()
    report: dict[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        parts = [f"{count(p.steps, 'step')} with {_told(p)}" for p in self.points[:4]]
        more = ", …" if len(self.points) > len(parts) else ""
        found = f"; {', '.join(parts)}{more} rounds per chunk" if parts else ""
        said = f"; {self.statements[0]}" if self.statements and not parts else ""
        return f"<Outcome {self.status}: {count(len(self.points), 'schedule')}{found}{said}>"


LONGEST_FRACTION = 9
"""Characters of a fraction that is reported as it is."""


def _told(point: Point) -> str:
    """Return the rounds per chunk: a fraction of many digits to four of them."""
    exact = str(point.rounds_per_chunk)
    return exact if len(exact) <= LONGEST_FRACTION else f"{float(point.rounds_per_chunk):.4g}"


class Engine(Protocol):
    """The protocol of engines; implementations are frozen dataclasses."""

    name: ClassVar[str]
    cites: ClassVar[str]

    @classmethod
    def availability(cls) -> str | None:
        """Return None if it can run here, else the reason and the package to install; cheap."""
        ...

    def refuses(self, problem: Problem) -> str | None:
        """Return why it cannot solve this problem, as a text; None if it can."""
        ...

    def solve(self, problem: Problem, budget: Budget, observer: Observer) -> Outcome:
        """Find schedules; where the budget ends first, the best so far are the answer."""
        ...
