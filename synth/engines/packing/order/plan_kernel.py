"""Compiled: the run of a packing's hops on its rows, by the simulator's rule, without its care.

Thousands of orders are compared per second here; whatever is chosen is timed by the simulator
itself afterwards. Times are whole ticks, so that equal times are equal.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from weft.dsl.base.arrays import Bools, Ints
from weft.dsl.base.jit import compiled

FOREVER = 1 << 62
_SIZE, _OFFERED, _CLEARED, _LAST = range(4)  # places of State.counters


class Work(NamedTuple):
    """What is to be done, for one slice of the message.

    Hop h reads place ``source[h]`` once all ``arrivals`` of that place have come, and then brings
    one arrival to ``target[h]``; ``readers[first_reader[p]:first_reader[p + 1]]`` read place p.
    It holds ``rows[first_row[h]:first_row[h + 1]]`` for ``holds`` ticks each, has left after
    ``leaves`` and arrived after ``lasts``.
    """

    source: Ints
    target: Ints
    arrivals: Ints
    first_reader: Ints
    readers: Ints
    first_row: Ints
    rows: Ints
    holds: Ints
    leaves: Ints
    lasts: Ints
    row_count: int


class State(NamedTuple):
    """What a run changes. Jobs are slice · hops + hop; a job is in at most one heap at a time."""

    key: Ints
    waits: Ints
    missing: Ints
    child: Ints
    sibling: Ints
    origin: Ints
    queue: Ints
    taken: Bools
    when: Ints
    what: Ints
    offers: Ints
    freed: Ints
    counters: Ints


@compiled
def tails(order: Ints, source: Ints, target: Ints, lasts: Ints, longest: Ints) -> Ints:
    """For each hop the ticks from its start until all that depends on it has arrived.

    ``order``: hops by level; ``lasts``: start to arrival; ``longest``: zeros, one per place.
    """
    tail = np.zeros(len(order), np.int64)
    for i in range(len(order) - 1, -1, -1):
        hop = order[i]
        tail[hop] = lasts[hop] + longest[target[hop]]
        longest[source[hop]] = max(longest[source[hop]], tail[hop])
    return tail


@compiled
def _merged(key: Ints, child: Ints, sibling: Ints, a: int, b: int) -> int:
    """One pairing heap from two, by their roots (-1: empty)."""
    if a < 0:
        return b
    if b < 0:
        return a
    if key[b] < key[a]:
        a, b = b, a
    sibling[b] = child[a]
    child[a] = b
    return a


@compiled
def _without_root(key: Ints, child: Ints, sibling: Ints, root: int) -> int:
    """A pairing heap without its least member: pairs from the left, then all from the right
    (Fredman, Sedgewick, Sleator & Tarjan, Algorithmica 1 (1986))."""
    first, pairs = child[root], -1
    child[root] = -1
    while first >= 0:
        second = sibling[first]
        if second < 0:
            sibling[first] = pairs
            pairs = first
            break
        following = sibling[second]
        sibling[first] = sibling[second] = -1
        one = _merged(key, child, sibling, first, second)
        sibling[one] = pairs
        pairs = one
        first = following
    whole = -1
    while pairs >= 0:
        following = sibling[pairs]
        sibling[pairs] = -1
        whole = _merged(key, child, sibling, whole, pairs)
        pairs = following
    return whole


@compiled
def _push(s: State, time: int, event: int) -> None:
    """Add an event to the agenda, a binary heap by time."""
    i = s.counters[_SIZE]
    s.counters[_SIZE] += 1
    while i > 0:
        up = (i - 1) >> 1
        if s.when[up] <= time:
            break
        s.when[i], s.what[i] = s.when[up], s.what[up]
        i = up
    s.when[i], s.what[i] = time, event


@compiled
def _pop(s: State) -> int:
    """Remove the first event of the agenda, and tell which it was."""
    first = s.what[0]
    s.counters[_SIZE] -= 1
    size = s.counters[_SIZE]
    time, event = s.when[size], s.what[size]
    i = 0
    while True:
        down = 2 * i + 1
        if down >= size:
            break
        if down + 1 < size and s.when[down + 1] < s.when[down]:
            down += 1
        if s.when[down] >= time:
            break
        s.when[i], s.what[i] = s.when[down], s.what[down]
        i = down
    s.when[i], s.what[i] = time, event
    return int(first)


@compiled
def _offer(s: State, job: int) -> None:
    """One thing less that a job waits for; if it was the last, it may start."""
    s.waits[job] -= 1
    if s.waits[job] == 0:
        s.offers[s.counters[_OFFERED]] = job
        s.counters[_OFFERED] += 1


@compiled
def _complete(w: Work, s: State, place: int, part: int) -> None:
    """All arrivals of a place have come, for one slice."""
    for i in range(w.first_reader[place], w.first_reader[place + 1]):
        _offer(s, part * len(w.source) + w.readers[i])


@compiled
def _happen(w: Work, s: State, now: int) -> None:
    """All that happens at one time: rows freed, messages that have left, and that arrive."""
    hops, jobs, places = len(w.source), len(s.key), len(w.arrivals)
    s.counters[_CLEARED] = 0
    while s.counters[_SIZE] > 0 and s.when[0] == now:
        event = _pop(s)
        if event < w.row_count:
            s.taken[event] = False
            s.freed[s.counters[_CLEARED]] = event
            s.counters[_CLEARED] += 1
        elif event < w.row_count + jobs:
            _offer(s, event - w.row_count + hops)  # the next slice may follow
        else:
            job = event - w.row_count - jobs
            part, place = job // hops, w.target[job % hops]
            s.missing[part * places + place] -= 1
            if s.missing[part * places + place] == 0:
                _complete(w, s, place, part)


@compiled
def _next_of(s: State, row: int, turns: int) -> int:
    """The first that waits for a free row gets a turn."""
    head = s.queue[row]
    if head < 0:
        return turns
    s.queue[row] = _without_root(s.key, s.child, s.sibling, head)
    s.origin[head] = row
    return _merged(s.key, s.child, s.sibling, turns, head)


@compiled
def _start(w: Work, s: State, job: int, now: int) -> None:
    """A job takes its rows."""
    hops = len(w.source)
    hop = job % hops
    for i in range(w.first_row[hop], w.first_row[hop + 1]):
        s.taken[w.rows[i]] = True
        _push(s, now + w.holds[i], w.rows[i])
    if job + hops < len(s.key):
        _push(s, now + w.leaves[hop], w.row_count + job)
    _push(s, now + w.lasts[hop], w.row_count + len(s.key) + job)
    s.counters[_LAST] = max(s.counters[_LAST], now + w.lasts[hop])


@compiled
def _serve(w: Work, s: State, now: int) -> None:
    """Start all that can, the least key first: waiters of freed rows, and who became ready."""
    turns = -1
    for i in range(s.counters[_CLEARED]):
        turns = _next_of(s, s.freed[i], turns)
    for i in range(s.counters[_OFFERED]):
        s.origin[s.offers[i]] = -1
        turns = _merged(s.key, s.child, s.sibling, turns, s.offers[i])
    s.counters[_OFFERED] = 0
    while turns >= 0:
        job = turns
        turns = _without_root(s.key, s.child, s.sibling, turns)
        busy, hop = -1, job % len(w.source)
        for i in range(w.first_row[hop], w.first_row[hop + 1]):
            if s.taken[w.rows[i]]:
                busy = w.rows[i]
                break
        if busy < 0:
            _start(w, s, job, now)
        else:
            s.queue[busy] = _merged(s.key, s.child, s.sibling, s.queue[busy], job)
        row = s.origin[job]
        if row >= 0 and not s.taken[row]:
            turns = _next_of(s, row, turns)


@compiled
def _state(w: Work, slices: int, priority: Ints, stride: int) -> State:
    """Before the first job."""
    hops, places = len(w.source), len(w.arrivals)
    jobs = hops * slices
    key = np.empty(jobs, np.int64)
    waits = np.full(jobs, 2, np.int64)
    waits[:hops] = 1
    for job in range(jobs):
        key[job] = (priority[job % hops] + job // hops * stride) * jobs + job
    missing = np.empty(places * slices, np.int64)
    for part in range(slices):
        missing[part * places : (part + 1) * places] = w.arrivals
    agenda = w.row_count + 2 * jobs + 1
    return State(
        key,
        waits,
        missing,
        np.full(jobs, -1, np.int64),
        np.full(jobs, -1, np.int64),
        np.full(jobs, -1, np.int64),
        np.full(w.row_count, -1, np.int64),
        np.zeros(w.row_count, np.bool_),
        np.empty(agenda, np.int64),
        np.empty(agenda, np.int64),
        np.empty(jobs + 1, np.int64),
        np.empty(w.row_count + 1, np.int64),
        np.zeros(4, np.int64),
    )


@compiled
def makespan(w: Work, slices: int, priority: Ints, stride: int, limit: int) -> int:
    """Ticks until all slices of all hops have arrived; FOREVER once ``limit`` is passed.

    Whoever has the least priority + slice · stride goes first, among those all of whose rows are
    free; ties go by slice, then by hop.
    """
    s = _state(w, slices, priority, stride)
    for place in range(len(w.arrivals)):
        if w.arrivals[place] == 0:
            for part in range(slices):
                _complete(w, s, place, part)
    now = 0
    while True:
        _serve(w, s, now)
        if s.counters[_LAST] > limit:
            return FOREVER
        if s.counters[_SIZE] == 0:
            return int(s.counters[_LAST])
        now = s.when[0]
        _happen(w, s, now)
