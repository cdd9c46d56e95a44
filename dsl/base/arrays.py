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


GOLDEN = np.uint64(0x9E3779B97F4A7C15)
"""The odd number next to 2^64 ÷ the golden ratio: the step of SplitMix64's counter."""


def scrambled(values: Words) -> Words:
    """Return a 64-bit hash: the finaliser of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).

    It is a bijection that scatters nearby numbers.
    """
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def random_words(count: int) -> Words:
    """Return the first words of SplitMix64 from seed 0; NumPy's generators take long to load."""
    return scrambled(np.arange(1, count + 1, dtype=np.uint64) * GOLDEN)
