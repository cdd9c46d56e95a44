"""The engine ``portfolio``: runs the engines that fit, and keeps the best schedule per size.

No single engine is best everywhere. In steps and rounds on a small machine ``exact`` has proofs;
at one message size the packings win on large messages, classic algorithms and exact schedules on
small ones; where even packing is too slow, ``greedy`` remains. They run one after the other, the
most promising first, until one meets the bound or the budget ends; all share the caller's observer.
Work is counted (:mod:`weft.synth.base.meter`): the result is the same on every machine.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field, replace
from fractions import Fraction
from functools import cached_property, partial
from typing import Any, ClassVar

import numpy as np

from weft.dsl.base.errors import (
    BrokenPlugin,
    Missing,
    NothingFound,
    PluginFault,
    Refusal,
    UserError,
    WeftError,
)
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.plugins import plugin_of, warn
from weft.dsl.base.registry import ENGINES
from weft.dsl.base.spec import needed_options
from weft.dsl.nouns.collective import Kind
from weft.dsl.nouns.problem import Objective, Problem
from weft.dsl.nouns.schedule import Schedule

from ...base.effort import Effort, setting
from ...base.engine import Budget, Engine, Forwarding, Observer, Outcome, Point, Status
from ...base.meter import Meter
from ...bounds import bounds, lower_bound_us
from ...bounds.switch_gain import beyond_transfers, switch_gain
from ...frontier.objective import Incumbents, meets_bound
from ...reductions.phases import phases_of
from ...reductions.solve import solve
from ...time.latency import latency_us
from ...time.margin import MARGIN_EFFORT, steadiest, worst_us
from ...time.order import LARGE, arranged
from ...time.schedule_time import simulate, simulation_steps
from ...time.slices import SLICE_EFFORT
from ..packing.trees.demands import moves_pairs

LADDER = (1 << 10, 1 << 15, 1 << 20, 1 << 25, 1 << 30)
"""Message sizes in bytes that the frontier of a large machine is judged at; answers name them."""


@dataclass(frozen=True, slots=True)
class PortfolioEffort(Effort):
    """Which engines take part, and their shares of the budget."""

    exact_ranks: int = setting(
        16, "ranks up to which the frontier in steps and rounds is searched with proofs"
    )
    exact_pairs: int = setting(
        8,
        "ranks up to which exact schedules compete at one message size; beyond, they cost more "
        "time than they save",
    )
    greedy_ranks: int = setting(
        512,
        "ranks from which matching competes in all rounds, below only in the first and for copies; "
        "and from which classic algorithms, which would take minutes to simulate, do not",
    )
    greedy_chunks: int = setting(
        100_000,
        "chunks from one rank to one other beyond which matching, which looks at each of them, "
        "does not compete with paths",
    )
    flow_ranks: int = setting(
        64,
        "ranks up to which paths of the message's own size compete; beyond, packing needs the time",
    )
    worth: float = setting(
        0.999, "a schedule joins a frontier if it takes less than this part of the others' time"
    )
    near: float = setting(
        1.02,
        "from greedy_ranks on, matching and phases are not asked where a packing of the best rate "
        "takes less than this times the bound; no engine is, where switches that compute made a "
        "schedule that near and quicker than any without them",
    )
    greedy_near: float = setting(1.0005, "the same for matching below greedy_ranks")
    classic_ranks: int = setting(
        96,
        "ranks from which classic algorithms for chunks from one rank to one other, which take "
        "seconds each there, are asked only if the best so far takes more than classic_near times "
        "the bound",
    )
    classic_near: float = setting(1.1, "see classic_ranks")
    halves_near: float = setting(
        1.01,
        "halves of an allreduce are not asked where the best takes less than this times the bound: "
        "their pieces have unequal shares, which runtimes round, and programs lose more than that",
    )
    first_steps: int = setting(
        300_000, "work that every engine does in the first round of the race, at least"
    )
    steps_per_pair: int = setting(
        30, "the same for each pair of ranks: on large machines less leads to nothing"
    )
    deeper: int = setting(3, "how many times the work grows from one round to the next")
    patience: int = setting(2, "rounds without a gain that end the race")
    gain: float = setting(1e-3, "part of the value by which a round gains, at least")


@dataclass(frozen=True, slots=True)
class Profile:
    """Problems in whose race an engine takes part."""

    engine: str  # its text: engines are loaded when their turn comes
    # Of machines, by the effort
    ranks: Callable[[PortfolioEffort], range] = lambda _: range(sys.maxsize)
    # sketch, at_a_size, custom: with or without a sketch, for the objectives time and bandwidth or
    # the others, for custom collectives or the others; None: for both
    sketch: bool | None = False
    at_a_size: bool | None = None
    custom: bool | None = None
    # Only for collectives whose chunks are copied to all ranks, or that reversed
    copies: bool = False
    # Only for one size, and chunks from one rank to one other: paths for that size may beat those
    # for all sizes
    pairs: bool = False

    def takes(self, problem: Problem, effort: PortfolioEffort) -> bool:
        """Return True for a problem in whose race the engine takes part."""
        for asked, fact in (
            (self.sketch, problem.sketch is not None),
            (self.at_a_size, problem.objective in (Objective.TIME, Objective.BANDWIDTH)),
            (self.custom, problem.collective.kind is Kind.CUSTOM),
        ):
            if asked not in (None, fact):
                return False
        if problem.topology.ranks not in self.ranks(effort):
            return False
        if self.copies and problem.collective.kind not in COPIES:
            return False
        timed = problem.objective is Objective.TIME
        return not self.pairs or (timed and moves_pairs(problem.collective))


ONE_TRY = "greedy{seeds=1}"
"""Matching that runs in the first round only."""

SMALL_MODEL = "intervals{patience=0}"
"""CP-SAT over whole chunks, without the local search, which is beside it under a sketch."""

COPIES = (Kind.ALLGATHER, Kind.BROADCAST, Kind.REDUCE_SCATTER, Kind.REDUCE)
"""Collectives that matching is quick for: copies to all ranks, and their reverse."""

PROFILES = (
    Profile(SMALL_MODEL, lambda e: range(e.exact_ranks + 1), sketch=True, at_a_size=True),
    Profile("exact", lambda e: range(e.exact_pairs + 1), sketch=True, at_a_size=True),
    Profile("exact", lambda e: range(e.exact_ranks + 1), sketch=None, at_a_size=False),
    Profile("sketched", sketch=True),
    Profile("packing", sketch=None),
    Profile("classic", sketch=True),
    Profile("flow", lambda e: range(e.flow_ranks + 1), pairs=True),
    Profile("classic", lambda e: range(e.greedy_ranks)),
    Profile("exact", lambda e: range(e.exact_pairs + 1), at_a_size=True),
    Profile(
        "exact", lambda e: range(e.exact_pairs + 1, e.exact_ranks + 1), at_a_size=True, custom=True
    ),
    Profile(SMALL_MODEL, lambda e: range(e.exact_ranks + 1), at_a_size=True),
    Profile("greedy", custom=True),
    Profile("greedy", lambda e: range(e.greedy_ranks, sys.maxsize), custom=False),
    Profile(ONE_TRY, lambda e: range(e.greedy_ranks), at_a_size=True, copies=True),
    Profile("exact", lambda e: range(e.exact_ranks + 1, sys.maxsize), custom=True),
)
"""The engines of a race in their order, the likeliest to win first."""

FOR_SKETCHES = ("sketched", "intervals")
"""Engines whose proofs are about the schedules that a sketch leaves."""

WITH_CASTS = ("packing", "classic")
"""Engines that let switches copy and sum."""

NEAR = {
    "classic": ("classic_near", "classic_ranks", True),
    "halves": ("halves_near", "", False),
    "phases": ("near", "greedy_ranks", False),
}
"""Engines that do not run where the best takes less than a setting times the bound: from a
setting of ranks on, and for chunks from one rank to one other only, or for all."""


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
        race = _Race(
            problem,
            budget,
            observer,
            budget.meter(observer.cancelled),
            self._engines_of(problem, joined),
            self.effort,
        )
        race.run()
        return race.outcome()

    def _engines_of(self, problem: Problem, joined: tuple[str, ...]) -> list[_DeferredEngine]:
        if self.engines:  # a wrong one is reported before any runs
            named = (ENGINES.make(name) for name in self.engines)
            made = [_DeferredEngine.of(engine) for engine in named if _agrees(engine.availability)]
        else:
            likely = (x for x in _likely(problem, self.effort) if x != ONE_TRY or not joined)
            made = [
                _DeferredEngine(x.partition("{")[0], partial(ENGINES.make, x), once=x == ONE_TRY)
                for x in likely
            ]
            made += [
                _DeferredEngine.of(engine) for engine in _plugins() if _agrees(engine.availability)
            ]
        if phases_of(problem) is not None:  # the best engine for each phase
            from .parts import InPhases  # with it the classic algorithms are loaded

            ready = (entry.engine for entry in made)
            takes = [
                _DeferredEngine.of(e)
                for e in ready
                if e is not None and _agrees(partial(e.refuses, problem))
            ]
            return [*takes, _DeferredEngine.of(InPhases(self.solve_part, joined))]
        if problem.objective is Objective.TIME and not self.engines and len(made) > 1:
            from .parts import InHalves, InPhases

            joiners = [InPhases(self.solve_part, joined), InHalves(self.solve_part, joined)]
            left = (
                e for e in joiners if e.name not in joined and _agrees(partial(e.refuses, problem))
            )
            made += map(_DeferredEngine.of, left)
        if problem.topology.ranks >= self.effort.greedy_ranks:
            # Matching looks at every pair of ranks: compositions of quicker answers come first.
            made.sort(key=lambda entry: entry.name == "greedy")
        return made


@dataclass(frozen=True, eq=False)
class _DeferredEngine:
    """An engine of the race. Ours are made, and their modules loaded, when their turn comes."""

    name: str
    make: Callable[[], Engine]
    once: bool = False

    @classmethod
    def of(cls, engine: Engine) -> _DeferredEngine:
        return cls(engine.name, lambda: engine)

    @cached_property
    def engine(self) -> Engine | None:
        """The engine; None if it cannot run here."""
        made = self.make()
        return made if _agrees(made.availability) else None


def _likely(problem: Problem, effort: PortfolioEffort) -> Iterator[str]:
    return (one.engine for one in PROFILES if one.takes(problem, effort))


def _plugins() -> Iterator[Engine]:
    """The engines of other packages, after our own, with default options.

    One that needs an option takes part only where it is named; those that cannot be made stay out.
    """
    for name in ENGINES.plugins():
        try:
            if not needed_options(ENGINES.load(name)):
                yield ENGINES.make(name)
        except (UserError, Missing, PluginFault) as error:
            _leave_out(error, f"the engine {name!r}: ")


def _agrees(reason: Callable[[], str | None]) -> bool:
    """Return True if an engine can run; one whose answer fails stays out."""
    try:
        return reason() is None
    except PluginFault as error:
        _leave_out(error)
        return False


def _leave_out(error: WeftError, which: str = "") -> None:
    """Warn that an engine of another package takes no part; ``which``: where the error does not
    name it."""
    named = isinstance(error, BrokenPlugin | PluginFault)
    text = error.message if named else f"{which}{error.message}"
    warn(f"{text}; left out of the race", error.__cause__)


@dataclass(slots=True)
class _Race:
    """Run of the engines, one after the other, on one problem, with their results."""

    problem: Problem
    budget: Budget
    observer: Observer
    meter: Meter
    engines: list[_DeferredEngine]
    effort: PortfolioEffort
    found: list[Point] = field(default_factory=list)
    large: list[Point] = field(default_factory=list)  # of more transfers than the problem allows
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    failures: dict[str, WeftError] = field(default_factory=dict)
    asked: set[str] = field(default_factory=set)
    interrupted: bool = False
    over: Outcome | None = None
    times: dict[tuple[int, int], float] = field(default_factory=dict)

    def run(self) -> None:
        """Run the engines in rounds: each a little, then those that were cut short for longer.

        What is done, and in which order, does not depend on the budget, which only says where it
        ends: so more effort never gives a worse answer. Ctrl-C ends the run; points found until
        then are kept. Where the budget is too small for the first round, each
        engine gets half of the rest.
        """
        effort = self.effort
        steps = max(effort.first_steps, effort.steps_per_pair * self.problem.topology.ranks**2)
        left, values = self.engines, [math.inf]
        while left and not self._stale(values):
            cut_short = []
            for entry in left:
                if self._enough(steps, first=len(values) == 1):
                    return
                if (self.found and self._needless(entry.name)) or entry.engine is None:
                    continue
                if len(values) > 1 and (entry.once or self._close(entry.name)):
                    continue
                share = self._share(steps, first=len(values) == 1)
                if self._cut_short(entry.engine, share // 2 if entry.once else share):
                    cut_short.append(entry)
                if self.over is not None or self.interrupted:
                    return
            left, steps = cut_short, effort.deeper * steps
            values.append(self._value())

    def _share(self, steps: int, *, first: bool) -> int:
        if not first:
            return steps
        return min(steps, max(self.meter.left // 2, self.meter.limit // 10))

    def _stale(self, values: list[float]) -> bool:
        """Return True if the last rounds gained nothing; ``values``: after each one."""
        least = self.effort.patience
        if len(values) <= least + 1 or not self.found:
            return False
        return values[-1] > (1 - self.effort.gain) * values[-1 - least]

    def _worth(self, point: Point) -> tuple[Any, ...]:
        """The objective's value of a point, then values that order equal ones."""
        match self.problem.objective:
            case Objective.TIME:
                return self._time(point, self.problem.bytes or 1), point.steps
            case Objective.LATENCY:
                return latency_us(point.schedule), point.steps, point.rounds_per_chunk
            case _:
                return point.rounds_per_chunk, point.steps

    def _value(self) -> float:
        """The best value of the objective so far, a time in as many slices as are quickest; NaN
        for a frontier, which none has."""
        if not self.found:
            return math.inf
        if self.problem.objective is Objective.FRONTIER:
            return math.nan
        if self.problem.objective is not Objective.TIME:
            return float(min(self._worth(p)[0] for p in self.found))
        times = ((self._worth(p)[0], p.finer_us) for p in self.found)
        return float(min(us if finer is None else min(us, finer) for us, finer in times))

    def _enough(self, steps: int, *, first: bool) -> bool:
        """Return True if the race is over: cancelled, with the best answer, or without budget."""
        if self.meter.stopped():
            return True
        if not self.found or self._met():
            return bool(self.found)
        if first or self.meter.done + steps <= self.meter.limit:
            return False
        self.meter.cut_short()
        return True

    def _cut_short(self, engine: Engine, steps: int) -> bool:
        """Run an engine; return True if more work may bring more."""
        watch = _IncumbentRecorder(self.observer, engine, Incumbents(self.problem))
        alone = len(self.engines) == 1
        limit = self.meter.limit if alone else steps
        part = Meter(limit, self.meter.stopped, self.meter, trial=not alone)
        try:
            self._ask(engine, self.budget.within(part), watch)
        except KeyboardInterrupt:
            self.interrupted = True
            self._add(engine, watch.heard.points)
            if not self.found:
                raise
        return part.cut and engine.name not in self.failures and not alone

    def _ask(self, engine: Engine, budget: Budget, watch: _IncumbentRecorder) -> None:
        self.asked.add(engine.name)
        self.observer.stage(f"engine {engine.name}")
        try:
            outcome = solve(self.problem, engine, budget, watch)
        except UserError as error:
            self.failures[engine.name] = error
            return
        except NothingFound:
            return
        except WeftError as error:
            plugin = plugin_of(engine)
            if plugin is None and not isinstance(error, PluginFault):
                raise
            if len(self.engines) > 1:
                _leave_out(error, f"{plugin}: ")
            self.failures[engine.name] = error
            return
        self.outcomes[engine.name] = outcome
        whole = outcome.status in (Status.OPTIMAL, Status.INFEASIBLE)
        proved = engine.name == "exact" and self.problem.objective is Objective.FRONTIER and whole
        if self.problem.sketch is not None and whole:  # bounds ignore sketches
            proved |= engine.name in FOR_SKETCHES or outcome.status is Status.INFEASIBLE
        if proved or len(self.engines) == 1:
            points = tuple(_with_finder(p, engine) for p in outcome.points)
            self.over = replace(outcome, points=points)
            return
        self._add(engine, outcome.points)

    def _add(self, engine: Engine, points: list[Point] | tuple[Point, ...]) -> None:
        """Add points, each in the transfer order that is fastest at the size of the objective."""
        size = self.problem.bytes or LARGE
        for point in points:
            schedule = arranged(point.schedule, size, self.budget.seed, meter=self.meter)
            found = _with_finder(replace(point, schedule=schedule), engine)
            fits = _most_sent(schedule) <= (self.problem.most_moves or sys.maxsize)
            (self.found if fits else self.large).append(found)

    # --- stop criteria ----------------------------------------------------------------------------

    def _met(self) -> bool:
        match self.problem.objective:
            case Objective.TIME:
                return self._over_bound() <= 1 + 1e-9
            case Objective.BANDWIDTH:
                return any(p.bandwidth_optimal for p in self.found)
            case Objective.LATENCY:
                least = float(bounds(self.problem.topology, self.problem.collective).latency_us) * (
                    1 + 1e-9
                )
                return any(latency_us(p.schedule) <= least for p in self.found)
            case _:
                return False

    def _needless(self, engine: str) -> bool:
        """Return True if an engine can gain little: one that is :data:`NEAR` the bound, matching
        after the best rate, or of very many chunks from one rank to one other."""
        problem, effort = self.problem, self.effort
        if beyond_transfers(problem, self._value()):
            return engine not in WITH_CASTS or self._over_bound() <= effort.near
        if engine in NEAR:
            near, ranks, of_pairs = NEAR[engine]
            if ranks and problem.topology.ranks < getattr(effort, ranks):
                return False
            if of_pairs and not moves_pairs(problem.collective):
                return False
            return self._over_bound() <= float(getattr(effort, near))
        if engine != "greedy":
            return False
        many = problem.collective.chunks > effort.greedy_chunks
        if many and moves_pairs(problem.collective):
            return True
        if not any(p.bandwidth_optimal for p in self.found):
            return False
        small = problem.topology.ranks < effort.greedy_ranks
        most = effort.greedy_near if small else effort.near
        return problem.objective is not Objective.TIME or self._over_bound() <= most

    def _close(self, engine: str) -> bool:
        """Return True for packings of the best rate whose gap is below what counts as a gain."""
        if engine != "packing" or self.problem.objective is not Objective.TIME:
            return False
        best = any(p.bandwidth_optimal for p in self.found)
        return best and self._over_bound() <= 1 + self.effort.gain

    def _over_bound(self) -> float:
        """The best value of the objective (of a frontier: infinite) over its bound."""
        if self.problem.objective is Objective.BANDWIDTH:
            ratios = (p.rounds_per_chunk / p.bound if p.bound else math.inf for p in self.found)
            return float(min(ratios))
        if self.problem.objective is not Objective.TIME:
            return math.inf
        size = self.problem.bytes or 1
        least = float(
            Fraction(lower_bound_us(bounds(self.problem.topology, self.problem.collective), size))
        )
        return self._value() / least if least else 1.0

    def _time(self, point: Point, size: int) -> float:
        key = (id(point), size)
        if key not in self.times:
            self.meter.spend(simulation_steps(point.schedule))
            self.times[key] = simulate(point.schedule, size).time_us
        return self.times[key]

    # --- kept points ------------------------------------------------------------------------------

    def outcome(self) -> Outcome:
        """Return the best points at the sizes of the objective.

        Raises:
            UserError: nothing was found because the problem is wrong, or fits no engine.
            PluginFault: nothing was found because each engine that took part failed.
        """
        if self.over is not None:
            return self.over
        if self.large and not self.found:
            self.found = [min(self.large, key=lambda p: _most_sent(p.schedule))]
        if not self.found:
            if self.failures and not self.outcomes and not self.observer.cancelled():
                raise self._failure()
            return Outcome(Status.NOTHING, statements=self._statements(()))
        kept = self._select()
        status = Status.OPTIMAL if self._meets_bound(kept) else Status.FEASIBLE
        return Outcome(status, tuple(kept), self._statements(kept))

    def _failure(self) -> WeftError:
        """Return the error of the problem, or the reasons of all engines to refuse it.

        The fault of another package's engine is the error only where no engine of ours failed.
        """
        wrong = [e for e in self.failures.values() if not isinstance(e, Refusal)]
        wrong.sort(key=lambda e: isinstance(e, PluginFault))
        refused = len(wrong) < len(self.failures)
        if wrong and not (refused and isinstance(wrong[0], PluginFault)):
            return wrong[0]
        why = {str(name): e.reason for name, e in self.failures.items() if isinstance(e, Refusal)}
        if len(set(why.values())) == 1:
            return UserError(f"no engine can solve this: {next(iter(why.values()))}")
        reasons = "; ".join(f"{name}: {reason}" for name, reason in why.items())
        return UserError(
            f"no engine can solve this: {reasons}",
            hint="what each of them is for: weft list engines",
        )

    def _statements(self, kept: list[Point] | tuple[Point, ...]) -> tuple[str, ...]:
        finders = {finder(p) for p in kept}
        lines = []
        for name, outcome in self.outcomes.items():
            if name in finders:
                first = outcome.statements[0] if outcome.statements else str(outcome.status)
                words = [p.words for p in kept if p.words and finder(p) == name]
                lines += [f"{name}: {x}" for x in dict.fromkeys(words or [first])]
        lines += self._passed_over(kept)
        others = [name for name in self.outcomes if name not in finders]
        if kept and others:
            lines.append(f"no better: {', '.join(others)}")
        idle = dict.fromkeys(e.name for e in self.engines if e.name not in self.asked)
        if kept and idle and self.problem.objective is Objective.TIME:
            lines.append(f"not asked: {', '.join(idle)}")
        unasked = self.failures.get("sketched")
        if self.problem.sketch is not None and unasked is not None:  # those made for sketches
            why = unasked.reason if isinstance(unasked, Refusal) else unasked.message
            lines.append(f"sketched did not take part: {why}")
        if self.interrupted:
            lines.append("interrupted")
        return tuple(lines)

    def _passed_over(self, kept: Sequence[Point]) -> Iterator[str]:
        """Yield a statement of the quickest schedule if another one was taken at the size."""
        if self.problem.objective is not Objective.TIME or not (kept and self.found):
            return
        size = self.problem.bytes or 1
        quick = self._best(size)
        if self._time(kept[0], size) > MARGIN_EFFORT.alike * self._time(quick, size):
            yield (
                f"passed over: {self._time(quick, size):,.4g} µs by {finder(quick)}, in "
                f"{_messages(quick.schedule):,} messages; this one has "
                f"{_messages(kept[0].schedule):,}"
            )

    def _select(self) -> list[Point]:
        if self.problem.objective is Objective.FRONTIER:
            return self._frontier()
        if self.problem.objective is Objective.TIME:
            return [self._steadiest()]
        return [min(self.found, key=self._worth)]

    def _steadiest(self) -> Point:
        """Return the point of the least worst time, of those whose time is near the least, and
        within what counts as the same where messages have a cost."""
        size = self.problem.bytes or 1
        costs: list[tuple[float, Point]] = []
        found = sorted(self.found, key=self._worth)
        slices = SLICE_EFFORT.of(self.problem)
        lost = slices.kept(self._time(found[0], size))
        for point in found:
            least = min((us for us, _ in costs), default=math.inf)
            if self._time(point, size) > min(lost, slices.near(least)):
                break  # with its messages it takes no less
            if len(self.found) > 1:
                self.meter.spend(simulation_steps(point.schedule))
                least = simulate(point.schedule, size, slices.model).time_us
            costs.append((least, point))
        most = slices.near(min(us for us, _ in costs))
        near = [(self._time(p, size), p) for us, p in costs if us <= most]
        return steadiest(near, lambda p: worst_us(p.schedule, size, self.meter))

    def _frontier(self) -> list[Point]:
        """Return the points of ``exact`` (best in steps and rounds) and the fastest at any size.

        If all points are of one engine, they are its frontier already and are all kept.
        """
        if len({finder(p) for p in self.found}) == 1:
            return self.found
        kept = [p for p in self.found if finder(p) == "exact"]
        for size in LADDER:
            best = self._best(size)
            if all(self._time(best, size) < self.effort.worth * self._time(p, size) for p in kept):
                kept.append(best)
        kept = [p for p in kept if not any(self._beats(q, p) for q in kept)]
        kept.sort(key=lambda p: (p.steps, p.rounds_per_chunk))
        quickest = [min(kept, key=lambda p: self._time(p, size)) for size in LADDER]
        sizes = {id(p): [s for s, q in zip(LADDER, quickest, strict=True) if q is p] for p in kept}
        return [replace(p, sizes=tuple(sizes[id(p)])) for p in kept]

    def _beats(self, one: Point, other: Point) -> bool:
        times = [(self._time(one, size), self._time(other, size)) for size in LADDER]
        steps, rates = (one.steps, other.steps), (one.rounds_per_chunk, other.rounds_per_chunk)
        pairs: list[tuple[Any, Any]] = [steps, rates, *times]
        return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)

    def _best(self, size: int) -> Point:
        if len(self.found) == 1:
            return self.found[0]
        return min(self.found, key=lambda p: (self._time(p, size), p.steps))

    def _meets_bound(self, kept: list[Point]) -> bool:
        if self.problem.objective is Objective.TIME:
            return any(meets_bound(p, self.problem) for p in kept)
        found, self.found = self.found, kept
        met = self._met()
        self.found = found
        return met


@dataclass(frozen=True, slots=True)
class _IncumbentRecorder(Forwarding):
    """Passes everything on, and remembers results in case the engine is cut short."""

    inner: Observer
    engine: Engine
    heard: Incumbents

    def incumbent(self, point: Point) -> None:
        if self.heard.add(point):
            self.inner.incumbent(_with_finder(point, self.engine))


def finder(point: Point) -> str:
    """The engine that found a point."""
    return str(point.schedule.provenance["found_by"])


def _most_sent(schedule: Schedule) -> int:
    """Return the most transfers that a rank sends."""
    return int(np.bincount(schedule.src).max(initial=0)) if len(schedule) else 0


def _messages(schedule: Schedule) -> int:
    """Return the transfers of all slices."""
    return schedule.moves * schedule.segments


def _with_finder(point: Point, engine: Engine) -> Point:
    signed = point.schedule.with_provenance(found_by=engine.name, cites=engine.cites)
    return replace(point, schedule=signed)


def _with_gain(outcome: Outcome, problem: Problem) -> Outcome:
    """The outcome, and the gain of switches that compute, which a sketch may forbid."""
    gain = None if problem.sketch else switch_gain(problem.topology, problem.collective)
    if gain is None or not outcome.points:
        return outcome
    schedules = [p.schedule.with_provenance(switches=gain.words) for p in outcome.points]
    pairs = zip(outcome.points, schedules, strict=True)
    points = tuple(replace(point, schedule=schedule) for point, schedule in pairs)
    return replace(outcome, points=points, statements=(*outcome.statements, gain.words))
