"""Priorities of tasks: longest tail first, repaired by random moves while a bound is not met.

On one resource the longest tail first is Jackson's rule with preemption (1955), which is best
there; with several it can be bad, and moves in the list of priorities repair that.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from weft.dsl.base.lazy_dataclass import dataclass

from ..base.meets import meets
from ..base.meter import Meter
from .bound import OrderBound, order_bound, stronger_bound
from .effort import ORDER_EFFORT
from .simulate import Sharing, Simulator, TaskTimeline
from .tasks import TaskGraph

STEPS_PER_TASK = 14
"""Steps of a simulation for each of its tasks: starts, rates and ends."""


@dataclass(frozen=True, slots=True)
class Ordered:
    """Priorities of all tasks, and what comes of them.

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
    """Search for priorities."""

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
        """Return by how much a timeline is late, and its end."""
        late = max((line.ends[at] - due for at, due in self.dues), default=0.0)
        return round(max(0.0, late), ORDER_EFFORT.digits), round(line.us, ORDER_EFFORT.digits)

    def over(self, bound: OrderBound) -> bool:
        """Return True if nothing better is possible, or nothing is left to spend."""
        late, us = self.best.cost
        best = not late and meets(us, bound.us)
        return best or self.moves >= ORDER_EFFORT.moves or self.meter.over()

    def improve(self, bound: OrderBound, rng: random.Random) -> None:
        """Move tasks in the list; a move that makes nothing worse stays."""
        movable = _contending(self.graph)
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

    def given(at: int) -> tuple[bool, int]:
        priority = graph.tasks[at].priority
        return (priority is None, priority or 0)

    return sorted(sequence, key=given)


def _contending(graph: TaskGraph) -> list[int]:
    """Return the tasks that share a resource with another."""
    users = [0] * len(graph.occupied)
    for one in graph.tasks:
        for r, _ in one.loads:
            users[r] += 1
    return [at for at, one in enumerate(graph.tasks) if any(users[r] > 1 for r, _ in one.loads)]


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
