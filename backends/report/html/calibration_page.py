"""Page of a calibration, from ``weft topo calibrate``: measured, default and fitted times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .chart import Series, over_size
from .page import byte_words, microseconds
from .sheet import Facts, head, sheet, tile


def calibration_page(data: Mapping[str, Any]) -> Facts:
    """Return the page of the facts that ``weft topo calibrate --json`` prints."""
    sizes = data["sizes"]
    errors = data["median_error"]
    tiles = [
        tile("median error, fitted", _share(errors["fitted"]), f"{len(sizes)} times"),
        tile("median error, defaults", _share(errors["default"])),
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


def _share(value: float) -> str:
    return f"{100 * value:.1f} %"


def _numbers(data: Mapping[str, Any]) -> Facts:
    """Return the section of the numbers: fitted ones, then those that keep their default."""
    rows = [[x["key"], f"{x['value']:.4g}", f"{x['default']:.4g}", ""] for x in data["fitted"]]
    rows += [[x["key"], "", f"{x['default']:.4g}", x["why"]] for x in data["kept"]]
    return {
        "id": "numbers",
        "title": "Numbers",
        "part": "charts",
        "charts": [],
        "table": {"names": ["fitted", "default", "kept because"], "first": "number", "rows": rows},
        "after": "",
    }


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
    return {
        "id": kind,
        "title": f"{kind}: measured and predicted",
        "part": "charts",
        "charts": [
            over_size("Time over message size", curves),
            over_size("Predicted ÷ measured", left, unit="times measured", log=False),
        ],
        "table": {
            "names": ["measured", "defaults", "fitted", "error", "what runs"],
            "rows": [_row(one) for one in sizes],
        },
        "after": "",
    }


def _row(one: Mapping[str, Any]) -> list[str]:
    times = [microseconds(float(one[key])) for key in ("us", "default_us", "predicted_us")]
    error = "" if one["apart"] else f"{100 * one['error']:+.0f} %"
    return [byte_words(one["bytes"]), *times, error, one["apart"] or one["how"]]
