"""Tasks: operations of a workload with their times alone and their resources, ready to be ordered.

While a communication runs at full rate it uses the share load / time of each resource. A
computation occupies the GPUs of its ranks whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from math import lcm

from weft.dsl.base.errors import UserError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.workload import WorkKind, Workload, WorkloadOperation, topological

GPU = "gpu "
"""Start of the names of resources that computations occupy."""


@dataclass(frozen=True, slots=True)
class TaskCost:
    """Time of an operation alone, in µs, and for how many µs it occupies each resource.

    No load exceeds the time.
    """

    us: Fraction
    loads: Mapping[str, Fraction]


CostOf = Callable[[WorkloadOperation], TaskCost]
"""TaskCost of an operation that needs a machine."""


@dataclass(frozen=True, slots=True)
class Task:
    """One operation. ``ticks``: its time alone; ``loads``: number of a resource, and ticks;
    ``ranks``: those that send or receive it, none for a load of named resources."""

    name: str
    class_name: str
    ticks: int
    loads: tuple[tuple[int, int], ...]
    computes: bool
    before: tuple[int, ...]
    priority: int | None = None
    due: int | None = None
    ranks: tuple[int, ...] = ()


@dataclass(frozen=True)
class TaskGraph:
    """Tasks in the order of the workload."""

    tasks: tuple[Task, ...]
    # Names of resources that they use; those that all tasks occupy alike are one
    occupied: tuple[str, ...]
    scale: int  # ticks of a µs; all times are whole ticks

    def us(self, ticks: int) -> Fraction:
        """Return a time in µs."""
        return Fraction(ticks, self.scale)

    @cached_property
    def order(self) -> tuple[int, ...]:
        """Numbers of the tasks, each after its predecessors."""
        return tuple(topological([one.before for one in self.tasks]))

    @cached_property
    def after(self) -> tuple[tuple[int, ...], ...]:
        """Numbers of the tasks that wait for each."""
        found: list[list[int]] = [[] for _ in self.tasks]
        for at, one in enumerate(self.tasks):
            for other in one.before:
                found[other].append(at)
        return tuple(map(tuple, found))

    @cached_property
    def heads(self) -> tuple[int, ...]:
        """Longest path to the start of each task, in ticks."""
        head = [0] * len(self.tasks)
        for at in self.order:
            for other in self.tasks[at].before:
                head[at] = max(head[at], head[other] + self.tasks[other].ticks)
        return tuple(head)

    @property
    def longest(self) -> int:
        """Longest path, in ticks: the time if nothing were shared."""
        ends = (head + one.ticks for head, one in zip(self.heads, self.tasks, strict=True))
        return max(ends)

    @cached_property
    def tails(self) -> tuple[int, ...]:
        """Longest path from the end of each task, in ticks."""
        tail = [0] * len(self.tasks)
        for at in reversed(self.order):
            for other in self.tasks[at].before:
                tail[other] = max(tail[other], tail[at] + self.tasks[at].ticks)
        return tuple(tail)


def tasks_of(workload: Workload, cost_of: CostOf | None = None) -> TaskGraph:
    """Return the tasks of a workload.

    Raises:
        UserError: an operation needs a machine, and ``cost_of`` is missing.
    """
    costs = [_cost(workload, one, cost_of) for one in workload.operations]
    dues = [one.due_us for one in workload.operations if one.due_us is not None]
    times = [*(cost.us for cost in costs), *(x for c in costs for x in c.loads.values()), *dues]
    scale = lcm(*(time.denominator for time in times))
    names, loads = _resources(costs, scale)
    tasks = tuple(
        Task(
            one.name,
            one.class_name,
            int(cost.us * scale),
            tuple(load),
            one.kind == WorkKind.COMPUTE,
            before,
            one.priority,
            None if one.due_us is None else int(one.due_us * scale),
            () if one.kind == WorkKind.COMPUTE else one.members,
        )
        for one, cost, load, before in zip(
            workload.operations, costs, loads, workload.predecessors, strict=True
        )
    )
    return TaskGraph(tasks, names, scale)


def _cost(workload: Workload, one: WorkloadOperation, cost_of: CostOf | None) -> TaskCost:
    if one.kind == WorkKind.COMPUTE:
        assert one.us is not None
        return TaskCost(one.us, {f"{GPU}{rank}": one.us for rank in workload.computing(one)})
    if one.kind == WorkKind.LOAD:
        return TaskCost(max(us for _, us in one.loads), dict(one.loads))
    if cost_of is None:
        raise UserError(
            f"{one.name}: {one.kind} takes a time only on a machine", hint="-t TOPO names one"
        )
    return cost_of(one)


def _resources(
    costs: Sequence[TaskCost], scale: int
) -> tuple[tuple[str, ...], list[list[tuple[int, int]]]]:
    """Return names of the resources, and the loads of each task; equal columns are one."""
    columns: dict[str, list[tuple[int, int]]] = {}
    for at, cost in enumerate(costs):
        for name, load in cost.loads.items():
            if load:
                columns.setdefault(name, []).append((at, int(load * scale)))
    alike: dict[tuple[tuple[int, int], ...], list[str]] = {}
    for name, column in columns.items():
        alike.setdefault(tuple(column), []).append(name)
    loads: list[list[tuple[int, int]]] = [[] for _ in costs]
    for number, users in enumerate(alike):
        for at, ticks in users:
            loads[at].append((number, ticks))
    told = (f"{x[0]} and {len(x) - 1} more" if len(x) > 1 else x[0] for x in alike.values())
    return tuple(told), loads
