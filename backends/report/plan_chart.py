"""Gantt charts and traces of plans of workloads: computations, communications, exposed time."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.tables import count
from weft.dsl.nouns.workload_plan import PlanPiece, WorkloadPlan
from weft.synth.ordering.plan import graph_of
from weft.synth.ordering.tasks import GPU, TaskGraph

from .sizes import LIMITS
from .svg import OKABE_ITO, GanttRow, SvgPart, gantt_piece
from .trace import TraceFile, lanes

EXPOSED = "exposed"
"""Name of the row of times at which something is sent and nothing computes."""


@dataclass(frozen=True, slots=True)
class PlanRow:
    """A row: its name, whether it computes, and its pieces, of which no two overlap."""

    name: str
    computes: bool
    pieces: tuple[PlanPiece, ...]


def plan_rows(plan: WorkloadPlan, graph: TaskGraph) -> list[PlanRow]:
    """Return a row for each set of GPUs with computations, and rows for each class."""
    by_row: dict[tuple[bool, str], list[PlanPiece]] = {}
    for number, name in enumerate(graph.occupied):
        if name.startswith(GPU):
            by_row[True, name] = [
                piece
                for piece in plan.pieces
                if graph.tasks[piece.operation].computes
                and any(r == number for r, _ in graph.tasks[piece.operation].loads)
            ]
    for piece in plan.pieces:
        task = graph.tasks[piece.operation]
        if not task.computes:
            by_row.setdefault((False, task.class_name), []).append(piece)
    rows = []
    for (computes, name), pieces in by_row.items():
        where = lanes([x.start for x in pieces], [x.end for x in pieces])
        for lane in range(max(where, default=-1) + 1):
            mine = tuple(x for x, at in zip(pieces, where, strict=True) if at == lane)
            rows.append(PlanRow(name if not lane else f"{name} ({lane + 1})", computes, mine))
    return rows


def exposed(plan: WorkloadPlan, graph: TaskGraph) -> list[tuple[float, float]]:
    """Return the times at which something is sent and no rank computes."""
    pieces: tuple[list[PlanPiece], list[PlanPiece]] = ([], [])
    for one in plan.pieces:
        pieces[graph.tasks[one.operation].computes].append(one)
    found = []
    busy = _union(pieces[1])
    for start, end in _union(pieces[0]):
        for a, b in busy:
            if b <= start or a >= end:
                continue
            if a > start:
                found.append((start, a))
            start = max(start, b)
        if end > start:
            found.append((start, end))
    return found


def _union(pieces: Iterable[PlanPiece]) -> list[tuple[float, float]]:
    """Return the times of some pieces, joined, in order."""
    found: list[tuple[float, float]] = []
    for one in sorted(pieces, key=lambda one: one.start):
        if found and one.start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], one.end))
        else:
            found.append((one.start, one.end))
    return found


def plan_chart(plan: WorkloadPlan) -> SvgPart:
    """Return the chart: a colour for each class, grey for computations."""
    graph = graph_of(plan)
    rows = plan_rows(plan, graph)
    classes = enumerate(plan.workload.classes)
    colours = {name: OKABE_ITO[at % len(OKABE_ITO)] for at, name in classes}
    shown = [
        row
        for computes in (True, False)
        for row in [one for one in rows if one.computes is computes][: LIMITS.gantt_rows]
    ]
    drawn = [GanttRow(row.name, _bars(plan, row, colours)) for row in shown]
    if any(row.computes for row in rows):
        bare = [(a, b, "#d55e00", "sent while no rank computes") for a, b in exposed(plan, graph)]
        drawn.append(GanttRow(EXPOSED, bare))
    hidden = len(rows) - len(shown)
    return gantt_piece(drawn, plan.us, f"… and {count(hidden, 'row')} more" if hidden else "")


def _bars(
    plan: WorkloadPlan, row: PlanRow, colours: dict[str, str]
) -> list[tuple[float, float, str, str]]:
    bars = []
    for one in row.pieces:
        operation = plan.workload.operations[one.operation]
        colour = "#999999" if row.computes else colours[operation.class_name]
        bars.append((one.start, one.end, colour, _words(plan, one)))
    return bars


def _words(plan: WorkloadPlan, one: PlanPiece) -> str:
    operation = plan.workload.operations[one.operation]
    rate = "" if one.rate > 1 - 1e-9 else f", at {one.rate:.0%} of its rate"
    return f"{operation.name}: {one.start:,.6g} to {one.end:,.6g} µs{rate}"


# --- traces ---------------------------------------------------------------------------------------


def add_plan(trace: TraceFile, plan: WorkloadPlan) -> None:
    """Add tracks of GPUs and of classes, exposed time, and the use of the resources."""
    graph = graph_of(plan)
    rows = plan_rows(plan, graph)
    for computes, title in ((True, "computations"), (False, "communications")):
        some = [row for row in rows if row.computes is computes]
        if not some:
            continue
        process = trace.process(title)
        for row in some:
            track = trace.track(process, row.name)
            for one in row.pieces:
                operation = plan.workload.operations[one.operation]
                facts = {"class": operation.class_name, "kind": operation.kind, "rate": one.rate}
                trace.slice(track, one.start, one.end, operation.name, title, facts)
    if any(row.computes for row in rows):
        track = trace.track(trace.process(EXPOSED), "sent while no rank computes")
        for start, end in exposed(plan, graph):
            trace.slice(track, start, end, EXPOSED, EXPOSED, {})
    _add_use(trace, plan, graph)


def _add_use(trace: TraceFile, plan: WorkloadPlan, graph: TaskGraph) -> None:
    shared = [r for r, name in enumerate(graph.occupied) if not name.startswith(GPU)]
    if not shared:
        return
    process = trace.process("use of resources")
    for number in shared[: LIMITS.gantt_rows]:
        times, changes = [], []
        for one in plan.pieces:
            task = graph.tasks[one.operation]
            load = dict(task.loads).get(number)
            if load:
                share = load / task.ticks * one.rate
                times += [one.start, one.end]
                changes += [share, -share]
        name = graph.occupied[number]
        trace.counter(process, name, "share", np.array(times), np.array(changes))
