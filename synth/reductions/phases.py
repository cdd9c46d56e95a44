"""Phases of a sketch: one subproblem per group and phase, whose schedules one after the other are
a schedule of the whole (as BlueConnect, Cho et al., SysML 2019, composes rings).

Applying the reduction gives one problem for all groups of a phase that are wired alike, on their
part of the data; undoing it gives each cell (:mod:`.groups`) its pieces, and the transfers of all
groups their positions. Phases of different slices of the message then run at once; the number of
slices is the fastest one.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import field, replace
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from weft.dsl.base.arrays import Ints, distinct_values
from weft.dsl.base.errors import BadTopology, UserError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.unique_rows import rows_of
from weft.dsl.nouns.collective import Collective, make
from weft.dsl.nouns.problem import Objective, Problem
from weft.dsl.nouns.schedule import Schedule
from weft.dsl.nouns.sketch import Phases, Sketch
from weft.dsl.nouns.topology import Topology

from ..base.effort import Effort, setting
from ..base.engine import Budget, Observer, Outcome, Point, Status
from ..base.meter import Meter
from ..bounds import bounds
from ..frontier.objective import pareto, point_of
from ..judge.verify import verify
from ..time.order import LARGE, arranged
from ..time.schedule_tables import doubled
from ..time.schedule_time import simulate, simulation_steps
from ..time.slices import SLICE_EFFORT, fewest_slices
from .groups import GroupMachine, GroupPart, cells_of, group_machines, group_rules, parts_of
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
        """Solve the parts of the groups in each phase, and join the schedules.

        Raises:
            UserError: a part cannot be solved, or what is put together breaks a rule.
        """
        rule, meter = phases_of(problem), budget.meter(observer.cancelled)
        assert rule is not None, "else it does not fit"
        cells = cells_of(rule.phases, rule.kind, problem.collective.ranks)
        tasks = _tasks(problem, rule, cells)
        run = _PhasedSolve(problem, tasks, cells, budget, meter, observer, solver, self.effort)
        plan = run.plan()
        for place, (size, finer) in enumerate(plan):
            if run.found and meter.over():
                break
            yield from run.look_at(size, finer, meter.part(1 / (len(plan) - place)))
        return run.outcome()


def phases_of(problem: Problem) -> Phases | None:
    """The phases that the sketch requests, if they make the collective."""
    sketch, collective = problem.sketch, problem.collective
    plain = collective.factor == 1 and not collective.sizes and not collective.local_reduce
    for rule in sketch.rules if sketch else ():
        if isinstance(rule, Phases) and rule.kind is collective.kind and plain:
            return rule
    return None


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
        return replace(
            self.problem,
            objective=objective,
            bytes=None if latency else max(1, own),
            message_us=whole.message_us,
        )


def _tasks(problem: Problem, rule: Phases, cells: int) -> list[_EqualParts]:
    sketch = problem.sketch or Sketch("")
    alike: dict[tuple[Any, ...], list[tuple[GroupPart, GroupMachine]]] = {}
    sketches: dict[tuple[Any, ...], Sketch | None] = {}
    parts = parts_of(rule.phases, rule.kind, problem.collective.ranks)
    for number, phase in enumerate(rule.phases):
        mine = [p for p in parts if p.phase == number]
        groups = tuple(p.ranks for p in mine)
        machines = group_machines(problem.topology, groups, f"{phase.kind}{number + 1}")
        for part, machine in zip(mine, machines, strict=True):
            rules = tuple(group_rules(sketch, machine, cells))
            own = replace(sketch, rules=rules, machine="", collective="", engine="")
            wiring = machine.topology.nodes, machine.topology.links, machine.topology.resources
            key = (number, part.cells.shape, wiring, rules)
            alike.setdefault(key, []).append((part, machine))
            sketches[key] = own if rules else None
    return [_EqualParts(_problem(x[0], sketches[key]), tuple(x)) for key, x in alike.items()]


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
    problem: Problem
    tasks: list[_EqualParts]
    cells: int
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
        placed: list[GroupSchedule] = []
        said = []
        for turn, task in enumerate(self.tasks):
            part = task.at(self.problem, max(1, size // finer), self.cells)
            point = yield from self._part(part, task, meter.part(1 / (len(self.tasks) - turn)))
            if point is None:
                return
            finder = point.schedule.provenance.get("found_by", self.solver)
            said.append(f"{task.name} by {finder}")
            placed += [GroupSchedule(p, machine, point.schedule) for p, machine in task.parts]
        self.observer.stage("phases put together")
        topology, collective = self.problem.topology, self.problem.collective
        joined = in_turn(topology, collective, placed, self.cells, self.effort.finest)
        joined = joined.with_provenance(reduction="phases", parts=said)
        verdict = verify(joined, self.problem.sketch)
        if not verdict.ok:
            why = verdict.problems[0]
            raise UserError(f"the phases, one after the other, break a rule: {why}")
        known = bounds(topology, collective)
        point = point_of(self._sliced(joined, size), known, words="; ".join(said))
        self.found.append(point)
        self.observer.incumbent(point)

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
        made, charged = {1: schedule}, SLICE_EFFORT.of(self.problem)

        def time(slices: int) -> float:
            if slices == 1:
                return simulate(schedule, size, charged.model).time_us
            # First come first served; or slice by slice, in the order of the schedule.
            order = np.arange(len(schedule), dtype=np.int32)
            served = replace(schedule, segments=slices)
            ways = served, replace(served, priority=order, stride=0)
            timed = [(simulate(s, size, charged.model).time_us, s) for s in ways]
            self.meter.spend(sum(simulation_steps(s) for _, s in timed))
            took, made[slices] = min(timed, key=lambda x: x[0])
            return took

        most = 1
        if size > self.effort.least_cut:
            most = min(self.effort.most_slices, self.effort.most_sends // max(1, len(schedule)))
        tried = doubled(time, most, self.effort.slower)
        return made[
            fewest_slices(tried, lambda slices: simulate(made[slices], size).time_us, charged)
        ]

    def outcome(self) -> Outcome:
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


# --- joining the schedules of groups --------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class GroupSchedule:
    """One group: its part, its machine, and the schedule of the part on that machine."""

    part: GroupPart
    machine: GroupMachine
    schedule: Schedule


def in_turn(
    topology: Topology,
    collective: Collective,
    placed: Sequence[GroupSchedule],
    cells: int,
    finest: int,
) -> Schedule:
    """One schedule of the plain collective, of whose units each is ``cells`` cells.

    A phase takes as many steps as its slowest group. Cells are cut wherever some group cuts them,
    in at most ``finest`` grains.

    Raises:
        UserError: the groups cut cells in shares without a common denominator.
    """
    grid = _CellCuts.of(placed, collective.chunks * cells, finest)
    parts, first = [], 0
    for number in sorted({p.part.phase for p in placed}):
        mine = [p for p in placed if p.part.phase == number]
        parts += [_columns(p, grid, first) for p in mine]
        first += max(p.schedule.steps for p in mine)
    joined = {
        name: np.concatenate([part[name] for part in parts]) for part in parts for name in part
    }
    # Groups take turns: of two that share a link neither goes before the other altogether.
    order = np.lexsort((joined.pop("turn"), joined["step"]))
    lengths = joined.pop("route_lengths")
    links = joined.pop("route_links")
    start = np.concatenate([[0], np.cumsum(lengths)])
    routes, at = rows_of(start, order)
    columns: dict[str, Any] = {name: column[order] for name, column in joined.items()}
    return Schedule.from_columns(
        topology,
        grid.cut(collective, cells),
        **columns,
        route_lengths=np.diff(routes),
        route_links=links[at],
    )


@dataclass(frozen=True, eq=False)
class _CellCuts:
    """Cuts of cells into pieces: ``ends[first[c]:first[c+1]]`` are where the pieces of cell c end,
    in parts of ``grains``."""

    grains: int
    first: Ints
    ends: Ints

    @staticmethod
    def of(placed: Sequence[GroupSchedule], cells: int, finest: int) -> _CellCuts:
        grains = math.lcm(*(p.schedule.collective.factor for p in placed))
        if grains > finest:
            raise UserError("the groups cut their data in shares without a common denominator")
        marks = [np.full(cells, grains)]
        owners = [np.arange(cells)]
        for p in placed:
            unit, _, end = _shares(p.schedule.collective, grains)
            cell = p.part.cells[unit]
            owners.append(cell.ravel())
            marks.append(np.repeat(end, cell.shape[1]))
        key = distinct_values(np.concatenate(owners) * (grains + 1) + np.concatenate(marks))
        owner, ends = np.divmod(key, grains + 1)
        return _CellCuts(grains, np.searchsorted(owner, np.arange(cells + 1)), ends)

    @property
    def sizes(self) -> Ints:
        """Grains of every piece."""
        before = np.concatenate([[0], self.ends[:-1]])
        before[self.first[:-1]] = 0
        found: Ints = self.ends - before
        return found

    def cut(self, collective: Collective, cells: int) -> Collective:
        """The plain collective in these pieces."""
        sizes = self.sizes
        if (sizes == sizes[0]).all():
            return collective.split(len(sizes) // collective.chunks)
        count = np.diff(self.first[::cells])
        return collective.cut_in(sizes // np.gcd.reduce(sizes), count)

    def pieces(self, cell: Ints, begin: Ints, end: Ints) -> tuple[Ints, Ints]:
        """The pieces of shares of cells: (which share, piece)."""
        owner = np.repeat(np.arange(len(self.first) - 1), np.diff(self.first))
        whole = owner * (self.grains + 1) + self.ends
        first = np.searchsorted(whole, cell * (self.grains + 1) + begin, side="right")
        last = np.searchsorted(whole, cell * (self.grains + 1) + end, side="right")
        count = last - first
        share = np.repeat(np.arange(len(cell)), count)
        inside = np.arange(len(share)) - np.repeat(np.cumsum(count) - count, count)
        return share, first[share] + inside


def _shares(collective: Collective, grains: int) -> tuple[Ints, Ints, Ints]:
    """Of every chunk: its unit, and the grains of the unit between which it lies."""
    scale = grains // collective.factor
    opens = np.cumsum(collective.grains) - collective.grains
    unit, inside = np.divmod(opens, collective.factor)
    return unit, inside * scale, (inside + collective.grains) * scale


def _columns(p: GroupSchedule, grid: _CellCuts, first_step: int) -> dict[str, Ints]:
    s = p.schedule
    unit, begin, end = _shares(s.collective, grid.grains)
    copies = p.part.cells.shape[1]
    share, piece = grid.pieces(
        p.part.cells[unit].ravel(), np.repeat(begin, copies), np.repeat(end, copies)
    )
    edges = np.searchsorted(share // copies, np.arange(s.collective.chunks + 1))
    starts, at = rows_of(edges, s.chunk.astype(np.int64))
    row = np.repeat(np.arange(len(s)), np.diff(starts))
    route_starts, links = rows_of(s.route_start, row)
    where = np.array(p.machine.nodes, np.int64)
    return {
        "chunk": piece[at],
        "src": where[s.src[row]],
        "dst": where[s.dst[row]],
        "step": s.step[row].astype(np.int64) + first_step,
        "reduce": s.reduce[row].astype(np.int64),
        "route_lengths": np.diff(route_starts),
        "route_links": p.machine.links[s.route_links[links]],
        "turn": _turns(s)[row],
    }


def _turns(s: Schedule) -> Ints:
    """Position of each transfer in the planned order, else in the order of the schedule."""
    if s.priority is None:
        return np.arange(len(s))
    found = np.empty(len(s), np.int64)
    found[np.argsort(s.priority, kind="stable")] = np.arange(len(s))
    return found


def whole_sums(schedule: Schedule) -> Schedule | None:
    """Return an allreduce without local sums at the end: as it is; or, if every contribution comes
    straight from its owner in one step, the same transfers as reductions; else None."""
    c = schedule.collective
    if not c.local_reduce:
        return schedule
    owner = np.empty(c.chunks, np.int64)
    owner[c.pre.chunks] = c.pre.ranks
    if schedule.steps > 1 or (owner[schedule.chunk] != schedule.src).any():
        return None
    place = np.empty(c.chunks, np.int64)
    for group in c.local_reduce:
        place[list(group)] = group[0]
    plain = make(c.kind, c.ranks, chunks=c.factor)
    columns = schedule.columns()
    columns["chunk"] = place[schedule.chunk]
    columns["reduce"] = np.ones(len(schedule), bool)
    return Schedule.from_columns(
        schedule.topology, plain, **columns, provenance=schedule.provenance
    )
