"""Unique objects and rows, each with the index array that restores the full sequence.

A program of a million instructions has few different ones, shared where equal (they are frozen
values). Readers and writers of whole programs handle each distinct one once; the rest is an array
of numbers.

>>> once, which = distinct(["a", "b", "a"])
>>> [once[i] for i in which]
['a', 'b', 'a']
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from .arrays import AnyArray, Ints

T = TypeVar("T")


def distinct(items: Sequence[T]) -> tuple[list[T], Ints]:
    """Return the distinct objects by identity, and the index of each item among them.

    O(items log items) in arrays; the objects are not compared by value.
    """
    names = np.fromiter(map(id, items), np.int64, len(items))
    _, first, which = np.unique(names, return_index=True, return_inverse=True)
    return [items[i] for i in first.tolist()], which.reshape(-1)


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

    >>> any_twice(np.array([5, 2, 5]), np.array([7, 9, 8]))
    False
    """
    key = packed(*columns)
    key.sort()
    return bool((key[1:] == key[:-1]).any())


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
    """Return the items from :func:`distinct`'s objects and indices, its inverse.

    >>> pick("ab", np.array([1, 0, 1]))
    ['b', 'a', 'b']
    """
    return list(map(once.__getitem__, which.tolist()))
