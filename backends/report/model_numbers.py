"""Numbers of a calibrated runtime model: value, how sure it is, its source, what replaces it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.dsl.base.tables import table
from weft.synth.time.calibrated import Certainty, ModelNumber

PROTOCOLS = (".LL", ".LL128", ".Simple")
"""Ends of keys that are of one protocol."""


def numbers_json(numbers: Sequence[ModelNumber]) -> list[dict[str, Any]]:
    """Return the entry ``numbers``."""
    return [
        {
            "key": one.key,
            "value": float(one.value),
            "certainty": str(one.certainty),
            "source": one.source,
            "replaced_by": one.replaced_by,
        }
        for one in numbers
    ]


def numbers_text(numbers: Sequence[ModelNumber], protocol: str = "") -> str:
    """Return a table, the least sure first; of one protocol (``.LL``) where it is named."""
    order = list(Certainty)[::-1]
    shown = [
        one
        for one in numbers
        if not protocol or one.key.endswith(protocol) or not one.key.endswith(PROTOCOLS)
    ]
    shown.sort(key=lambda one: (order.index(one.certainty), one.key))
    rows = [(one.key, f"{float(one.value):g}", str(one.certainty), one.source) for one in shown]
    head = table(("number", "value", "is", "source"), rows)
    return f"{head}\nanother number: {shown[0].replaced_by}" if shown else ""
