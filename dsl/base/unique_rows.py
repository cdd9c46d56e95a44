"""Rows across columns of integers: equal ones, unique ones, and rows of different lengths.

A program of a million instructions has few different ones. Readers and writers of whole programs
handle each distinct one once; the rest is an array of numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import TypeVar

import numpy as np

from .arrays import AnyArray, Ints, Ints32

T = TypeVar("T")


def numbered(*columns: Ints) -> Ints:
    """Return a dense number for each row across columns: equal for equal rows, in row order.

    The inverse of ``np.unique(..., axis=1, return_inverse=True)``, about ten times as fast.

    >>> numbered(np.array([5, 2, 5, 5]), np.array([7, 9, 7, 8])).tolist()
    [1, 0, 1, 2]
    """
    number = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        values, own = np.unique(column, return_inverse=True)
        number = number * len(values) + own.reshape(-1)
        number = np.unique(number, return_inverse=True)[1].reshape(-1).astype(np.int64)
    return number


def packed(*columns: AnyArray) -> Ints:
    """Return one integer per row across columns of integers, equal for equal rows only.

    Columns whose value ranges fit 63 bits together are packed side by side; before a column that
    does not fit, the packed ones are renumbered densely. Integers compare as the rows do.

    >>> packed(np.array([5, 2, 5]), np.array([7, 9, 7])).tolist()
    [57, 29, 57]
    """
    key, room = np.zeros(len(columns[0]), np.int64), 1
    for column in columns:
        least = int(column.min(initial=0))
        span = int(column.max(initial=0)) - least + 1
        room *= span
        if room >= 1 << 63:
            key, room = numbered(key), len(key) * span
        key = key * span + (column.astype(np.int64) - least)
    return key


def any_twice(*columns: AnyArray) -> bool:
    """Return True if two rows across columns of 32-bit integers are equal.

    Where a table of all possible rows, or of all values of one column, is not much longer than the
    columns, it shows that without sorting.

    >>> any_twice(np.array([5, 2, 5]), np.array([7, 9, 8]))
    False
    """
    if _all_different(*columns) or any(_all_different(column) for column in columns):
        return False
    key = packed(*columns)
    key.sort()
    return bool((key[1:] == key[:-1]).any())


_SPARSE = 4
"""A table of possible rows is at most this many times as long as the columns."""

_BLOCK = 1 << 16
"""Rows at a time where whole columns of temporary numbers would be paged in only for one use."""


def in_blocks(count: int) -> Iterator[slice]:
    """Yield slices that cover ``count`` rows, a few at a time.

    >>> [x.stop - x.start for x in in_blocks(70_000)]
    [65536, 4464]
    """
    for at in range(0, count, _BLOCK):
        yield slice(at, min(at + _BLOCK, count))


def placed(count: int, at: Ints32, values: Ints32) -> Ints32:
    """Return a column with ``values[i]`` at place ``at[i]``, of several the last; -1 elsewhere.

    >>> placed(3, np.array([2, 0]), np.array([5, 6])).tolist()
    [6, -1, 5]
    """
    column = np.full(count, -1, np.int32)
    for block in in_blocks(len(at)):
        column[at[block]] = values[block]
    return column


def _all_different(*columns: AnyArray) -> bool:
    """Return True if no row occurs twice; False may mean that a table would be too large."""
    count = len(columns[0])
    if not count:
        return True
    least = [int(column.min()) for column in columns]
    spans = [int(c.max()) - low + 1 for c, low in zip(columns, least, strict=True)]
    room = prod(spans)
    if not count <= room <= _SPARSE * count:
        return False
    seen = np.zeros(room, bool)
    for block in in_blocks(count):
        key = np.zeros(block.stop - block.start, np.int64)
        for column, low, span in zip(columns, least, spans, strict=True):
            key *= span
            key += column[block]
            key -= low
        seen[key] = True
    return int(np.count_nonzero(seen)) == count


def same_rows(start: Ints, values: Ints) -> Ints:
    """Return one number per row ``values[start[i]:start[i+1]]``, equal for equal rows.

    O(values log rows). The empty row is number 0.

    >>> same_rows(np.array([0, 1, 1, 3, 4]), np.array([7, 7, 8, 7])).tolist()
    [1, 0, 2, 1]
    """
    length = np.diff(start)
    name = np.zeros(len(length), np.int64)
    shift, at, longest = 1, 0, int(length.max(initial=0))
    kinds, value = np.unique(values, return_inverse=True)
    while at < longest:
        rows = np.flatnonzero(length > at)
        key = name[rows] * len(kinds) + value.reshape(-1)[start[rows] + at]
        names, number = np.unique(key, return_inverse=True)
        name[rows] = shift + number.reshape(-1)
        shift, at = shift + len(names), at + 1
    _, dense = np.unique(np.append(name, 0), return_inverse=True)
    return dense.reshape(-1)[:-1].astype(np.int64)


def rows_of(start: Ints, which: Ints) -> tuple[Ints, Ints]:
    """Return start and value indices of selected rows of different lengths.

    >>> begin, value = rows_of(np.array([0, 2, 3]), np.array([1, 0, 1]))
    >>> begin.tolist(), value.tolist()
    ([0, 1, 3, 4], [2, 0, 1, 2])
    """
    length = np.diff(start)[which]
    begin = np.concatenate([[0], np.cumsum(length)])
    return begin, np.repeat(start[which] - begin[:-1], length) + np.arange(begin[-1])


def pick(once: Sequence[T], which: AnyArray) -> list[T]:
    """Return the items at some indices.

    >>> pick("ab", np.array([1, 0, 1]))
    ['b', 'a', 'b']
    """
    return list(map(once.__getitem__, which.tolist()))
