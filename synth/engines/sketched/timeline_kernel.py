"""Resources and when they are occupied: intervals of ticks, in order, that do not overlap.

A hop holds several resources from one moment on, each for a time of its own. Finding a gap costs
O(resources · (log intervals + intervals that are in the way)).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from weft.dsl.base.arrays import Ints
from weft.dsl.base.jit import compiled

Whole = int | np.int64
"""Integer type of kernels."""


class SearchHops(NamedTuple):
    """The hops of a machine, and the resources that each holds.

    Ties are broken by ``turn``: where all send to the k-th next at once, no two meet at a port.
    """

    src: Ints  # rank, by hop
    dst: Ints  # rank, by hop
    arrives: Ints  # ticks from the start of a hop to its arrival
    first: Ints  # (hops + 1,): of resource and hold, those of hop h
    resource: Ints  # resources (orbits of them), by hop
    hold: Ints  # ticks from the start of the hop for which each is held
    out: Ints  # (ranks + 1,): of outs, the hops that leave rank v
    outs: Ints  # hops, by source
    into: Ints  # (ranks + 1,): of ins, the hops that enter rank v
    ins: Ints  # hops, by destination
    turn: Ints  # (dst - src) mod ranks, by hop


class BusyIntervals(NamedTuple):
    """Intervals of ticks in which resources are held: ascending, and apart from each other."""

    begin: Ints  # (resources, room)
    end: Ints  # (resources, room); the first tick at which the resource is free again
    used: Ints  # (resources,): how many of the columns are in use


def all_free(resources: int, room: int) -> BusyIntervals:
    """Resources that are free, with room for ``room`` intervals each."""
    return BusyIntervals(
        *(np.zeros(shape, np.int64) for shape in ((resources, room), (resources, room), resources))
    )


@compiled
def _behind(ends: Ints, count: Any, moment: Any) -> Any:
    """The first of ``count`` intervals that ends after a moment."""
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if ends[middle] > moment:
            high = middle
        else:
            low = middle + 1
    return low


@compiled
def earliest(busy: BusyIntervals, hops: SearchHops, h: Whole, ready: Whole) -> Whole:
    """Earliest start of a hop, not before ``ready``."""
    start: Whole = ready
    moved = True
    while moved:
        moved = False
        for k in range(hops.first[h], hops.first[h + 1]):
            r, d = hops.resource[k], hops.hold[k]
            i = _behind(busy.end[r], busy.used[r], start)
            while i < busy.used[r] and busy.begin[r, i] < start + d:
                start = busy.end[r, i]
                moved = True
                i += 1
    return start


@compiled
def latest(busy: BusyIntervals, hops: SearchHops, h: Whole, due: Whole) -> Whole:
    """The last start of a hop with which it has arrived at ``due``; it may be negative."""
    start: Whole = due - hops.arrives[h]
    moved = True
    while moved:
        moved = False
        for k in range(hops.first[h], hops.first[h + 1]):
            r, d = hops.resource[k], hops.hold[k]
            i = _behind(busy.begin[r], busy.used[r], start + d - 1)
            # Intervals before i begin before we would be done: the last of them is in the way
            # unless it is over when we start.
            while i > 0 and busy.end[r, i - 1] > start:
                start = busy.begin[r, i - 1] - d
                moved = True
                i -= 1
    return start


@compiled
def reserve(busy: BusyIntervals, hops: SearchHops, h: Whole, start: Whole) -> None:
    """Occupy the resources of a hop, where they are free."""
    for k in range(hops.first[h], hops.first[h + 1]):
        r, d = hops.resource[k], hops.hold[k]
        if d > 0:
            i = _behind(busy.end[r], busy.used[r], start)
            for j in range(busy.used[r], i, -1):
                busy.begin[r, j] = busy.begin[r, j - 1]
                busy.end[r, j] = busy.end[r, j - 1]
            busy.begin[r, i] = start
            busy.end[r, i] = start + d
            busy.used[r] += 1


@compiled
def release(busy: BusyIntervals, hops: SearchHops, h: Whole, start: Whole) -> None:
    """Undo :func:`reserve`."""
    for k in range(hops.first[h], hops.first[h + 1]):
        r, d = hops.resource[k], hops.hold[k]
        if d > 0:
            busy.used[r] -= 1
            for j in range(_behind(busy.end[r], busy.used[r] + 1, start), busy.used[r]):
                busy.begin[r, j] = busy.begin[r, j + 1]
                busy.end[r, j] = busy.end[r, j + 1]
