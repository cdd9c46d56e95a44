"""Assignment of rows to columns such that the sum of the pairs' values is greatest.

SciPy has it too, and the tests compare. But to load ``scipy.optimize`` takes 0.46 CPU seconds, as
long as all of a small ``weft compile``, whose tables have some ten rows.
"""

from __future__ import annotations

import sys

import numpy as np

from .arrays import Floats, Ints
from .jit import Array, fast, kernel


def best_assignment(worth: Floats) -> tuple[Ints, Ints]:
    """Return (rows, columns) of the pairs, ascending by row: as many as the shorter side has.

    Shortest augmenting paths, as in SciPy's ``linear_sum_assignment``, with its order of ties
    (Crouse, IEEE Trans. Aerospace and Electronic Systems 2016); O(rows² · columns).

    >>> best_assignment(np.array([[1.0, 5.0], [4.0, 7.0], [0.0, 3.0]]))
    (array([0, 1]), array([1, 0]))
    """
    turned = worth.shape[0] > worth.shape[1]
    cost = -(worth.T if turned else worth)
    rows, columns = cost.shape
    column_of = np.full(rows, -1)
    fast(sys.modules[__name__]).assign(np.ascontiguousarray(cost), rows, columns, column_of)
    if turned:
        order = np.argsort(column_of)
        return column_of[order], order
    return np.arange(rows), column_of


@kernel
def assign(cost: Array, rows: int, columns: int, column_of: Array) -> None:
    """Fill ``column_of`` each row, all -1, for the least cost; at most as many rows as columns.

    ``row_price``, ``column_price``: dual prices; a cell never costs less than its two. ``far``:
    the length of the shortest path to each column from the row that is assigned now, over
    ``before``, the row in front of it.
    """
    row_price, column_price = [0.0] * rows, [0.0] * columns
    row_of, before = [-1] * columns, [-1] * columns  # the row assigned to each column; -1: none
    for first in range(rows):
        # In reverse, so that tables of equal cells are assigned along the diagonal.
        rest = [columns - 1 - k for k in range(columns)]
        # rest[:left] are the columns not settled yet
        left, length, end, row = columns, 0.0, -1, first
        far = [np.inf] * columns
        # settled by this search: their prices change
        passed, reached = [False] * rows, [False] * columns
        while end < 0:
            least, which = np.inf, -1
            passed[row] = True
            for k in range(left):
                column = rest[k]
                through = length + cost[row][column] - row_price[row] - column_price[column]
                if through < far[column]:
                    far[column], before[column] = through, row
                if far[column] < least or (far[column] == least and row_of[column] < 0):
                    least, which = far[column], k
            length = least
            column = rest[which]
            if row_of[column] < 0:
                end = column
            else:
                row = row_of[column]
            reached[column] = True
            left -= 1
            rest[which] = rest[left]
        row_price[first] += length
        for one in range(rows):
            if passed[one] and one != first:
                row_price[one] += length - far[column_of[one]]
        for column in range(columns):
            if reached[column]:
                column_price[column] -= length - far[column]
        row = -1
        while row != first:
            row = before[end]
            row_of[end] = row
            column_of[row], end = end, column_of[row]
