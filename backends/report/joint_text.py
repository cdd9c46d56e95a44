"""Plans of workloads as text and as JSON: what each class takes, and what binds."""

from __future__ import annotations

from typing import Any

from weft.dsl.base.tables import facts, number, table
from weft.synth.fabric.occupancy import resource_name
from weft.synth.joint.times import CollectiveTimes
from weft.synth.planning.joint_plan import AloneBound, JointPlan


def class_ends(times: CollectiveTimes, plan: JointPlan) -> dict[str, float]:
    """Return when the last collective of each class is done, in µs."""
    asked = [one for one in times.demands if one.parts]
    found: dict[str, float] = {}
    for one, end in zip(asked, plan.ends, strict=True):
        name = one.operation.class_name
        found[name] = max(end, found.get(name, 0.0))
    return found


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
    ends = class_ends(times, plan) if plan else {}
    classes = [
        {
            "name": one.name,
            "alone_us": number(float(one.alone_us)),
            "end_us": number(ends[one.name]) if one.name in ends else None,
        }
        for one in times.classes
    ]
    return {
        "bound": bound_facts(times, alone),
        "value": number(plan.us) if plan else None,
        "alone_us": number(max(float(one.alone_us) for one in times.classes)),
        "sequence_us": number(float(times.sequence_us)),
        "together_us": number(times.together_us),
        "gains": times.gains(),
        "classes": classes,
        "way": plan.way if plan else None,
        "file": file,
    }


def joint_text(times: CollectiveTimes, plan: JointPlan | None, alone: AloneBound | None) -> str:
    """Return the answer of ``weft plan`` for people."""
    joint = times.joint
    least = float(joint.us if alone is None else alone.us)
    ends = class_ends(times, plan) if plan else {}
    rows = [
        (
            one.name,
            len(one.which),
            f"{float(one.alone_us):,.1f}",
            f"{ends[one.name]:,.1f}" if plan else "-",
        )
        for one in times.classes
    ]
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
    rows_text = table(("class", "groups", "alone µs", "done at µs"), rows)
    return "\n".join([facts(head), rows_text])
