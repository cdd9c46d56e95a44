"""Questions to z3 in SMT-LIB's language; the solver itself runs in another process.

>>> answer = solve("(declare-const x Int) (assert (and (> x 2) (< x 4)))", steps=1_000_000)
>>> answer.verdict, answer.values["x"]
(<SmtVerdict.SAT: 'sat'>, 3)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import Any

from weft.dsl.base.lazy_dataclass import dataclass

from .pool import SILENT, Listener, solvers

STEPS_PER_MILLION = 160_000
"""Steps per million units of z3's resource count: questions of ours take 5 to 8 in a CPU second."""


class SmtVerdict(StrEnum):
    """Verdict of z3, by SMT-LIB's names."""

    SAT = "sat"
    UNSAT = "unsat"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class SmtAnswer:
    """Answer of z3: the values of all constants (of Booleans 0 and 1), none without a solution,
    and the steps of work that it took."""

    verdict: SmtVerdict
    values: Mapping[str, int] = field(default_factory=dict)
    steps: int = 0


def solve(text: str, *, steps: int, seed: int = 0, listener: Listener = SILENT) -> SmtAnswer:
    """Decide declarations and assertions of linear integer arithmetic within ``steps``.

    Raises:
        Missing: z3 is not installed.
    """
    question = {
        "solver": "z3",
        "text": text,
        # The count is of 32 bits; 0 means no limit.
        "units": min(max(1, steps * 10**6 // STEPS_PER_MILLION), (1 << 32) - 1),
        "seed": seed,
    }
    answer: Any = solvers().ask(question, listener)
    if answer is None:
        return SmtAnswer(SmtVerdict.UNKNOWN, {}, steps)
    spent = answer["units"] * STEPS_PER_MILLION // 10**6
    return SmtAnswer(SmtVerdict(answer["status"]), answer["values"], spent)
