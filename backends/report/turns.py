"""Turns of a race in words: which engine got how much work, and why."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

TURN_COLUMNS = ("engine", "got", "spent", "best", "why", "then")
"""Keys of a turn (:class:`weft.synth.engines.portfolio.turns.Turn`); got and spent in units of
effort, best in the unit of the objective."""


def turn_rows(turns: Iterable[Mapping[str, Any]]) -> list[list[str]]:
    """Return a row of texts for each turn, in the order of :data:`TURN_COLUMNS`."""
    return [
        [
            str(turn["engine"]),
            f"{float(turn['got']):.2f}",
            f"{float(turn['spent']):.2f}",
            "–" if turn["value"] is None else f"{float(turn['value']):,.3f}",
            str(turn["why"]),
            str(turn["then"]),
        ]
        for turn in turns
    ]


def turn_words(turns: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return a line for each turn: ``packing got 0.30, spent 0.86 for round 1: best 1.2, …``."""
    return [
        f"{engine} got {got}, spent {spent} ({why}): best {best}, {then}"
        for engine, got, spent, best, why, then in turn_rows(turns)
    ]
