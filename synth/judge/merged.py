"""The judge of a merged schedule: each part is the collective that it says, and may be launched.

That the schedule does the merged collective is for :mod:`.verify`; here it is shown that this
means, for the chunks of each part, the pre- and postcondition of a collective of its kind on its
group, in buffers of its own, and that no order in which ranks start their parts can end in a
deadlock.

The judge of a demand in a merged schedule: its chunks are its shards, each in its place.

A rank's input has the shards that it holds side by side, in their order, and its output those that
it receives. A chunk must be a piece of one shard: at the same distance from the shard's begin on
all its holders and receivers, and on no other rank.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from weft.dsl.base.arrays import distinct_values
from weft.dsl.base.errors import UserError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.collective import ROOTED, Collective, Kind, make
from weft.dsl.nouns.merged import MergedPart, launch_cycle
from weft.dsl.nouns.placement import Placement
from weft.dsl.nouns.schedule import Schedule
from weft.dsl.nouns.workload import DEMANDS

Place = tuple[int, int, int]
"""Rank, offset in grains, and set of contributions of a chunk."""


def undelivered(schedule: Schedule, one: MergedPart) -> str:
    """Reason why the chunks of a demand are not its shards; "" if they are, or without a demand."""
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
            return f"chunk {chunk} is not a piece of a shard in its place"
        filled[shard] += size
    for number, (got, each) in enumerate(zip(filled, one.shards, strict=True)):
        if got != each.bytes:
            return f"shard {number} has {each.bytes} bytes, its chunks have {got}"
    return ""


def _places(one: MergedPart, p: Placement) -> dict[int, list[Place]]:
    mine = p.some(np.flatnonzero((p.chunks >= one.first) & (p.chunks < one.last)))
    found: dict[int, list[Place]] = {}
    columns = (mine.chunks, mine.ranks, mine.offsets, mine.sets)
    for chunk, rank, offset, who in zip(*(x.tolist() for x in columns), strict=True):
        found.setdefault(chunk, []).append((rank, offset - one.offset, who))
    return found


class _Shards:
    """Places of the shards of a part on each rank, as holder and as receiver."""

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


def part_problems(schedule: Schedule) -> Iterator[str]:
    """Yield faults of the parts of a merged schedule; nothing for others."""
    parts = schedule.parts
    if not parts:
        return
    yield from _range_problems(schedule)
    size = Fraction(schedule.bytes or 0, schedule.collective.message_chunks)
    for one in parts:
        if one.last > schedule.collective.chunks or one.first >= one.last:
            return
        told = _wrong_part(schedule, one) or undelivered(schedule, one)
        if told:
            yield f"part {one.name}: {told}"
        elif schedule.bytes is not None and size * one.grains != one.bytes:
            yield f"part {one.name}: {one.grains} grains are not {one.bytes} bytes"
    yield from launch_problems(parts, schedule.launch, schedule.topology.ranks)


def launch_problems(
    parts: Sequence[MergedPart], launch: Sequence[Sequence[int]], ranks: int
) -> Iterator[str]:
    """Yield why some orders of starting the parts are wrong: left out, or in a circle."""
    if len(launch) != ranks:
        yield f"the launch order is of {len(launch)} ranks, the machine has {ranks}"
        return
    for rank, order in enumerate(launch):
        wanted = sorted(i for i, one in enumerate(parts) if rank in one.group)
        if sorted(order) != wanted:
            names = ", ".join(parts[i].name for i in wanted)
            yield f"rank {rank} must launch each of its collectives once: {names or 'none'}"
            return
    cycle = launch_cycle(launch, len(parts))
    if cycle is not None:
        names = " before ".join(parts[i].name for i in (*cycle, cycle[0]))
        yield f"the launch order may deadlock: {names}"


def _range_problems(schedule: Schedule) -> Iterator[str]:
    """Yield chunks that are in no part, or in two."""
    times = np.zeros(schedule.collective.chunks + 1, np.int64)
    for one in schedule.parts:
        inside = 0 <= one.first < one.last <= schedule.collective.chunks
        if not inside:
            yield f"part {one.name}: chunks {one.first} … {one.last - 1} do not exist"
            return
        times[one.first] += 1
        times[one.last] -= 1
    covered = np.cumsum(times)[:-1]
    for chunk in np.flatnonzero(covered != 1)[:1].tolist():
        yield f"chunk {chunk} is in {covered[chunk]} parts"


def _wrong_part(schedule: Schedule, one: MergedPart) -> str:
    """Return why the chunks of a part are not the collective that it says; empty: they are."""
    try:
        collective = part_collective(schedule, one)
        if str(collective.kind) != Kind.CUSTOM:
            Collective.from_json(collective.to_json())
    except UserError as error:
        return error.message
    return ""


def part_collective(schedule: Schedule, one: MergedPart) -> Collective:
    """Return the collective of a part, on the ranks of its group.

    Raises:
        UserError: a chunk is elsewhere, or the conditions are not those of its kind.
    """
    whole = schedule.collective
    place = {rank: i for i, rank in enumerate(one.group)}
    sides = []
    for label, p in (("pre", whole.pre), ("post", whole.post)):
        mine = np.flatnonzero((p.chunks >= one.first) & (p.chunks < one.last))
        rows = p.some(mine)
        others = sorted(set(rows.ranks.tolist()) - set(place))
        if others:
            raise UserError(
                f"its {label}condition names rank {others[0]}, which is not in its group"
            )
        sides.append(rows)
    named = sorted({int(x) for rows in sides for x in rows.sets})
    for index in named:
        if not whole.contributions[index] <= set(place):
            raise UserError("contributions of ranks that are not in its group")
    grains = whole.grains[one.first : one.last]
    offsets = [rows.offsets.astype(np.int64) - one.offset for rows in sides]
    common = int(
        np.gcd.reduce([*grains, *(x for column in offsets for x in distinct_values(column))])
    )
    number = {index: i for i, index in enumerate(named)}
    ranks = np.array([place.get(r, -1) for r in range(whole.ranks)])
    placed = [
        Placement(
            ranks[rows.ranks].astype(np.int32),
            (rows.chunks - one.first).astype(np.int32),
            np.array([number[x] for x in rows.sets.tolist()], np.int32),
            (column // common).astype(np.int32),
        )
        for rows, column in zip(sides, offsets, strict=True)
    ]
    return _standard(
        one,
        placed,
        (grains // common).tolist(),
        [frozenset(place[v] for v in whole.contributions[index]) for index in named],
    )


def _standard(
    one: MergedPart, placed: list[Placement], sizes: list[int], sets: list[frozenset[int]]
) -> Collective:
    kind = Kind(one.kind) if one.kind in set(Kind) else Kind.CUSTOM
    equal = len(set(sizes)) == 1
    found = Collective(
        Kind.CUSTOM,
        len(one.group),
        len(sizes),
        tuple(sets),
        placed[0],
        placed[1],
        name=one.name,
        sizes=() if equal and sizes[0] == 1 else tuple(sizes),
    )
    if kind is Kind.CUSTOM:
        return found
    roots: tuple[int, ...] = ()
    if kind in ROOTED:
        roots = (one.group.index(one.root) if one.root is not None else 0,)
    units = make(kind, len(one.group), roots=roots).chunks
    total = sum(sizes)
    if total % units:
        raise UserError(f"{total} grains are not a multiple of {units}")
    return replace(found, kind=kind, roots=roots, factor=total // units, name="")
