"""Validation of integer arguments: Python and NumPy integers are accepted, floats are not.

>>> integer(3, "chunks")
3
>>> integer(1.0, "chunks")
Traceback (most recent call last):
weft.dsl.base.errors.UserError: chunks: 1.0 is not an integer
<BLANKLINE>
hint: divide with //
"""

from __future__ import annotations

from operator import index
from typing import TYPE_CHECKING, Any

from .errors import UserError

if TYPE_CHECKING:
    import ast

LARGEST = (1 << 31) - 1
"""Largest count or index: they are stored in 32 bits."""

FLOAT_EXACT = 1 << 53
"""Integers of at most this size are exact as 64-bit floats, and so are sums that stay below it."""


def integer(value: Any, what: str, low: int = -LARGEST, high: int = LARGEST) -> int:
    """Return the number as a Python int.

    Raises:
        UserError: not an integer, or outside ``low … high``; the message names it by ``what``.
    """
    try:
        number = index(value)
    except TypeError:
        hint = "divide with //" if isinstance(value, float) else ""
        raise UserError(f"{what}: {value!r} is not an integer", hint=hint) from None
    if not low <= number <= high:
        bits = number.bit_length()
        shown = str(number) if bits < 128 else f"a number of {bits} bits"
        raise UserError(f"{what}: {shown} is outside {low} … {high}")
    return number


def plain(value: Any) -> Any:
    """Return a number of NumPy, or the one in an array without dimensions, as Python's; else it.

    A narrow float stands for its shortest decimal, as everywhere: 0.7 of 32 bits is 0.7.

    >>> import numpy as np
    >>> plain(np.int64(3)), plain(np.array(2.5)), plain(np.float32(0.7)), plain("1MiB")
    (3, 2.5, 0.7, '1MiB')
    """
    if getattr(value, "ndim", None) != 0 or not hasattr(value, "item"):
        return value
    return float(str(value)) if value.dtype.kind == "f" else value.item()


def literal(node: ast.expr) -> Any:
    """Return the value of a Python literal, as JSON could hold it.

    Raises:
        ValueError: it is not a literal, or has an integer beyond 64 bits, which cannot be printed.
    """
    from ast import Constant, literal_eval, walk  # few commands read Python

    numbers = [part.value for part in walk(node) if isinstance(part, Constant)]
    if any(isinstance(one, int) and one.bit_length() > 64 for one in numbers):
        raise ValueError("an integer beyond 64 bits")
    return literal_eval(node)
