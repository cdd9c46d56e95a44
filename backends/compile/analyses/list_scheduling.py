"""The compiled loop of :mod:`.planned`; imported only where it runs."""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np

from weft.dsl.base.arrays import Bools, Ints
from weft.dsl.base.jit import compiled


@compiled
def _members(leaving: Ints, arriving: Ints, groups: int) -> tuple[Ints, Ints, Ints]:
    """Return the size of each group, where its transfers begin, and all transfers by group."""
    size = np.zeros(groups, np.int64)
    for t in range(len(leaving)):
        size[leaving[t]] += 1
        size[arriving[t]] += 1
    start = np.zeros(groups + 1, np.int64)
    for g in range(groups):
        start[g + 1] = start[g] + size[g]
    fill = start[:-1].copy()
    member = np.empty(2 * len(leaving), np.int64)
    for t in range(len(leaving)):
        for g in (leaving[t], arriving[t]):
            member[fill[g]] = t
            fill[g] += 1
    return size, start, member


@compiled
def start_times(
    connection: Ints,
    turn: Ints,
    length: Ints,
    leaving: Ints,
    arriving: Ints,
    follows: Bools,
) -> Ints:
    """Return the start of each transfer if connections serve the least ``turn`` first; -1: never.

    A transfer is ready when its groups at both ends are open. A group opens when all that leave in
    the one before it have started, and all that arrive there have ended. Those of one turn that are
    ready together go together. O(transfers log transfers).
    """
    n, groups = len(turn), len(follows)
    left, member_start, member = _members(leaving, arriving, groups)
    closed = np.full(n, 2, np.int64)
    start = np.full(n, -1, np.int64)
    queues = [[(np.int64(0), np.int64(0))] for _ in range(connection.max() + 1)]
    for queue in queues:
        queue.pop()
    free = np.zeros(len(queues), np.int64)
    # Events by time: connection c looks at its queue (c), or transfer t has arrived (-1 - t).
    events = [(np.int64(0), np.int64(0))]
    events.pop()
    opening: Any = [np.int64(g) for g in range(groups) if not follows[g]]
    now: Any = np.int64(0)
    while True:
        while len(opening):
            g = opening.pop()
            for i in range(member_start[g], member_start[g + 1]):
                one = member[i]
                closed[one] -= 1
                if closed[one] == 0:
                    c = connection[one]
                    heapq.heappush(queues[c], (turn[one], np.int64(one)))
                    # After all arrivals of this moment, so that it chooses among all.
                    heapq.heappush(events, (max(now, free[c]), np.int64(c)))
        if not len(events):
            return start
        now, event = heapq.heappop(events)
        if event < 0:
            g = arriving[-1 - event]
            left[g] -= 1
            if left[g] == 0 and g + 1 < groups and follows[g + 1]:
                opening.append(g + 1)
            continue
        queue = queues[event]
        if not len(queue) or free[event] > now:
            continue
        mine = queue[0][0]
        end: Any = now
        while len(queue) and queue[0][0] == mine:
            one = heapq.heappop(queue)[1]
            start[one] = now
            end += length[one]
            g = leaving[one]
            left[g] -= 1
            if left[g] == 0 and g + 1 < groups and follows[g + 1]:
                opening.append(g + 1)
            heapq.heappush(events, (end, np.int64(-1 - one)))
        free[event] = end
        if len(queue):
            heapq.heappush(events, (end, np.int64(event)))
