"""List scheduling: a transfer starts once its inputs have arrived and all its resources are free.

A kernel over one memory (:mod:`weft.synth.time.queue_kernel`): a job is a client of the queues, and
its key is its turn. Events are about a resource (it is free) or a job (it has arrived).
"""

from __future__ import annotations

from weft.dsl.base.jit import Array, kernel

from ...time.queue_kernel import (
    ARRIVES,
    CLIENT_COLUMNS,
    EVENTS,
    EVENTS_AT,
    HEADS,
    LEG,
    NOW,
    QUEUE,
    TIME,
    add_head,
    next_started,
    pop,
    push,
)


@kernel
def serve_lists(
    m: Array, first: int, waits: Array, next_first: Array, next_job: Array, start: Array
) -> int:
    """Start every job as early as its turn comes; the time of the last arrival.

    A job is ready when ``waits`` others have arrived (used up); ``next_job[next_first[j]:…]`` wait
    for job j. Of those that are ready the least key goes first; keys differ. ``first``: where jobs
    begin in the memory. ``start`` is filled.
    """
    heap, end = m[EVENTS_AT], 0  # heap: where events begin; end: the last arrival so far
    for job in range(len(waits)):
        if waits[job] == 0:
            add_head(m, first + job * CLIENT_COLUMNS, -1)
    while m[EVENTS] > 0 or m[HEADS] > 0:
        while m[HEADS] > 0:
            client = next_started(m)
            if client >= 0:
                start[(client - first) // CLIENT_COLUMNS] = m[NOW]
                arrival = m[NOW] + m[m[client + LEG] + ARRIVES]
                end = max(end, arrival)
                # an event below first is a resource, from first on an arrival
                push(m, arrival, client)
        if m[EVENTS] > 0:
            m[NOW] = m[heap + TIME]
        while m[EVENTS] > 0 and m[heap + TIME] == m[NOW]:
            what = pop(m)
            if what < first:
                # the resource is free: the first of its queue may look again
                add_head(m, m[what + QUEUE], what)
                continue
            job = (what - first) // CLIENT_COLUMNS
            for k in range(next_first[job], next_first[job + 1]):
                other = next_job[k]
                waits[other] -= 1
                if waits[other] == 0:
                    add_head(m, first + other * CLIENT_COLUMNS, -1)
    return end
