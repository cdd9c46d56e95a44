"""Shrinking symmetric linear programs by colour refinement.

Give rows and columns colours such that all rows of one colour see the same multiset of
(coefficient, column colour), and the other way round. Then some optimal solution is constant on
column colours and some optimal dual on row colours, and the program with one row and one column
per colour has the same optimum (Grohe, Kersting, Mladenov and Selman, "Dimension reduction via
colour refinement", ESA 2014). A flow on a 64-node torus shrinks a hundredfold. No
automorphism is needed or computed, and nothing here is trusted: the code that certifies a bound
checks it on the whole program.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.dsl.base.arrays import Floats, Ints, Words, distinct_values
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.matrix import SparseMatrix

from .effort import PROGRAM_EFFORT, ProgramEffort


@dataclass(frozen=True, eq=False)
class ColourQuotient:
    """Colours of rows and columns, one representative and the size of each colour class."""

    row_of: Ints
    column_of: Ints
    row_at: Ints
    column_at: Ints
    row_size: Ints
    column_size: Ints

    def shrink(self, matrix: SparseMatrix) -> SparseMatrix:
        """The matrix with one row and one column per colour."""
        kept = matrix[self.row_at]
        shape = (len(self.row_at), len(self.column_at))
        return SparseMatrix.of(shape, kept.row, self.column_of[kept.column], kept.data)

    def lift_solution(self, x: Floats) -> Floats:
        """A solution of the whole program from one of the quotient."""
        return np.asarray(x[self.column_of])

    def lift_prices(self, y: Floats) -> Floats:
        """Row prices of the whole program: those of a colour, shared out among its rows."""
        return np.asarray((y / self.row_size)[self.row_of])


def quotient(
    matrix: SparseMatrix, row_keys: Any, column_keys: Any, effort: ProgramEffort = PROGRAM_EFFORT
) -> ColourQuotient | None:
    """The coarsest stable colouring of a matrix that respects the given keys.

    ``row_keys`` and ``column_keys`` are integer arrays, shape (rows, k) and (columns, k): only
    equal keys may share a colour. None if the colouring saves too little, or takes
    too long.
    """
    by_column = matrix.T
    rows, columns = _start(row_keys, 1), _start(column_keys, 2)
    counts = (0, 0)
    for _ in range(effort.quotient_rounds):
        rows = _mix(rows ^ _gather(matrix, columns))
        columns = _mix(columns ^ _gather(by_column, rows))
        seen = (len(distinct_values(rows)), len(distinct_values(columns)))
        if seen[1] > effort.quotient_share * len(columns):
            return None
        if seen == counts:
            return _classes(rows, columns)
        counts = seen
    return None


def _classes(rows: Words, columns: Words) -> ColourQuotient:
    _, row_at, row_of, row_size = np.unique(rows, True, True, True)
    _, column_at, column_of, column_size = np.unique(columns, True, True, True)
    return ColourQuotient(row_of, column_of, row_at, column_at, row_size, column_size)


def _start(keys: Any, salt: int) -> Words:
    table = np.asarray(keys, np.int64).astype(np.uint64)
    total: Words = np.full(len(table), salt, np.uint64)
    for i in range(table.shape[1]):
        total = _mix(total ^ _mix(table[:, i] + np.uint64(i)))
    return total


def _gather(matrix: SparseMatrix, other: Words) -> Words:
    """Per row, a sum over entries of a hash of (coefficient, colour across)."""
    values = matrix.data.astype(np.int64).astype(np.uint64)
    cells = _mix(other[matrix.column] + _mix(values))
    total = np.concatenate([np.zeros(1, np.uint64), np.cumsum(cells, dtype=np.uint64)])
    return np.asarray(_mix(total[matrix.starts[1:]] - total[matrix.starts[:-1]]))


def _mix(x: Words) -> Words:
    """SplitMix64's finalizer: a bijection that scatters nearby numbers."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
