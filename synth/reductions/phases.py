"""Phases of a sketch: one subproblem per group and phase, whose schedules one after the other are
a schedule of the whole (as BlueConnect, Cho et al., SysML 2019, composes rings).

Applying the reduction gives one problem for all groups of a phase that are wired alike, on their
part of the data; undoing it gives each cell (:mod:`.groups`) its pieces, and the transfers of all
groups their positions. Phases of different slices of the message then run at once; the number of
slices is the fastest one.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import field, replace
from fractions import Fraction
from typing import Any, ClassVar

from weft.dsl.base.errors import BadTopology, UserError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.problem import Objective, Problem
from weft.dsl.nouns.schedule import Schedule
from weft.dsl.nouns.sketch import Phases, Sketch

from ..base.effort import Effort, setting
from ..base.engine import Budget, Observer, Outcome, Point, Status
from ..base.meter import Meter
from ..bounds import bounds
from ..fabric.occupancy import rounds_per_chunk
from ..frontier.objective import pareto
from ..judge.verify import verify
from ..time.order import LARGE, arranged
from ..time.schedule_tables import doubled
from ..time.schedule_time import simulate, simulation_steps
from .groups import GroupMachine, GroupPart, cells_of, group_machines, group_sketch, parts_of
from .in_turn import GroupSchedule, in_turn, planned, whole_sums
from .reduction import Quiet, Steps, Subproblem


@dataclass(frozen=True, slots=True)
class PhasesEffort(Effort):
    """Limits on the sizes and slices that are tried."""

    frontier: tuple[int, ...] = setting(
        (1 << 10, 1 << 20, 1 << 30), "message sizes in bytes that a frontier is put together for"
    )
    most_slices: int = setting(128, "slices of the message, at most")
    finer: int = setting(
        16, "parts are solved for the message, and for one this many times smaller, as slices are"
    )
    least_cut: int = setting(
        1 << 18, "bytes of the message below which parts are solved for the whole only"
    )
    most_sends: int = setting(
        1_000_000, "transfers times slices that are simulated; more take too long"
    )
    slower: float = setting(
        1.05, "no more slices are tried when a run takes this many times the shortest"
    )
    least_steps: int = setting(100_000, "steps of work that each part gets at least")
    finest: int = setting(
        1 << 24,
        "grains of a part of the data; groups that cut it in shares without a common denominator "
        "below are refused",
    )


@dataclass(frozen=True, slots=True)
class Phased:
    """The collectives of the groups in the phases of a sketch, one after the other."""

    name: ClassVar[str] = "phases"

    effort: PhasesEffort = field(default_factory=PhasesEffort)

    def fits(self, problem: Problem) -> bool:
        """Sketches with phases that make the collective."""
        return phases_of(problem) is not None

    def apply(self, problem: Problem, budget: Budget, observer: Observer, solver: str) -> Steps:
        """As :func:`in_phases`."""
        return in_phases(problem, budget, observer, solver, self.effort)


def phases_of(problem: Problem) -> Phases | None:
    """The phases that the sketch asks for, if they make the collective."""
    sketch, collective = problem.sketch, problem.collective
    plain = collective.factor == 1 and not collective.sizes and not collective.local_reduce
    for rule in sketch.rules if sketch else ():
        if isinstance(rule, Phases) and rule.kind is collective.kind and plain:
            return rule
    return None


def _required(problem: Problem) -> Phases:
    rule = phases_of(problem)
    assert rule is not None, "whoever calls has looked"
    return rule


def in_phases(
    problem: Problem, budget: Budget, observer: Observer, solver: str, effort: PhasesEffort
) -> Steps:
    """Solve the parts of the groups in each phase, and join the schedules.

    ``solver``: the engine to name where a schedule does not name its finder.

    Raises:
        UserError: a part cannot be solved, or what is put together breaks a rule.
    """
    meter = budget.meter(observer.cancelled)
    run = _PhasedSolve(problem, _tasks(problem), budget, meter, observer, solver, effort)
    plan = run.plan()
    for place, (size, finer) in enumerate(plan):
        if run.found and meter.over():
            break
        yield from run.look_at(size, finer, meter.part(1 / (len(plan) - place)))
    return run.outcome()


@dataclass(frozen=True, eq=False)
class _EqualParts:
    """Equal parts, and the problem that they have in common (without a size)."""

    problem: Problem
    parts: tuple[tuple[GroupPart, GroupMachine], ...]

    @property
    def name(self) -> str:
        """``allreduce in 8 groups of 2``."""
        kind, ranks = self.problem.collective.kind, self.problem.collective.ranks
        many = f"{len(self.parts)} groups" if len(self.parts) > 1 else "a group"
        return f"{kind} in {many} of {ranks}"

    def at(self, whole: Problem, size: int, cells: int) -> Problem:
        """The problem at the size that it has where the whole message has ``size`` bytes."""
        cell = Fraction(size, whole.collective.message_chunks * cells)
        copies = self.parts[0][0].cells.shape[1]
        own = int(cell * copies * self.problem.collective.message_chunks)
        latency = whole.objective is Objective.LATENCY
        objective = Objective.LATENCY if latency else Objective.TIME
        return replace(self.problem, objective=objective, bytes=None if latency else max(1, own))


def _tasks(problem: Problem) -> list[_EqualParts]:
    rule, sketch = _required(problem), problem.sketch or Sketch("")
    ranks = problem.collective.ranks
    cells = cells_of(rule.phases, rule.kind, ranks)
    alike: dict[tuple[Any, ...], list[tuple[GroupPart, GroupMachine]]] = {}
    rules: dict[tuple[Any, ...], Sketch | None] = {}
    parts = parts_of(rule.phases, rule.kind, ranks)
    for number, phase in enumerate(rule.phases):
        mine = [p for p in parts if p.phase == number]
        groups = tuple(p.ranks for p in mine)
        machines = group_machines(problem.topology, groups, f"{phase.kind}{number + 1}")
        for part, machine in zip(mine, machines, strict=True):
            own = group_sketch(sketch, machine, cells)
            key = (number, part.cells.shape, machine.wiring, own and own.rules)
            alike.setdefault(key, []).append((part, machine))
            rules[key] = own
    return [_EqualParts(_problem(x[0], rules[key]), tuple(x)) for key, x in alike.items()]


def _problem(of: tuple[GroupPart, GroupMachine], sketch: Sketch | None) -> Problem:
    part, machine = of
    try:
        return Problem(machine.topology, make(part.kind, len(part.ranks)), sketch)
    except BadTopology:
        ranks = ", ".join(map(str, part.ranks))
        raise UserError(
            f"phase {part.phase + 1}: no links join ranks {ranks}, which are to {part.kind}",
            hint="data moves inside the groups of a phase only",
        ) from None


@dataclass(slots=True)
class _PhasedSolve:
    """One problem, its tasks, and the schedules joined so far."""

    problem: Problem
    tasks: list[_EqualParts]
    budget: Budget
    meter: Meter
    observer: Observer
    solver: str
    effort: PhasesEffort
    found: list[Point] = field(default_factory=list)

    def plan(self) -> list[tuple[int, int]]:
        """Sizes that schedules are put together for, and the parts of them to solve for."""
        match self.problem.objective:
            case Objective.LATENCY:
                return [(1, 1)]
            case Objective.FRONTIER:
                return [(size, 1) for size in self.effort.frontier]
            case _:
                size = self.problem.bytes or LARGE
                cut = size >= self.effort.least_cut
                return [(size, 1), *([(size, self.effort.finer)] if cut else [])]

    def look_at(self, size: int, finer: int, meter: Meter) -> Generator[Subproblem, Outcome, None]:
        """Solve the parts for a slice of the message, and put them together for the message."""
        cells = self._cells()
        placed: list[GroupSchedule] = []
        said = []
        for turn, task in enumerate(self.tasks):
            part = task.at(self.problem, max(1, size // finer), cells)
            point = yield from self._part(part, task, meter.part(1 / (len(self.tasks) - turn)))
            if point is None:
                return
            finder = point.schedule.provenance.get("found_by", self.solver)
            said.append(f"{task.name} by {finder}")
            placed += [GroupSchedule(p, machine, point.schedule) for p, machine in task.parts]
        self.observer.stage("phases put together")
        joined = in_turn(
            self.problem.topology, self.problem.collective, placed, cells, self.effort.finest
        )
        joined = joined.with_provenance(reduction="phases", parts=said)
        _require_obedient(joined, self.problem)
        point = self._point(self._sliced(joined, size), "; ".join(said))
        self.found.append(point)
        self.observer.incumbent(point)

    def _cells(self) -> int:
        rule = _required(self.problem)
        return cells_of(rule.phases, rule.kind, self.problem.collective.ranks)

    def _part(
        self, problem: Problem, task: _EqualParts, meter: Meter
    ) -> Generator[Subproblem, Outcome, Point | None]:
        """The fastest point of a part without local reductions at the end."""
        self.observer.stage(task.name)
        share = self.budget.within(meter, max(meter.left, self.effort.least_steps))
        outcome = yield Subproblem(problem, share, Quiet(self.observer))
        size = problem.bytes or 1
        usable = []
        for point in outcome.points:
            schedule = whole_sums(arranged(point.schedule, size, self.budget.seed, meter=meter))
            if schedule is not None:
                usable.append(replace(point, schedule=schedule))
        if outcome.points and not usable:
            raise UserError(f"{task.name}: its sums are formed at home, not on the way")
        return min(usable, key=lambda p: simulate(p.schedule, size).time_us, default=None)

    def _sliced(self, schedule: Schedule, size: int) -> Schedule:
        """Return it in the fastest number of slices at a size; more are tried until slower."""
        made = {1: schedule}

        def time(slices: int) -> float:
            if slices == 1:
                return simulate(schedule, size).time_us
            timed = [(simulate(s, size).time_us, s) for s in planned(schedule, slices)]
            self.meter.spend(sum(simulation_steps(s) for _, s in timed))
            took, made[slices] = min(timed, key=lambda x: x[0])
            return took

        most = 1
        if size > self.effort.least_cut:
            most = min(self.effort.most_slices, self.effort.most_sends // max(1, len(schedule)))
        return made[min(doubled(time, most, self.effort.slower))[1]]

    def _point(self, schedule: Schedule, words: str) -> Point:
        limit = bounds(self.problem.topology, self.problem.collective)
        rate = rounds_per_chunk(schedule)
        return Point(
            schedule,
            schedule.steps,
            0,
            schedule.collective.factor,
            limit.rounds_per_chunk,
            limit.certificate,
            step_optimal=schedule.steps == limit.steps,
            bandwidth_optimal=rate == limit.rounds_per_chunk,
            rate=rate,
            words=words,
        )

    def outcome(self) -> Outcome:
        """Return the outcome that is best for the objective."""
        if not self.found:
            return Outcome(Status.NOTHING)
        points = self.found
        match self.problem.objective:
            case Objective.TIME:
                size = self.problem.bytes or 1
                points = [min(points, key=lambda p: simulate(p.schedule, size).time_us)]
            case Objective.BANDWIDTH:
                points = [min(points, key=lambda p: p.rounds_per_chunk)]
            case _:
                points = pareto(points)
        return Outcome(Status.FEASIBLE, tuple(points), tuple(p.words for p in points))


def _require_obedient(schedule: Schedule, problem: Problem) -> None:
    verdict = verify(schedule, problem.sketch)
    if not verdict.ok:
        raise UserError(f"the phases, one after the other, break a rule: {verdict.problems[0]}")
