"""The compiled loop that picks far peers; import this lazily."""

from __future__ import annotations

import numpy as np

from weft.dsl.base.jit import Array, compiled

from .kernels import TreeNet


@compiled
def farthest_first(
    net: TreeNet,
    images: Array,
    orbit: Array,
    element_of: Array,
    steps: Array,
    near: Array,
    most: int,
    allowed: Array,
) -> None:
    """Allow further hops while every rank has at most ``most`` peers each way; fills ``allowed``.

    Representatives take turns. Each takes the rank that is farthest by what is allowed, counted in
    hops that are not ``near``; of equals the one by fewest links, then the next by number.
    """
    reps = len(net.sources)
    # peers of one rank of each orbit, each way
    sends, receives = np.zeros(reps, np.int64), np.zeros(reps, np.int64)
    for q in range(len(allowed)):
        if allowed[q]:
            sends[net.cell_source[q]] += 1
            receives[orbit[net.cell_head[q]]] += 1
    # far hops from the representative in turn; refilled for each
    distance = np.empty(net.ranks, np.int64)
    moved = True
    while moved:
        moved = False
        for k in range(reps):
            if sends[k] >= most:
                continue
            _distances(net, images, orbit, element_of, near, allowed, net.sources[k], distance)
            best = -1
            value = (0, 0, 0)  # far hops, then few links, then a near number: the greatest is taken
            for q in range(net.cell_start[k], net.cell_start[k + 1]):
                v = net.cell_head[q]
                if allowed[q] or receives[orbit[v]] >= most:
                    continue
                new = (distance[v], -steps[q], -((v - net.sources[k]) % net.ranks))
                if best < 0 or new > value:
                    best, value = q, new
            if best >= 0 and value[0] > 1:
                allowed[best] = True
                sends[k] += 1
                receives[orbit[net.cell_head[best]]] += 1
                moved = True


@compiled
def _distances(
    net: TreeNet,
    images: Array,
    orbit: Array,
    element_of: Array,
    near: Array,
    allowed: Array,
    root: int,
    distance: Array,
) -> None:
    """Far hops to every rank, ``ranks`` where it is out of reach: level by level."""
    distance[:] = net.ranks
    distance[root] = 0
    # ranks by level: each may enter once only, as its distance falls once
    queue = np.empty(net.ranks, np.int64)
    queue[0] = root
    begin, end, level = 0, 1, 0
    while begin < end:
        at = begin
        while at < end:  # near hops cost nothing: they stay on the level
            end = _extend(net, images, orbit, element_of, near, queue, at, end, level, distance)
            at += 1
        last = end
        for at in range(begin, last):
            end = _extend(
                net, images, orbit, element_of, allowed, queue, at, end, level + 1, distance
            )
        begin, level = last, level + 1


@compiled
def _extend(
    net: TreeNet,
    images: Array,
    orbit: Array,
    element_of: Array,
    usable: Array,
    queue: Array,
    at: int,
    end: int,
    level: int,
    distance: Array,
) -> int:
    """Append the ranks that one of the queue newly reaches by usable hops; the new end."""
    u = queue[at]
    for q in range(net.cell_start[orbit[u]], net.cell_start[orbit[u] + 1]):
        if usable[q]:
            # the cell, moved from the representative to u
            v = images[element_of[u], net.cell_head[q]]
            if distance[v] > level:
                distance[v] = level
                queue[end] = v
                end += 1
    return end
