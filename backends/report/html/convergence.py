"""Convergence of a search: best schedule and proven bound over its effort, from its log.

Logs of versions that counted no effort have seconds instead.
"""

from __future__ import annotations

from typing import Any

from weft.dsl.base.errors import BadFile
from weft.dsl.base.files import parse_json
from weft.dsl.nouns.schedule import Schedule

from .chart import ChartAxis, Series, chart
from .page import figure


def convergence_section(text: str, where: str, schedule: Schedule) -> dict[str, Any]:
    """Return the section of a log (``weft synth --log``): a line of JSON for each schedule found.

    Raises:
        BadFile: it is no such log, or not that of a search for this schedule.
    """
    lines = [parse_json(line, where) for line in text.splitlines() if line.strip()]
    if not lines or not isinstance(lines[0], dict) or lines[0].get("weft") != "log":
        raise BadFile("not the log of a search", where=where, hint="weft synth --log FILE")
    first, rest = lines[0], lines[1:]
    machine, collective = schedule.topology.digest(), schedule.collective
    name = collective.name or str(collective.kind)
    told = (
        first.get("machine", machine),
        first.get("collective", name),
        first.get("ranks", collective.ranks),
    )
    if told != (machine, name, collective.ranks):
        raise BadFile(
            f"the log of a search for {told[1]} on {first.get('topology')}, where the "
            f"schedule is {name} on {schedule.topology.name}",
            where=where,
            hint="name the log that was written with the schedule",
        )
    try:
        found = [one for one in rest if "found" in one]
        along = "effort" if all("effort" in one for one in rest) else "seconds"
        timed = any(one.get("us") is not None for one in found)
        keys = ("us", "least_us") if timed else ("rounds_per_chunk", "bound")
        spots = [
            (float(one[along]), float(one[keys[0]]), float(one.get(keys[1]) or 0))
            for one in found
            if one.get(keys[0]) is not None
        ]
        end = float(rest[-1][along]) if rest else 0.0
    except (KeyError, TypeError, ValueError):
        raise BadFile("a line says something else", where=where, hint="weft synth --log") from None
    engine = str(first.get("engine", ""))
    unit = "µs" if timed else "rounds per chunk"
    drawn = any(value > 0 for _, value, _ in spots)
    return {
        "id": "search",
        "title": "How the search went",
        "part": "charts",
        "charts": [_chart(spots, along, end, unit)] if drawn else [],
        "table": {
            "first": along,
            "names": ["found"],
            "rows": [[figure(float(x[along])), str(x["found"])] for x in found],
        },
        "after": f"{len(found)} schedules were found by {engine}; {along} in all: {figure(end)}.",
    }


def _chart(
    spots: list[tuple[float, float, float]], along: str, end: float, unit: str
) -> dict[str, Any]:
    """Return the chart of the best value so far and the bound proved for that schedule's kind, as
    steps."""
    best, least = [], []
    value, bound = spots[0][1:]
    for place, us, known in spots:
        if us <= value:
            value, bound = us, known
        best.append((place, value))
        least.append((place, bound))
    best.append((max(end, best[-1][0]), value))
    least.append((max(end, least[-1][0]), bound))
    series = [Series("best so far", best, "this", stairs=True)]
    if bound:
        series.append(Series("proved bound", least, "bound", stairs=True))
    values = [b for one in series for _, b in one.points if b]
    room = 0.08 * (max(values) - min(values)) or 0.05 * max(values)
    return chart(
        "Best schedule and bound",
        ChartAxis(along, [0.0, max(end, best[-1][0])]),
        ChartAxis(unit, [min(values) - room, max(values) + room]),
        series,
    )
