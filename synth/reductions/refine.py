"""Chunk scaling: the same schedule on smaller chunks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from weft.dsl.base.arrays import Ints32
from weft.dsl.base.errors import UserError
from weft.dsl.base.unique_rows import rows_of
from weft.dsl.nouns.casts import Casts
from weft.dsl.nouns.collective import Collective, Kind
from weft.dsl.nouns.schedule import Schedule


def refine(schedule: Schedule, pieces: int) -> Schedule:
    """Every chunk cut into ``pieces``, each taking the same way; rounds grow with them.

    Rounds per chunk stay the same. Pieces of a chunk stay together inside a step and in the
    planned order. Times do not survive.

    Raises:
        UserError: a custom collective whose chunks are of unequal sizes.
    """
    if pieces == 1:
        return schedule
    columns = schedule.columns()
    del columns["route_links"]
    columns = {name: np.repeat(column, pieces) for name, column in columns.items()}
    row = np.repeat(np.arange(len(schedule)), pieces)
    columns["chunk"] = columns["chunk"] * pieces + np.tile(np.arange(pieces), len(schedule))
    finer = (
        replace(one, chunk=one.chunk * pieces + piece)
        for one in schedule.casts
        for piece in range(pieces)
    )
    made = Schedule.from_columns(
        schedule.topology,
        _finer(schedule.collective, pieces),
        **columns,
        route_links=schedule.route_links[rows_of(schedule.route_start, row)[1]],
        rounds=tuple(r * pieces for r in schedule.rounds),
        provenance=schedule.provenance,
        stride=schedule.stride,
        segments=schedule.segments,
        casts=Casts.of(finer, _repeated(schedule.casts.priority, pieces)),
    )
    return replace(made, bytes=schedule.bytes)


def _repeated(priority: Ints32 | None, pieces: int) -> list[int] | None:
    return None if priority is None else np.repeat(priority, pieces).tolist()


def _finer(collective: Collective, pieces: int) -> Collective:
    if not collective.sizes:
        return collective.split(pieces)
    if collective.kind is Kind.CUSTOM or collective.local_reduce:
        raise UserError(f"chunks of {collective.name}, of unequal sizes, are cut once, not again")
    grains = collective.grains
    of_chunk = (np.cumsum(grains) - grains) // collective.factor
    return collective.plain().cut_in(np.repeat(grains, pieces), np.bincount(of_chunk) * pieces)
