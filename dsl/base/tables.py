"""Plain text for people: aligned tables and exact numbers. The same text on any terminal or pipe.

>>> print(table(("name", "steps"), [("ring", 7), ("tree", 3)]))
name  steps
ring      7
tree      3
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from textwrap import wrap
from typing import Any


def table(head: Sequence[str], rows: Iterable[Sequence[object]], width: int = 0) -> str:
    """Columns under their names; numbers to the right, words to the left.

    With a ``width`` the words of the last column go on in further lines rather than beyond it.
    """
    cells = [[_cell(value) for value in row] for row in rows]
    right = [bool(cells) and all(_is_number(row[i]) for row in cells) for i in range(len(head))]
    widths = [max(len(row[i]) for row in [list(head), *cells]) for i in range(len(head))]
    lines = []
    for row in [list(head), *cells]:
        parts = [
            text.rjust(wide) if to_right else text.ljust(wide)
            for text, wide, to_right in zip(row, widths, right, strict=True)
        ]
        line = "  ".join(parts).rstrip()
        indent = sum(widths[:-1]) + 2 * (len(widths) - 1)
        if width and len(line) > width >= indent + 20:
            first, *rest = wrap(row[-1], width - indent)
            line = "\n".join([line[:indent] + first, *(" " * indent + more for more in rest)])
        lines.append(line)
    return "\n".join(lines)


def facts(pairs: Iterable[tuple[str, object]]) -> str:
    """One line per fact, names aligned; empty values are left out."""
    shown = [(name, _cell(value)) for name, value in pairs if value not in ("", None, ())]
    width = max((len(name) for name, _ in shown), default=0)
    return "\n".join(f"{name.ljust(width)}  {value}" for name, value in shown)


def count(number: int, noun: str) -> str:
    """``1 step``, ``3 steps``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


LONGEST = 2000
"""Lines of a listing after which the rest is only counted."""


def listing(head: str, lines: Sequence[str]) -> str:
    """Facts, then the lines of some code, as far as a person reads."""
    hidden = len(lines) - LONGEST
    more = [f"… and {count(hidden, 'more line')}"] if hidden > 0 else []
    return "\n".join([head, *lines[:LONGEST], *more])


def exact(value: Fraction) -> str:
    """An exact number for people: ``7/6 (1.16667)``, or plainly where it is short."""
    decimal = f"{float(value):.6g}"
    return decimal if Fraction(decimal) == value else f"{value} ({decimal})"


def microseconds(value: float) -> str:
    """A time for people, alike in every verb: ``32,214.755``."""
    return f"{value:,.3f}"


def rational(value: Fraction | None) -> str | None:
    """The JSON form of an exact number: ``"7/6"``, ``"2"``."""
    return None if value is None else str(value)


def number(value: Fraction | float | None) -> float | int | None:
    """The JSON form of a quantity with a unit: the nearest float, an integer where it is one."""
    if value is None:
        return None
    nearest = float(value)
    return int(nearest) if nearest.is_integer() and abs(nearest) < 1 << 53 else nearest


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _is_number(text: str) -> bool:
    return text in ("-", "") or text[0].isdigit() or text[0] == "-"
