"""Order of the moments of a plan: which have always happened before which others, as bits.

The edges are sorted by level once; marks of many accesses travel together, 64 to a word, level by
level in array operations: O(edges · marks / 64). Where the table of all moments would be large, it
is filled some words at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

import numpy as np

from weft.dsl.base.arrays import Ints
from weft.dsl.base.layers import EdgeLevels
from weft.dsl.base.lazy_dataclass import dataclass

T = TypeVar("T")

TABLE_WORDS = 1 << 23
"""Words of a table of all moments (64 MiB)."""


@dataclass(frozen=True, eq=False)
class Past:
    """The moments of a plan, and their edges sorted by level."""

    levels: EdgeLevels
    size: int

    @staticmethod
    def of(size: int, *sides: Sequence[Sequence[int]]) -> Past:
        """Return that of moments, each side with those before every moment."""
        counts = [np.fromiter(map(len, side), np.int64, size) for side in sides]
        target = np.concatenate([np.repeat(np.arange(size), n) for n in counts])
        flat = [m for side in sides for before in side for m in before]
        return Past(EdgeLevels.of(size, np.array(flat, np.int64), target), size)

    @property
    def edges(self) -> int:
        """Return how many edges there are."""
        return len(self.levels.source)

    @property
    def words(self) -> int:
        """Return how many words fit in a table."""
        return max(1, TABLE_WORDS // max(1, self.size))

    def bits(self, marks: Sequence[tuple[int, int]], wanted: Iterable[int]) -> dict[int, int]:
        """Return the marks at or before each of some moments.

        ``marks``: (moment, number of the bit) in any order.
        """
        moments = np.array(sorted(set(wanted)), np.int64)
        found = dict.fromkeys(moments.tolist(), 0)
        at, bit = np.array(marks, np.int64).reshape(-1, 2).T
        whole = int(bit.max(initial=-1)) // 64 + 1
        for low in range(0, whole, self.words):
            high = min(whole, low + self.words)
            here = (bit >= 64 * low) & (bit < 64 * high)
            rows = self._table(at[here], bit[here] - 64 * low, high - low)[moments]
            for m, row in zip(moments.tolist(), rows, strict=True):
                found[m] |= int.from_bytes(row.astype("<u8").tobytes(), "little") << (64 * low)
        return found

    def _table(
        self, at: Ints, bit: Ints, words: int
    ) -> np.ndarray[tuple[int, int], np.dtype[np.uint64]]:
        table = np.zeros((self.size, words), np.uint64)
        np.bitwise_or.at(table, (at, bit // 64), np.uint64(1) << (bit % 64).astype(np.uint64))
        for source, heads, target in self.levels.steps():
            table[target] |= np.bitwise_or.reduceat(table[source], heads, axis=0)
        return table


def batches(items: Iterable[T], size: Callable[[T], int], most: int) -> Iterator[list[T]]:
    """Yield neighbouring items whose sizes sum up to at most ``most``, or one that is larger."""
    batch: list[T] = []
    used = 0
    for item in items:
        need = size(item)
        if batch and used + need > most:
            yield batch
            batch, used = [], 0
        batch.append(item)
        used += need
    if batch:
        yield batch
