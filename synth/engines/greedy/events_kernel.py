"""Matching at any time: hops of different durations that share resources."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.dsl.base.jit import Array, compiled

from .bits_kernel import FEW, draw, lowest, put

NOW, LEFT, SIZE, STAMP = 0, 1, 2, 3
"""Places of ``clock``: the time, what is still wanted, events in the heap, the turn's number."""


@compiled
def push(when: Array, what: Array, clock: Array, time: int, event: int) -> None:
    """Add an event to the binary heap of (time, event)."""
    i = clock[SIZE]
    clock[SIZE] = i + 1
    while i > 0:
        up = (i - 1) // 2
        if when[up] <= time:
            break
        when[i], what[i] = when[up], what[up]
        i = up
    when[i], what[i] = time, event


@compiled
def pop(when: Array, what: Array, clock: Array) -> Any:
    """Take the earliest event out of the heap."""
    event = what[0]
    size = clock[SIZE] - 1
    clock[SIZE] = size
    time, moved, i = when[size], what[size], 0
    while True:
        down = 2 * i + 1
        if down >= size:
            break
        if down + 1 < size and when[down + 1] < when[down]:
            down += 1
        if when[down] >= time:
            break
        when[i], what[i] = when[down], what[down]
        i = down
    when[i], what[i] = time, moved
    return event


@compiled
def choose(
    hop: int,
    src: Array,
    dst: Array,
    into: tuple[Array, Array],
    ahead: Array,
    have: Array,
    promised: Array,
    count: Array,
    start: int,
    enough: int,
) -> int:
    """The rarest chunk for a hop among the first that are seen; -1 if there is none.

    Chunks that the source of one of the ``ahead[hop]`` quickest hops into the same rank has or is
    promised are left to that one.
    """
    u, v = src[hop], dst[hop]
    words = have.shape[1]
    seen, least, best = 0, FEW, -1
    w = start
    for _ in range(words):
        word = have[u, w] & ~promised[v, w]
        if word != 0:
            for k in range(into[0][v], into[0][v] + ahead[hop]):
                word &= ~promised[src[into[1][k]], w]
        while word != 0:
            bit = w * 64 + lowest(word)
            word &= word - np.uint64(1)
            seen += 1
            if count[bit] < least:
                least, best = count[bit], bit
        if seen >= enough:
            break
        w += 1
        if w == words:
            w = 0
    return best


@compiled
def gather(
    resource_hops: tuple[Array, Array],
    out_hops: tuple[Array, Array],
    have: Array,
    flight: Array,
    free: Array,
    when: Array,
    what: Array,
    clock: Array,
    stamp: Array,
    found: Array,
) -> int:
    """Take all events of the next time; the hops that can be tried because of them."""
    now = when[0]
    clock[NOW] = now
    clock[STAMP] += 1
    resources, many = len(resource_hops[0]) - 1, 0
    while clock[SIZE] > 0 and when[0] == now:
        event = pop(when, what, clock)
        if event < resources:
            table, key = resource_hops, event
        else:
            slot = event - resources
            table, key = out_hops, flight[0, slot]
            put(have, flight[0, slot], flight[1, slot])
            free[0] += 1
            free[free[0]] = slot
        for k in range(table[0][key], table[0][key + 1]):
            hop = table[1][k]
            if stamp[hop] != clock[STAMP]:
                stamp[hop] = clock[STAMP]
                found[many] = hop
                many += 1
    return many


@compiled
def begin(
    hop: int,
    held: tuple[Array, Array, Array],
    until: Array,
    arrives: Array,
    slot: int,
    when: Array,
    what: Array,
    clock: Array,
) -> None:
    """Occupy the resources of a hop; schedule the events of their release and of the arrival."""
    now = clock[NOW]
    for k in range(held[0][hop], held[0][hop + 1]):
        resource, end = held[1][k], now + held[2][k]
        until[resource] = end
        push(when, what, clock, end, resource)
    push(when, what, clock, now + arrives[hop], len(until) + slot)


@compiled
def idle(hop: int, held: tuple[Array, Array, Array], until: Array, now: int) -> bool:
    """Return True if all resources that a hop occupies are free."""
    for k in range(held[0][hop], held[0][hop + 1]):
        if until[held[1][k]] > now:
            return False
    return True


@compiled
def run_events(
    ends: tuple[Array, Array],
    held: tuple[Array, Array, Array],
    arrives: Array,
    into: tuple[Array, Array],
    out_hops: tuple[Array, Array],
    resource_hops: tuple[Array, Array],
    ahead: Array,
    bits: tuple[Array, Array, Array, Array],
    flight: Array,
    free: Array,
    until: Array,
    when: Array,
    what: Array,
    clock: Array,
    rng: Array,
    enough: int,
    stamp: Array,
    found: Array,
    key: Array,
    out: tuple[Array, Array, Array],
) -> int:
    """Turn after turn until the output is full or nothing is left: transfers written.

    A turn: all events of one time are taken, then the hops that they may have made possible are
    tried, those into the ranks that lack most first. ``out``: hop, bit, start.
    """
    have, promised, missing, count = bits
    src, dst = ends
    filled, words = 0, have.shape[1]
    while clock[LEFT] > 0 and clock[SIZE] > 0 and filled + len(until) <= len(out[0]):
        many = gather(resource_hops, out_hops, have, flight, free, when, what, clock, stamp, found)
        for i in range(many):
            key[i] = -missing[dst[found[i]]] * 65536 + draw(rng, 65536)
        for i in np.argsort(key[:many]):
            hop = found[i]
            v = dst[hop]
            if missing[v] == 0 or not idle(hop, held, until, clock[NOW]):
                continue
            start = draw(rng, words)
            bit = choose(hop, src, dst, into, ahead, have, promised, count, start, enough)
            if bit < 0:
                continue
            put(promised, v, bit)
            count[bit] += 1
            missing[v] -= 1
            slot = free[free[0]]
            free[0] -= 1
            flight[0, slot], flight[1, slot] = v, bit
            begin(hop, held, until, arrives, slot, when, what, clock)
            out[0][filled], out[1][filled], out[2][filled] = hop, bit, clock[NOW]
            filled += 1
            clock[LEFT] -= 1
    return filled
