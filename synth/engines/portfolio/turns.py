"""Turns of a race: what each member got, what it spent, and what came of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from weft.dsl.base.lazy_dataclass import dataclass

from ...base.meter import STEPS


@dataclass(frozen=True, slots=True)
class Turn:
    """One time that a member was asked; work in steps.

    ``value``: the member's best so far, in the unit of the objective (µs, rounds per chunk);
    infinite without an answer, NaN of a frontier. ``then``: how it ended.
    """

    engine: str
    got: int
    spent: int
    value: float
    why: str
    then: str


def turns_json(turns: Sequence[Turn], dropped: dict[str, float]) -> list[dict[str, Any]]:
    """Return the turns for reports, work in units of effort.

    ``dropped``: members that were not asked again, by how many times the best their answer was.
    """
    last = {turn.engine: turn for turn in turns}
    rows = []
    for turn in turns:
        behind = dropped.get(turn.engine) if turn is last[turn.engine] else None
        ending = turn.then
        if behind is not None:
            ending = f"{behind:.3g} times the best: not asked again"
        rows.append(
            {
                "engine": turn.engine,
                "got": round(turn.got / STEPS, 3),
                "spent": round(turn.spent / STEPS, 3),
                "value": turn.value if math.isfinite(turn.value) else None,
                "why": turn.why,
                "then": ending,
            }
        )
    return rows
