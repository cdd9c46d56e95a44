"""Log of a search: a line of JSON for every schedule found, with effort and seconds until then."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from weft.dsl.base.files import SCHEMA, write_text
from weft.dsl.base.tables import count

if TYPE_CHECKING:
    from weft.dsl.nouns.problem import Problem
    from weft.synth.base.engine import Point


class SearchLog:
    """Log of an engine's search, written at its end.

    Seconds differ from run to run, so they are kept out of the schedules themselves.
    """

    def __init__(self, problem: Problem, **facts: Any) -> None:
        machine, collective = problem.topology, problem.collective
        self._lines: list[dict[str, Any]] = [
            {
                "weft": "log",
                "schema": SCHEMA,
                **facts,
                "size": problem.bytes,
                "topology": machine.name,
                "machine": machine.digest(),
                "collective": collective.name or str(collective.kind),
                "ranks": collective.ranks,
            }
        ]

    def found(self, seconds: float, effort: float, point: Point) -> None:
        """Add a line for a schedule; numbers are floats, nothing here is a proof."""
        self._lines.append(
            {
                "seconds": round(seconds, 3),
                "effort": round(effort, 6),
                "found": describe(point),
                "steps": point.steps,
                "rounds_per_chunk": float(point.rounds_per_chunk),
                "bound": float(point.bound) if point.bound else None,
                "us": point.us,
                "least_us": point.least_us,
            }
        )

    def write(self, path: str, seconds: float, effort: float, status: str, *, force: bool) -> None:
        """Write the file, with a last line on the outcome."""
        end = {"seconds": round(seconds, 3), "effort": round(effort, 6), "status": status}
        self._lines.append(end)
        text = "\n".join(json.dumps(one, ensure_ascii=False) for one in self._lines)
        write_text(path, text + "\n", force=force)


def describe(point: Point) -> str:
    """Return ``3 steps, 7/6 rounds per chunk (bound 7/6, gap 0%)``; with a time ``14.033 µs (gap
    2%)``."""
    if point.us is not None:
        above = f" (gap {point.us / point.least_us - 1:.1%})" if point.least_us else ""
        return f"{point.us:,.3f} µs{above}, {count(point.steps, 'step')}"
    gap = float(point.rounds_per_chunk / point.bound - 1) if point.bound else 0.0
    return (
        f"{count(point.steps, 'step')}, {count(point.rounds_per_chunk, 'round')} per chunk "
        f"(bound {point.bound}, gap {gap:.1%})"
    )
