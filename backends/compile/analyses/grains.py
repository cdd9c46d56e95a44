"""A schedule of chunks of unequal sizes as one of equal ones: a chunk of k grains is k chunks.

Before::

    step 0: chunk 0 (2 grains): 0 -> 1                            step 0: chunk 1 (1 grain): 0 -> 1

After::

    step 0: chunks 0, 1: 0 -> 1                                   step 0: chunk 2: 0 -> 1

Runtimes know chunks of one size only, and move up to 71 neighbours in one instruction. The grains
of a chunk lie side by side in every buffer, so ``aggregate`` makes one message of them again.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from weft.dsl.base.errors import UserError
from weft.dsl.base.unique_rows import rows_of
from weft.dsl.nouns.collective import Collective, Kind
from weft.dsl.nouns.schedule import Schedule

MOST_GRAINS = 20_000_000
"""Grains that all transfers may move together: the checkers look at each of them."""


def same_question(one: Collective, other: Collective) -> bool:
    """Test whether two collectives ask for the same, whatever their names and cuts into chunks."""
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
