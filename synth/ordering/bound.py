"""Lower bound on the time of tasks in order, with its certificate.

A path of tasks takes the sum of their times. And of any set of tasks of which none starts before
``head`` and each is followed by at least ``tail``, the load of one resource must fit between:
T ≥ head + load + tail. The best set of a pair (head, tail) is all tasks with such heads and tails
(Carlier, *The one-machine sequencing problem*, 1982, with preemption).

The same holds for the start of one task in the place of the end of all: what must run before it
may keep a resource busy. Heads and tails that grow by this make a stronger bound.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from fractions import Fraction

from weft.dsl.base.lazy_dataclass import dataclass

from .effort import ORDER_EFFORT
from .tasks import TaskGraph


class Side(StrEnum):
    """Quantity bounded by a step of a certificate: a task's start, its tail, or the end of all."""

    HEAD = "head"
    TAIL = "tail"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class BoundStep:
    """One step of a certificate: at least ``ticks`` pass, because of a path or of a resource."""

    side: Side  # until task may start, after its end, or until the end of all
    ticks: int
    task: int = -1
    # Tasks one after another whose times, with the head of the first and the tail of the last, add
    # up to ticks; empty if a resource is the reason
    path: tuple[int, ...] = ()
    # Its number; its load of tasks is ticks - head - tail. None of them starts before head; from
    # the end of each of them at least tail pass (of a step that bounds a tail, both the other way
    # round).
    resource: int = -1
    head: int = 0
    tail: int = 0
    tasks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class OrderBound:
    """A lower bound in µs: that of the last step; each step may use those before it."""

    us: Fraction
    steps: tuple[BoundStep, ...]


def order_bound(graph: TaskGraph) -> OrderBound:
    """Return the largest bound by a path or by one resource; of equals the path."""
    return OrderBound(*_final(graph, graph.heads, graph.tails, ()))


def stronger_bound(graph: TaskGraph) -> OrderBound:
    """Return the bound with heads and tails that count busy resources on the way.

    O(tasks³ · resources) at most; that of :func:`order_bound` where this is too much.
    """
    if len(graph.tasks) > ORDER_EFFORT.strengthened:
        return order_bound(graph)
    heads, steps = _strengthened(graph, Side.HEAD)
    tails, more = _strengthened(graph, Side.TAIL)
    return OrderBound(*_final(graph, heads, tails, (*steps, *more)))


def _final(
    graph: TaskGraph, heads: Sequence[int], tails: Sequence[int], known: tuple[BoundStep, ...]
) -> tuple[Fraction, tuple[BoundStep, ...]]:
    """Return the bound of heads and tails, with the steps that it needs of the known ones."""
    length = [h + one.ticks + t for h, one, t in zip(heads, graph.tasks, tails, strict=True)]
    most = max(length)
    # The first task of the path starts where no path leads to it; all later ones have this length.
    at = next(i for i in graph.order if length[i] == most)
    step = BoundStep(Side.ALL, most, path=(at,), head=heads[at], tail=tails[at])
    if not known:
        step = BoundStep(Side.ALL, most, path=_longest(graph, length))
    for number in range(len(graph.occupied)):
        mine = [(i, x) for i, one in enumerate(graph.tasks) for r, x in one.loads if r == number]
        found = busiest(number, mine, heads, tails)
        step = found if found.ticks > step.ticks else step
    return graph.us(step.ticks), _needed(graph, step, known)


def _longest(graph: TaskGraph, length: Sequence[int]) -> tuple[int, ...]:
    most = max(length)
    at = next(i for i in graph.order if length[i] == most and not graph.heads[i])
    path = [at]
    while graph.tails[at]:
        rest = graph.tails[at]
        at = next(i for i in graph.after[at] if graph.tasks[i].ticks + graph.tails[i] == rest)
        path.append(at)
    return tuple(path)


Loads = list[tuple[int, int]]
"""Tasks and their loads of one resource."""


def busiest(
    resource: int,
    loads: Loads,
    heads: Sequence[int] | Mapping[int, int],
    tails: Sequence[int] | Mapping[int, int],
    side: Side = Side.ALL,
    task: int = -1,
) -> BoundStep:
    """Return the step of the head and tail between which a resource is busiest.

    O(tasks) for each different head.
    """
    rows = sorted(((tails[i], heads[i], load) for i, load in loads), reverse=True)
    most = (0, 0, 0)
    for head in sorted({heads[i] for i, _ in loads}):
        total = head
        for tail, own, load in rows:
            if own < head:
                continue
            total += load
            if total + tail > most[0]:
                most = total + tail, head, tail
    ticks, head, tail = most
    tasks = tuple(sorted(i for i, _ in loads if heads[i] >= head and tails[i] >= tail))
    return BoundStep(side, ticks, task, resource=resource, head=head, tail=tail, tasks=tasks)


# --- heads and tails that count busy resources ----------------------------------------------------


def _strengthened(graph: TaskGraph, side: Side) -> tuple[list[int], tuple[BoundStep, ...]]:
    """Return heads (or tails) with a step for each that a resource has made longer."""
    forward = side is Side.HEAD
    before = [one.before for one in graph.tasks] if forward else graph.after
    order = graph.order if forward else tuple(reversed(graph.order))
    loads = [dict(one.loads) for one in graph.tasks]
    length = [0] * len(order)
    distance: list[dict[int, int]] = [{} for _ in order]  # longest path from each ancestor's end
    steps = []
    for at in order:
        for other in before[at]:
            ticks = graph.tasks[other].ticks
            length[at] = max(length[at], length[other] + ticks)
            mine = distance[at]
            mine[other] = mine.get(other, 0)
            for far, way in distance[other].items():
                if way + ticks > mine.get(far, -1):
                    mine[far] = way + ticks
        for number in range(len(graph.occupied)):
            some = [(i, loads[i][number]) for i in distance[at] if number in loads[i]]
            if not some:
                continue
            found = busiest(number, some, length, distance[at], side, at)
            if found.ticks > length[at]:
                length[at] = found.ticks
                steps.append(found)
    return length, tuple(steps)


def _needed(graph: TaskGraph, last: BoundStep, known: Sequence[BoundStep]) -> tuple[BoundStep, ...]:
    """Return the known steps on which the last one may rest, in their order, and it."""
    wanted: dict[Side, set[int]] = {Side.HEAD: set(), Side.TAIL: set()}
    named = last.path or last.tasks
    if any(graph.heads[i] < last.head for i in named):
        wanted[Side.HEAD] |= set(named)
    if any(graph.tails[i] < last.tail for i in named):
        wanted[Side.TAIL] |= set(named)
    kept = []
    for step in reversed(known):
        reached = _reached(graph, step.side, wanted[step.side])
        if step.task in reached:
            kept.append(step)
            wanted[step.side] |= set(step.tasks)
    return (*reversed(kept), last)


def _reached(graph: TaskGraph, side: Side, tasks: set[int]) -> set[int]:
    """Return the tasks on whose heads (or tails) those of some tasks depend, and these."""
    seen, todo = set(tasks), list(tasks)
    for at in todo:
        near = graph.tasks[at].before if side is Side.HEAD else graph.after[at]
        new = [i for i in near if i not in seen]
        seen.update(new)
        todo += new
    return seen
