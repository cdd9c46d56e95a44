"""The judge of a demand in a merged schedule: its chunks are its shards, each in its place.

A rank's input has the shards that it holds side by side, in their order, and its output those that
it receives. A chunk must be a piece of one shard: at the same distance from the shard's begin on
all its holders and receivers, and on no other rank.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.merged import MergedPart
from weft.dsl.nouns.placement import Placement
from weft.dsl.nouns.schedule import Schedule
from weft.dsl.nouns.workload import DEMANDS

Place = tuple[int, int, int]
"""Rank, offset in grains, and set of contributions of a chunk."""


def undelivered(schedule: Schedule, one: MergedPart) -> str:
    """Return why the chunks of a demand are not its shards; empty: they are, or it is no demand."""
    if one.kind not in DEMANDS:
        return f"shards are of a demand, not of {one.kind}" if one.shards else ""
    if not one.shards:
        return f"it does not say what the {one.kind} delivers"
    if not {v for s in one.shards for v in (*s.holders, *s.receivers)} <= set(one.group):
        return "a shard names a rank that is not in its group"
    c = schedule.collective
    held, given = (_places(one, p) for p in (c.pre, c.post))
    shards = _Shards(one)
    filled = [Fraction(0)] * len(one.shards)
    for chunk in range(one.first, one.last):
        sides = held.get(chunk, []), given.get(chunk, [])
        if len({who for side in sides for _, _, who in side}) != 1:
            return f"chunk {chunk} is not the same for all that have it"
        size = int(c.grains[chunk]) * shards.grain
        shard = shards.of(sides, size)
        if shard is None:
            return f"chunk {chunk} is no piece of a shard in its place"
        filled[shard] += size
    for number, (got, each) in enumerate(zip(filled, one.shards, strict=True)):
        if got != each.bytes:
            return f"shard {number} has {each.bytes} bytes, its chunks have {got}"
    return ""


def _places(one: MergedPart, p: Placement) -> dict[int, list[Place]]:
    """Return where the chunks of a part are."""
    mine = p.some(np.flatnonzero((p.chunks >= one.first) & (p.chunks < one.last)))
    found: dict[int, list[Place]] = {}
    columns = (mine.chunks, mine.ranks, mine.offsets, mine.sets)
    for chunk, rank, offset, who in zip(*(x.tolist() for x in columns), strict=True):
        found.setdefault(chunk, []).append((rank, offset - one.offset, who))
    return found


class _Shards:
    """Where the shards of a part must be on each rank, as holder and as receiver."""

    def __init__(self, one: MergedPart) -> None:
        self.grain = Fraction(one.bytes, one.grains)
        self.ranks = [(set(s.holders), set(s.receivers)) for s in one.shards]
        self.rows: tuple[dict[int, _Row], dict[int, _Row]] = ({}, {})
        for number, shard in enumerate(one.shards):
            for rows, ranks in zip(self.rows, (shard.holders, shard.receivers), strict=True):
                for rank in ranks:
                    rows.setdefault(rank, _Row([], [], [])).add(number, shard.bytes)

    def of(self, sides: Sequence[Sequence[Place]], size: Fraction) -> int | None:
        """Return the shard of which a chunk is a piece."""
        seen = set()
        for rows, places in zip(self.rows, sides, strict=True):
            for rank, offset, _ in places:
                row = rows.get(rank)
                seen.add(None if row is None else row.at(offset * self.grain, size))
        if len(seen) != 1 or (found := seen.pop()) is None:
            return None
        held, given = ({rank for rank, _, _ in places} for places in sides)
        return found[0] if (held, given) == self.ranks[found[0]] else None


@dataclass(frozen=True, slots=True)
class _Row:
    """The shards in a buffer: first byte, byte after the last, and number of each."""

    begins: list[int]
    ends: list[int]
    numbers: list[int]

    def add(self, number: int, size: int) -> None:
        begin = self.ends[-1] if self.ends else 0
        self.begins.append(begin)
        self.ends.append(begin + size)
        self.numbers.append(number)

    def at(self, begin: Fraction, size: Fraction) -> tuple[int, Fraction] | None:
        """Return the shard that an interval is in, and how far from its begin."""
        i = bisect_right(self.begins, begin) - 1
        if i < 0 or begin + size > self.ends[i]:
            return None
        return self.numbers[i], begin - self.begins[i]
