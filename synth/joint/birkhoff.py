"""One-to-one stages of a matrix of transfers: Birkhoff (1946) and von Neumann (1953).

A square matrix whose rows and columns all have one sum is a sum of permutations with weights. Any
other is padded to one. Each stage is a matching of largest least entry, so stages are few: at most
k² - 2k + 2 for k rows, as each takes an entry to zero.
"""

from __future__ import annotations

import numpy as np

from weft.dsl.base.arrays import Ints, distinct_values
from weft.dsl.base.lazy_dataclass import dataclass


@dataclass(frozen=True, eq=False)
class Stage:
    """One-to-one transfers: row i sends ``amounts[i]`` to column ``columns[i]``, at most
    ``width``."""

    columns: Ints
    amounts: Ints
    width: int


def stages_of(matrix: Ints, most: int = 4096) -> list[Stage]:
    """Return stages that move a matrix of whole amounts; their widths add up to the largest sum of
    a row or a column. ``most`` stages, at most: what is left then is in none."""
    left = np.array(matrix, np.int64)
    padded = left + padding(left)
    found: list[Stage] = []
    while len(found) < most and padded.any():
        columns = _widest(padded)
        rows = np.arange(len(columns))
        width = int(padded[rows, columns].min())
        amounts = np.minimum(left[rows, columns], width)
        padded[rows, columns] -= width
        left[rows, columns] -= amounts
        found.append(Stage(columns, amounts, width))
    return found


def padding(matrix: Ints) -> Ints:
    """Return what must be added so that all rows and columns have the largest of their sums."""
    rows, columns = matrix.sum(axis=1), matrix.sum(axis=0)
    largest = int(max(rows.max(initial=0), columns.max(initial=0)))
    ends = np.cumsum(largest - rows), np.cumsum(largest - columns)
    # Both lines have one length: interval i of the one overlaps interval j of the other.
    low = np.maximum(
        *np.meshgrid(ends[0] - (largest - rows), ends[1] - (largest - columns), indexing="ij")
    )
    high = np.minimum(*np.meshgrid(*ends, indexing="ij"))
    found: Ints = np.maximum(high - low, 0)
    return found


def _widest(matrix: Ints) -> Ints:
    """Return the column of each row in a perfect matching whose least entry is largest."""
    from scipy.optimize import linear_sum_assignment

    values = distinct_values(matrix[matrix > 0])
    low, high = 0, len(values) - 1
    best: Ints | None = None
    while low <= high:
        middle = (low + high + 1) // 2
        _, columns = linear_sum_assignment(matrix < values[middle])
        if (matrix[np.arange(len(matrix)), columns] >= values[middle]).all():
            best, low = columns, middle + 1
        else:
            high = middle - 1
    assert best is not None  # equal sums of rows and columns: Hall's condition holds
    return best
