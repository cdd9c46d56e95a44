"""CP-SAT as a judge of priorities on small cases: the best time of communications cut in pieces.

Each communication is cut into equal pieces, one after another, that are not preempted and run at
full rate; each resource is a cumulative constraint. Fluid schedules may be a little better than
any such, so this proves nothing about them: it judges how good the priorities are.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import lcm

from weft.dsl.base.lazy_dataclass import dataclass

from ..base.meter import STEPS
from ..solvers.cp_sat import CpModel, CpVerdict, solve
from .effort import ORDER_EFFORT
from .tasks import TaskGraph


@dataclass(frozen=True, slots=True)
class OrderVerdict:
    """Answer of CP-SAT: the best time in µs that it found, and whether none is better."""

    us: Fraction | None
    optimal: bool
    pieces: int


def judged(
    graph: TaskGraph, pieces: int, steps: int = 10 * STEPS, seed: int = 0
) -> OrderVerdict | None:
    """Return the best time with ``pieces`` of each communication; None for a large graph.

    Times are in ticks, so pieces that do not divide them make all times finer.
    """
    number = sum(1 if one.computes else pieces for one in graph.tasks)
    if number > ORDER_EFFORT.judged_pieces:
        return None
    model = CpModel()
    unit = pieces  # so that pieces are whole numbers of it
    horizon = sum(one.ticks for one in graph.tasks) * unit
    end_of_all = model.integer(0, horizon)
    spans = [
        _pieces(model, one.ticks * unit, 1, horizon)
        if one.computes
        else _pieces(model, one.ticks, pieces, horizon)
        for one in graph.tasks
    ]
    for at, one in enumerate(graph.tasks):
        model.linear([(end_of_all, 1), (spans[at].end, -1)], least=0)
        for other in one.before:
            model.linear([(spans[at].start, 1), (spans[other].end, -1)], least=0)
    for number in range(len(graph.occupied)):
        _occupy(model, graph, number, spans)
    model.minimize([(end_of_all, 1)])
    answer = solve(model, steps=steps, seed=seed)
    if not answer.found:
        return OrderVerdict(None, False, pieces)
    us = graph.us(answer.values[end_of_all]) / unit
    return OrderVerdict(us, answer.verdict is CpVerdict.OPTIMAL, pieces)


@dataclass(frozen=True, slots=True)
class _TaskSpan:
    start: int
    end: int
    intervals: tuple[int, ...]


def _pieces(model: CpModel, length: int, parts: int, horizon: int) -> _TaskSpan:
    first = before = -1
    intervals = []
    for part in range(parts):
        start, end = model.integer(0, horizon), model.integer(0, horizon)
        intervals.append(model.interval(start, length, end))
        if part:
            model.linear([(start, 1), (before, -1)], least=0)
        else:
            first = start
        before = end
    return _TaskSpan(first, before, tuple(intervals))


def _occupy(model: CpModel, graph: TaskGraph, number: int, spans: Sequence[_TaskSpan]) -> None:
    shares = [
        (at, Fraction(load, one.ticks))
        for at, one in enumerate(graph.tasks)
        for r, load in one.loads
        if r == number and one.ticks
    ]
    if all(share == 1 for _, share in shares):
        model.no_overlap([i for at, _ in shares for i in spans[at].intervals])
        return
    capacity = min(ORDER_EFFORT.judged_units, lcm(*(share.denominator for _, share in shares)))
    users = [(i, int(share * capacity)) for at, share in shares for i in spans[at].intervals]
    model.cumulative(users, capacity)
