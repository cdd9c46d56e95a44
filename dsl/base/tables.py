"""Plain text output: aligned tables and exact numbers, identical on any terminal or pipe.

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

from .integers import FLOAT_EXACT
from .spans import one_line


def table(head: Sequence[str], rows: Iterable[Sequence[object]], width: int = 0) -> str:
    """Return an aligned table; numbers are right-aligned, words left-aligned.

    With a ``width`` the last column is wrapped at that width.
    """
    cells = [[_cell(value) for value in row] for row in rows]
    right = [  # columns of numbers
        bool(cells) and all(row[i][:1] in ("", "-") or row[i][0].isdigit() for row in cells)
        for i in range(len(head))
    ]
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
    """Return one line per fact, names aligned; empty values are omitted."""
    shown = [(name, _cell(value)) for name, value in pairs if value not in ("", None, ())]
    width = max((len(name) for name, _ in shown), default=0)
    return "\n".join(f"{name.ljust(width)}  {value}" for name, value in shown)


def count(number: Fraction | int, noun: str) -> str:
    """Return a number with its noun: ``1 step``, ``3 steps``, ``7/6 rounds``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


LONGEST = 2000
"""Most lines shown of a listing; further lines are only counted."""


def listing(head: str, lines: Sequence[str]) -> str:
    """Return a head, then at most ``LONGEST`` lines of code."""
    hidden = len(lines) - LONGEST
    more = [f"… and {count(hidden, 'more line')}"] if hidden > 0 else []
    return "\n".join([head, *lines[:LONGEST], *more])


def exact(value: Fraction) -> str:
    """Return an exact number with its decimal, ``7/6 (1.16667)``, or alone where it is short."""
    decimal = f"{float(value):.6g}"
    return decimal if Fraction(decimal) == value else f"{value} ({decimal})"


def rounded(value: Fraction | float, digits: int = 6) -> str:
    """Return a number for a text with a unit: rounded to ``digits``, whole parts in full.

    >>> rounded(Fraction(35, 6)), rounded(1600), rounded(Fraction(1622016, 15625), 4)
    ('5.83333', '1,600', '103.8')
    """
    whole = value == int(value) or abs(value) >= 10 ** (digits - 1)
    return f"{round(value):,}" if whole else f"{float(value):.{digits}g}"


def microseconds(value: float) -> str:
    """Return a time in µs as all verbs print it: ``32,214.755``."""
    return f"{value:,.3f}"


def rational(value: Fraction | None) -> str | None:
    """Return the JSON form of an exact number: ``"7/6"``, ``"2"``."""
    return None if value is None else str(value)


def number(value: Fraction | float | None) -> float | int | None:
    """Return the JSON form of a quantity: an integer if it is one, else the nearest float."""
    if value is None:
        return None
    nearest = float(value)
    return int(nearest) if nearest.is_integer() and abs(nearest) < FLOAT_EXACT else nearest


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return one_line(text)  # before the columns are measured
