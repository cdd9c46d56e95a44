"""Sparse matrices of linear programs: entries in the order of rows, then columns.

For the use of such matrices here NumPy is enough; to load SciPy's takes as long as a small
command. They are taken too, as are dense arrays (:meth:`SparseMatrix.given`).

>>> matrix = SparseMatrix.of((2, 2), [0, 1, 1], [1, 0, 0], [5, 2, 3])
>>> matrix.toarray().tolist(), (matrix @ np.array([1, 10])).tolist()
([[0, 5], [5, 0]], [50, 5])
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from .arrays import AnyArray, Floats, Ints
from .lazy_dataclass import Frozen


class SparseMatrix(Frozen, eq=False):
    """A sparse matrix. Entries of one place are summed; an entry may be 0."""

    shape: tuple[int, int]  # numbers of rows and columns
    # row, column, data: of each entry, sorted by row and then column, each place once
    row: Ints
    column: Ints
    data: AnyArray

    @staticmethod
    def of(
        shape: tuple[int, int], rows: npt.ArrayLike, columns: npt.ArrayLike, values: npt.ArrayLike
    ) -> SparseMatrix:
        """A matrix from entries in any order."""
        row, column = np.asarray(rows, np.int64), np.asarray(columns, np.int64)
        data = np.asarray(values)
        place = row * shape[1] + column
        if (place[1:] > place[:-1]).all():
            return SparseMatrix(shape, row, column, data)
        order = np.argsort(place, kind="stable")
        place, row, column, data = place[order], row[order], column[order], data[order]
        first = np.flatnonzero(np.concatenate([[True], place[1:] != place[:-1]]))
        if len(first) < len(place):
            row, column, data = row[first], column[first], np.add.reduceat(data, first)
        return SparseMatrix(shape, row, column, data)

    @staticmethod
    def given(matrix: Any) -> SparseMatrix:
        """This matrix, or one made of a dense array or one of SciPy's."""
        if isinstance(matrix, SparseMatrix):
            return matrix
        if hasattr(matrix, "tocoo"):
            entries = matrix.tocoo()
            return SparseMatrix.of(entries.shape, entries.row, entries.col, entries.data)
        dense = np.atleast_2d(np.asarray(matrix))
        rows, columns = np.nonzero(dense)
        return SparseMatrix.of(
            (dense.shape[0], dense.shape[1]), rows, columns, dense[rows, columns]
        )

    @staticmethod
    def empty(height: int, width: int) -> SparseMatrix:
        """A matrix of integers that are all 0."""
        none = np.zeros(0, np.int64)
        return SparseMatrix((height, width), none, none, none)

    @property
    def nnz(self) -> int:
        """Number of entries."""
        return len(self.data)

    @cached_property
    def starts(self) -> Ints:
        """The first entry of each row, and the number of entries at the end."""
        return np.searchsorted(self.row, np.arange(self.shape[0] + 1))

    @cached_property
    def T(self) -> SparseMatrix:
        """The transposed matrix."""
        order = np.argsort(self.column, kind="stable")
        return SparseMatrix(
            (self.shape[1], self.shape[0]), self.column[order], self.row[order], self.data[order]
        )

    def __matmul__(self, vector: AnyArray) -> AnyArray:
        """The product with a vector; one of integers is right modulo 2^64."""
        terms = self.data * vector[self.column]
        if terms.dtype.kind == "f":
            return self._sums(terms)
        total = np.concatenate([np.zeros(1, terms.dtype), np.cumsum(terms)])
        return np.asarray(total[self.starts[1:]] - total[self.starts[:-1]])

    def __getitem__(self, rows: AnyArray) -> SparseMatrix:
        """Some rows, given by a mask or by their numbers."""
        chosen = np.flatnonzero(rows) if rows.dtype == bool else rows
        length = self.starts[chosen + 1] - self.starts[chosen]
        ends = np.cumsum(length)
        entry = np.arange(length.sum()) + np.repeat(self.starts[chosen] - (ends - length), length)
        row = np.repeat(np.arange(len(chosen)), length)
        shape = (len(chosen), self.shape[1])
        return SparseMatrix(shape, row, self.column[entry], self.data[entry])

    def astype(self, kind: npt.DTypeLike) -> SparseMatrix:
        """The matrix with entries of another type."""
        return SparseMatrix(self.shape, self.row, self.column, self.data.astype(kind))

    def scaled(self, factor: Floats) -> SparseMatrix:
        """The matrix with each row times its factor."""
        return SparseMatrix(self.shape, self.row, self.column, self.data * factor[self.row])

    def row_weights(self) -> Floats:
        """The sum of the absolute values of each row."""
        return self._sums(np.abs(self.data).astype(float))

    def _sums(self, terms: Floats) -> Floats:
        return np.bincount(self.row, terms, self.shape[0]).astype(float)

    def toarray(self) -> AnyArray:
        """A dense array."""
        dense = np.zeros(self.shape, self.data.dtype)
        dense[self.row, self.column] = self.data
        return dense


def vstack(upper: SparseMatrix, lower: SparseMatrix) -> SparseMatrix:
    """One matrix above another of the same width."""
    shape = (upper.shape[0] + lower.shape[0], upper.shape[1])
    return SparseMatrix(
        shape,
        np.concatenate([upper.row, lower.row + upper.shape[0]]),
        np.concatenate([upper.column, lower.column]),
        np.concatenate([upper.data, lower.data]),
    )


def hstack(*matrices: SparseMatrix) -> SparseMatrix:
    """Matrices of the same height side by side."""
    left = np.cumsum([0, *(m.shape[1] for m in matrices)])
    return SparseMatrix.of(
        (matrices[0].shape[0], int(left[-1])),
        np.concatenate([m.row for m in matrices]),
        np.concatenate([m.column + x for m, x in zip(matrices, left[:-1].tolist(), strict=True)]),
        np.concatenate([m.data for m in matrices]),
    )
