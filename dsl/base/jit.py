"""The decorator of compiled kernels: numba's, with the type of what it decorates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

F = TypeVar("F", bound=Callable[..., Any])

Array = Any
"""An array in a kernel: its indices give NumPy scalars, whose types the compiler sees."""


def compiled(function: F) -> F:
    """Compile on the first call and keep the machine code on disk; runs without Python's lock."""
    return cast(F, njit(cache=True, nogil=True)(function))
