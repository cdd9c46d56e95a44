"""What NumPy arrays need of a wire."""

from __future__ import annotations

# --- in every file for NumPy from here on ---
from typing import Any

import numpy as np

COMBINE = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}


class Arrays:
    """Memory and arithmetic of NumPy."""

    def agree(self, call: str) -> None:
        """All ranks are taken to make the same call: messages are compared as they come."""

    def combine(self, op: str, out: Any, a: Any, b: Any) -> None:
        """``out = a op b``."""
        COMBINE[op](a, b, out=out)

    def copy(self, out: Any, a: Any) -> None:
        """``out = a``."""
        out[...] = a

    def empty(self, count: int, like: Any) -> Any:
        """New memory."""
        return np.empty(count, like.dtype)

    def flat(self, array: Any) -> Any:
        """The array in one dimension, if it is contiguous."""
        return array.reshape(-1) if array.flags.c_contiguous else None

    def span(self, array: Any) -> tuple[int, int]:
        """The bytes it spans."""
        first, end = np.lib.array_utils.byte_bounds(array)
        return int(first), int(end)
