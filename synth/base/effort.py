"""Search parameters of an engine, one frozen dataclass each: thresholds, limits, budget fractions.

An engine has one field ``effort: XEffort = field(default_factory=XEffort)``. So each threshold is
listed by ``weft list engines --options``, can be changed for an experiment
(``greedy{effort.passes=64}``, ``Greedy(effort=GreedyEffort(passes=64))``), and stands in the
provenance where it was changed. Tolerances, sentinels and limits of number types are mathematics
and stay beside their code.

>>> from dataclasses import dataclass
>>> @dataclass(frozen=True, slots=True)
... class TreesEffort(Effort):
...     passes: int = setting(24, "passes over all trees; more find flatter packings")
>>> TreesEffort().passes
24
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from fractions import Fraction
from typing import TypeVar

from weft.dsl.base.errors import UserError

T = TypeVar("T")


def setting(default: T, doc: str) -> T:
    """Return a field of an :class:`Effort`: its default, and its meaning and unit in a sentence."""
    made: T = field(default=default, metadata={"doc": doc})  # what a checker takes a field for
    return made


@dataclass(frozen=True, slots=True)
class Effort:
    """Base class of all efforts.

    Raises:
        UserError: a number below zero.
    """

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            for number in value if isinstance(value, tuple) else (value,):
                if isinstance(number, int | float | Fraction) and number < 0:
                    raise UserError(f"effort.{one.name} is {number}, it must be 0 or more")
