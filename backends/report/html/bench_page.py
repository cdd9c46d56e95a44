"""Pages of measured times (``bench``, ``simulate``, ``topo calibrate``) and of a search's log."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from weft.dsl.base.errors import BadFile
from weft.dsl.base.files import parse_json
from weft.dsl.nouns.schedule import Schedule

from ..points import TURN_COLUMNS, turn_rows
from ..report import LOOKS, TIMED, heads_and_rows
from .chart import ChartAxis, Series, chart, over_size
from .page import byte_words, figure, microseconds, share
from .sheet import Facts, charts_section, head, sheet, table_section, tile

PAGE_LOOKS: Mapping[str, Callable[[Any], str]] = MappingProxyType(
    {
        **LOOKS,
        "bytes": byte_words,
        "GBps": figure,
        ".1%": share,
        "+.0%": lambda part: f"{100 * float(part):+.0f} %",
    }
)
"""Texts of values on pages, as :data:`~..report.LOOKS`."""


def results_page(data: Mapping[str, Any], name: str) -> Facts:
    """Return the page: curves of every plan, measured and predicted, and the table.

    Raises:
        BadFile: the entries are not those of a benchmark or a simulation.
    """
    measured = "on" in data
    try:
        if measured:
            lines = _measured(data)
        else:
            timed = data["sizes"]
            points = [(x["bytes"], float(x["us"])) for x in timed]
            least = [(x["bytes"], x["us"] * x["of_bound"]) for x in timed if x.get("of_bound")]
            lines = [Series("predicted", points, "this")]
            lines += [Series("lower bound", least, "bound")] if least else []
        sizes = [int(one["bytes"]) for one in data["sizes"]]
        heads, cells = heads_and_rows(data["sizes"], TIMED, PAGE_LOOKS)
        if cells:
            heads.index("busbw GB/s")  # lacking in the answers of other verbs
    except (KeyError, TypeError, ValueError):
        hint = "weft bench --json or simulate --json prints one"
        raise BadFile("neither a benchmark nor a simulation", where=name, hint=hint) from None
    if not cells:
        raise BadFile("no size was timed", where=name)
    rows = [["–" if cell is None else cell for cell in row] for row in cells]
    wrong = [str(one["name"]) for one in data["sizes"] if one.get("wrong")]
    what = "measured" if measured else "predicted"
    heads_of = {"on": "measured on", "dtype": "data type", "target": "runtime"}
    keys = ("collective", "ranks", "topology", "on", "dtype", "protocol", "target")
    facts = [(heads_of.get(key, key), data.get(key)) for key in keys]
    facts += [("sizes", f"{byte_words(min(sizes))} to {byte_words(max(sizes))}")]
    notes = [f"WRONG results: {', '.join(sorted(set(wrong)))}"] if wrong else []
    bound = next((one for one in lines if one.style == "bound"), None)
    charts = [over_size("Time over message size", lines)]
    if bound is None and len(lines) > 1:
        charts.append(_against_best(lines))
    section = charts_section("sizes", f"Time over size, {what}", charts, heads[1:], rows)
    kind = "benchmark" if measured else "simulation"
    title = f"{data.get('collective', 'collective')} on {data.get('ranks', '?')} ranks, {what}"
    return sheet(kind, title, [head(facts, _tiles(data, what), notes), section], subtitle=name)


def _measured(data: Mapping[str, Any]) -> list[Series]:
    names = list(dict.fromkeys(str(one["name"]) for one in data["sizes"]))
    lines = []
    for name in names:
        mine = [one for one in data["sizes"] if one["name"] == name]
        lines += [Series(f"{name}, measured", [(x["bytes"], float(x["us"])) for x in mine])]
        told = [(one["bytes"], float(one["predicted_us"])) for one in mine if "predicted_us" in one]
        if told:
            lines.append(Series(f"{name}, predicted", told))
    return lines


def _against_best(lines: list[Series]) -> dict[str, Any]:
    best: dict[float, float] = {}
    for one in lines:
        if one.name.endswith("measured"):
            for size, us in one.points:
                best[size] = min(us, best.get(size, us))
    ratio = [
        Series(one.name, [(a, b / best[a]) for a, b in one.points if best.get(a)]) for one in lines
    ]
    return over_size("Time ÷ the quickest plan", ratio, unit="times the quickest")


def _tiles(data: Mapping[str, Any], what: str) -> list[Facts]:
    largest = max(int(one["bytes"]) for one in data["sizes"])
    least = min(int(one["bytes"]) for one in data["sizes"])
    found = []
    for size in dict.fromkeys((least, largest)):
        one = min((x for x in data["sizes"] if x["bytes"] == size), key=lambda x: float(x["us"]))
        us = microseconds(float(one["us"]))
        found.append(tile(f"{what} at {byte_words(size)}", us, str(one.get("name", ""))))
    return found


def calibration_page(data: Mapping[str, Any]) -> Facts:
    """Return the page of the facts that ``weft topo calibrate --json`` prints."""
    sizes = data["sizes"]
    errors = data["median_error"]
    tiles = [
        tile("median error, fitted", share(errors["fitted"]), f"{len(sizes)} times"),
        tile("median error, defaults", share(errors["default"])),
    ]
    facts = [
        ("topology", data["topology"]),
        ("ranks", data["ranks"]),
        ("measured by", data["on"]),
        ("collective", data["collective"]),
    ]
    kinds = list(dict.fromkeys(one["name"] for one in sizes))
    sections = [_section(kind, [x for x in sizes if x["name"] == kind]) for kind in kinds]
    title = f"Runtime model of {data['topology']}, fitted"
    return sheet("calibration", title, [head(facts, tiles), _numbers(data), *sections])


def _numbers(data: Mapping[str, Any]) -> Facts:
    rows = [[x["key"], f"{x['value']:.4g}", f"{x['default']:.4g}", ""] for x in data["fitted"]]
    rows += [[x["key"], "", f"{x['default']:.4g}", x["why"]] for x in data["kept"]]
    names = ("fitted", "default", "kept because")
    return charts_section("numbers", "Numbers", [], names, rows, first="number")


def _section(kind: str, sizes: Sequence[Mapping[str, Any]]) -> Facts:
    """Return the curves of a collective, and the residuals: predicted ÷ measured."""
    measured = {one["bytes"]: float(one["us"]) for one in sizes}
    lines = {
        "defaults": [(one["bytes"], float(one["default_us"])) for one in sizes],
        "fitted": [(one["bytes"], float(one["predicted_us"])) for one in sizes],
    }
    curves = [Series("measured", list(measured.items()), "bound")]
    curves += [Series(name, points) for name, points in lines.items()]
    left = [Series("measured", [(size, 1.0) for size in measured], "bound")]
    left += [Series(name, [(a, b / measured[a]) for a, b in x]) for name, x in lines.items()]
    charts = [
        over_size("Time over message size", curves),
        over_size("Predicted ÷ measured", left, unit="times measured", log=False),
    ]
    names = ("measured", "defaults", "fitted", "error", "what runs")
    rows = []
    for one in sizes:
        times = [microseconds(float(one[key])) for key in ("us", "default_us", "predicted_us")]
        error = "" if one["apart"] else f"{100 * one['error']:+.0f} %"
        rows.append([byte_words(one["bytes"]), *times, error, one["apart"] or one["how"]])
    return charts_section(kind, f"{kind}: measured and predicted", charts, names, rows)


# --- a search: best schedule and proven bound over its effort, from its log -----------------------

# Logs of versions that counted no effort have seconds instead.


def search_sections(text: str, where: str, schedule: Schedule) -> tuple[Facts, ...]:
    """Return the sections of a log: the course of the search, and of a race who got what and why.

    Raises:
        BadFile: not the log of a search, or not that of a search for this schedule.
    """
    course = convergence_section(text, where, schedule)
    turns = parse_json(text.strip().splitlines()[-1], where).get("turns")
    try:
        rows = turn_rows(turns or ())
    except (AttributeError, KeyError, TypeError, ValueError):
        raise BadFile(
            "its turns say something else", where=where, hint="weft synth --log"
        ) from None
    if not rows:
        return (course,)
    after = "Got and spent are units of effort; best is the engine's best answer until then."
    return course, table_section("turns", "Turns of the race", TURN_COLUMNS, rows, after)


def convergence_section(text: str, where: str, schedule: Schedule) -> dict[str, Any]:
    """Return the section of a log (``weft synth --log``): a line of JSON for each schedule found.

    Raises:
        BadFile: not the log of a search, or not that of a search for this schedule.
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
    return charts_section(
        "search",
        "Course of the search",
        [_chart(spots, along, end, unit)] if drawn else [],
        ("found",),
        [[figure(float(x[along])), str(x["found"])] for x in found],
        f"{len(found)} schedules were found by {engine}; {along} in all: {figure(end)}.",
        first=along,
    )


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
