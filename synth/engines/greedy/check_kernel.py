"""Replay of a stream: chunks held per rank, chunks in flight per link, times when links are free.

It shares no code with the kernels that make streams: chunks in flight are kept in one queue per
link, and arrivals at a rank are applied lazily, when its state is read.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.dsl.base.jit import Array, compiled

Number = int | np.int64

FINE, NO_LINK, NO_CHUNK, BACK_IN_TIME, BUSY, NOT_THERE, TWICE = range(7)
"""Fault codes of a transfer; FINE is 0."""


@compiled
def take_in(
    rank: int, now: int, into: tuple[Array, Array], queue: Array, head: Array, held: Array
) -> None:
    """Mark all chunks that have arrived at a rank by now as held.

    ``queue[link]``: (arrival, chunk) of what is on a link, oldest at ``head``; arrival 0: nothing.
    """
    depth = queue.shape[1]  # places of the ring of one link
    for k in range(into[0][rank], into[0][rank + 1]):
        link = into[1][k]
        place = head[link]
        while 0 < queue[link, place, 0] <= now:
            chunk = queue[link, place, 1]
            held[rank, chunk >> 6] |= np.uint64(1) << np.uint64(chunk & 63)
            queue[link, place, 0] = 0
            place = place + 1 if place + 1 < depth else 0
        head[link] = place


@compiled
def has(bits: Array, rank: int, chunk: Number) -> Any:
    """Return True if the bit is set: the rank holds the chunk, or it is in flight to the rank."""
    return (bits[rank, chunk >> 6] >> np.uint64(chunk & 63)) & np.uint64(1) != 0


@compiled
def replay_block(
    block: tuple[Array, Array, Array, Array],
    links: Array,
    into: tuple[Array, Array],
    resources: tuple[Array, Array, Array],
    state: tuple[Array, ...],
    chunks: int,
) -> tuple[int, int]:
    """Replay the transfers of a block: (the wrong one, its fault) or (-1, 0).

    ``block``: as :class:`~.plan.TransferBlock`. ``links``: source, destination, ticks to arrival.
    ``resources``: those that each link occupies, and for how long. ``state``: when resources are
    free, what each rank holds, what it has or will get, queue and head of each link, latest start
    and latest arrival.
    """
    # by step: when, and how many; then of each transfer its hop and chunk
    ticks, counts, hop, chunk = block
    free, held, due, queue, head, last = state  # last: latest start, latest arrival
    i, depth, latest = 0, queue.shape[1], last[1]  # i: the transfer, over all steps of the block
    for step in range(len(ticks)):
        now = ticks[step]
        if now < last[0]:
            return i, BACK_IN_TIME
        last[0] = now
        for _ in range(counts[step]):
            link, one = np.int64(hop[i]), np.int64(chunk[i])
            if link < 0 or link >= links.shape[1]:
                return i, NO_LINK
            if one < 0 or one >= chunks:
                return i, NO_CHUNK
            u, v = links[0, link], links[1, link]
            for k in range(resources[0][link], resources[0][link + 1]):
                if free[resources[1][k]] > now:
                    return i, BUSY
                free[resources[1][k]] = now + resources[2][k]
            if not has(held, u, one):
                take_in(u, now, into, queue, head, held)
                if not has(held, u, one):
                    return i, NOT_THERE
            if has(due, v, one):
                return i, TWICE
            due[v, one >> 6] |= np.uint64(1) << np.uint64(one & 63)
            # from the oldest on: the first place that is free, or whose chunk has arrived
            place = head[link]
            while queue[link, place, 0] > now:
                place = place + 1 if place + 1 < depth else 0
            if queue[link, place, 0] > 0:  # it has arrived: make room
                take_in(v, now, into, queue, head, held)
                place = head[link]
                while queue[link, place, 0] > 0:
                    place = place + 1 if place + 1 < depth else 0
            queue[link, place, 0], queue[link, place, 1] = now + links[2, link], one
            latest = max(latest, now + links[2, link])
            i += 1
    last[1] = latest
    return -1, FINE


@compiled
def lacking(
    into: tuple[Array, Array], queue: Array, head: Array, held: Array, end: int, chunks: int
) -> tuple[int, int, int]:
    """After all has arrived: how many (rank, chunk) are missing, and the first of them."""
    many, first_rank, first_chunk = 0, -1, -1
    for rank in range(len(held)):
        take_in(rank, end, into, queue, head, held)
        for chunk in range(chunks):
            if not has(held, rank, chunk):
                if many == 0:
                    first_rank, first_chunk = rank, chunk
                many += 1
    return many, first_rank, first_chunk
