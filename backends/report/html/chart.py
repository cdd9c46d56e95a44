"""Line charts as plain figures: positions of lines, marks and labels.

>>> drawn = chart("t", ChartAxis("size", [1, 4], log=True), ChartAxis("µs", [0, 10]),
...               [Series("ring", [(1, 2.0), (4, 10.0)])])
>>> drawn["series"][0]["path"]
'M64.0 231.6L610.0 30.0'
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from weft.dsl.base.lazy_dataclass import dataclass

from ..sizes import LIMITS, PIXELS
from .page import byte_words


@dataclass(frozen=True, slots=True)
class ChartAxis:
    """Axis of a chart: its title, its values, from whose least to largest it goes, and its
    scale."""

    label: str
    values: Sequence[float]
    log: bool = False
    base: int = 10
    words: Callable[[float], str] = lambda value: f"{value:,.10g}"


@dataclass(frozen=True, slots=True)
class Series:
    """A line through points; ``stairs``: a value holds until the next, ``marks``: no line.

    ``style``: ``bound``, ``this`` or empty for one of the others.
    """

    name: str
    points: Sequence[tuple[float, float]]
    style: str = ""
    stairs: bool = False
    marks: bool = False
    labels: Sequence[str] = ()


def chart(
    title: str, x: ChartAxis, y: ChartAxis, series: Sequence[Series], note: str = ""
) -> dict[str, Any]:
    """Return the figures of a chart."""
    across = _AxisScale.of(x, PIXELS.left, PIXELS.width - PIXELS.right)
    up = _AxisScale.of(y, PIXELS.height - PIXELS.bottom, PIXELS.top)
    drawn, other = [], 0
    for one in series:
        kind = one.style or f"s{other % LIMITS.styles}"
        other += not one.style
        spots = [(across.place(a), up.place(b)) for a, b in one.points]
        drawn.append(
            {
                "name": one.name,
                "kind": kind,
                "path": "" if one.marks else _path(spots, one.stairs),
                "marks": [
                    {"x": round(a, 1), "y": round(b, 1), "label": label}
                    for (a, b), label in zip(spots, one.labels or [""] * len(spots), strict=True)
                ]
                if one.marks or len(spots) <= 40
                else [],
                "points": [list(p) for p in one.points],
                "named": bool(one.labels),
            }
        )
    return {
        "title": title,
        "note": note,
        "width": PIXELS.width,
        "height": PIXELS.height,
        "left": PIXELS.left,
        "right": PIXELS.width - PIXELS.right,
        "top": PIXELS.top,
        "bottom": PIXELS.height - PIXELS.bottom,
        "x": {"label": x.label, "ticks": across.ticks(9)},
        "y": {"label": y.label, "ticks": up.ticks(6)},
        "series": drawn,
    }


def _path(spots: Sequence[tuple[float, float]], stairs: bool) -> str:
    parts = []
    for i, (a, b) in enumerate(spots):
        if stairs and i:
            parts.append(f"H{a:.1f}V{b:.1f}")
        else:
            parts.append(f"{'L' if i else 'M'}{a:.1f} {b:.1f}")
    return "".join(parts)


@dataclass(frozen=True, slots=True)
class _AxisScale:
    axis: ChartAxis
    low: float
    high: float
    start: float
    end: float

    @staticmethod
    def of(axis: ChartAxis, start: float, end: float) -> _AxisScale:
        values = [v for v in axis.values if v > 0 or not axis.log]
        low, high = min(values, default=1.0), max(values, default=1.0)
        if axis.log and low == high:
            low, high = low / 2, high * 2
        elif low == high:
            low, high = low - 1, high + 1
        return _AxisScale(axis, low, high, start, end)

    def place(self, value: float) -> float:
        if self.axis.log:
            part = math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)
        else:
            part = (value - self.low) / (self.high - self.low)
        return self.start + part * (self.end - self.start)

    def ticks(self, most: int) -> list[list[Any]]:
        values = _powers(self, most) if self.axis.log else _round(self, most)
        return [[round(self.place(v), 1), self.axis.words(v)] for v in values]


def _powers(scale: _AxisScale, most: int) -> list[float]:
    base = scale.axis.base
    first = math.ceil(math.log(scale.low, base) - 1e-9)
    last = math.floor(math.log(scale.high, base) + 1e-9)
    if last - first < 2 and base == 10:  # less than two decades: more ticks in each
        fine = (1, 2, 5) if scale.high > 12 * scale.low else (1, 1.5, 2, 3, 4, 5, 7)
        steps = [m * 10.0**e for e in range(first - 1, last + 1) for m in fine]
        return [v for v in steps if scale.low <= v * 1.000001 and v <= scale.high * 1.000001]
    by = max(1, -(-(last - first + 1) // most))
    return [float(base) ** e for e in range(first, last + 1, by)]


def _round(scale: _AxisScale, most: int) -> list[float]:
    span = scale.high - scale.low
    rough = span / max(1, most - 1)
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(m * size for m in (1, 2, 5, 10) if m * size >= rough * 0.999)
    first = math.ceil(scale.low / step - 1e-9)
    return [round(k * step, 12) for k in range(first, math.floor(scale.high / step + 1e-9) + 1)]


# --- the charts of reports ------------------------------------------------------------------------


def over_size(
    title: str, curves: Sequence[Series], *, unit: str = "µs", log: bool = True
) -> dict[str, Any]:
    """Return the chart of times (or values derived from them) over message sizes."""
    sizes = [a for one in curves for a, _ in one.points]
    values = [b for one in curves for _, b in one.points]
    low = [] if log else [min([*values, 1.0])]
    x = ChartAxis("message size", sizes, log=True, base=2, words=byte_words)
    y = ChartAxis(unit, [*values, *low], log=log, words=lambda v: f"{v:,.6g}")
    return chart(title, x, y, curves)


def size_charts(curves: Sequence[Series], bound: Series | None) -> list[dict[str, Any]]:
    """Return the charts of time over size, absolute and as a multiple of the bound."""
    lines = [*curves, *([bound] if bound else [])]
    charts = [over_size("Time over message size", lines)]
    if bound:
        least = dict(bound.points)
        ratio = [
            Series(one.name, [(a, b / least[a]) for a, b in one.points if least.get(a)], one.style)
            for one in curves
        ]
        one = Series("lower bound", [(a, 1.0) for a, b in bound.points if b], "bound")
        # Ratios to the bound are compared, so this axis is logarithmic, too.
        charts.append(over_size("Time ÷ lower bound", [*ratio, one], unit="times the bound"))
    return charts
