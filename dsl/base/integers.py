"""Whole numbers that a Python caller gives: those of NumPy serve, floats do not.

>>> whole(3, "chunks")
3
>>> whole(1.0, "chunks")
Traceback (most recent call last):
weft.dsl.base.errors.UserError: chunks: 1.0 is not a whole number
"""

from __future__ import annotations

from operator import index
from typing import Any

from .errors import UserError

LARGEST = (1 << 31) - 1
"""Counts and indices are kept in 32 bits."""


def whole(value: Any, what: str, low: int = -LARGEST, high: int = LARGEST) -> int:
    """The number as Python's own.

    Raises:
        UserError: no whole number, or outside ``low … high``; ``what`` names it.
    """
    try:
        number = index(value)
    except TypeError:
        hint = "divide with //" if isinstance(value, float) else ""
        raise UserError(f"{what}: {value!r} is not a whole number", hint=hint) from None
    if not low <= number <= high:
        raise UserError(f"{what}: {_short(number)} is outside {low} … {high}")
    return number


def _short(number: int) -> str:
    """A number, or, if it is absurd, its beginning."""
    bits = number.bit_length()
    return str(number) if bits < 128 else f"a number of {bits} bits"
