"""Checks of a bound's certificate and of a timeline; they share no algorithm with their makers."""

from __future__ import annotations

from collections.abc import Sequence

from .bound import BoundStep, OrderBound, Side
from .effort import ORDER_EFFORT
from .simulate import TaskTimeline
from .tasks import TaskGraph


def bound_faults(graph: TaskGraph, bound: OrderBound) -> list[str]:
    """Return the faults of a certificate; empty if it proves the bound.

    Heads and tails are relaxed along the edges until nothing changes (Bellman and Ford), starting
    from what earlier steps have proved.
    """
    heads, tails = [0] * len(graph.tasks), [0] * len(graph.tasks)
    _relax(graph, heads, tails)
    faults = []
    if not bound.steps or bound.steps[-1].side is not Side.ALL:
        return ["expected a last step of the certificate, got none"]
    if graph.us(bound.steps[-1].ticks) != bound.us:
        faults.append(f"the last step proves {graph.us(bound.steps[-1].ticks)} µs, not {bound.us}")
    for step in bound.steps:
        fault = _step_fault(graph, step, heads, tails)
        if fault:
            faults.append(fault)
        elif step.side is not Side.ALL:
            proved = heads if step.side is Side.HEAD else tails
            proved[step.task] = max(proved[step.task], step.ticks)
            _relax(graph, heads, tails)
    return faults


def _relax(graph: TaskGraph, heads: list[int], tails: list[int]) -> None:
    changed = True
    while changed:
        changed = False
        for at, one in enumerate(graph.tasks):
            for other in one.before:
                if heads[other] + graph.tasks[other].ticks > heads[at]:
                    heads[at] = heads[other] + graph.tasks[other].ticks
                    changed = True
                if tails[at] + one.ticks > tails[other]:
                    tails[other] = tails[at] + one.ticks
                    changed = True


def _step_fault(
    graph: TaskGraph, step: BoundStep, heads: Sequence[int], tails: Sequence[int]
) -> str:
    if step.path:
        return _path_fault(graph, step, heads, tails)
    total = 0
    for at in set(step.tasks):
        mine = dict(graph.tasks[at].loads)
        if step.resource not in mine:
            return f"{graph.tasks[at].name} does not occupy the resource"
        total += mine[step.resource]
        early, late = _around(graph, step, at, heads, tails)
        if early < step.head or late < step.tail:
            return f"{graph.tasks[at].name} has head {early} and tail {late}"
    if not step.tasks or step.head + total + step.tail != step.ticks:
        return f"{step.head} + {total} + {step.tail} ticks are not {step.ticks}"
    return ""


def _around(
    graph: TaskGraph, step: BoundStep, at: int, heads: Sequence[int], tails: Sequence[int]
) -> tuple[int, int]:
    """Return the time before a task and after it, as far as the step counts it; -1: no path."""
    if step.side is Side.ALL:
        return heads[at], tails[at]
    if step.side is Side.HEAD:
        return heads[at], _between(graph, at, step.task)
    return tails[at], _between(graph, step.task, at)


def _between(graph: TaskGraph, first: int, last: int) -> int:
    """Return the longest time from the end of one task to the start of another; -1: no path."""
    way = {first: 0}
    changed = True
    while changed:
        changed = False
        for at, one in enumerate(graph.tasks):
            for other in one.before:
                if other in way:
                    far = way[other] + (graph.tasks[other].ticks if other != first else 0)
                    if far > way.get(at, -1):
                        way[at] = far
                        changed = True
    return way[last] if last != first and last in way else -1


def _path_fault(
    graph: TaskGraph, step: BoundStep, heads: Sequence[int], tails: Sequence[int]
) -> str:
    first, last = step.path[0], step.path[-1]
    for one, next_one in zip(step.path, step.path[1:], strict=False):
        if one not in graph.tasks[next_one].before:
            return f"{graph.tasks[next_one].name} does not wait for {graph.tasks[one].name}"
    if heads[first] < step.head or tails[last] < step.tail:
        return "the path begins later, or ends earlier, than is proved"
    total = step.head + sum(graph.tasks[at].ticks for at in step.path) + step.tail
    return "" if total == step.ticks else f"the path takes {total} ticks, not {step.ticks}"


# --- timelines ------------------------------------------------------------------------------------


def timeline_faults(graph: TaskGraph, line: TaskTimeline) -> list[str]:
    """Return the faults of a timeline: order, work that is not done, crowded resources."""
    faults = []
    done = [0.0] * len(graph.tasks)
    close = ORDER_EFFORT.close * max(line.us, 1.0)
    for piece in line.pieces:
        done[piece.task] += piece.rate * (piece.end - piece.start)
        inside = line.starts[piece.task] - close <= piece.start <= piece.end
        if (
            not inside
            or piece.end > line.ends[piece.task] + close
            or piece.rate > 1 + ORDER_EFFORT.close
        ):
            faults.append(f"{graph.tasks[piece.task].name} runs outside its time, or too fast")
    for at, one in enumerate(graph.tasks):
        us = one.ticks / graph.scale
        if abs(done[at] - us) > close:
            faults.append(f"{one.name} does {done[at]:g} of {us:g} µs")
        if one.computes and line.ends[at] - line.starts[at] > us + close:
            faults.append(f"{one.name} is interrupted")
        for other in one.before:
            if line.starts[at] < line.ends[other] - close:
                faults.append(f"{one.name} starts before {graph.tasks[other].name} ends")
    return faults + _crowded(graph, line, close)


def _crowded(graph: TaskGraph, line: TaskTimeline, close: float) -> list[str]:
    """Return the resources of which more than all is used at some time: a sweep over the pieces."""
    faults = []
    use: list[list[tuple[float, float]]] = [[] for _ in graph.occupied]
    for piece in line.pieces:
        one = graph.tasks[piece.task]
        for r, load in one.loads:
            share = load / one.ticks * piece.rate
            use[r] += [(piece.start + close / 2, share), (piece.end - close / 2, -share)]
    for r, events in enumerate(use):
        level = most = 0.0
        for _, change in sorted(events):
            level += change
            most = max(most, level)
        if most > 1 + ORDER_EFFORT.close:
            faults.append(f"{graph.occupied[r]} is used {most:.6g} times")
    return faults
