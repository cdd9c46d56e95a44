"""Run of a race: the members in rounds, their results, and who is asked again."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import field, replace
from fractions import Fraction
from typing import Any

import numpy as np

from weft.dsl.base.errors import (
    NothingFound,
    PluginFault,
    Refusal,
    UserError,
    WeftError,
)
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.plugins import plugin_of
from weft.dsl.nouns.problem import Objective, Problem
from weft.dsl.nouns.schedule import Schedule

from ...base.engine import Budget, Engine, Forwarding, Observer, Outcome, Point, Status
from ...base.meter import Meter
from ...bounds import bounds, lower_bound_us
from ...bounds.switch_gain import beyond_transfers
from ...frontier.objective import Incumbents, meets_bound
from ...reductions.solve import solve
from ...time.latency import latency_us
from ...time.margin import MARGIN_EFFORT, steadiest, worst_us
from ...time.order import LARGE, arranged
from ...time.schedule_time import simulate, simulation_steps
from ...time.slices import SLICE_EFFORT
from ..packing.trees.demands import moves_pairs
from .members import (
    FOR_SKETCHES,
    LADDER,
    NEAR,
    WITH_CASTS,
    DeferredEngine,
    PortfolioEffort,
    Turn,
    leave_out,
    turns_json,
)


@dataclass(slots=True)
class Race:
    """Run of the engines, one after the other, on one problem, with their results."""

    problem: Problem
    budget: Budget
    observer: Observer
    meter: Meter
    engines: list[DeferredEngine]
    effort: PortfolioEffort
    found: list[Point] = field(default_factory=list)
    large: list[Point] = field(default_factory=list)  # of more transfers than the problem allows
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    failures: dict[str, WeftError] = field(default_factory=dict)
    asked: set[str] = field(default_factory=set)
    interrupted: bool = False
    ended: bool = False
    on_top: int = 0  # work of pieces that left the answer far from the bound: rounds go on
    over: Outcome | None = None
    turns: list[Turn] = field(default_factory=list)
    dropped: dict[str, float] = field(default_factory=dict)  # times the best
    times: dict[tuple[int, int], float] = field(default_factory=dict)

    def run(self) -> None:
        """Run the engines in rounds: each a little, then those that were cut short for longer.

        What the rounds do, and in which order, does not depend on the budget, which only says where
        they end. Then the most promising one gets all of it in one piece, on top (:meth:`_chosen`):
        it does what it does alone. If it finishes, so does the next; if the answer is still far
        from the bound, the rounds go on. Ctrl-C ends the run; points
        found until then are kept. Where the budget is too small for the first round, each engine
        gets half of the rest.
        """
        effort = self.effort
        steps = max(effort.first_steps, effort.steps_per_pair * self.problem.topology.ranks**2)
        left = self._round(self.engines, steps, 1)
        values, number = [math.inf, self._value()], 2
        while left and not self.ended and not self._stale(values):
            more = effort.deeper * steps
            chosen, cut = self._chosen(left, more, first=len(values) == 2), True
            if chosen is not None:
                entry, why = chosen
                left = [one for one in left if one is not entry]
                assert entry.engine is not None, "it was asked before"
                done = self.meter.done
                cut = self._cut_short(entry.engine, self.meter.limit, why)
                self.ended = self.over is not None or self.interrupted
                if self._over_bound() > effort.far:
                    self.on_top += self.meter.done - done
            if cut and self.found and left and not self._fits(more):
                self.meter.cut_short()
                return
            if chosen is None:
                left, steps, number = self._round(left, more, number), more, number + 1
            if chosen is None or self._fits(more):
                values.append(self._value())

    def _fits(self, steps: int) -> bool:
        """Return True if the budget allows this much work more."""
        return self.meter.done + steps <= self.meter.limit + self.on_top

    def _round(self, left: list[DeferredEngine], steps: int, number: int) -> list[DeferredEngine]:
        """Ask each for some steps; return those to ask again, the best so far first.

        A round that has begun is finished for those that are not :attr:`PortfolioEffort.behind`.
        """
        cut_short, begun = [], False
        for entry in left:
            self.ended = self._enough()
            if self.ended:
                return []
            if (self.found and self._needless(entry.name)) or entry.engine is None:
                continue
            if number > 1 and (entry.once or self._close(entry.name)):
                continue
            fits = number == 1 or not self.found or self._fits(steps)
            if begun and self._value_of(entry.name) <= self.effort.behind * self._value():
                fits = True
            begun |= fits
            share = self._share(steps, first=number == 1)
            share = share // 2 if entry.once else share
            if not fits or self._cut_short(entry.engine, share, f"round {number}"):
                cut_short.append(entry)
            self.ended = self.over is not None or self.interrupted
            if self.ended:
                return []
        asked_again = [one for one in cut_short if not self._too_slow(one.name)]
        return sorted(asked_again, key=lambda one: self._value_of(one.name))

    def _too_slow(self, name: str) -> bool:
        """Return True for one whose answer is far behind the best, and is remembered as such, but
        not where its rate says that a better order may be ahead of all."""
        best, mine = self._value(), self._value_of(name)
        if not mine > self.effort.slow * best or math.isinf(mine):
            return False  # nor one without an answer, nor where none has a value
        if self._by_rate(name) < min(best, self.effort.rate_near * self._least_us()):
            return False
        self.dropped[name] = mine / best
        return True

    def _chosen(
        self, left: list[DeferredEngine], steps: int, *, first: bool
    ) -> tuple[DeferredEngine, str] | None:
        """Return who gets all of the effort in one piece, and why; None: another round comes.

        ``left``: those cut short, the best first; ``steps``: of the next round; ``first``: after
        the first one.
        """
        effort, best = self.effort, left[0]
        if self.problem.objective not in (Objective.TIME, Objective.BANDWIDTH) or not self.found:
            return None
        if self._over_bound() <= effort.rest_near:
            return None
        if first and self._over_bound() > effort.far:
            rate = min(self._value(), effort.rate_near * self._least_us())
            for one in left:
                if self._by_rate(one.name) < rate:
                    return one, "its rate is near the bound, and every schedule is far"
        behind = self._value_of(best.name) / self._value()
        if behind <= 1 + effort.gain and len(left) == 1:
            return best, "the only one left"
        if behind <= effort.behind and not self._fits(steps):
            return best, "the best so far, and another round does not fit"
        return None

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
        return self._least(self.found)

    def _value_of(self, name: str) -> float:
        """The same of the answers of one engine."""
        return self._least(self._of(name))

    def _of(self, name: str) -> list[Point]:
        return [p for p in self.found if finder(p) == name]

    def _least(self, points: list[Point]) -> float:
        if not points:
            return math.inf
        if self.problem.objective is Objective.FRONTIER:
            return math.nan
        if self.problem.objective is not Objective.TIME:
            return float(min(self._worth(p)[0] for p in points))
        times = ((self._worth(p)[0], p.finer_us) for p in points)
        return float(min(us if finer is None else min(us, finer) for us, finer in times))

    def _by_rate(self, name: str) -> float:
        """Return the µs of the best rate of an engine's schedules at the size, without α: what
        they tend to in ever better orders. Infinite where the rate is a small part of the bound."""
        if self.problem.objective is not Objective.TIME:
            return math.inf
        known = bounds(self.problem.topology, self.problem.collective)
        unit = float(known.us_per_byte) * (self.problem.bytes or 1)
        if unit < self.effort.rate_part * self._least_us():
            return math.inf
        ratios = (float(p.rounds_per_chunk / known.rounds_per_chunk) for p in self._of(name))
        return unit * min(ratios, default=math.inf)

    def _enough(self) -> bool:
        """Return True if the race is over: cancelled, or with the best answer."""
        return self.meter.stopped() or (bool(self.found) and self._met())

    def _cut_short(self, engine: Engine, steps: int, why: str) -> bool:
        """Run an engine; return True if more work may bring more."""
        before = self.meter.done
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
        cut = part.cut and engine.name not in self.failures and not alone
        spent = self.meter.done - before
        ending = "cut short" if cut else "finished"
        if engine.name in self.failures:
            ending = "took no part"
        value = self._least(list(self.over.points) if self.over else self._of(engine.name))
        self.turns.append(Turn(engine.name, limit, spent, value, why, ending))
        return cut

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
                leave_out(error, f"{plugin}: ")
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
        least = self._least_us()
        return self._value() / least if least else 1.0

    def _least_us(self) -> float:
        """The bound in µs at the size of the objective."""
        known = bounds(self.problem.topology, self.problem.collective)
        return float(Fraction(lower_bound_us(known, self.problem.bytes or 1)))

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
        return replace(self._outcome(), report={"turns": turns_json(self.turns, self.dropped)})

    def _outcome(self) -> Outcome:
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
