"""Shapes that were searched, as text and as JSON."""

from __future__ import annotations

from typing import Any

from weft.dsl.base.tables import number, table
from weft.synth.joint.shapes import ShapeRanking


def shapes_facts(found: ShapeRanking) -> dict[str, Any]:
    """Return the keys of ``weft topo search --json``."""
    best = found.shapes[0].us
    rows = [
        {
            "topology": one.name,
            "us": number(one.us),
            "exact": str(one.us),
            "over_best": round(float(one.us / best), 6),
            "attained": one.exact,
        }
        for one in found.shapes
    ]
    rest = found.least_us
    return {
        "shapes": rows,
        "looked_at": found.looked_at,
        "others_us": None if rest is None else number(rest),
    }


def shapes_text(found: ShapeRanking) -> str:
    """Return the answer of ``weft topo search`` for people."""
    best = found.shapes[0].us
    rows = [
        (one.name, f"{float(one.us):,.1f}", f"{float(one.us / best):.3f}") for one in found.shapes
    ]
    lines = [table(("shape", "µs", "over best"), rows)]
    left = found.looked_at - len(found.shapes)
    if found.least_us is not None:
        lines.append(f"{left} more take {float(found.least_us):,.1f} µs or more")
    return "\n".join(lines)
