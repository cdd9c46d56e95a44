"""Differences between two things of one kind: schedules, programs, topologies, libraries, texts.

A thing is described by **sheets**: named tables of rows, each row one value. Two things are equal
if all their sheets are. Rows are listed by how much they changed, and what only one of the two has
comes first.
"""

from __future__ import annotations

import math
from typing import Any

from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.tables import count, number, table

from ..formats.listings import Sheets, Value

EQUAL = 1e-9
"""Relative difference up to which floats are equal, since they were rounded."""

LONGEST = 20
"""Largest number of rows of a sheet; the rest is counted."""


@dataclass(frozen=True, slots=True)
class Change:
    """Change of a row of a sheet; None: no such row on that side."""

    what: str
    before: Value
    after: Value

    @property
    def size(self) -> float:
        """Return the size of the change: relative for numbers, infinite where a side has none."""
        a, b = self.before, self.after
        if a is None or b is None:
            return math.inf
        if isinstance(a, str | bool) or isinstance(b, str | bool):
            return 0.0
        return abs(b - a) / max(abs(a), abs(b))

    @property
    def words(self) -> str:
        """Return ``+12.5%``, ``gone`` or ``new``; empty for texts."""
        a, b = self.before, self.after
        if a is None or b is None:
            return "new" if a is None else "gone"
        if isinstance(a, str | bool) or isinstance(b, str | bool) or not a:
            return ""
        return f"{b / a:.3g}x" if abs(b) > 10 * abs(a) else f"{(b - a) / abs(a):+.2%}"


@dataclass(frozen=True, slots=True)
class Changes:
    """Changed rows of a sheet, the largest change first, and the number of equal rows."""

    name: str
    rows: tuple[Change, ...]
    same: int


def differences(before: Sheets, after: Sheets) -> list[Changes]:
    """Return the sheets that differ."""
    found = []
    for name in dict.fromkeys((*before, *after)):
        a, b = before.get(name, {}), after.get(name, {})
        keys = list(dict.fromkeys((*a, *b)))
        rows = [Change(key, a.get(key), b.get(key)) for key in keys]
        changed = [row for row in rows if not _equal(row.before, row.after)]
        if changed:
            ordered = sorted(changed, key=lambda row: -row.size)  # stable: else as in the sheet
            found.append(Changes(name, tuple(ordered), len(rows) - len(changed)))
    return found


def _equal(a: Value, b: Value) -> bool:
    if isinstance(a, float) or isinstance(b, float):
        numbers = isinstance(a, int | float) and isinstance(b, int | float)
        return bool(numbers and math.isclose(a, b, rel_tol=EQUAL))  # type: ignore[arg-type]
    return a == b


def differences_text(found: list[Changes], names: tuple[str, str]) -> str:
    """Return a table for each sheet that differs."""
    parts = []
    for changes in found:
        rows = [
            (_label(row.what), _shown(row.before), _shown(row.after), row.words)
            for row in changes.rows[:LONGEST]
        ]
        text = table((changes.name, *names, "change"), rows)
        hidden = len(changes.rows) - LONGEST
        if hidden > 0:
            text += f"\n… and {hidden} more"
        if changes.same:
            text += f"\n({count(changes.same, 'row')} the same)"
        parts.append(text)
    return "\n\n".join(parts)


def _label(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:59]}…"


def _shown(value: Value) -> str:
    if isinstance(value, float):
        return f"{value:,.3f}" if abs(value) >= 1 else f"{value:.4g}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "-" if value is None else _label(str(value))


def differences_json(found: list[Changes]) -> list[dict[str, Any]]:
    """Return all rows that differ."""

    def plain(value: Value) -> Value:
        return number(value) if isinstance(value, float) else value

    return [
        {
            "name": changes.name,
            "same": changes.same,
            "changes": [
                {"what": row.what, "before": plain(row.before), "after": plain(row.after)}
                for row in changes.rows
            ],
        }
        for changes in found
    ]
