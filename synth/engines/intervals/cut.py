"""One cut at one size: a local search for the time to beat, then CP-SAT."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from weft.dsl.base.arrays import distinct_values
from weft.dsl.base.errors import Missing
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.tables import count
from weft.dsl.nouns.problem import Problem
from weft.dsl.nouns.schedule import Schedule
from weft.dsl.nouns.sketch import Sketch, SwitchPolicy, Symmetry

from ...base.engine import Budget, Observer
from ...base.meets import meets
from ...base.meter import STEPS, Meter
from ...bounds import bounds, lower_bound_us
from ...bounds.whole_chunks import whole_chunk_bound
from ...fabric.fabric import fabric_of
from ...frontier.objective import point_of
from ...solvers.cp_sat import CpVerdict, solve
from ...solvers.pool import listener_of
from ...time.order import arranged
from ...time.schedule_time import simulate, simulation_steps
from ..sketched.field import SearchInstance
from ..sketched.search import PlacementSearch
from ..sketched.search_kernel import Placements
from .effort import IntervalsEffort
from .model import SUBSOLVERS, IntervalModel, Windows

ROUNDED = Fraction(1, 1 << 19)
"""The part by which a bound in ticks may be too high where the ticks themselves are rounded up
(:func:`~weft.synth.fabric.hop_table.hop_table_of`): a 2^20th of a hold, and as much of an α."""


@dataclass(frozen=True, eq=False)
class CutAnswer:
    """A schedule in chunks of one size, and a bound on all of them."""

    pieces: int  # of every unit
    schedule: Schedule
    us: float
    least_us: float  # µs that any schedule in these chunks takes
    why: str

    @property
    def proved(self) -> bool:
        """True if no schedule in these chunks is quicker."""
        return meets(self.us, self.least_us)

    @property
    def words(self) -> str:
        """The answer and its proof."""
        gap = self.us / self.least_us - 1 if self.least_us else 0.0
        above = "" if self.proved else f"at most {gap:.2%} above "
        return f"{count(self.pieces, 'piece')}: {self.us:,.6g} µs, {above}the least{self.why}"


def solve_cut(
    problem: Problem,
    pieces: int,
    size: int,
    budget: Budget,
    observer: Observer,
    effort: IntervalsEffort,
) -> CutAnswer:
    """The best schedule of chunks cut in ``pieces`` for a message of ``size`` bytes.

    Raises:
        UserError: a chunk cannot reach all ranks that want it.
    """
    meter = budget.meter(observer.cancelled)
    cut = problem.collective.split(pieces) if pieces > 1 else problem.collective
    grain = Fraction(size, cut.message_chunks)
    field = SearchInstance.of(problem, cut, grain)
    known = whole_chunk_bound(problem.topology, cut, grain, field.usable)
    search = PlacementSearch.of(field, budget.seed)
    search.run(meter.part(effort.first_share), effort.first_turns, float(known.us))
    run = _CutSearch(problem, field, size, budget, observer, meter, effort)
    run.offer(search.best)
    narrow = run.narrowing()
    general = float(lower_bound_us(bounds(problem.topology, problem.collective), size))
    least = general if narrow == CHOSEN else max(general, float(known.us))
    if meets(run.us, least):
        return run.answer(pieces, least, f" of any schedule{run.kind()}: {known.certificate.text}")
    found, why = run.ask(search.best, least)
    if found is not None and narrow:
        why = f"{why}; CP-SAT proves {found:,.6g} µs {narrow}"
    elif found is not None and found >= least:
        return run.answer(pieces, found, f" of any schedule{run.kind()}: {why}")
    return run.answer(
        pieces, least, f" of any schedule{run.kind()}: {known.certificate.text}; {why}"
    )


CHOSEN = "for the peers that were chosen"
BLOCKS = "where images of a hop that share a resource hold it one right after the other"


@dataclass(slots=True)
class _CutSearch:
    """One field, and the best schedule for it so far."""

    problem: Problem
    field: SearchInstance
    size: int
    budget: Budget
    observer: Observer
    meter: Meter
    effort: IntervalsEffort
    us: float = float("inf")
    schedule: Schedule | None = None

    def offer(self, placed: Placements) -> None:
        """Take placements if their schedule is quicker; it may be so in another order too."""
        planned = self.field.schedule(placed)
        due = self.field.machine.us(int(placed.end.max(initial=0)))
        tried = [planned]
        if simulate(planned, self.size).time_us > due * (1 + 1e-9):
            free = replace(planned, priority=None)
            tried.append(arranged(free, self.size, self.budget.seed, meter=self.meter))
        for schedule in tried:
            us = simulate(schedule, self.size).time_us
            self.meter.spend(simulation_steps(schedule))
            if us < self.us:
                self.us, self.schedule = us, schedule
                limits = bounds(self.problem.topology, self.problem.collective)
                self.observer.incumbent(point_of(schedule, limits, us=us))

    def ask(self, placed: Placements, least_us: float) -> tuple[float | None, str]:
        """A bound in µs that CP-SAT proves for the field, None without one, and how it went."""
        unit, effort = self.field.machine.unit, self.effort
        windows = Windows.of(self.field, round(Fraction(self.us) * unit), effort)
        intervals = f"{len(windows.spans):,} intervals"
        if len(windows.spans) > effort.intervals:
            return None, f"{intervals} are more than {effort.intervals:,}: CP-SAT was not asked"
        self.observer.stage(f"CP-SAT: {intervals}")
        model = IntervalModel(windows, int(Fraction(least_us) * unit / windows.tick), placed)
        try:
            answer = solve(
                model.model,
                steps=min(self.meter.left, round(effort.model_effort * STEPS)),
                seed=self.budget.seed,
                race=SUBSOLVERS,
                listener=listener_of(self.meter),
                heard=lambda values: self.offer(model.placements(values)),
            )
        except Missing as error:
            return None, f"CP-SAT was not asked: {error.message}"
        before = self.us
        self.meter.spend(answer.steps)
        if answer.verdict is CpVerdict.INFEASIBLE:
            return self._true(before), f"CP-SAT over {intervals}"
        if answer.verdict is not CpVerdict.OPTIMAL:
            self.meter.over()  # with more work there may be more
        if answer.found:
            self.offer(model.placements(answer.values))
        if answer.bound is None:
            return None, f"CP-SAT has no answer about {intervals}"
        return (
            self._true(self.field.machine.us(answer.bound * windows.tick)),
            f"CP-SAT over {intervals}",
        )

    def _true(self, us: float) -> float:
        """A bound in ticks, less by their own rounding."""
        fabric, unit = fabric_of(self.problem.topology), self.field.machine.unit
        grain = Fraction(self.size, self.field.collective.message_chunks)
        times = {*(grain * slow for slow in {*fabric.us_per_byte}), *fabric.latency}
        exact = all((x * unit).denominator == 1 for x in times)
        return us if exact else us * float(1 - ROUNDED)

    def kind(self) -> str:
        """The schedules that a bound is about."""
        rules = (self.problem.sketch or Sketch("")).rules
        alike = any(isinstance(rule, Symmetry) for rule in rules)
        return " in these chunks" + " of this symmetry" * alike

    def narrowing(self) -> str:
        """What the model rules out, though no rule of the problem does."""
        rules = (self.problem.sketch or Sketch("")).rules
        if any(isinstance(rule, SwitchPolicy) and rule.limit is not None for rule in rules):
            return CHOSEN
        m, moved = self.field.machine, self.field.moved
        for h in range(m.hops) if len(moved) > 1 else ():
            held = [r for g in moved[:, h] for r in m.resource[m.first[g] : m.first[g + 1]]]
            if len(distinct_values(held)) < len(held):
                return BLOCKS
        return ""

    def answer(self, pieces: int, least_us: float, why: str) -> CutAnswer:
        """The best schedule with a bound."""
        assert self.schedule is not None, "the first one was offered"
        return CutAnswer(pieces, self.schedule, self.us, min(least_us, self.us), why)
