"""The lines of a sketch that make a time impossible: a minimal set of them, and what each costs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import StrEnum
from fractions import Fraction

from weft.dsl.base.errors import UserError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.collective import Collective
from weft.dsl.nouns.problem import Objective, Problem
from weft.dsl.nouns.schedule import Schedule
from weft.dsl.nouns.sketch import Chunks, FixedSend, Rule, Sketch
from weft.dsl.nouns.topology import Topology

from ..api import synthesize
from ..base.cancellable import cut_off
from ..base.conflict import smallest_conflict
from ..base.engine import Budget, Silent
from ..base.meter import STEPS, Meter
from ..bounds.whole_chunks import left_out
from ..judge.verify import verify
from ..reductions.reverse import reverse
from ..solvers.cp_sat import CpVerdict
from ..time.schedule_time import simulate
from .conflicts import Unit, statements
from .costs import least_time
from .feasibility import EXPLAIN_EFFORT, ExplainEffort, Feasibility
from .timed import TimedPlans, refusal


class Possibility(StrEnum):
    """Verdict on rules and a time."""

    POSSIBLE = "possible"
    IMPOSSIBLE = "impossible"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class WithinAnswer:
    """Answer to the question if rules leave a plan in time.

    ``us``: µs of the plan found, None without one; ``least``: no plan in these chunks is shorter;
    ``why``: the reason of an impossibility, or of a missing decision; ``beyond``: what the former
    does not exclude, such as finer chunks, in which a race found nothing in time. ``schedule`` has
    the transfers of the plan, in their order; ``simulated_us`` is its time by the simulator's rule,
    which lets nothing wait for the planned order and may take longer.
    """

    verdict: Possibility
    us: float | None = None
    least: bool = False
    why: str = ""
    beyond: str = ""
    schedule: Schedule | None = None
    simulated_us: float | None = None


@dataclass(frozen=True, slots=True)
class Dropped:
    """A statement of the core, the answer to the whole sketch without it, and a lower bound in µs
    on that."""

    unit: Unit
    answer: WithinAnswer
    bound_us: Fraction
    needed: bool  # True if the rest of the core was shown to be possible


@dataclass(frozen=True, slots=True)
class Within:
    """Answer for a whole sketch, a message of ``bytes`` and a time in µs.

    ``answer``: to the whole sketch; where that is impossible, the reason is that of the core.
    ``core``: a minimal set of statements that makes the time impossible, in the order of the text;
    empty where no statement does (the machine and the collective alone do, or it is possible).
    ``pieces``: numbers of chunks per unit that were considered where no rule names one.
    """

    bytes: int
    within_us: Fraction
    answer: WithinAnswer
    core: tuple[Dropped, ...]
    pieces: tuple[int, ...]

    @property
    def minimal(self) -> bool:
        """True if every smaller core was shown to be possible."""
        return all(one.needed for one in self.core)


def explain_within(
    topology: Topology,
    collective: Collective,
    sketch: Sketch,
    message_bytes: int,
    within_us: Fraction,
    budget: Budget,
) -> Within:
    """Return a minimal set of statements of a sketch without which a time in µs can be met.

    By the deletion filter: each statement is left out once. Every question goes to bounds, then to
    CP-SAT (:mod:`.timed`), and to a race of engines where those do not decide.

    Raises:
        UserError: the collective is too large to be looked at chunk by chunk; a time of 0 or less.
    """
    if within_us <= 0:
        raise UserError("expected a time above 0 for --within, got 0 or less")
    rules = sketch.at(message_bytes).rules
    meter = budget.meter(cut_off(Silent(), budget).cancelled)
    ask = _Questions(topology, collective, message_bytes, within_us, budget, rules)
    units = statements(rules)
    whole = ask.judge(rules, meter.part(1 / (2 + len(units))), best=True)
    if whole.verdict is Possibility.UNDECIDED:  # any plan will do
        whole = ask.judge(rules, meter.part(0.5))
    if whole.verdict is not Possibility.IMPOSSIBLE:
        return Within(message_bytes, within_us, whole, (), ask.pieces)
    # Cuts are left out last: what is left open until then is open for one number of chunks.
    lines = sorted(units, key=lambda unit: isinstance(unit[0], Chunks))
    asked = {_key(rules): whole}

    def impossible(left: Sequence[Unit]) -> bool:
        some = [rule for unit in left for rule in unit]
        if _key(some) not in asked:
            share = meter.part(1 / max(2, 2 + len(lines) - len(asked)))
            asked[_key(some)] = ask.judge(some, share)
        return asked[_key(some)].verdict is Possibility.IMPOSSIBLE

    core = smallest_conflict(lines, impossible)
    whole = asked[_key([rule for unit in core for rule in unit])]
    possible = [some for some, one in asked.items() if one.verdict is Possibility.POSSIBLE]
    dropped: list[Dropped] = []
    for unit in (unit for unit in units if any(unit is x for x in core)):
        rest = _key([rule for other in core if other is not unit for rule in other])
        needed = any(rest <= some for some in possible)  # what more rules allow, fewer do
        left = [rule for rule in rules if not any(rule is x for x in unit)]
        answer = ask.judge(left, meter.part(1 / (1 + len(core) - len(dropped))), best=True)
        bound = ask.bound(left) if not ask.feasible.obstacle(left) else Fraction(0)
        dropped.append(Dropped(unit, answer, bound, needed))
    return Within(message_bytes, within_us, whole, tuple(dropped), ask.pieces)


def _key(rules: Sequence[Rule]) -> frozenset[int]:
    return frozenset(map(id, rules))


class _Questions:
    """Questions about subsets of a sketch's rules."""

    def __init__(
        self,
        topology: Topology,
        collective: Collective,
        message_bytes: int,
        within_us: Fraction,
        budget: Budget,
        rules: Sequence[Rule],
        effort: ExplainEffort = EXPLAIN_EFFORT,
    ) -> None:
        self.feasible = Feasibility(topology, collective)
        self.bytes, self.within, self.budget = message_bytes, within_us, budget
        self.effort = effort
        named = {r.count for r in rules if isinstance(r, Chunks)}
        named |= {r.piece + 1 for r in rules if isinstance(r, FixedSend) and r.piece is not None}
        small = [k for k in effort.within_pieces if isinstance(self._plans((), k), _Plans)]
        self.pieces = tuple(sorted({*(small or effort.within_pieces[:1]), *named}))

    def bound(self, rules: Sequence[Rule]) -> Fraction:
        """Return a lower bound in µs under rules that leave each chunk a way."""
        return least_time(self.feasible, rules, self.bytes).us

    def judge(self, rules: Sequence[Rule], meter: Meter, *, best: bool = False) -> WithinAnswer:
        """Say whether some plan under these rules ends in time; ``best``: look for the shortest,
        within the effort that the settings leave it."""
        if why := self.feasible.obstacle(rules):
            return WithinAnswer(Possibility.IMPOSSIBLE, why=why)
        bound = least_time(self.feasible, rules, self.bytes)
        if bound.us > self.within:
            why = f"{float(bound.us):.6g} µs is the least: {bound.certificate.text}"
            return WithinAnswer(Possibility.IMPOSSIBLE, why=why)
        named = [r.count for r in rules if isinstance(r, Chunks)]
        cuts = tuple(named[:1]) or self.pieces
        if best:
            meter = meter.of(min(meter.left, round(self.effort.within_best * STEPS)))
        found: list[WithinAnswer] = []
        for i, pieces in enumerate(cuts):
            # What is not shorter than what is there is not looked for.
            limit = min((Fraction(x.us) for x in found if x.us is not None), default=self.within)
            share = meter.part(0.7 / (len(cuts) - i))
            found.append(self._cut(rules, (pieces, limit), share, best))
            if found[-1].verdict is Possibility.POSSIBLE and not best:
                return found[-1]
        if all(one.verdict is Possibility.IMPOSSIBLE for one in found):
            shown = " or ".join(map(str, cuts))
            why = f"no plan ends in time (proved by search; units in {shown} whole chunks)"
            answer = WithinAnswer(Possibility.IMPOSSIBLE, why=why, beyond=self._beyond(named))
            return self._raced(rules, meter, answer) if answer.beyond else answer
        there = [one for one in found if one.us is not None]
        if there:
            first = min(there, key=lambda one: one.us or 0.0)
            open_cuts = any(one.verdict is Possibility.UNDECIDED for one in found)
            least = all(one.least for one in there) and not open_cuts
            return replace(first, least=least and not left_out(self.feasible.topology))
        undecided = next(one for one in found if one.verdict is Possibility.UNDECIDED)
        return self._raced(rules, meter, undecided)

    def _beyond(self, named: Sequence[int]) -> str:
        """Return what a proof about plans in whole chunks, in numbers ``named``, does not exclude;
        empty if it excludes all."""
        topology = self.feasible.topology
        found = [] if named else ["finer chunks"]
        return ", ".join((*found, *left_out(topology)))

    def _problem(self, rules: Sequence[Rule]) -> Problem:
        sketch = Sketch("", tuple(rules)) if rules else None
        feasible = self.feasible
        return Problem(feasible.topology, feasible.collective, sketch, Objective.TIME, self.bytes)

    def _plans(
        self, rules: Sequence[Rule], pieces: int, within_us: Fraction | None = None
    ) -> _Plans | str:
        """Return the plans in a number of chunks for each unit, or why they cannot be modelled."""
        problem = self._problem(rules)
        asked = problem
        undo: Callable[[Schedule], Schedule] | None = None
        try:
            if problem.collective.combining:
                asked, undo = reverse(problem)
            if why := refusal(asked.sketch.rules if asked.sketch else ()):
                return why
            plans = TimedPlans(asked, pieces, within_us or self.within)
        except UserError as error:
            return error.message
        if asked is not problem and not plans.reversible:
            return "the model of times is not that of sums where routes share a resource"
        size = len(plans.windows.spans)
        if size > self.effort.within_intervals:
            most = self.effort.within_intervals
            return f"the model of times would have {size} intervals, more than {most}"
        return _Plans(plans, problem, undo)

    def _cut(
        self, rules: Sequence[Rule], asked: tuple[int, Fraction], meter: Meter, best: bool
    ) -> WithinAnswer:
        """Ask CP-SAT for units in a number of chunks, and a time in µs."""
        made = self._plans(rules, *asked)
        if isinstance(made, str):
            return WithinAnswer(Possibility.UNDECIDED, why=made)
        answer = made.plans.solve(meter, self.budget.seed, best=best)
        if answer.verdict is CpVerdict.INFEASIBLE:
            return WithinAnswer(Possibility.IMPOSSIBLE)
        if answer.schedule is None:
            return WithinAnswer(Possibility.UNDECIDED, why="the effort was not enough")
        schedule = made.undo(answer.schedule) if made.undo else answer.schedule
        verdict = verify(schedule, made.problem.sketch)
        if not verdict.ok:
            return WithinAnswer(Possibility.UNDECIDED, why=verdict.problems[0])
        return WithinAnswer(
            Possibility.POSSIBLE,
            answer.us,
            answer.verdict is CpVerdict.OPTIMAL,
            schedule=schedule,
            simulated_us=simulate(schedule, self.bytes).time_us,
        )

    def _raced(self, rules: Sequence[Rule], meter: Meter, known: WithinAnswer) -> WithinAnswer:
        """Ask the engines for a schedule in time; ``known``: the answer if they find none."""
        problem = self._problem(rules)
        budget = self.budget.within(meter)
        try:
            outcome = synthesize(problem, budget=budget)
        except UserError as error:
            return replace(known, why=f"{known.why}; {error.message}")
        timed = [(simulate(p.schedule, self.bytes).time_us, p.schedule) for p in outcome.points]
        us, schedule = min(timed, key=lambda x: x[0], default=(float("inf"), None))
        if schedule is None:
            return known
        if us > float(self.within) or not verify(schedule, problem.sketch).ok:
            return replace(known, why=f"{known.why}; a race of the engines found {us:.6g} µs")
        return WithinAnswer(Possibility.POSSIBLE, us, schedule=schedule, simulated_us=us)


@dataclass(frozen=True, slots=True)
class _Plans:
    plans: TimedPlans
    problem: Problem  # the one that was asked
    undo: Callable[[Schedule], Schedule] | None  # leads back to its schedules, if they are turned
