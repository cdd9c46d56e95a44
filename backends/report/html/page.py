"""Rendering of facts as a page: filled templates, embedded style and script, one block of data."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from ..sizes import LIMITS

if TYPE_CHECKING:
    from jinja2 import Environment

_PACKAGE = "weft.backends.report.html"


BUDGETS = (26_000, 10_000, 4_000, 1_000)
"""Numbers of bars in a page's charts, from many to few."""

Make = Callable[[int], Mapping[str, Any]]
"""Function that returns the facts of a page with about the given number of bars in its charts."""


def fitted(make: Make) -> tuple[Mapping[str, Any], str]:
    """Return the facts and the text of the fullest page that is not too large.

    Numbers of bars are left out with which it certainly is: a page of fewer bars has at least its
    share of the bytes, as all but the bars stays.
    """
    left = list(BUDGETS)
    while True:
        most = left.pop(0)
        page = make(most)
        text = render(page)
        size = len(text.encode())
        if size <= LIMITS.page_bytes or not left:
            return page, text
        left = [few for few in left[:-1] if few * size <= most * LIMITS.page_bytes] + left[-1:]


def render(page: Mapping[str, Any]) -> str:
    """Return the page of some facts; the same facts give the same text.

    Whatever is in the facts is text: nothing of it becomes markup or script.
    """
    moving = {
        "views": page.get("views", []),
        "maps": page.get("maps", []),
        "pair": page.get("pair", False),
    }
    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            page=page,
            data=script_json(moving),
            style=_part("page.css"),
            script=f"{_part('draw.js')}\n{_part('page.js')}",
        )
    )


def fragment(sections: Iterable[Mapping[str, Any]]) -> str:
    """Return sections as a part of another page, such as the output of a notebook's cell.

    It has its own few styles and no script; sections that draw by script do not fit.
    """
    return _environment().get_template("fragment.html.j2").render(sections=list(sections))


def script_json(data: Any) -> str:
    """Return JSON that may stand inside a script element: no ``<``, ``>`` or ``&``, no line
    separators."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader

    found = Environment(
        loader=PackageLoader(_PACKAGE),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters.update(us=microseconds, bytes=byte_words, share=share, figure=figure)
    return found


@cache
def _part(name: str) -> str:
    return files(_PACKAGE).joinpath("templates", name).read_text(encoding="utf-8")


# --- numbers for people ---------------------------------------------------------------------------


def microseconds(value: float | None) -> str:
    """Return a time as ``7.517 µs`` or ``32.2 ms``: four digits."""
    if value is None:
        return "–"
    for unit, factor in (("s", 1e6), ("ms", 1e3)):
        if value >= 10 * factor:
            return f"{figure(value / factor)} {unit}"
    return f"{figure(value)} µs"


def figure(value: float | None) -> str:
    """Return a number with four significant digits, without exponent."""
    if value is None:
        return "–"
    if value == 0:
        return "0"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}" if abs(value) >= 1e-4 else f"{value:.2e}"


def byte_words(value: float) -> str:
    """Return ``1 MiB`` or ``149.3 KiB``: always binary units, so that columns can be compared."""
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if value >= factor:
            return f"{value / factor:,.4g} {unit}"
    return f"{figure(value)} B"


def share(value: float | None) -> str:
    """Return a fraction as ``93.3 %``."""
    return "–" if value is None else f"{100 * value:.1f} %"
