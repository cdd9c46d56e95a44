"""Remove transfers that are not needed: backward liveness over places (a chunk on a rank).

Search engines leave such transfers behind: a chunk sent to a rank that has it, or to one that
neither wants it nor sends it on. Without them a schedule is cheaper, and can be reversed.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from weft.dsl.base.arrays import Bools
from weft.dsl.nouns.schedule import Schedule

from ..fabric.occupancy import step_runs
from .replay import replay


def prune(schedule: Schedule) -> Schedule:
    """Return the schedule without redundant and useless transfers; its result is the same.

    Redundant: what it brings is there already. Useless: what it brings is neither wanted at the
    end nor sent on. Steps keep their numbers; ``rounds`` lose those of steps that fall off the end.
    The columns must be in range (see :func:`.verify`). Cost as for the replay. A schedule with
    casts is returned as it is.
    """
    if len(schedule.casts):  # a transfer may feed one of them
        return schedule
    fresh = ~replay(schedule).redundant
    kept = fresh & _live(schedule, fresh)
    return schedule if kept.all() else select(schedule, kept)


def select(schedule: Schedule, kept: Bools) -> Schedule:
    """Return only the transfers of a mask, in the same order, with their times."""
    s, lengths = schedule, np.diff(schedule.route_start)
    smaller = Schedule.from_columns(
        s.topology,
        s.collective,
        s.chunk[kept],
        s.src[kept],
        s.dst[kept],
        s.step[kept],
        s.reduce[kept],
        lengths[kept],
        s.route_links[np.repeat(kept, lengths)],
        priority=None if s.priority is None else s.priority[kept],
        stride=s.stride,
        provenance=s.provenance,
    )
    start, end = (None if t is None else t[kept] for t in (s.start_us, s.end_us))
    return replace(
        smaller,
        rounds=s.rounds[: smaller.steps],
        bytes=s.bytes,
        segments=s.segments,
        start_us=start,
        end_us=end,
    )


def _live(schedule: Schedule, fresh: Bools) -> Bools:
    """Transfers whose destination is read later, by the postcondition or by a live transfer."""
    c = schedule.collective
    wanted = np.zeros(c.chunks * c.ranks, bool)
    wanted[c.post.chunks.astype(np.int64) * c.ranks + c.post.ranks] = True
    place = schedule.chunk.astype(np.int64) * c.ranks
    source, target = place + schedule.src, place + schedule.dst
    live = np.zeros(len(schedule), bool)
    for begin, end in reversed(step_runs(schedule)):
        here = fresh[begin:end] & wanted[target[begin:end]]
        live[begin:end] = here
        # Data that a plain arrival replaces was not needed before, unless this step still sends it.
        stored = here & ~schedule.reduce[begin:end]
        wanted[target[begin:end][stored]] = False
        wanted[source[begin:end][here]] = True
    return live
