"""Variables of the environment that set what more than one folder needs to know."""

from __future__ import annotations

import os

from .errors import UserError
from .units import parse_bytes

SOLVER_MEMORY = "WEFT_SOLVER_MEMORY"
"""The most memory of one solver process, such as ``4GiB``; ``--solver-memory`` sets it for a
command, its jobs and their solvers."""

_LARGEST = (1 << 63) - 1
"""Bytes: the largest limit that the system takes."""


def solver_memory() -> int:
    """Return the most bytes of one solver process, ``$WEFT_SOLVER_MEMORY``; 0: no limit.

    Raises:
        UserError: the variable is not a size such as ``4GiB``.
    """
    text = os.environ.get(SOLVER_MEMORY, "")
    try:
        return min(parse_bytes(text), _LARGEST) if text else 0
    except UserError as error:
        raise UserError(error.message, where=f"${SOLVER_MEMORY}", hint=error.hint) from None
