"""Types of NumPy arrays, named by their elements, and their distinct values."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Ints32 = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

Words = npt.NDArray[np.uint64]
"""Sets of small numbers as bits, 64 to a word; or hashes."""

AnyArray = npt.NDArray[Any]

Scalar = TypeVar("Scalar", bound=np.generic)


def distinct_values(values: npt.NDArray[Scalar]) -> npt.NDArray[Scalar]:
    """Return the distinct values of an array of any shape, ascending; it is free of NaN.

    Sorting is several times faster than ``np.unique``, which also loads ``numpy.ma`` (11 ms).

    >>> distinct_values(np.array([[3, 1], [1, 3]])).tolist()
    [1, 3]
    """
    ordered = np.sort(values, axis=None)
    differs = np.ones(len(ordered), np.bool_)
    differs[1:] = ordered[1:] != ordered[:-1]
    return ordered[differs]
