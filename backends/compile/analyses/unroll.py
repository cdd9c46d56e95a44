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

import math
from dataclasses import replace
from typing import Any

import numpy as np

from weft.dsl.base.errors import UserError
from weft.dsl.base.unique_rows import rows_of
from weft.dsl.nouns.collective import LARGEST_PLACEMENT, Collective, Kind
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
    """Return the collective with every chunk, of any size, in that number of equal pieces."""
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


# A schedule of chunks of unequal sizes as one of equal ones: a chunk of k grains is k chunks.
#
# Before::
#
#     step 0: chunk 0 (2 grains): 0 -> 1                      step 0: chunk 1 (1 grain): 0 -> 1
#
# After::
#
#     step 0: chunks 0, 1: 0 -> 1                             step 0: chunk 2: 0 -> 1
#
# Runtimes know chunks of one size only, and move up to 71 neighbours in one instruction. The grains
# of a chunk lie side by side in every buffer, so ``aggregate`` makes one message of them again.

MOST_GRAINS = 20_000_000
"""Grains that all transfers may move together: the checkers look at each of them."""


def same_question(one: Collective, other: Collective) -> bool:
    """Test if two collectives are equal except for their names and cuts into chunks."""
    told = [(c.kind, c.ranks, c.roots) for c in (one, other)]
    if told[0] != told[1] or one.kind is not Kind.CUSTOM:
        return told[0] == told[1]
    cut = [c.coarsest().in_grains() for c in (one, other)]
    chunks = math.lcm(*(c.message_chunks for c in cut))
    a, b = (c.split(chunks // c.message_chunks) for c in cut)
    return (a.pre, a.post, a.contributions) == (b.pre, b.post, b.contributions)


def schedule_in_grains(schedule: Schedule) -> Schedule:
    """Return the same transfers, grain by grain, in the largest grains that do.

    Raises:
        UserError: it moves more grains than can be looked at.
    """
    if not schedule.collective.sizes:
        return schedule
    collective = schedule.collective.coarsest()
    grains = collective.grains
    repeats = grains[schedule.chunk]
    total = int(repeats.sum())
    if total > MOST_GRAINS:
        raise UserError(
            f"the chunks are cut so finely that {total} grains are moved; {MOST_GRAINS} can be",
            hint="round the shares to fewer grains",
        )
    row = np.repeat(np.arange(len(schedule)), repeats)
    within = np.arange(total) - np.repeat(np.cumsum(repeats) - repeats, repeats)
    first = np.cumsum(grains) - grains
    columns = schedule.columns()
    start, at = rows_of(schedule.route_start, row)
    del columns["route_lengths"]
    links = columns.pop("route_links")[at]
    columns = {name: column[row] for name, column in columns.items()}
    columns["chunk"] = first[columns["chunk"]] + within
    done = Schedule.from_columns(
        schedule.topology,
        collective.in_grains(),
        **columns,
        route_lengths=np.diff(start),
        route_links=links,
        rounds=schedule.rounds,
        stride=schedule.stride,
        segments=schedule.segments,
        provenance=schedule.provenance,
    )
    return replace(done, bytes=schedule.bytes)
