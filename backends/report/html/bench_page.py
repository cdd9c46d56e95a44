"""Page of measurements, from ``weft bench --json`` or ``weft simulate --json``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft.dsl.base.errors import BadFile

from .chart import Series, over_size
from .page import byte_words, figure, microseconds
from .sheet import Facts, head, sheet, tile


def results_page(data: Mapping[str, Any], name: str) -> Facts:
    """Return the page: curves of every plan, measured and predicted, and the table.

    Raises:
        BadFile: the entries are not those of a benchmark or a simulation.
    """
    measured = "on" in data
    try:
        lines = _measured(data) if measured else _simulated(data)
        rows = [_row(one) for one in data["sizes"]]
    except (KeyError, TypeError, ValueError):
        raise BadFile(
            "neither a benchmark nor a simulation",
            where=name,
            hint="weft bench --json or simulate --json prints one",
        ) from None
    if not rows:
        raise BadFile("no size was timed", where=name)
    sizes = [int(one["bytes"]) for one in data["sizes"]]
    wrong = [str(one["name"]) for one in data["sizes"] if one.get("wrong")]
    what = "measured" if measured else "predicted"
    facts = [
        ("collective", data.get("collective")),
        ("ranks", data.get("ranks")),
        ("topology", data.get("topology")),
        ("measured on", data.get("on")),
        ("data type", data.get("dtype")),
        ("protocol", data.get("protocol")),
        ("runtime", data.get("target")),
        ("sizes", f"{byte_words(min(sizes))} to {byte_words(max(sizes))}"),
    ]
    notes = [f"WRONG results: {', '.join(sorted(set(wrong)))}"] if wrong else []
    bound = next((one for one in lines if one.style == "bound"), None)
    charts = [over_size("Time over message size", lines)]
    if bound is None and len(lines) > 1:
        charts.append(_against_best(lines))
    names = ["plan", what, *(["least"] if measured else []), "algbw", "busbw", *_more(data)]
    section = {
        "id": "sizes",
        "title": f"Time over size, {what}",
        "part": "charts",
        "charts": charts,
        "table": {"names": names, "rows": rows},
        "after": "",
    }
    kind = "benchmark" if measured else "simulation"
    title = f"{data.get('collective', 'collective')} on {data.get('ranks', '?')} ranks, {what}"
    tiles = _tiles(data, what)
    return sheet(kind, title, [head(facts, tiles, notes), section], subtitle=name)


def _measured(data: Mapping[str, Any]) -> list[Series]:
    """Return a line for every plan, and a dashed one for its prediction."""
    names = list(dict.fromkeys(str(one["name"]) for one in data["sizes"]))
    lines = []
    for name in names:
        mine = [one for one in data["sizes"] if one["name"] == name]
        lines.append(
            Series(f"{name}, measured", [(one["bytes"], float(one["us"])) for one in mine])
        )
        told = [(one["bytes"], float(one["predicted_us"])) for one in mine if "predicted_us" in one]
        if told:
            lines.append(Series(f"{name}, predicted", told))
    return lines


def _simulated(data: Mapping[str, Any]) -> list[Series]:
    lines = [Series("predicted", [(x["bytes"], float(x["us"])) for x in data["sizes"]], "this")]
    bound = [(x["bytes"], x["us"] * x["of_bound"]) for x in data["sizes"] if x.get("of_bound")]
    return [*lines, Series("lower bound", bound, "bound")] if bound else lines


def _against_best(lines: list[Series]) -> dict[str, Any]:
    """Return each line divided by the quickest measured one at that size."""
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
        found.append(
            tile(
                f"{what} at {byte_words(size)}",
                microseconds(float(one["us"])),
                str(one.get("name", "")),
            )
        )
    return found


def _more(data: Mapping[str, Any]) -> list[str]:
    first = data["sizes"][0]
    return [
        *(["of bound"] if "of_bound" in first else []),
        *(["predicted", "error"] if "predicted_us" in first else []),
    ]


def _row(one: Mapping[str, Any]) -> list[str]:
    row = [
        byte_words(int(one["bytes"])),
        str(one.get("name", "this")),
        microseconds(float(one["us"])),
    ]
    if "least_us" in one:
        row.append(microseconds(float(one["least_us"])))
    row += [f"{figure(one['algbw_GBps'])} GB/s", f"{figure(one['busbw_GBps'])} GB/s"]
    if "of_bound" in one:
        row.append("–" if one["of_bound"] is None else f"{100 * one['of_bound']:.1f} %")
    if "predicted_us" in one:
        row += [microseconds(float(one["predicted_us"])), f"{100 * float(one['error']):+.0f} %"]
    return row
