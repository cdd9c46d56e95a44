"""Variables of the environment that more than one folder reads."""

from __future__ import annotations

import os

from .errors import UserError
from .units import format_bytes, parse_bytes

SOLVER_MEMORY = "WEFT_SOLVER_MEMORY"
"""The most memory of one solver process, such as ``4GiB``; ``--solver-memory`` sets it for a
command, its jobs and their solvers."""

_LARGEST = (1 << 63) - 1
"""Bytes: the largest limit that the system takes."""


LEAST_MEMORY = 24 << 20
"""Bytes: with less no solver starts."""


def parse_memory(text: str) -> int:
    """Parse a limit for the memory of a solver process, such as ``4GiB``, in bytes.

    Raises:
        UserError: no size, or less than a solver takes to start.
    """
    most = min(parse_bytes(text), _LARGEST)
    if most < LEAST_MEMORY:
        least = format_bytes(LEAST_MEMORY)
        raise UserError(
            f"a solver takes {least} to start, and {text} is less", hint="leave it out for no limit"
        )
    return most


def solver_memory() -> int:
    """Return the most bytes of one solver process, ``$WEFT_SOLVER_MEMORY``; 0: no limit.

    Raises:
        UserError: the variable is not a size such as ``4GiB``, or too small.
    """
    text = os.environ.get(SOLVER_MEMORY, "")
    try:
        return parse_memory(text) if text else 0
    except UserError as error:
        raise UserError(error.message, where=f"${SOLVER_MEMORY}", hint=error.hint) from None
