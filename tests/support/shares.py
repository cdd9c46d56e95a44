"""Schedules with chunks of unequal sizes, made from those of equal ones."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import numpy as np

from weft.dsl.nouns.collective import make
from weft.dsl.nouns.schedule import Schedule, Transfer


def with_sizes(schedule: Schedule, sizes: Sequence[int]) -> Schedule:
    """A schedule of a cut allreduce (or broadcast …) whose chunks have these grains."""
    plain = make(
        schedule.collective.kind, schedule.collective.ranks, roots=schedule.collective.roots
    )
    assert plain.chunks == 1
    return replace(schedule, collective=plain.cut([list(sizes)]))


def in_pieces(schedule: Schedule, pieces: Sequence[Sequence[int]]) -> Schedule:
    """A schedule of plain chunks with chunk c in pieces of these grains, moved alike."""
    first = np.cumsum([0, *map(len, pieces)]).tolist()
    rows = [
        replace(t, chunk=first[t.chunk] + k) for t in schedule for k in range(len(pieces[t.chunk]))
    ]
    return Schedule.of(schedule.topology, schedule.collective.cut(pieces), rows)


def parts(total: int, number: int, dice: Random) -> list[int]:
    """So many positive numbers that sum to the total."""
    cuts = sorted(dice.sample(range(1, total), number - 1))
    return [b - a for a, b in zip([0, *cuts], [*cuts, total], strict=True)]


def with_priorities(schedule: Schedule, most: int, dice: Random, **fields: object) -> Schedule:
    """The schedule with random priorities below ``most``."""
    order = np.array([dice.randrange(most) for _ in schedule], np.int32)
    return replace(schedule, priority=order, **fields)


def moved(rows: Sequence[Transfer]) -> list[tuple[int, int, int]]:
    """(chunk, source, destination), in order."""
    return [(t.chunk, t.src, t.dst) for t in rows]
