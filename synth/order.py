"""The order inside a step: who is served first where transfers compete for a link.

Any order is correct; a good one keeps links busy when steps overlap in time: what others wait
for goes first, and ranks start with different peers.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from weft.dsl.schedule import Schedule


def hops_to_go(schedule: Schedule) -> npt.NDArray[np.int32]:
    """For each transfer, how many hops its chunk still makes from its destination (the longest
    branch). One backward pass over the steps, O(transfers + ranks · chunks)."""
    ranks = schedule.topology.ranks
    tail = np.zeros(len(schedule), np.int32)
    longest = np.zeros(schedule.collective.chunks * ranks, np.int32)
    there = schedule.chunk.astype(np.int64) * ranks + schedule.dst
    here = schedule.chunk.astype(np.int64) * ranks + schedule.src
    starts = np.searchsorted(schedule.step, np.arange(schedule.steps + 1))
    for step in reversed(range(schedule.steps)):
        rows = slice(int(starts[step]), int(starts[step + 1]))
        tail[rows] = longest[there[rows]]
        # Transfers of one step read what held before it: update after all of them have looked.
        np.maximum.at(longest, here[rows], tail[rows] + 1)
    return tail


def by_urgency(schedule: Schedule) -> Schedule:
    """Within each step: the longest remaining path first, then by the distance (dst - src) mod
    ranks (every rank begins with another peer), then by chunk."""
    ranks = schedule.topology.ranks
    shift = (schedule.dst - schedule.src) % ranks
    return _reordered(schedule, (schedule.chunk, shift, -hops_to_go(schedule), schedule.step))


def _reordered(schedule: Schedule, keys: tuple[npt.NDArray[np.int32], ...]) -> Schedule:
    """Sorted by the keys, the last one being the most significant (it must be the step)."""
    order = np.lexsort(keys)
    lengths = np.diff(schedule.route_start)
    first = np.repeat(schedule.route_start[:-1][order], lengths[order])
    ends = np.concatenate([[0], np.cumsum(lengths[order])])
    inside = np.arange(ends[-1]) - np.repeat(ends[:-1], lengths[order])
    return Schedule.from_columns(
        schedule.topology, schedule.collective, schedule.chunk[order], schedule.src[order],
        schedule.dst[order], schedule.step[order], schedule.reduce[order], lengths[order],
        schedule.route_links[first + inside], rounds=schedule.rounds,
        provenance=schedule.provenance,
    )  # fmt: skip
