"""Comparison of two things side by side: facts, and bytes per link."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .loads import short_name
from .page import byte_words
from .schedule import Look, loads_of

SHOWN = 40


def compare_section(
    one: Sequence[tuple[str, object]], other: Sequence[tuple[str, object]], first: str, second: str
) -> dict[str, Any]:
    """Return both columns of facts; those that only one has are empty in the other."""
    right = {name: str(value) for name, value in other}
    left = {name: str(value) for name, value in one}
    names = list(dict.fromkeys([*left, *right]))
    rows = [
        [name, left.get(name, "–"), right.get(name, "–"), _same(left.get(name), right.get(name))]
        for name in names
    ]
    return {
        "id": "facts",
        "title": "Facts",
        "part": "table",
        "head": ["", f"A: {first}", f"B: {second}", "same"],
        "rows": rows,
        "numbers": False,
    }


def _same(one: str | None, other: str | None) -> str:
    return "yes" if one == other else "no"


def difference_section(one: Look, other: Look) -> dict[str, Any]:
    """Return the bytes over each link and resource, those that differ most first."""
    a, b = loads_of(one), loads_of(other)
    change = b.moved - a.moved
    order = [int(i) for i in np.argsort(-np.abs(change), kind="stable") if change[i]]
    rows = [
        [
            short_name(a.topology, i),
            byte_words(a.moved[i]),
            byte_words(b.moved[i]),
            _signed(change[i]),
        ]
        for i in order[:SHOWN]
    ]
    same = len(a.moved) - len(order)
    after = f"{same} of {len(a.moved)} links and resources carry the same in both."
    if len(order) > SHOWN:
        after = f"{len(order) - SHOWN} more differ by less. " + after
    return {
        "id": "links",
        "title": "Bytes per link",
        "part": "table",
        "head": ["link or resource", "A", "B", "B − A"],
        "rows": rows,
        "numbers": True,
        "after": after,
    }


def _signed(value: float) -> str:
    return f"{'+' if value > 0 else '−'}{byte_words(abs(value))}"
