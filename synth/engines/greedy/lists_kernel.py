"""List scheduling: transfers that wait for others, then for all that they occupy."""

from __future__ import annotations

import numpy as np

from weft.dsl.base.jit import Array, compiled

from .events_kernel import NOW, SIZE, pop, push

NONE = -1


@compiled
def merged(a: int, b: int, key: Array, child: Array, after: Array) -> int:
    """Two pairing heaps as one (Fredman et al., Algorithmica 1986); the least key is on top."""
    if a == NONE:
        return b
    if b == NONE:
        return a
    if key[b] < key[a]:
        a, b = b, a
    after[b] = child[a]
    child[a] = b
    return a


@compiled
def without_top(top: int, key: Array, child: Array, after: Array) -> int:
    """A pairing heap without its top: the children are merged in pairs, then into one."""
    one, pairs = child[top], NONE
    child[top] = NONE
    while one != NONE:
        two = after[one]
        after[one] = NONE
        rest = NONE
        if two != NONE:
            rest = after[two]
            after[two] = NONE
        both = merged(one, two, key, child, after)
        after[both] = pairs
        pairs, one = both, rest
    whole = NONE
    while pairs != NONE:
        rest = after[pairs]
        after[pairs] = NONE
        whole = merged(whole, pairs, key, child, after)
        pairs = rest
    return whole


@compiled
def busy_row(hop: int, held: tuple[Array, Array, Array], until: Array, now: int) -> int:
    """Of what a hop occupies the row that is busy longest; -1 if all is free."""
    row, latest = NONE, now
    for k in range(held[0][hop], held[0][hop + 1]):
        if until[held[1][k]] > latest:
            row, latest = held[1][k], until[held[1][k]]
    return row


@compiled
def collect(
    rows: int,
    next_jobs: tuple[Array, Array],
    waits: Array,
    tops: Array,
    key: Array,
    when: Array,
    what: Array,
    clock: Array,
    tries: Array,
    tried: Array,
    size: Array,
) -> None:
    """Take all events of the next time: who is ready now, or first in the queue of a free row."""
    now = when[0]
    clock[NOW] = now
    while clock[SIZE] > 0 and when[0] == now:
        event = pop(when, what, clock)
        if event < rows:
            if tops[event] != NONE:
                push(tries, tried, size, key[tops[event]], event)
            continue
        job = event - rows
        for k in range(next_jobs[0][job], next_jobs[0][job + 1]):
            other = next_jobs[1][k]
            waits[other] -= 1
            if waits[other] == 0:
                push(tries, tried, size, key[other], rows + other)


@compiled
def serve_lists(
    held: tuple[Array, Array, Array],
    arrives: Array,
    hop: Array,
    key: Array,
    waits: Array,
    next_jobs: tuple[Array, Array],
    rows: int,
    start: Array,
) -> int:
    """Start every job as early as its turn comes; the time of the last arrival.

    A job is ready when ``waits`` others have arrived; of those that are ready the least ``key``
    goes first; one that must wait holds nothing. Keys differ. ``start`` is filled.
    """
    jobs = len(hop)
    until = np.zeros(rows, np.int64)
    tops = np.full(rows, NONE)
    child, after = np.full(jobs, NONE), np.full(jobs, NONE)
    room = jobs + rows + 8  # at a time each row is freed once, each job arrives once
    when, what = np.zeros(room, np.int64), np.zeros(room, np.int64)
    tries, tried = np.zeros(room, np.int64), np.zeros(room, np.int64)
    clock, size = np.zeros(4, np.int64), np.zeros(4, np.int64)
    for job in range(jobs):
        if waits[job] == 0:
            push(tries, tried, size, key[job], rows + job)
    end = 0
    while size[SIZE] > 0 or clock[SIZE] > 0:
        if clock[SIZE] > 0 and size[SIZE] == 0:
            collect(rows, next_jobs, waits, tops, key, when, what, clock, tries, tried, size)
        while size[SIZE] > 0:
            event = pop(tries, tried, size)
            job, queue = event - rows, NONE
            if event < rows:
                job, queue = tops[event], event
                if job == NONE or until[queue] > clock[NOW]:
                    continue
                tops[queue] = without_top(job, key, child, after)
            row = busy_row(hop[job], held, until, clock[NOW])
            if row != NONE:
                tops[row] = merged(tops[row], job, key, child, after)
                if queue != NONE and tops[queue] != NONE:
                    push(tries, tried, size, key[tops[queue]], queue)
                continue
            now = clock[NOW]
            start[job] = now
            end = max(end, now + arrives[hop[job]])
            for k in range(held[0][hop[job]], held[0][hop[job] + 1]):
                until[held[1][k]] = now + held[2][k]
                push(when, what, clock, now + held[2][k], held[1][k])
            push(when, what, clock, now + arrives[hop[job]], rows + job)
    return end
