"""Steps in the planned order: among those that could go, a connection serves the least priority.

Before (a schedule whose steps are how deep in its trees each hop is)::

    step 0: chunk 0: 0 -> 1, priority 5     step 0: chunk 1: 2 -> 0     step 1: chunk 1: 0 -> 1, 2

After (rank 1 waits for chunk 1 more urgently, but it is not there yet)::

    step 0: chunk 0: 0 -> 1                 step 0: chunk 1: 2 -> 0     step 1: chunk 1: 0 -> 1

Thread blocks run in the order of steps, so steps are where a plan can set priorities. They are
renumbered by list scheduling (Graham 1966): every connection takes the least priority among its
ready transfers, for as long as the chunk has grains. Those of one step and priority stay together.

What must not change is what each transfer reads. Arrivals and departures of a chunk on a rank come
in *groups*, by their old steps: departures read what all arrivals before them have brought; an
arrival may come with those that leave at its step, but not before them. Ranks that exchange a chunk
within one step are such a pair in both directions; no order of one transfer at a time will do, and
the schedule is left as it is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from weft.dsl.base.arrays import Bools, Ints
from weft.dsl.nouns.schedule import Schedule

from .landing import same_as_before


def planned(schedule: Schedule) -> Schedule:
    """Return the schedule with steps in the order of its priorities; as it is where it has none."""
    if schedule.priority is None or not len(schedule):
        return schedule
    from .list_scheduling import start_times

    groups = _Groups.of(schedule)
    pair = schedule.src.astype(np.int64) * schedule.topology.ranks + schedule.dst
    _, connection = np.unique(pair, return_inverse=True)
    # Ties are broken by the old step, then by the place in the schedule, which goes by steps.
    steps = np.int64(schedule.steps)
    wish, turn = np.unique(schedule.priority * steps + schedule.step, return_inverse=True)
    assert len(wish) < 1 << 31
    start = start_times(
        connection.reshape(-1).astype(np.int64),
        turn.reshape(-1).astype(np.int64),
        schedule.collective.grains[schedule.chunk],
        groups.leaving,
        groups.arriving,
        groups.follows,
    )
    if (start < 0).any():
        return schedule
    columns = schedule.columns()
    columns["step"] = np.unique(start, return_inverse=True)[1].reshape(-1)
    done = Schedule.from_columns(
        schedule.topology,
        schedule.collective,
        **columns,
        stride=schedule.stride,
        segments=schedule.segments,
        provenance=schedule.provenance,
    )
    return replace(done, bytes=schedule.bytes)


@dataclass(frozen=True, eq=False)
class _Groups:
    """Arrivals and departures of a chunk on a rank, in groups that come one after another.

    ``leaving[t]`` is the group of transfer t at its source, ``arriving[t]`` the one at its
    destination. ``follows[g]``: group g comes after g - 1; else it is the first of its place.
    """

    leaving: Ints
    arriving: Ints
    follows: Bools

    @staticmethod
    def of(s: Schedule) -> _Groups:
        """Sort the ends of all transfers by place, old step, departures first."""
        n, wide = len(s), np.int64(s.collective.chunks)
        place = np.concatenate([s.src * wide + s.chunk, s.dst * wide + s.chunk])
        arrives = np.arange(2 * n) >= n
        stores = arrives & ~np.concatenate([s.reduce, s.reduce])
        step = np.concatenate([s.step, s.step])
        order = np.lexsort((arrives, step, place))
        place, step, arrives, stores = place[order], step[order], arrives[order], stores[order]
        here = same_as_before(place)
        # Sums commute, so all that are added between two departures are one group; what is stored
        # keeps its step.
        joined = here & same_as_before(arrives.astype(np.int64))
        apart = stores.copy()
        apart[1:] |= stores[:-1]
        joined &= ~(arrives & apart) | same_as_before(step)
        group = np.empty(2 * n, np.int64)
        group[order] = np.cumsum(~joined) - 1
        return _Groups(group[:n], group[n:], here[~joined])
