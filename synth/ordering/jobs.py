"""Jobs beside each other: their use of resources, their shifts, and how long iterations take."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise, product
from math import ceil, floor, gcd, lcm, prod
from statistics import fmean

import numpy as np

from weft.dsl.base.arrays import Ints
from weft.dsl.base.errors import UserError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.workload_plan import WorkloadPlan

from ..solvers.cp_sat import CpModel, CpVerdict, solve
from .effort import ORDER_EFFORT
from .plan import graph_of
from .simulate import Sharing, Simulator
from .tasks import Task, TaskGraph


@dataclass(frozen=True, slots=True)
class Use:
    """Use of a resource by a job: ``share`` of it from ``start`` to ``end`` µs of its period."""

    resource: str
    start: Fraction
    end: Fraction
    share: Fraction


@dataclass(frozen=True, slots=True)
class PeriodicJob:
    """A job by its name, its period in µs, and its uses of resources in time."""

    name: str
    period: Fraction
    uses: tuple[Use, ...]


@dataclass(frozen=True, slots=True)
class Shifts:
    """Shifts in µs, one per job; the first is 0."""

    us: tuple[Fraction, ...]
    common_us: Fraction  # the common period
    # before, excess: µs of a resource that are requested beyond all of it, in a common period and
    # summed over the resources: unshifted, and with the shifts
    before: Fraction
    excess: Fraction
    bound: Fraction  # least excess that is proved; equal to excess where optimal
    # By how much one job may come late or early without any excess; None if there is excess anyway,
    # or if it is less than a tick of a coarse grid
    drift_us: Fraction | None
    by_resource: dict[str, Fraction]  # excess of each resource with the shifts

    @property
    def optimal(self) -> bool:
        """Return True if no shifts have less excess."""
        return self.bound == self.excess

    @property
    def helps(self) -> bool:
        """Return True if the shifts are better than none."""
        return self.excess < self.before

    @property
    def score(self) -> Fraction:
        """Return the share of the shared resources' time that is requested once only."""
        return 1 - self.excess / (self.common_us * max(1, len(self.by_resource)))


def best_shifts(jobs: Sequence[PeriodicJob], seed: int = 0) -> Shifts:
    """Return shifts with the least excess, of these some with the largest tolerance to drift.

    Times that are not round make the grid of all edges too fine to search. A coarser one is then
    searched, on which each use lasts a little longer: no excess there is none at all. Excess is
    that of the true times in any case.

    Raises:
        UserError: the periods have a common multiple that is too long.
    """
    grid = ShiftGrid.of(jobs)
    still = [Fraction(0)] * len(jobs)
    before = excesses_us(jobs, still, grid.common_us)
    answer = _solved(grid, 0, ORDER_EFFORT.shift_work, seed)
    found = [0] * len(jobs) if answer is None else answer.shifts
    us = [grid.tick * s for s in found]
    after = excesses_us(jobs, us, grid.common_us)
    if sum(after.values()) >= sum(before.values()):
        found, us, after = [0] * len(jobs), still, before
    excess = sum(after.values(), Fraction(0))
    total = dict.fromkeys(grid.resources, -grid.common_us)  # excess that no shifts remove
    for job in jobs:
        for use in (one for one in job.uses if one.resource in total):
            total[use.resource] += use.share * (use.end - use.start) * grid.common_us / job.period
    least = sum((max(Fraction(0), x) for x in total.values()), Fraction(0))
    sure = not grid.coarse and answer is not None and answer.optimal
    drift = None
    if not excess:
        ticks, found = _widest(grid, found, ORDER_EFFORT.shift_work, seed)
        drift = grid.tick * ticks if ticks or not grid.coarse else None
        us = [grid.tick * s for s in found]
    return Shifts(
        tuple(us),
        grid.common_us,
        sum(before.values(), Fraction(0)),
        excess,
        excess if sure else min(excess, least),
        drift,
        after,
    )


def excesses_us(
    jobs: Sequence[PeriodicJob], shifts: Sequence[Fraction], common: Fraction
) -> dict[str, Fraction]:
    """Return for each shared resource the µs that are requested beyond it in a common period."""
    changes: dict[str, dict[Fraction, Fraction]] = {name: {} for name in shared_by(jobs)}
    for job, shift in zip(jobs, shifts, strict=True):
        for use in (one for one in job.uses if one.resource in changes):
            mine = changes[use.resource]
            for turn in range(int(common / job.period)):
                begin = (shift + use.start + turn * job.period) % common
                end = begin + use.end - use.start
                spans = [(begin, min(end, common)), (Fraction(0), end - common)]
                for at, until in (span for span in spans if span[0] < span[1]):
                    mine[at] = mine.get(at, Fraction(0)) + use.share
                    mine[until] = mine.get(until, Fraction(0)) - use.share
    found = {}
    for name, mine in changes.items():  # the integral of the use beyond 1
        total = used = last = Fraction(0)
        for at, change in sorted(mine.items()):
            total += max(Fraction(0), used - 1) * (at - last)
            used, last = used + change, at
        found[name] = total
    return found


def shared_by(jobs: Sequence[PeriodicJob]) -> tuple[str, ...]:
    """Return the resources that two jobs use or more."""
    users: dict[str, set[int]] = {}
    for at, one in enumerate(jobs):
        for use in one.uses:
            users.setdefault(use.resource, set()).add(at)
    return tuple(name for name, who in users.items() if len(who) > 1)


@dataclass(frozen=True, eq=False)
class ShiftGrid:
    """Uses of the jobs on a grid of time: ``use[j]`` has shape (resources, ticks of its period).

    ``coarse``: edges lie between its ticks, and each use lasts for all ticks that it touches.
    """

    tick: Fraction
    coarse: bool
    common: int
    full: int
    resources: tuple[str, ...]
    use: tuple[Ints, ...]

    @staticmethod
    def of(jobs: Sequence[PeriodicJob]) -> ShiftGrid:
        """Return the grid on which all edges lie, or a coarser one if that has too many ticks.

        Raises:
            UserError: the periods alone have too many.
        """
        shared = shared_by(jobs)
        edges = (time for one in jobs for use in one.uses for time in (use.start, use.end))
        tick, unit = (
            _common_divisor([one.period for one in jobs] + more) for more in ([*edges], [])
        )
        common = lcm(*(int(one.period / unit) for one in jobs))
        each = len(jobs) * max(1, len(shared))
        coarse = common * int(unit / tick) * each > ORDER_EFFORT.ticks
        if coarse:
            parts = min(ORDER_EFFORT.coarse_ticks, ORDER_EFFORT.ticks // (16 * each)) // common
            if parts < ORDER_EFFORT.least_ticks:
                times = " and ".join(f"{float(one.period):,.6g}" for one in jobs[:4])
                raise UserError(
                    f"periods of {times} µs meet again only after {float(common * unit):,.6g} µs",
                    hint="round the periods, so that they have a shorter common multiple",
                )
            tick = unit / parts
        shares = [use.share.denominator for one in jobs for use in one.uses]
        full = min(ORDER_EFFORT.units, lcm(*shares)) if shares else 1
        place = {name: i for i, name in enumerate(shared)}
        columns = []
        for one in jobs:
            column = np.zeros((len(shared), int(one.period / tick)), np.int64)
            for use in (x for x in one.uses if x.resource in place):
                span = slice(floor(use.start / tick), ceil(use.end / tick))
                column[place[use.resource], span] += round(use.share * full)
            columns.append(np.minimum(column, full))
        return ShiftGrid(tick, coarse, int(common * unit / tick), full, shared, tuple(columns))

    @property
    def common_us(self) -> Fraction:
        """Return the common period."""
        return self.tick * self.common

    def widened(self, pad: int) -> tuple[Ints, ...]:
        """Return the uses, each kept up for ``pad`` ticks after it ends."""
        found = []
        for one in self.use:
            wide = one.copy()
            for k in range(1, pad + 1):
                wide = np.maximum(wide, np.roll(one, k, axis=1))
            found.append(wide)
        return tuple(found)

    def excess(self, uses: Sequence[Ints], shifts: Sequence[int]) -> int:
        """Return the excess of all resources, in units times ticks, of uses and their shifts."""
        total = np.zeros((len(self.resources), self.common), np.int64)
        for one, shift in zip(uses, shifts, strict=True):
            total += np.tile(np.roll(one, shift, axis=1), self.common // one.shape[1])
        return int(np.maximum(total - self.full, 0).sum())


def _common_divisor(times: Sequence[Fraction]) -> Fraction:
    scale = lcm(*(time.denominator for time in times))
    return Fraction(gcd(*(int(time * scale) for time in times)), scale)


@dataclass(frozen=True, slots=True)
class FoundShifts:
    """Shifts in ticks, their excess, and whether none are better."""

    shifts: list[int]
    excess: int
    optimal: bool


def _solved(grid: ShiftGrid, pad: int, steps: int, seed: int) -> FoundShifts | None:
    """Return the best of all shifts, where these are few, else those of CP-SAT, if it finds any."""
    if prod(one.shape[1] for one in grid.use[1:]) <= ORDER_EFFORT.shifts_tried:
        return tried_shifts(grid, pad)
    return solved_shifts(grid, pad, steps, seed)


def tried_shifts(grid: ShiftGrid, pad: int) -> FoundShifts:
    """Return the first best of all shifts."""
    ranges = (range(one.shape[1]) for one in grid.use[1:])
    uses = grid.widened(pad)
    best: FoundShifts | None = None
    for some in product([0], *ranges):
        excess = grid.excess(uses, some)
        if best is None or excess < best.excess:
            best = FoundShifts(list(some), excess, True)
    assert best is not None
    return best


def solved_shifts(grid: ShiftGrid, pad: int, steps: int, seed: int) -> FoundShifts | None:
    """Return the shifts that CP-SAT finds; None if it finds none.

    A Boolean for each job and shift; the excess of each tick is at least the use beyond all.
    """
    model = CpModel()
    uses = grid.widened(pad)
    chosen: list[list[int]] = []
    for at, one in enumerate(uses):
        row = [model.boolean() for _ in range(one.shape[1] if at else 1)]
        model.one_of(row)
        chosen.append(row)
    costs = []
    for r in range(len(grid.resources)):
        for t in range(grid.common):
            terms = []
            for one, row in zip(uses, chosen, strict=True):
                period = one.shape[1]
                terms += [
                    (x, int(one[r, (t - s) % period]))
                    for s, x in enumerate(row)
                    if one[r, (t - s) % period]
                ]
            most = sum(int(one[r].max()) for one in uses)
            if most <= grid.full or not terms:
                continue
            over = model.integer(0, most - grid.full)
            model.linear([*terms, (over, -1)], most=grid.full)
            costs.append((over, 1))
    model.minimize(costs)
    answer = solve(model, steps=steps, seed=seed)
    if not answer.found:
        return None
    shifts = [next(s for s, x in enumerate(row) if answer.values[x]) for row in chosen]
    return FoundShifts(shifts, grid.excess(uses, shifts), answer.verdict is CpVerdict.OPTIMAL)


def _widest(grid: ShiftGrid, shifts: list[int], steps: int, seed: int) -> tuple[int, list[int]]:
    """Return the most ticks by which all uses may be kept up without excess, and such shifts."""
    low, best = 0, shifts
    high = max(one.shape[1] for one in grid.use)
    while low + 1 < high:
        middle = (low + high) // 2
        found = _solved(grid, middle, steps, seed)
        if found is not None and not found.excess:
            low, best = middle, found.shifts
        else:
            high = middle
    return low, best


@dataclass(frozen=True, slots=True)
class SharedJobs:
    """Jobs that share resources.

    Attributes:
        jobs: what they use; ``shifts``: the best shifts.
        alone_us: of each job its period; ``before_us``, ``after_us``: its mean iteration, unshifted
            and shifted, if communications that meet are slowed alike.
        widths: bandwidth in GB/s of the resources, where the workloads state it.
    """

    jobs: tuple[PeriodicJob, ...]
    shifts: Shifts
    before_us: tuple[float, ...]
    after_us: tuple[float, ...]
    widths: dict[str, Fraction]


def shared_jobs(plans: Sequence[WorkloadPlan], names: Sequence[str], seed: int = 0) -> SharedJobs:
    """Return the best shifts of jobs, each of which runs as its plan says.

    Raises:
        UserError: a plan takes longer than its period, two workloads give a resource different
            bandwidths, or the periods lack a short common multiple.
    """
    jobs = tuple(_periodic(plan, name) for plan, name in zip(plans, names, strict=True))
    shifts = best_shifts(jobs, seed=seed)
    still = [Fraction(0)] * len(jobs)
    before, after = (_iterations(plans, jobs, us) for us in (still, shifts.us))
    widths: dict[str, Fraction] = {}
    for name, width in (pair for plan in plans for pair in plan.workload.resources):
        if widths.setdefault(name, width) != width:
            raise UserError(
                f"{name!r} has {widths[name]} GB/s in one workload, {width} GB/s in another"
            )
    return SharedJobs(
        jobs,
        shifts,
        tuple(before),
        tuple(after),
        widths,
    )


def _periodic(plan: WorkloadPlan, name: str) -> PeriodicJob:
    end = _rounded(plan.us)
    period = plan.workload.period if plan.workload.period is not None else end
    if end > period:
        raise UserError(
            f"{name}: one iteration takes {float(end):,.6g} µs, its period is {float(period):,.6g}",
            hint="a longer period, or none: then it is the time of the plan",
        )
    graph = graph_of(plan)
    uses = []
    for piece in plan.pieces:
        task = graph.tasks[piece.operation]
        if task.computes:
            continue
        rate = Fraction(piece.rate).limit_denominator(10**6)
        for resource, load in loads_of(plan, piece.operation).items():
            share = load / graph.us(task.ticks) * rate
            uses.append(Use(resource, _rounded(piece.start), _rounded(piece.end), share))
    return PeriodicJob(name, period, tuple(uses))


def loads_of(plan: WorkloadPlan, at: int) -> dict[str, Fraction]:
    """Return the µs for which a communication of a plan occupies each resource."""
    one = plan.workload.operations[at]
    return dict(one.loads or plan.costs[one.name].loads)


def _rounded(us: float) -> Fraction:
    return Fraction(round(us * ORDER_EFFORT.parts), ORDER_EFFORT.parts)


def _iterations(
    plans: Sequence[WorkloadPlan], jobs: Sequence[PeriodicJob], shifts: Sequence[Fraction]
) -> list[float]:
    """Return the mean iteration of each job, sharing fairly, while all jobs run.

    After the operations of an iteration a job rests until its period is over; the next one begins
    then, late if the one before was.
    """
    unrolled = _Unrolled([], {})
    longest = max(job.period for job in jobs)
    ends = [
        unrolled.add(plan, job, shift, ceil(ORDER_EFFORT.iterations * longest / job.period))
        for plan, job, shift in zip(plans, jobs, shifts, strict=True)
    ]
    graph = TaskGraph(tuple(unrolled.tasks), tuple(unrolled.numbers), ORDER_EFFORT.scale)
    line = Simulator(graph).run(range(len(graph.tasks)), Sharing.FAIR)
    times = [[line.ends[at] for at in mine] for mine in ends]
    over = min(mine[-1] for mine in times)
    found = []
    for mine in times:
        some = [at for at in mine if over / 2 <= at <= over]
        found.append(fmean(b - a for a, b in pairwise(some)))
    return found


@dataclass(slots=True)
class _Unrolled:
    """Tasks of several jobs over many iterations; ``numbers``: of the resources, by name."""

    tasks: list[Task]
    numbers: dict[str, int]
    _jobs: int = 0

    def add(
        self, plan: WorkloadPlan, job: PeriodicJob, shift: Fraction, iterations: int
    ) -> list[int]:
        """Add the iterations of a job; return the tasks that end them."""
        self._jobs += 1
        graph = graph_of(plan)
        loads = [self._loads(plan, graph, at) for at in range(len(graph.tasks))]
        last = self._rest(shift, ())
        ends = [last]
        for _ in range(iterations):
            first = len(self.tasks)
            for one, mine in zip(graph.tasks, loads, strict=True):
                ticks = int(graph.us(one.ticks) * ORDER_EFFORT.scale)
                before = tuple(first + other for other in one.before) or (last,)
                self.tasks.append(Task(one.name, one.class_name, ticks, mine, one.computes, before))
            last = self._rest(job.period - _rounded(plan.us), tuple(range(first, len(self.tasks))))
            ends.append(last)
        return ends

    def _loads(self, plan: WorkloadPlan, graph: TaskGraph, at: int) -> tuple[tuple[int, int], ...]:
        """Return the loads of a task; GPUs are each job's own."""
        one = graph.tasks[at]
        if one.computes:
            named = {f"{self._jobs}: {graph.occupied[r]}": graph.us(x) for r, x in one.loads}
        else:
            named = loads_of(plan, at)
        return tuple(
            (self._number(name), int(us * ORDER_EFFORT.scale)) for name, us in named.items()
        )

    def _rest(self, us: Fraction, before: tuple[int, ...]) -> int:
        ticks = int(us * ORDER_EFFORT.scale)
        loads = ((self._number(f"{self._jobs}: rest"), ticks),) if ticks else ()
        self.tasks.append(Task("rest", "rest", ticks, loads, True, before))
        return len(self.tasks) - 1

    def _number(self, name: str) -> int:
        return self.numbers.setdefault(name, len(self.numbers))
