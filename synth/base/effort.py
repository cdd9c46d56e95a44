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

from dataclasses import Field, field, fields
from fractions import Fraction
from typing import Any, TypeVar

from weft.dsl.base.errors import UserError
from weft.dsl.base.integers import FLOAT_EXACT
from weft.dsl.base.lazy_dataclass import dataclass

T = TypeVar("T")


def setting(default: T, doc: str, *, least: float | None = None, most: float = FLOAT_EXACT) -> T:
    """Return a field of an :class:`Effort`: its default, and its meaning and unit in a sentence.

    ``least``, ``most``: of its numbers, ``most`` included (by default exact as
    floats, and far from the end of 64 bits). Where ``least`` is None a count is 1 or
    more and any other number above 0: many are divisors. Defaults of 0 may stay 0.
    """
    limits = {"doc": doc, "least": least, "most": most}
    made: T = field(default=default, metadata=limits)  # the type that a checker takes
    return made


def share(default: float, doc: str) -> float:
    """Return a :func:`setting` that is a part of a whole: above 0, at most 1."""
    return setting(default, doc, most=1.0)


@dataclass(frozen=True, slots=True)
class Effort:
    """Base class of all efforts.

    Raises:
        UserError: a number out of its range.
    """

    def __post_init__(self) -> None:
        for one in fields(self):
            for number in _numbers(getattr(self, one.name)):
                _require_in_range(one, number)


def _numbers(value: object) -> tuple[float | Fraction, ...]:
    """Return the numbers of a setting, one or several; none of a word or a switch."""
    values = value if isinstance(value, tuple) else (value,)
    return tuple(
        x for x in values if isinstance(x, int | float | Fraction) and not isinstance(x, bool)
    )


def _require_in_range(one: Field[Any], number: float | Fraction) -> None:
    least, most = one.metadata.get("least"), one.metadata.get("most", FLOAT_EXACT)
    if least is None:
        zero = 0 in _numbers(one.default)
        least = 0 if zero or not isinstance(number, int) else 1
        if number == 0 and not zero:
            must = "1 or more" if isinstance(number, int) else "more than 0"
            raise UserError(f"effort.{one.name} is {number}, it must be {must}")
    if number < least:
        raise UserError(f"effort.{one.name} is {number}, it must be {least} or more")
    if number > most:
        raise UserError(f"effort.{one.name} is {number}, it must be at most {most}")
