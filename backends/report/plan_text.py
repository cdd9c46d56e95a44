"""Texts and facts of plans: of a workload in time, of collectives at once, of jobs in turn."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from weft.dsl.base.tables import count, facts, microseconds, number
from weft.dsl.nouns.workload_plan import PlanProofStep, WorkloadPlan
from weft.synth.fabric.occupancy import resource_name
from weft.synth.ordering.plan import SHARED, graph_of

from .report import shown
from .sizes import TEXT

if TYPE_CHECKING:
    from weft.synth.joint.times import CollectiveTimes
    from weft.synth.ordering.jobs import SharedJobs
    from weft.synth.planning.joint_plan import AloneBound, JointPlan

FAIR = "several communicators, all slowed alike"
QUEUE = "one at a time on each rank, in the order of readiness"

_NUMBERED = re.compile(r"(.*)\[(0|[1-9][0-9]*)\]", re.DOTALL)


def plan_text(plan: WorkloadPlan) -> str:
    """Return bound and time, those of other ways of sharing, classes, and the order."""
    name = plan.workload.name + (f" on {plan.machine}" if plan.machine else "")
    operations = count(len(plan.workload.operations), "operation")
    quality = "proved best"
    if not is_best(plan):
        quality = f"at most {plan.us / float(plan.bound_us) - 1:.2%} above the bound"
    head = facts(
        [
            ("workload", f"{name}, {operations}"),
            ("bound", f"{microseconds(float(plan.bound_us))} µs: {certificate_text(plan.proof)}"),
            ("plan", f"{microseconds(plan.us)} µs, {quality}"),
            ("fair sharing", _against(plan, plan.times.fair, FAIR)),
            ("one queue", _against(plan, plan.times.queue, QUEUE)),
            ("no overlap", _against(plan, plan.times.sequence, "one after another")),
        ]
    )
    classes = class_times(plan)
    columns = ("class:name", "operations:operations", "alone µs:alone_us", "ends µs:end_us")
    parts = [head, shown(classes[: TEXT.order_names], *columns) if classes else ""]
    if len(classes) > TEXT.order_names:
        parts.append(f"… and {len(classes) - TEXT.order_names} more classes")
    parts.append(_order_text(plan))
    parts += [f"note: {remark}" for remark in plan.remarks]
    return "\n\n".join(part for part in parts if part)


def _order_text(plan: WorkloadPlan) -> str:
    if SHARED in plan.remarks:
        return ""
    communicates = {one.name for one in plan.workload.operations if one.communicates}
    sending = in_runs([x for x in plan.order if x in communicates])
    if not sending:
        return "nothing is sent"
    more = f" and {len(sending) - TEXT.order_names} more" if len(sending) > TEXT.order_names else ""
    return f"first goes first: {', '.join(sending[: TEXT.order_names])}{more}"


def in_runs(names: Sequence[str]) -> list[str]:
    """Return names with those that count up as one: ``tp[0..7]`` for ``tp[0]``, ``tp[1]`` …"""
    found: list[tuple[str, int, int]] = []
    for name in names:
        stem, number = _numbered(name)
        if number >= 0 and found and (found[-1][0], found[-1][2] + 1) == (stem, number):
            found[-1] = (stem, found[-1][1], number)
        else:
            found.append((stem, number, number))
    return [
        stem if first < 0 else f"{stem}[{first}]" if first == last else f"{stem}[{first}..{last}]"
        for stem, first, last in found
    ]


def _numbered(name: str) -> tuple[str, int]:
    """Return ``tp`` and 3 of ``tp[3]``; another name with -1."""
    parts = _NUMBERED.fullmatch(name)
    return (name, -1) if parts is None else (parts[1], int(parts[2]))


def is_best(plan: WorkloadPlan) -> bool:
    """Return True if the plan meets its bound, but for rounding."""
    return plan.us <= float(plan.bound_us) * (1 + 1e-9)


def _against(plan: WorkloadPlan, us: float, how: str) -> str:
    ratio = us / plan.us if plan.us else 1.0
    return f"{microseconds(us)} µs (×{ratio:.2f}): {how}"


def certificate_text(steps: Sequence[PlanProofStep]) -> str:
    """Return in words why nothing can be quicker."""
    last = steps[-1]
    if last.path and (last.head or last.tail):
        return (
            f"{last.path[0]} cannot start before {_us(last.head)} µs, and {_us(last.tail)} µs "
            f"follow: resources are busy, by {count(len(steps), 'step')} of the certificate"
        )
    more = ""
    if len(steps) > 1:
        more = f", with {count(len(steps) - 1, 'step')} before it in the certificate"
    if last.path:
        path = list(last.path)
        if len(path) > TEXT.path_names:
            path = [*path[: TEXT.path_names // 2], "…", *path[-TEXT.path_names // 2 :]]
        return f"critical path of {count(len(last.path), 'operation')}: {' → '.join(path)}{more}"
    load = last.us - last.head - last.tail
    operations = count(len(last.tasks), "operation")
    reasons = [f"{last.resource} is busy for {_us(load)} µs with {operations}"]
    if last.head:
        reasons.append(f"none of which can start before {_us(last.head)} µs")
    if last.tail:
        reasons.append(f"after each of which {_us(last.tail)} µs pass")
    return ", ".join(reasons) + more


def _us(value: Fraction) -> str:
    return f"{float(value):,.6g}"


def class_times(plan: WorkloadPlan) -> list[dict[str, Any]]:
    """Return of each class its name, µs alone, and its end in the plan.

    Alone: all of its operations at once, and nothing else.
    """
    graph = graph_of(plan)
    spans = plan.spans()
    found = []
    for name, which in plan.workload.classes.items():
        busy: dict[int, int] = {}
        for at in which:
            for resource, load in graph.tasks[at].loads:
                busy[resource] = busy.get(resource, 0) + load
        alone = max([*busy.values(), *(graph.tasks[at].ticks for at in which)])
        ends = [span[1] for at in which if (span := spans[at])]
        found.append(
            {
                "name": name,
                "operations": len(which),
                "alone_us": number(graph.us(alone)),
                "end_us": number(max(ends, default=0.0)),
            }
        )
    return found


def plan_facts(plan: WorkloadPlan) -> dict[str, Any]:
    """Return the object of ``--json``."""
    spans = plan.spans()
    return {
        "workload": plan.workload.name,
        "digest": plan.workload.digest(),
        "topology": plan.machine or None,
        "bound": {
            "us": number(plan.bound_us),
            "exact_us": str(plan.bound_us),
            "certificate": {
                "kind": "path" if plan.proof[-1].path else "resource",
                "text": certificate_text(plan.proof),
                "data": {"steps": [step.to_json() for step in plan.proof]},
            },
        },
        "value": number(plan.us),
        "optimal": is_best(plan),
        "alone_us": number(plan.times.alone),
        "sequence_us": number(plan.times.sequence),
        "together_us": number(plan.times.together),
        "fair_us": number(plan.times.fair),
        "queue_us": number(plan.times.queue),
        "late_us": number(plan.late_us),
        "classes": class_times(plan),
        "operations": [
            {"name": one.name, "start_us": number(span[0]), "end_us": number(span[1])}
            for one, span in zip(plan.workload.operations, spans, strict=True)
            if span
        ],
        "order": list(plan.order),
        "remarks": list(plan.remarks),
    }


def _classes(times: CollectiveTimes, plan: JointPlan | None) -> list[dict[str, Any]]:
    asked = [one for one in times.demands if one.parts]
    ends: dict[str, float] = {}
    for one, end in zip(asked, plan.ends if plan else (), strict=plan is not None):
        name = one.operation.class_name
        ends[name] = max(end, ends.get(name, 0.0))
    return [
        {
            "name": one.name,
            "alone_us": number(float(one.alone_us)),
            "end_us": number(ends.get(one.name)),
        }
        for one in times.classes
    ]


def bound_facts(times: CollectiveTimes, alone: AloneBound | None) -> dict[str, Any]:
    """Return the bound: of the rates of all together, or of one operation alone where that is more.

    In the latter case ``rates`` is the former, which leaves latency out.
    """
    joint = times.joint
    prices = {
        resource_name(times.topology, row): price for row, price in enumerate(joint.prices) if price
    }
    proof = {"kind": "prices", "text": times.sentence, "prices": prices}
    rates = {"us": number(float(joint.us)), "exact_us": str(joint.us)}
    found = {**rates, "optimum_us": number(joint.value_us), "certificate": proof}
    if alone is None:
        return found
    own = alone.certificate
    return {
        "us": number(float(alone.us)),
        "exact_us": str(alone.us),
        "optimum_us": None,
        "certificate": {
            "kind": own.kind,
            "operation": alone.name,
            "text": own.text,
            "data": own.data,
        },
        "rates": found,
    }


def joint_facts(
    times: CollectiveTimes, plan: JointPlan | None, alone: AloneBound | None, file: str | None
) -> dict[str, Any]:
    """Return the keys of ``weft plan --json``."""
    return {
        "bound": bound_facts(times, alone),
        "value": number(plan.us) if plan else None,
        "alone_us": number(max(float(one.alone_us) for one in times.classes)),
        "sequence_us": number(float(times.sequence_us)),
        "together_us": number(times.together_us),
        "gains": times.gains(),
        "classes": _classes(times, plan),
        "way": plan.way if plan else None,
        "file": file,
    }


def joint_text(times: CollectiveTimes, plan: JointPlan | None, alone: AloneBound | None) -> str:
    """Return the answer of ``weft plan`` for people."""
    joint = times.joint
    least = float(joint.us if alone is None else alone.us)
    rows = [
        {**row, "groups": len(one.which)}
        for row, one in zip(_classes(times, plan), times.classes, strict=True)
    ]
    columns = ("class:name", "groups:groups", "alone µs:alone_us:,.1f", "done at µs:end_us:,.1f")
    rates = "" if alone is None else ", latency left out"
    told = f"{float(joint.us):,.3f} µs for all together, latency left out"
    if alone is None:
        head = [("bound", told), ("", times.sentence)]
    else:
        head = [
            ("bound", f"{least:,.3f} µs for {alone.name} alone, with latency"),
            ("", alone.certificate.text),
            ("rates", told),
            ("", times.sentence),
        ]
    if plan:
        above = f"{plan.us / least - 1:.2%} above the bound, by {plan.way}"
        head.append(("plan", f"{plan.us:,.3f} µs, {above}"))
    head += [
        ("in turn", f"{float(times.sequence_us):,.1f} µs, one class after another{rates}"),
        ("at once", f"{times.together_us:,.1f} µs, each class by its own routes{rates}"),
        ("gains", times.gains()),
    ]
    return "\n".join([facts(head), shown(rows, *columns)])


def shift_text(found: SharedJobs) -> str:
    """Return shifts and iterations of the jobs, and how sure it is."""
    shifts = found.shifts
    return "\n\n".join(
        [
            shown(
                _jobs(found),
                *("job:name", "period µs:period_us", "shift µs:shift_us"),
                *("iteration before:iteration_before_us", "after:iteration_us"),
            ),
            facts(
                [
                    ("common period", f"{microseconds(float(shifts.common_us))} µs"),
                    ("excess before", _excess(found, shifts.before)),
                    ("excess", f"{_excess(found, shifts.excess)}, {_proof(found)}"),
                    ("score", f"{float(shifts.score):.4g}"),
                    ("drift", _drift(found)),
                ]
            ),
            verdict(found),
        ]
    )


def _jobs(found: SharedJobs) -> list[dict[str, Any]]:
    return [
        {
            "name": job.name,
            "period_us": number(job.period),
            "shift_us": number(shift),
            "iteration_before_us": number(before),
            "iteration_us": number(after),
        }
        for job, shift, before, after in zip(
            found.jobs, found.shifts.us, found.before_us, found.after_us, strict=True
        )
    ]


def _excess(found: SharedJobs, us: Fraction) -> str:
    return f"{float(us):,.6g} µs of {float(found.shifts.common_us):,.6g} µs"


def _proof(found: SharedJobs) -> str:
    if not found.shifts.excess:
        return "so the jobs do not touch"
    if found.shifts.optimal:
        return "proved least"
    return f"at least {float(found.shifts.bound):,.6g} µs is proved"


def _drift(found: SharedJobs) -> str | None:
    drift = found.shifts.drift_us
    if drift is None:
        return None
    if not drift:
        return "none: a job that is late at all meets another"
    return f"a job may be late or early by {float(drift):,.6g} µs"


def verdict(found: SharedJobs) -> str:
    """Return the gain of shifts in one sentence."""
    shifts = found.shifts
    if not shifts.by_resource:
        return "the jobs share no resource: no shift is needed"
    if not shifts.before:
        return "the jobs do not touch even unshifted"
    if not shifts.helps:
        sure = "no shift helps" if shifts.optimal else "no shift was found that helps"
        return f"{sure}: the excess stays {float(shifts.excess):,.6g} µs"
    if shifts.excess:
        rest = "no shift removes the rest" if shifts.optimal else "the rest was not removed"
        return f"shifts help, and {rest}: {float(shifts.excess):,.6g} µs"
    return "it holds while the periods stay as told: jobs that drift meet again"


def shift_facts(found: SharedJobs) -> dict[str, Any]:
    """Return the object of ``--json``."""
    shifts = found.shifts
    data: dict[str, Any] = {
        "jobs": _jobs(found),
        "shifts": [number(shift) for shift in shifts.us],
        "common_us": number(shifts.common_us),
        "excess_before_us": number(shifts.before),
        "excess_us": number(shifts.excess),
        "bound_us": number(shifts.bound),
        "optimal": shifts.optimal,
        "helps": shifts.helps,
        "score": number(shifts.score),
        "drift_us": number(shifts.drift_us),
        "resources": {name: number(us) for name, us in shifts.by_resource.items()},
        "verdict": verdict(found),
    }
    if found.widths and set(shifts.by_resource) <= set(found.widths):
        by_resource = shifts.by_resource.items()  # GB/s times µs: 1000 bytes
        data["excess"] = number(sum(us * found.widths[name] for name, us in by_resource))
    return data
