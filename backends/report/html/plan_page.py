"""Page of a plan of a workload: how good it is, its Gantt chart, and the times of classes."""

from __future__ import annotations

from weft.dsl.nouns.workload_plan import WorkloadPlan

from ..plan_chart import exposed_us, plan_chart
from ..plan_text import certificate_text, class_times, is_best, plan_text
from ..svg import drawing
from .page import microseconds
from .sheet import Facts, head, listing_section, sheet, tile


def plan_page(plan: WorkloadPlan, name: str) -> Facts:
    """Return the page."""
    tiles = [
        tile("plan", microseconds(plan.us), "proved best" if is_best(plan) else ""),
        tile("lower bound", microseconds(float(plan.bound_us)), ""),
        tile("fair sharing", microseconds(plan.times.fair), ""),
        tile("one queue", microseconds(plan.times.queue), ""),
    ]
    bare = exposed_us(plan) if any(not x.communicates for x in plan.workload.operations) else None
    facts = [
        ("machine", plan.machine),
        ("operations", len(plan.workload.operations)),
        ("why not faster", certificate_text(plan.proof)),
        ("no overlap", microseconds(plan.times.sequence)),
        ("exposed", None if bare is None else f"{microseconds(bare)} sent while no rank computes"),
    ]
    rows = [
        [x["name"], str(x["operations"]), microseconds(x["alone_us"]), microseconds(x["end_us"])]
        for x in class_times(plan)
    ]
    sections: list[Facts | None] = [
        head(facts, tiles, plan.remarks),
        {
            "id": "gantt",
            "title": "In time",
            "part": "drawing",
            "svg": drawing(plan.workload.name, [plan_chart(plan)]),
        },
        {
            "id": "classes",
            "title": "Classes",
            "part": "table",
            "head": ["class", "operations", "alone", "ends"],
            "rows": rows,
            "numbers": True,
        },
        listing_section(
            {"parts": [{"title": "text", "text": plan_text(plan)}], "notes": []}, "In full"
        ),
    ]
    return sheet("plan", plan.workload.name, sections, subtitle=name)
