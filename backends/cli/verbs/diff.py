"""``weft diff``: compare two files of one kind."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from weft.dsl.base.errors import UserError, an
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.tables import count, number, table

from ...formats.listings import Sheets, Value
from ...report.sizes import TEXT
from ..flags.files import DiffFlags
from ..nouns.noun import FileKind, Subject, refuse_model
from ..nouns.program_noun import ProgramNoun
from ..nouns.subjects import read_subject
from ..output.console import Console, Exit


def run(args: DiffFlags, console: Console) -> int:
    subjects = read_both(args)
    if not isinstance(subjects[0].noun, ProgramNoun):
        refuse_model(args, subjects[0])
    return compare(args, subjects, console)


def read_both(args: DiffFlags) -> tuple[Subject, Subject]:
    """Return the two things that are compared.

    Raises:
        UserError: both from stdin, or of different kinds. As :func:`.read_subject`.
    """
    if args.before == args.after == "-":
        raise UserError("one of the two can come from stdin", where="-")
    before, after = (
        read_subject(text, also=(FileKind.RESULT,)) for text in (args.before, args.after)
    )
    if before.kind != after.kind:
        raise UserError(
            f"{an(before.kind)} and {an(after.kind)} cannot be compared",
            where=args.after,
            hint="name two files of one kind",
        )
    return before, after


def compare(
    args: DiffFlags,
    subjects: tuple[Subject, Subject],
    console: Console,
    head: str = "",
    facts: Mapping[str, Any] = MappingProxyType({}),
) -> int:
    """Print the differences under a line ``head``; ``facts`` are added for ``--json``."""
    kind = subjects[0].kind
    found = differences(*(one.noun.sheets(one, args, console) for one in subjects))
    names = _names(args.before, args.after)
    text = differences_text(found, names) or f"equal: {kind}"
    console.result(
        f"{head}\n\n{text}" if head and found else text,
        {
            "status": "different" if found else "equal",
            "kind": kind,
            "before": args.before,
            "after": args.after,
            **facts,
            "sheets": [
                {
                    "name": changes.name,
                    "same": changes.same,
                    "changes": [
                        {"what": row.what, "before": _plain(row.before), "after": _plain(row.after)}
                        for row in changes.rows
                    ],
                }
                for changes in found
            ],
        },
    )
    return Exit.NO if found else Exit.DONE


def _names(*texts: str) -> tuple[str, str]:
    """Return the names of the two columns: short where that tells them apart."""
    short = [Path(text).name if Path(text).exists() else text for text in texts]
    if short[0] == short[1] or max(map(len, short)) > TEXT.diff_letters:
        return "A", "B"
    return short[0], short[1]


# Differences between two things of one kind: schedules, programs, topologies, libraries, texts.
#
# A thing is described by sheets: named tables of rows, each row one value. Rows are listed by how
# much they changed, and what only one of the two has comes first.

EQUAL = 1e-9
"""Relative difference up to which floats are equal, since they were rounded."""


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
            for row in changes.rows[: TEXT.diff_rows]
        ]
        text = table((changes.name, *names, "change"), rows)
        hidden = len(changes.rows) - TEXT.diff_rows
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


def _plain(value: Value) -> Value:
    return number(value) if isinstance(value, float) else value
