"""Write the slices of a schedule out: chunks in pieces that follow each other like a pipeline.

Before::

    step 0: chunk 0: 0 -> 1          step 1: chunk 0: 1 -> 2

After, in two pieces::

    step 0: piece 0: 0 -> 1          step 1: piece 0: 1 -> 2, piece 1: 0 -> 1          step 2: …

Runtimes of MSCCL XML slice chunks by themselves, but not finer than a payload; others not at all.
Piece j follows one step behind piece j - 1, so that it moves while that one is sent on. All
pieces keep the steps of their chunk, which prove that each of them is moved right.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from weft.dsl.base.errors import UserError
from weft.dsl.base.unique_rows import rows_of
from weft.dsl.nouns.collective import LARGEST_PLACEMENT, Collective
from weft.dsl.nouns.placement import LARGEST_OFFSET, Placement, split
from weft.dsl.nouns.schedule import Schedule


def unrolled(schedule: Schedule, pieces: int, *, together: bool = False) -> Schedule:
    """The schedule with every chunk cut into ``pieces`` equal ones, without slices of its own.

    The planned order goes on from piece to piece as it did from slice to slice. ``together``: the
    pieces of a chunk do not follow each other, but keep its steps and its place in the order.

    Raises:
        UserError: fewer than one piece, or more of them than can be held.
    """
    if pieces < 1:
        raise UserError(f"a chunk cannot be cut into {pieces} pieces", where="segments")
    if pieces == 1:
        return schedule
    c = schedule.collective
    if max(len(schedule), len(c.pre), len(c.post)) * pieces > LARGEST_PLACEMENT:
        raise UserError(
            f"{pieces} pieces of every chunk are too many to write out",
            where="segments",
            hint="fewer pieces, or the loop of the runtime (1)",
        )
    row = np.repeat(np.arange(len(schedule)), pieces)
    piece = np.tile(np.arange(pieces), len(schedule))
    given = schedule.columns()
    del given["route_links"]
    columns: dict[str, Any] = {name: np.repeat(x, pieces) for name, x in given.items()}
    columns["chunk"] = columns["chunk"].astype(np.int64) * pieces + piece
    if not together:
        columns["step"] = columns["step"] + piece
    if "priority" in columns and not together:
        # A piece may hold several slices: it comes when the first of them does.
        apart = schedule.stride * schedule.segments // pieces
        later = columns["priority"].astype(np.int64) + piece * apart
        columns["priority"] = np.unique(later, return_inverse=True)[1]
    done = Schedule.from_columns(
        schedule.topology,
        cut(c, pieces),
        **columns,
        route_links=schedule.route_links[rows_of(schedule.route_start, row)[1]],
        provenance=schedule.provenance,
    )
    return replace(done, bytes=schedule.bytes)


def cut(collective: Collective, pieces: int) -> Collective:
    """Return the collective with every chunk, whatever its size, in that number of equal pieces."""
    if not collective.sizes:
        return collective.split(pieces)

    def finer(p: Placement) -> Placement:
        parts = split(p, pieces)
        inside = np.tile(np.arange(pieces), len(p)) * np.repeat(collective.grains[p.chunks], pieces)
        offsets = np.repeat(p.offsets.astype(np.int64) * pieces, pieces) + inside
        if offsets.max(initial=0) >= LARGEST_OFFSET:
            raise UserError(f"{pieces} pieces of every chunk are too small to address")
        return Placement(parts.ranks, parts.chunks, parts.sets, offsets.astype(np.int32))

    return replace(
        collective,
        chunks=collective.chunks * pieces,
        pre=finer(collective.pre),
        post=finer(collective.post),
        factor=collective.factor * pieces,
        sizes=tuple(size for size in collective.sizes for _ in range(pieces)),
    )
