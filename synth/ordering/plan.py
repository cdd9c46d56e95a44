"""Plans in time of workloads: made from tasks, and judged."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction

from weft.dsl.base.errors import UserError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.workload import Workload, WorkloadOperation
from weft.dsl.nouns.workload_plan import (
    OperationCost,
    PlanPiece,
    PlanProofStep,
    PlanTimes,
    WorkloadPlan,
)

from ..base.meets import meets
from ..base.meter import Meter
from .bound import BoundStep, OrderBound, Side, order_bound, stronger_bound
from .check import bound_faults, timeline_faults
from .effort import ORDER_EFFORT
from .simulate import Piece, Sharing, Simulator, TaskTimeline
from .tasks import CostOf, TaskCost, TaskGraph, tasks_of

STEPS_PER_TASK = 14
"""Steps of a simulation for each of its tasks: starts, rates and ends."""


@dataclass(frozen=True, slots=True)
class Ordered:
    """Priorities of all tasks, and their results.

    Attributes:
        rank: place of each task in the order of priorities; the first is 0.
        line: the simulation with these, or ``fair`` where no order found does as well;
            ``bound``: a lower bound, with its certificate.
        fair, queue, apart: µs under the other ways of sharing, computations in the order of the
            workload.
        late_us: by how much a due time is missed at most; 0 without one.
        moves: random moves that were tried.
    """

    rank: tuple[int, ...]
    line: TaskTimeline
    bound: OrderBound
    fair: TaskTimeline
    queue: TaskTimeline
    apart: TaskTimeline
    late_us: float
    moves: int

    @property
    def shared(self) -> bool:
        """Return True if links are shared fairly, not by priority."""
        return self.line is self.fair

    @property
    def optimal(self) -> bool:
        """Return True if the time meets the bound."""
        return meets(self.line.us, self.bound.us)


def order_tasks(graph: TaskGraph, meter: Meter, seed: int = 0) -> Ordered:
    """Return the best priorities found within the work of ``meter``."""
    simulator = Simulator(graph)
    file_order = range(len(graph.tasks))
    fair, queue, apart = (
        simulator.run(file_order, way) for way in (Sharing.FAIR, Sharing.QUEUE, Sharing.APART)
    )
    bound = order_bound(graph)
    search = _Search(graph, simulator, meter)
    if not meets(search.best.line.us, bound.us):
        bound = stronger_bound(graph)
    search.improve(bound, random.Random(seed))
    best = search.best
    free = all(one.priority is None for one in graph.tasks)
    line = fair if free and search.cost(fair) < best.cost else best.line
    late = search.cost(line)[0]
    return Ordered(_ranks(best.sequence), line, bound, fair, queue, apart, late, search.moves)


@dataclass(frozen=True, slots=True)
class _Tried:
    """A list of priorities and its simulation; ``cost``: by how much it is late, and its end."""

    sequence: list[int]
    line: TaskTimeline
    cost: tuple[float, float]


class _Search:
    def __init__(self, graph: TaskGraph, simulator: Simulator, meter: Meter) -> None:
        self.graph, self.simulator, self.meter = graph, simulator, meter
        self.moves = 0
        self.dues = [
            (at, one.due / graph.scale) for at, one in enumerate(graph.tasks) if one.due is not None
        ]
        self.best = min(map(self.tried, _starts(graph)), key=lambda one: one.cost)

    def tried(self, sequence: list[int]) -> _Tried:
        self.meter.spend(STEPS_PER_TASK * len(sequence))
        line = self.simulator.run(_ranks(sequence))
        return _Tried(sequence, line, self.cost(line))

    def cost(self, line: TaskTimeline) -> tuple[float, float]:
        late = max((line.ends[at] - due for at, due in self.dues), default=0.0)
        return round(max(0.0, late), ORDER_EFFORT.digits), round(line.us, ORDER_EFFORT.digits)

    def over(self, bound: OrderBound) -> bool:
        """Return True if nothing better is possible, or nothing is left to spend."""
        late, us = self.best.cost
        best = not late and meets(us, bound.us)
        return best or self.moves >= ORDER_EFFORT.moves or self.meter.over()

    def improve(self, bound: OrderBound, rng: random.Random) -> None:
        """Move tasks in the list; a move that makes nothing worse stays."""
        users = Counter(r for one in self.graph.tasks for r, _ in one.loads)
        shared = [any(users[r] > 1 for r, _ in one.loads) for one in self.graph.tasks]
        movable = [at for at, contends in enumerate(shared) if contends]
        now = self.best
        while movable and not self.over(bound):
            self.moves += 1
            sequence = list(now.sequence)
            sequence.remove(at := rng.choice(movable))
            sequence.insert(rng.randrange(len(sequence) + 1), at)
            found = self.tried(_respecting(self.graph, sequence))
            if found.cost <= now.cost:
                now = found
            if found.cost < self.best.cost:
                self.best = found


def _ranks(sequence: Sequence[int]) -> tuple[int, ...]:
    rank = [0] * len(sequence)
    for place, at in enumerate(sequence):
        rank[at] = place
    return tuple(rank)


def _respecting(graph: TaskGraph, sequence: list[int]) -> list[int]:
    """Return the list with the tasks that have a priority before the others, the smallest first."""
    given = [(one.priority is None, one.priority or 0) for one in graph.tasks]
    return sorted(sequence, key=given.__getitem__)


def _starts(graph: TaskGraph) -> list[list[int]]:
    """Return the lists to begin with: by latest end, by latest start, as in the workload."""
    latest = [graph.longest if one.due is None else one.due for one in graph.tasks]
    for at in reversed(graph.order):
        for other in graph.after[at]:
            latest[at] = min(latest[at], latest[other] - graph.tasks[other].ticks)
    plain = list(range(len(graph.tasks)))
    by_end = sorted(plain, key=lambda at: (latest[at], at))
    by_start = sorted(plain, key=lambda at: (latest[at] - graph.tasks[at].ticks, at))
    return [_respecting(graph, one) for one in (by_end, by_start, plain)]


SHARED = "links are shared fairly: no order found ends as soon"
"""Remark of a plan without priorities between those that send."""


def plan_in_time(
    workload: Workload,
    meter: Meter,
    *,
    machine: str = "",
    cost_of: CostOf | None = None,
    seed: int = 0,
) -> WorkloadPlan:
    """Return the best plan found within the work of ``meter``, judged.

    ``cost_of`` says what operations cost that need a machine; it is called once for each.

    Raises:
        UserError: an operation needs a machine, and there is none.
        AssertionError: the plan is wrong; a bug in weft.
    """
    costs: dict[str, OperationCost] = {}

    def priced(one: WorkloadOperation) -> TaskCost:
        if cost_of is None:
            raise UserError(
                f"{one.name}: {one.kind} takes a time only on a machine", hint="-t TOPO names one"
            )
        found = cost_of(one)
        costs[one.name] = OperationCost(found.us, tuple(found.loads.items()))
        return found

    graph = tasks_of(workload, priced)
    found = order_tasks(graph, meter, seed)
    plan = WorkloadPlan(
        workload,
        machine,
        tuple(
            graph.tasks[at].name
            for at in sorted(range(len(found.rank)), key=found.rank.__getitem__)
        ),
        tuple(PlanPiece(x.task, x.start, x.end, x.rate) for x in found.line.pieces),
        found.bound.us,
        tuple(_proof_step(graph, step) for step in found.bound.steps),
        PlanTimes(
            float(graph.us(graph.longest)),
            found.apart.us,
            found.line.us,
            found.fair.us,
            found.queue.us,
        ),
        costs,
        found.late_us,
        tuple(_remarks(found)),
    )
    faults = plan_faults(plan)
    if faults:
        raise AssertionError(f"a wrong plan: {'; '.join(faults[:5])}")
    return plan


def _remarks(found: Ordered) -> list[str]:
    us = found.line.us
    remarks = []
    if found.shared:
        remarks.append(SHARED)
    elif found.optimal and meets(found.fair.us, found.bound.us):
        remarks.append("fair sharing is already optimal: no order gains anything over it")
    elif not meets(us, found.fair.us):
        remarks.append(
            f"fair sharing ends sooner, after {found.fair.us:,.6g} µs: no order found does as well"
        )
    elif meets(found.fair.us, Fraction(us).limit_denominator(10**6)):
        remarks.append("no order was found that is better than fair sharing")
    if meets(found.queue.us, found.bound.us):
        remarks.append("one queue, in the order of readiness, is already optimal")
    if meets(found.apart.us, found.bound.us):
        remarks.append("nothing can overlap: one after another is already optimal")
    if found.late_us:
        remarks.append(f"a due time is missed by {found.late_us:,.6g} µs")
    return remarks


def _proof_step(graph: TaskGraph, step: BoundStep) -> PlanProofStep:
    def named(tasks: tuple[int, ...]) -> tuple[str, ...]:
        return tuple(graph.tasks[at].name for at in tasks)

    return PlanProofStep(
        str(step.side),
        graph.us(step.ticks),
        graph.tasks[step.task].name if step.task >= 0 else "",
        named(step.path),
        graph.occupied[step.resource] if step.resource >= 0 else "",
        graph.us(step.head),
        graph.us(step.tail),
        named(step.tasks),
    )


# --- judging --------------------------------------------------------------------------------------


def graph_of(plan: WorkloadPlan) -> TaskGraph:
    """Return the tasks of a plan, with the costs that it states.

    Raises:
        UserError: a cost is missing.
    """

    def cost_of(one: WorkloadOperation) -> TaskCost:
        if one.name not in plan.costs:
            raise UserError(f"{one.name}: the plan does not say what it costs")
        cost = plan.costs[one.name]
        return TaskCost(cost.us, dict(cost.loads))

    return tasks_of(plan.workload, cost_of)


def line_of(plan: WorkloadPlan, graph: TaskGraph) -> TaskTimeline:
    """Return the timeline of a plan; tasks of no time run once their predecessors ended."""
    spans = plan.spans()
    starts, ends = [0.0] * len(spans), [0.0] * len(spans)
    for at in graph.order:
        before = max((ends[other] for other in graph.tasks[at].before), default=0.0)
        starts[at], ends[at] = spans[at] or (before, before)
    pieces = tuple(Piece(x.operation, x.start, x.end, x.rate) for x in plan.pieces)
    return TaskTimeline(tuple(starts), tuple(ends), pieces)


def plan_faults(plan: WorkloadPlan) -> list[str]:
    """Return the faults of a plan: its timeline, its bound, or its priorities."""
    graph = graph_of(plan)
    faults = timeline_faults(graph, line_of(plan, graph))
    try:
        bound = _bound_of(plan, graph)
    except KeyError as error:
        return [*faults, f"the certificate names {error}, which is not there"]
    faults += bound_faults(graph, bound)
    if not meets(float(plan.bound_us), plan.us):
        faults.append("the plan is below its bound")
    given = {x.name: x.priority for x in plan.workload.operations}
    stated = [p for name in plan.order if (p := given[name]) is not None]
    if stated != sorted(stated):
        faults.append("the order contradicts the priorities of the workload")
    return faults


def _bound_of(plan: WorkloadPlan, graph: TaskGraph) -> OrderBound:
    """Return the bound with numbers for names; KeyError for an unknown one."""
    tasks = {one.name: at for at, one in enumerate(graph.tasks)}
    resources = {name: at for at, name in enumerate(graph.occupied)}
    steps = tuple(
        BoundStep(
            Side(step.side),
            _ticks(graph, step.us),
            tasks[step.task] if step.task else -1,
            tuple(tasks[name] for name in step.path),
            resources[step.resource] if step.resource else -1,
            _ticks(graph, step.head),
            _ticks(graph, step.tail),
            tuple(tasks[name] for name in step.tasks),
        )
        for step in plan.proof
    )
    return OrderBound(plan.bound_us, steps)


def _ticks(graph: TaskGraph, us: Fraction) -> int:
    """Return a time in ticks; one between two ticks is rounded up, so that it proves nothing."""
    return -int(-us * graph.scale // 1)
