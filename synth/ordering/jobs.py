"""Jobs beside each other: their use of resources, their shifts, and how long iterations take."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from math import ceil
from statistics import fmean

from weft.dsl.base.errors import UserError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.workload_plan import WorkloadPlan

from .effort import ORDER_EFFORT
from .plan import graph_of
from .shifts import PeriodicJob, Shifts, Use, best_shifts
from .simulate import Sharing, Simulator
from .tasks import Task, TaskGraph


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
            bandwidths, or the periods have no short common multiple.
    """
    jobs = tuple(_periodic(plan, name) for plan, name in zip(plans, names, strict=True))
    shifts = best_shifts(jobs, seed=seed)
    still = [Fraction(0)] * len(jobs)
    return SharedJobs(
        jobs,
        shifts,
        tuple(_iterations(plans, jobs, still)),
        tuple(_iterations(plans, jobs, shifts.us)),
        _widths(plans),
    )


def _widths(plans: Sequence[WorkloadPlan]) -> dict[str, Fraction]:
    found: dict[str, Fraction] = {}
    for plan in plans:
        for name, width in plan.workload.resources:
            if found.setdefault(name, width) != width:
                raise UserError(
                    f"{name!r} has {found[name]} GB/s in one workload, {width} GB/s in another"
                )
    return found


def _periodic(plan: WorkloadPlan, name: str) -> PeriodicJob:
    """Return what a job uses when, over one period."""
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
        """Add a time in which a job does nothing."""
        ticks = int(us * ORDER_EFFORT.scale)
        loads = ((self._number(f"{self._jobs}: rest"), ticks),) if ticks else ()
        self.tasks.append(Task("rest", "rest", ticks, loads, True, before))
        return len(self.tasks) - 1

    def _number(self, name: str) -> int:
        return self.numbers.setdefault(name, len(self.numbers))
