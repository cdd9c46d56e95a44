"""Two moves in one: what lands only to be copied, or added, goes there at once.

Before::

    rank 1 s[7] = rank 0 o[0]      …      rank 1 o[2] = s[7] + o[2]

After, if nobody else reads s[7]::

    …      rank 1 o[2] = rank 0 o[0] + o[2]      (if nothing between writes rank 0's o[0])
    rank 1 o[2] = rank 0 o[0] + o[2]      …      (else, if nothing between touches rank 1's o[2])

In the first case the first move waits, in the second the second one hurries; where neither is
possible (two ranks exchange what both of them overwrite) the two stay.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import defaultdict

from .flow import NONE

Row = tuple[int, int, int, int, int]
"""A move: rank and slot of the source, rank and slot of the target, slot of the operand."""

Place = tuple[int, int]
"""A rank and a slot."""


def folded(rows: list[Row], passing: set[Place]) -> list[Row]:
    """The moves, those through ``passing`` places made one; such a place is written once."""
    return _Folding(rows).through(passing)


class _Folding:
    """Moves by position, and when each place is read and written."""

    def __init__(self, rows: list[Row]) -> None:
        self.rows: list[Row | None] = [*rows]
        self.reads: defaultdict[Place, list[int]] = defaultdict(list)
        self.writes: defaultdict[Place, list[int]] = defaultdict(list)
        for at, (src, source, dst, target, operand) in enumerate(rows):
            self.reads[src, source].append(at)
            if operand != NONE:
                self.reads[dst, operand].append(at)
            self.writes[dst, target].append(at)

    def through(self, passing: set[Place]) -> list[Row]:
        # In the order of the readers: what has been moved is in its place when others look.
        pairs = []
        for place in passing:
            reads, writes = self.reads.get(place, []), self.writes.get(place, [])
            if len(reads) == len(writes) == 1 and writes[0] < reads[0]:
                pairs.append((reads[0], place))
        for _, place in sorted(pairs):
            self._fold(self.writes[place][0], self.reads[place][0], place)
        return [row for row in self.rows if row is not None]

    def _fold(self, first: int, last: int, place: Place) -> None:
        """Make one move of the two at these positions, if that means the same."""
        one, other = self.rows[first], self.rows[last]
        assert one is not None
        assert other is not None
        src, source, dst, _, adds = one
        reader, read, _, target, operand = other
        if (reader, read) != place or other[2] != reader or (adds != NONE and operand != NONE):
            return  # it is the operand, it is sent on, or there would be three to add
        row = (src, source, dst, target, adds if operand == NONE else operand)
        kept = [(src, source)] + [(dst, adds)] * (adds != NONE)
        if not any(self._within(self.writes[p], first, last) for p in kept):
            for p in kept:
                self._shift(self.reads[p], first, last)
            self.rows[first], self.rows[last] = None, row
        elif not (
            self._within(self.writes[dst, target], first, last)
            or self._within(self.reads[dst, target], first, last)
            or (operand != NONE and self._within(self.writes[dst, operand], first, last))
        ):
            self._shift(self.writes[dst, target], last, first)
            if operand != NONE:
                self._shift(self.reads[dst, operand], last, first)
            self.rows[first], self.rows[last] = row, None
        else:
            return
        self.reads[place].clear()
        self.writes[place].clear()

    @staticmethod
    def _within(positions: list[int], first: int, last: int) -> bool:
        """Whether one of them lies strictly between."""
        return bisect_right(positions, first) < bisect_left(positions, last)

    @staticmethod
    def _shift(positions: list[int], old: int, new: int) -> None:
        del positions[bisect_left(positions, old)]
        insort(positions, new)
