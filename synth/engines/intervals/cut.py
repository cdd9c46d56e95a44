"""One cut at one size: a local search for the time to beat, then CP-SAT."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np

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
from ...bounds.whole_chunks import left_out, not_counted, whole_chunk_bound
from ...fabric.fabric import fabric_of
from ...frontier.objective import point_of
from ...reductions.reverse import keeps_times, reverse
from ...solvers.cp_sat import CpAnswer, CpVerdict, solve
from ...solvers.pool import listener_of
from ...time.order import mirrored
from ...time.schedule_time import simulate, simulation_steps
from ..sketched.field import SearchInstance
from ..sketched.search import PlacementSearch
from ..sketched.search_kernel import Placements
from .effort import IntervalsEffort
from .model import SUBSOLVERS, IntervalModel, StartWindows


@dataclass(frozen=True, eq=False)
class CutAnswer:
    """A schedule in chunks of one size, and a bound on all of them."""

    pieces: int  # of every unit
    schedule: Schedule
    us: float
    least_us: float  # µs that any schedule in these chunks takes
    why: str
    beyond: tuple[str, ...] = ()  # ways of these chunks that the bound does not know

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


@dataclass(frozen=True, eq=False)
class CopyTask:
    """A problem at one size, and the same with copies alone: itself, or turned round in time."""

    problem: Problem
    size: int
    copied: Problem
    undo: Callable[[Schedule], Schedule] | None

    @staticmethod
    def of(problem: Problem, size: int) -> CopyTask:
        """The task of a problem.

        Raises:
            UserError: sums that cannot be turned round, or rules that have no meaning then.
        """
        if not problem.collective.combining:
            return CopyTask(problem, size, problem, None)
        return CopyTask(problem, size, *reverse(problem))

    def schedule(self, copied: Schedule) -> Schedule:
        """The schedule of the problem from one of copies."""
        return copied if self.undo is None else mirrored(copied, self.undo(copied), self.size)


def solve_cut(
    task: CopyTask, pieces: int, budget: Budget, observer: Observer, effort: IntervalsEffort
) -> CutAnswer:
    """The best schedule of chunks cut in ``pieces``.

    Raises:
        UserError: a chunk cannot reach all ranks that want it.
    """
    meter, problem = budget.meter(observer.cancelled), task.copied
    cut = problem.collective.split(pieces) if pieces > 1 else problem.collective
    grain = Fraction(task.size, cut.message_chunks)
    field = SearchInstance.of(problem, cut, grain)
    known = whole_chunk_bound(problem.topology, cut, grain, field.usable)
    search = PlacementSearch.of(field, budget.seed)
    search.run(meter.part(effort.first_share), effort.first_turns, float(known.us))
    run = _CutSearch(task, field, budget.seed, observer, meter, effort)
    run.offer(search.best)
    narrow = run.narrowing()
    least = float(lower_bound_us(bounds(task.problem.topology, task.problem.collective), task.size))
    general = least
    why = "the bound of all schedules"
    if narrow in ("", BLOCKS) and float(known.us) > least:
        least, why = float(known.us), known.certificate.text
    if not meets(run.us, least):
        found, how = run.ask(search.best, float(known.us))
        if found is not None and narrow:
            why += f"; {how}, {narrow}: {found:,.6g} µs"
        elif found is not None and found >= least:
            least, why = found, how
        else:
            why += f"; {how}"
    assert run.schedule is not None, "the first one was offered"
    beyond = left_out(problem.topology) if least > general else ()
    of = f" of any schedule in these chunks{run.alike()}{not_counted(beyond)}: {why}"
    return CutAnswer(pieces, run.schedule, run.us, min(least, run.us), of, beyond)


CHOSEN = "for the peers that were chosen"
BLOCKS = "where images of a hop that share a resource hold it one right after the other"
MIRROR = "for the machine turned round"


@dataclass(slots=True)
class _CutSearch:
    """One field, and the best schedule for it so far."""

    task: CopyTask
    field: SearchInstance
    seed: int
    observer: Observer
    meter: Meter
    effort: IntervalsEffort
    us: float = math.inf
    schedule: Schedule | None = None

    def offer(self, placed: Placements) -> None:
        """Take placements if their schedule is quicker."""
        schedule = self.task.schedule(self.field.schedule(placed))
        us = simulate(schedule, self.task.size).time_us
        self.meter.spend(simulation_steps(schedule, 1 if self.task.undo is None else 2))
        if us < self.us:
            self.us, self.schedule = us, schedule
            limits = bounds(self.task.problem.topology, self.task.problem.collective)
            self.observer.incumbent(point_of(schedule, limits, us=us))

    def ask(self, placed: Placements, least_us: float) -> tuple[float | None, str]:
        """A bound in µs that CP-SAT proves for the field, None without one, and its source."""
        unit, before = self.field.machine.unit, self.us
        windows = StartWindows.of(self.field, round(Fraction(before) * unit), self.effort)
        intervals = f"{len(windows.spans):,} intervals"
        if len(windows.spans) > self.effort.intervals:
            most = f"{self.effort.intervals:,}"
            return None, f"{intervals} are more than {most}, so CP-SAT was not asked"
        self.observer.stage(f"CP-SAT: {intervals}")
        model = IntervalModel(windows, int(Fraction(least_us) * unit / windows.tick), placed)
        try:
            answer = self._solved(model, self.effort.model_effort)
        except Missing as error:
            return None, f"CP-SAT was not asked: {error.message}"
        how = f"CP-SAT over {intervals}"
        if answer.verdict is CpVerdict.INFEASIBLE:
            return self._true(before), how
        if answer.verdict is not CpVerdict.OPTIMAL:
            self.meter.over()  # with more work there may be more
        if answer.bound is None:
            return None, f"{how} found no bound"
        if answer.found:
            self._again(windows, model, answer)
        return self._true(self.field.machine.us(answer.bound * windows.tick)), how

    def _solved(self, model: IntervalModel, effort: float, plans: int = 0) -> CpAnswer:
        """CP-SAT's answer, after ``plans`` at most (0: any number), which are offered."""
        answer = solve(
            model.model,
            steps=min(self.meter.left, round(effort * STEPS)),
            seed=self.seed,
            race=SUBSOLVERS,
            listener=listener_of(self.meter),
            heard=lambda values: self.offer(model.placements(values)),
            solutions=plans,
        )
        self.meter.spend(answer.steps)
        if answer.found:
            self.offer(model.placements(answer.values))
        return answer

    def _again(self, windows: StartWindows, model: IntervalModel, answer: CpAnswer) -> None:
        """Offer other plans as quick as the one found, where the clock runs that one slower.

        The clock lets nothing wait that could start, so what starts as early as it can is run as
        planned; of a plan turned round that is what ends as late as it can.
        """
        end = answer.values[model.end]
        if meets(self.us, self.field.machine.us(end * windows.tick)):
            return
        beside = StartWindows.of(self.field, end * windows.tick + 1, self.effort)
        other = IntervalModel(beside, 0, model.placements(answer.values))
        early = 1 if self.task.undo is None else -1
        other.model.minimize([(moment, early) for moment in other.at.values()])
        self._solved(other, self.effort.again_effort, self.effort.plans)

    def _true(self, us: float) -> float:
        """A bound in ticks, less by their own rounding."""
        fabric, unit = fabric_of(self.field.topology), self.field.machine.unit
        grain = Fraction(self.task.size, self.field.collective.message_chunks)
        times = {*(grain * slow for slow in {*fabric.us_per_byte}), *fabric.latency}
        exact = all((x * unit).denominator == 1 for x in times)
        return us if exact else us * float(1 - self.effort.rounded)

    def alike(self) -> str:
        """The symmetry that schedules must have."""
        rules = (self.task.problem.sketch or Sketch("")).rules
        return " of this symmetry" * any(isinstance(rule, Symmetry) for rule in rules)

    def narrowing(self) -> str:
        """The schedules that the model leaves, where it rules out more than the problem."""
        rules = (self.task.problem.sketch or Sketch("")).rules
        if any(isinstance(rule, SwitchPolicy) and rule.limit is not None for rule in rules):
            return CHOSEN
        assert self.schedule is not None, "the first one was offered"
        if self.task.undo is not None and not keeps_times(self.schedule, self.task.size):
            return MIRROR
        m, moved = self.field.machine, self.field.moved
        for h in range(m.hops) if len(moved) > 1 else ():
            held = np.concatenate([m.resource[m.first[g] : m.first[g + 1]] for g in moved[:, h]])
            if len({*held.tolist()}) < len(held):
                return BLOCKS
        return ""
