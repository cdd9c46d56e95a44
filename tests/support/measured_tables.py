"""Tables of measured runs as files tell them: rows in bytes and µs, facts, and what is unreadable.

Nothing is dropped: a row that cannot be read stays, with the reason.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft.dsl.base.errors import WeftError
from weft.dsl.base.units import BYTES_PER_US_PER_GBPS, format_bytes, parse_bytes, parse_microseconds
from weft.dsl.nouns.collective import Kind

OTHER_NAMES = {"bcast": Kind.BROADCAST, "a2a": Kind.ALLTOALL}
"""Names of collectives that are not theirs written otherwise (``all_reduce_perf``)."""


SPIKE, CALM = 0.1, 0.05
"""A spike took so much longer than both neighbours, which differ by less than CALM."""


@dataclass(frozen=True, slots=True)
class MeasuredRow:
    """Bytes and µs of a run; ``wrong``: why they cannot be compared, empty if they can."""

    bytes: int
    us: float
    wrong: str = ""


@dataclass(frozen=True, slots=True)
class MeasuredTable:
    """One table: its name, the facts about the run, and its rows."""

    name: str
    facts: Mapping[str, Any]
    rows: tuple[MeasuredRow, ...]

    def text(self, key: str) -> str:
        """A fact as text; empty where there is none."""
        return str(self.facts.get(key) or "")

    def number(self, key: str) -> int | None:
        """A fact as a number above 0; None where there is none."""
        try:
            found = int(str(self.facts.get(key)))
        except ValueError:
            return None
        return found if found > 0 else None

    @property
    def kind(self) -> Kind | None:
        """The collective; None if it is none of weft's."""
        word = re.sub(r"[^a-z0-9]", "", self.text("collective").lower().partition("(")[0])
        word = word.removesuffix("perf").removesuffix("inplace").removesuffix("outofplace")
        names = {re.sub(r"[^a-z]", "", str(kind)): kind for kind in Kind} | OTHER_NAMES
        return names.get(word)

    @property
    def machine(self) -> str:
        """The machine, as the names of its tables begin (``b200x16-gcp-ag``)."""
        return self.name.rpartition("-")[0] or self.name

    @property
    def spikes(self) -> dict[int, str]:
        """Bytes of rows that stick out of times that hardly change about them, and the reason.

        A larger message took less there, and so did a smaller one: something else was in the way.
        """
        rows = sorted((one for one in self.rows if not one.wrong), key=lambda one: one.bytes)
        found = {}
        for before, row, after in zip(rows, rows[1:], rows[2:], strict=False):
            low, high = sorted((before.us, after.us))
            if high < low * (1 + CALM) and row.us > high * (1 + SPIKE):
                found[row.bytes] = (
                    f"a spike of {format_bytes(row.bytes)}: {row.us:g} µs, beside "
                    f"{before.us:g} of {format_bytes(before.bytes)} and "
                    f"{after.us:g} of {format_bytes(after.bytes)}"
                )
        return found

    @property
    def why_apart(self) -> str:
        """Why no program of ours can be what ran; empty where one can."""
        if "sharp" in (self.text("library") + self.text("chosen")).lower():
            return "SHARP: switches of the network sum"
        if self.text("chosen").startswith("NVLS"):
            return "NVLS: switches sum"
        if "outlier" in self.text("note").lower():
            return f"told to be an outlier: {self.text('note')}"
        if self.text("collective").lower().startswith(("sendrecv", "send_recv")):
            return "sendrecv: ranks pass on in a circle, no collective"
        if self.kind is None:
            return f"no collective of that name: {self.text('collective') or '(none)'}"
        return ""


def read_tables(path: Path) -> list[MeasuredTable]:
    """The tables of a file.

    Raises:
        ValueError: not such a file.
    """
    data = json.loads(path.read_text(encoding="utf-8"))
    tables = data.get("tables") if isinstance(data, dict) else None
    if not isinstance(tables, list):
        raise ValueError(f"{path}: no list `tables`")
    found = []
    for number, one in enumerate(tables):
        if not isinstance(one, dict):
            raise ValueError(f"{path}: table {number} is no object")
        rows = one.get("rows_bytes_us")
        read = [_row(row) for row in rows] if isinstance(rows, list) else []
        if not isinstance(rows, list):
            read = [MeasuredRow(0, math.nan, "no list `rows_bytes_us`")]
        found.append(MeasuredTable(str(one.get("id") or f"table {number}"), one, tuple(read)))
    return found


def _row(row: Any) -> MeasuredRow:
    """A row: two numbers, texts with units, or an object with bytes and µs or GB/s of algorithm."""
    size = 0
    try:
        size = _bytes(row)
        us = _us(row, size)
    except (WeftError, ValueError, TypeError, LookupError, ArithmeticError) as error:
        told = error.message if isinstance(error, WeftError) else str(error)
        return MeasuredRow(size, math.nan, f"cannot be read: {row!r:.60} ({told})")
    if size <= 0:
        return MeasuredRow(0, us, "an empty message")
    if not (math.isfinite(us) and us > 0):
        return MeasuredRow(size, us, "no time was measured")
    return MeasuredRow(size, us)


def _bytes(row: Any) -> int:
    given = row["bytes"] if isinstance(row, dict) else row[0]
    if isinstance(given, str):
        return int(given) if given.strip().isdecimal() else parse_bytes(given)
    if isinstance(given, bool) or int(given) != given:
        raise ValueError("not a number of bytes")
    return int(given)


def _us(row: Any, size: int) -> float:
    if isinstance(row, dict) and row.get("us") is None:
        return size / (float(row["algbw_GBps"]) * BYTES_PER_US_PER_GBPS)
    given = row["us"] if isinstance(row, dict) else row[1]
    if isinstance(given, str) and re.search(r"[a-zµ]\s*$", given):
        return float(parse_microseconds(given.replace("µs", "us")))
    return float(given)
