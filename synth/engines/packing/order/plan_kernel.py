"""The run of a packing's hops on its resources by the simulator's rule, to compare orders.

Thousands of orders are compared per second here; the simulator itself times the chosen one
afterwards. A kernel over one memory (:mod:`weft.synth.time.queue_kernel`): a **job** is a
slice of a hop, and a client of the queues. Events are about a resource (it is free), a job (it has
left), or ``-job`` (it has arrived). Times are whole ticks, so that equal times are equal.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from weft.dsl.base.arrays import Ints
from weft.dsl.base.jit import Array, kernel

from ....time.queue_kernel import (
    ARRIVES,
    CHILD,
    CLIENT_COLUMNS,
    EVENT_COLUMNS,
    EVENTS,
    EVENTS_AT,
    HEAD_COLUMNS,
    HEADS,
    HEADS_AT,
    HOLD_BEGIN,
    HOLD_COLUMNS,
    HOLD_END,
    KEY,
    LEAVES,
    LEG,
    LEG_COLUMNS,
    LOOKS,
    NOW,
    PLACE,
    QUEUE,
    QUEUE_COUNTS,
    ROW,
    ROW_COLUMNS,
    SIBLING,
    TICKS,
    TIME,
    add_head,
    next_started,
    pop,
    push,
)

FOREVER = 1 << 62


class SliceWork(NamedTuple):
    """Hops of one slice of the message, with their dependencies and resources."""

    source: Ints  # place that a hop reads, after all arrivals there
    target: Ints  # place at which it makes one arrival
    arrivals: Ints  # by place: how many there are; 0: data is there from the start
    first_reader: Ints  # (places + 1,): of readers, the hops that read place p
    readers: Ints  # hops, by the place that they read
    first_resource: Ints  # (hops + 1,): of resources and holds, those of hop h
    resources: Ints  # resource of each hold, by hop
    holds: Ints  # ticks from the start of the hop for which it is held
    leaves: Ints  # ticks from the start of a hop until all its resources are free
    lasts: Ints  # ticks from the start of a hop to its arrival
    resource_count: int


@kernel
def tails(order: Ints, source: Ints, target: Ints, lasts: Ints, longest: Ints) -> Ints:
    """Return, per hop, the ticks from its start until all hops that depend on it have arrived.

    ``order``: hops by level; ``lasts``: start to arrival; ``longest``: zeros, one per place.
    """
    tail = np.zeros(len(order), np.int64)
    for i in range(len(order) - 1, -1, -1):
        hop = order[i]
        tail[hop] = lasts[hop] + longest[target[hop]]
        longest[source[hop]] = max(longest[source[hop]], tail[hop])
    return tail


@kernel
def memory(w: SliceWork, slices: int, priority: Array, stride: int) -> Array:
    """Resources, legs, holds and jobs at time 0; jobs are slice · hops + hop, in that order."""
    hops, jobs = len(w.source), len(w.source) * slices
    at_holds = QUEUE_COUNTS + w.resource_count * ROW_COLUMNS
    at_legs = at_holds + len(w.resources) * HOLD_COLUMNS
    at_jobs = at_legs + hops * LEG_COLUMNS
    at_heads = at_jobs + jobs * CLIENT_COLUMNS
    at_events = at_heads + (jobs + w.resource_count + 1) * HEAD_COLUMNS
    m = np.zeros(at_events + (2 * jobs + w.resource_count + 1) * EVENT_COLUMNS, np.int64)
    m[HEADS_AT], m[EVENTS_AT] = at_heads, at_events
    for resource in range(QUEUE_COUNTS, at_holds, ROW_COLUMNS):
        m[resource + QUEUE] = -1  # no client waits for it
    for i in range(len(w.resources)):
        m[at_holds + i * HOLD_COLUMNS + ROW] = QUEUE_COUNTS + w.resources[i] * ROW_COLUMNS
        m[at_holds + i * HOLD_COLUMNS + TICKS] = w.holds[i]
    for hop in range(hops):
        leg = at_legs + hop * LEG_COLUMNS
        m[leg + HOLD_BEGIN] = at_holds + w.first_resource[hop] * HOLD_COLUMNS
        m[leg + HOLD_END] = at_holds + w.first_resource[hop + 1] * HOLD_COLUMNS
        m[leg + LEAVES], m[leg + ARRIVES] = w.leaves[hop], w.lasts[hop]
        for part in range(slices):
            job = at_jobs + (part * hops + hop) * CLIENT_COLUMNS
            # ties go by address: slice, then hop
            m[job + KEY], m[job + PLACE] = priority[hop] + part * stride, job
            m[job + CHILD] = m[job + SIBLING] = -1
            m[job + LEG] = leg
    return m


@kernel
def offer(m: Array, jobs_at: int, waits: Array, job: int) -> None:
    """Decrement the dependence count of a job; at zero it may start."""
    waits[job] -= 1
    if waits[job] == 0:
        add_head(m, jobs_at + job * CLIENT_COLUMNS, -1)


@kernel
def complete(w: SliceWork, m: Array, jobs_at: int, waits: Array, place: int, part: int) -> None:
    """Release the readers of a place after its last arrival, for one slice."""
    for i in range(w.first_reader[place], w.first_reader[place + 1]):
        offer(m, jobs_at, waits, part * len(w.source) + w.readers[i])


@kernel
def makespan(
    w: SliceWork,
    slices: int,
    priority: Array,
    stride: int,
    limit: int,
    starts: Array,
    looks: Array,
) -> int:
    """Return the ticks until all slices of all hops have arrived; FOREVER beyond ``limit``.

    The job of least priority + slice · stride goes first, among those all of whose resources
    are free; ties go by slice, then by hop. ``starts``: if not empty, is given the ticks at which
    each job starts; ``looks``: the number of times that a job was looked at.
    """
    hops, places = len(w.source), len(w.arrivals)
    jobs, last = hops * slices, 0
    m = memory(w, slices, priority, stride)
    heap, jobs_at = m[EVENTS_AT], m[HEADS_AT] - jobs * CLIENT_COLUMNS
    waits = np.full(jobs, 2, np.int64)  # for its data, and for the slice before it
    waits[:hops] = 1
    missing = np.empty(places * slices, np.int64)  # arrivals still to come, by slice and place
    for part in range(slices):
        missing[part * places : (part + 1) * places] = w.arrivals
        for place in range(places):
            if w.arrivals[place] == 0:
                complete(w, m, jobs_at, waits, place, part)
    while True:
        while m[HEADS] > 0:
            client = next_started(m)
            if client >= 0:
                leg = m[client + LEG]
                if len(starts) > 0:
                    starts[(client - jobs_at) // CLIENT_COLUMNS] = m[NOW]
                if (client - jobs_at) // CLIENT_COLUMNS + hops < jobs:
                    push(m, m[NOW] + m[leg + LEAVES], client)
                push(m, m[NOW] + m[leg + ARRIVES], -client)
                last = max(last, m[NOW] + m[leg + ARRIVES])
        if last > limit or m[EVENTS] == 0:
            looks[0] = m[LOOKS]
            return last if last <= limit else FOREVER
        m[NOW] = m[heap + TIME]
        while m[EVENTS] > 0 and m[heap + TIME] == m[NOW]:
            what = pop(m)
            if what < 0:
                job = (-what - jobs_at) // CLIENT_COLUMNS
                part, place = job // hops, w.target[job % hops]
                missing[part * places + place] -= 1
                if missing[part * places + place] == 0:
                    complete(w, m, jobs_at, waits, place, part)
            elif what < jobs_at:
                add_head(m, m[what + QUEUE], what)
            else:  # the next slice may follow
                offer(m, jobs_at, waits, (what - jobs_at) // CLIENT_COLUMNS + hops)
