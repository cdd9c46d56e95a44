"""Quick repair of a schedule after failures: correct, found in little time, not optimal.

Chunks that use no failed part keep their transfers, the others are routed around (:mod:`.trees`).
A repaired schedule is the incumbent of a search, and can run until that search is done.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from weft.dsl.base.unique_rows import rows_of
from weft.dsl.machines.failures import Degraded
from weft.dsl.nouns.collective import Collective
from weft.dsl.nouns.schedule import Schedule

from ..time.order import LARGE
from .damage import Damage
from .effort import REPAIR_EFFORT, RepairEffort
from .prices import CongestionPrices
from .trees import Way, other_way


def repair(
    schedule: Schedule,
    left: Degraded,
    effort: RepairEffort = REPAIR_EFFORT,
) -> Schedule:
    """The schedule for ``left.topology``, where ``schedule`` is for ``left.whole``.

    New routes are chosen for a message of the size that the schedule was made for.

    Not verified, as everything that comes from an engine. Times and rounds are gone; slices stay,
    and where transfers have priorities, new ones inherit them. Cost: that of a few dozen array
    operations, and one run of Dijkstra's algorithm for each chunk that has to grow again.

    Raises:
        BadTopology: some rank cannot get what it wants any more.
        UserError: ranks are gone, so that it would be another collective; or a chunk is neither
            copied from where it is whole nor summed of single parts.
    """
    damage = Damage.of(schedule, left)
    size = schedule.bytes or LARGE
    prices = CongestionPrices.of(
        left.topology, schedule, damage.moved, ~damage.hit, size, effort.idle
    )
    c = schedule.collective
    ways = {
        chunk: other_way(damage, chunk, prices, int(c.grains[chunk])) for chunk in damage.chunks
    }
    every = [ways.get(i) or Way(i, damage.by_chunk.of_chunk(i)) for i in range(c.chunks)]
    return assembled(damage, every, c)


def assembled(damage: Damage, ways: Sequence[Way], collective: Collective) -> Schedule:
    """Return the schedule in which chunk i of ``collective`` uses ``ways[i]``, in the old order."""
    old = damage.schedule
    fresh = [(i, new) for i, way in enumerate(ways) for new in way.fresh]
    new = np.array(
        [
            (
                i,
                n.transfer.src,
                n.transfer.dst,
                n.transfer.step,
                n.transfer.reduce,
                len(n.transfer.route),
                n.heir,
            )
            for i, n in fresh
        ],
        np.int64,
    ).reshape(-1, 7)
    kept = np.concatenate([np.zeros(0, np.int64), *(way.kept for way in ways)])
    chunk = np.repeat(np.arange(len(ways)), [len(way.kept) for way in ways])
    columns = np.stack(
        [
            chunk,
            old.src[kept],
            old.dst[kept],
            old.step[kept],
            old.reduce[kept],
            np.diff(old.route_start)[kept],
            kept,
        ],
        axis=1,
    )
    table = np.concatenate([columns, new])
    links = np.concatenate(
        [
            damage.moved[rows_of(old.route_start, kept)[1]],
            np.array([i for _, n in fresh for i in n.transfer.route], np.int64),
        ]
    )
    starts = np.concatenate([[0], np.cumsum(table[:, 5])])
    order = np.argsort(table[:, 6], kind="stable")
    table = table[order]
    made = Schedule.from_columns(
        damage.left.topology,
        collective,
        table[:, 0],
        table[:, 1],
        table[:, 2],
        table[:, 3],
        table[:, 4].astype(bool),
        table[:, 5],
        links[rows_of(starts, order)[1]],
        priority=None if old.priority is None else old.priority[table[:, 6]],
        stride=old.stride,
        segments=old.segments,
        provenance={**old.provenance, "repaired": True},
    )
    return replace(made, bytes=old.bytes)
