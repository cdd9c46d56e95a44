"""Insert one chunk into the gaps of the resources: a tree that grows by the earliest arrival.

Forward, all allowed hops from the ranks that hold the chunk are candidates; the one of earliest
arrival is taken, and its resources are occupied. Where few ranks want the chunk, only the path to
the nearest of them is taken. Backward, for sums, the root holds the result at a pivot time, and of
the hops into the tree the one that may leave last is taken. ``bias`` is added to compared arrivals.

Paths may be limited in several measures. The path of earliest arrival may then be too long to be
extended: so callers can have paths grow ``by`` one measure instead, the shortest first (Dijkstra
1959); that finds paths to all ranks, where there are any within the limits of that measure.
"""

from __future__ import annotations

import heapq
from typing import Any, NamedTuple

import numpy as np

from weft.dsl.base.arrays import Bools, Ints
from weft.dsl.base.jit import compiled

from .timeline_kernel import BusyIntervals, SearchHops, earliest, latest, release, reserve

NEVER = 1 << 61  # above all ticks, with room to add


class Limits(NamedTuple):
    """Limits on path lengths, in several measures at once."""

    length: Ints  # (measures, hops): of one hop
    most: Ints  # (measures, ranks): of a path from the chunk's start to each rank


BY_ARRIVAL = -1
"""Paths grow by earliest arrival."""


class Travel(NamedTuple):
    """Rules of a chunk's way, and the preferred way."""

    allowed: Bools  # (hops,)
    bias: Ints  # (hops,): ticks that are added to an arrival where arrivals are compared
    limits: Limits
    by: int  # paths grow by this measure, the shortest first; or BY_ARRIVAL


class Come(NamedTuple):
    """Time at which each rank has a chunk, and its depth."""

    ready: Ints  # (ranks,): ticks; NEVER: not yet
    depth: Ints  # (measures, ranks): length of the path to each; valid where it is ready


@compiled
def within(limits: Limits, depth: Ints, u: Any, v: Any, h: Any) -> bool:
    """Return True if a chunk with path length ``depth`` (measures, ranks) at u may go on to v."""
    for k in range(len(limits.most)):
        if depth[k, u] + limits.length[k, h] > limits.most[k, v]:
            return False
    return True


@compiled
def go(limits: Limits, depth: Ints, u: Any, v: Any, h: Any) -> None:
    """Note how far a chunk has come that goes from rank u to v."""
    for k in range(len(limits.most)):
        depth[k, v] = depth[k, u] + limits.length[k, h]


@compiled
def _offer(
    heap: Any, busy: BusyIntervals, hops: SearchHops, v: int, come: Come, way: Travel
) -> None:
    """Put the hops that leave rank v on the heap, by when they would arrive, or by how far."""
    ready, depth = come
    allowed, bias, limits, by = way
    for i in range(hops.out[v], hops.out[v + 1]):
        h = hops.outs[i]
        w = hops.dst[h]
        if allowed[h] and ready[w] == NEVER and within(limits, depth, v, w, h):
            far = np.int64(0) if by < 0 else depth[by, v] + limits.length[by, h]
            arrival = earliest(busy, hops, h, ready[v]) + hops.arrives[h]
            heapq.heappush(heap, (far, arrival + bias[h], hops.turn[h], np.int64(h)))


@compiled
def undo(busy: BusyIntervals, hops: SearchHops, hop: Ints, start: Ints, count: int) -> None:
    """Release transfers."""
    for i in range(count):
        release(busy, hops, hop[i], start[i])


@compiled
def flood(
    busy: BusyIntervals, hops: SearchHops, come: Come, way: Travel, hop: Ints, start: Ints
) -> int:
    """Bring a chunk to all ranks: how many transfers that took, -1 if some cannot be reached.

    ``come`` changes. ``hop`` and ``start`` get the transfers, in an order in which each comes after
    the one that brought the chunk.
    """
    (ready, depth), bias = come, way.bias
    left, done = 0, 0
    # (far, biased arrival, turn, hop); a row tells the compiler the types
    heap = [(np.int64(0), np.int64(0), np.int64(0), np.int64(0))]
    heap.pop()
    for v in range(len(ready)):
        if ready[v] == NEVER:
            left += 1
        else:
            _offer(heap, busy, hops, v, come, way)
    while left and len(heap):
        far, key, turn, h = heapq.heappop(heap)
        u, v = hops.src[h], hops.dst[h]
        if ready[v] != NEVER:
            continue
        begin = earliest(busy, hops, h, ready[u])
        if begin + hops.arrives[h] + bias[h] > key:  # its resources were taken since
            heapq.heappush(heap, (far, begin + hops.arrives[h] + bias[h], turn, h))
            continue
        reserve(busy, hops, h, begin)
        hop[done], start[done] = h, begin
        done += 1
        left -= 1
        ready[v] = begin + hops.arrives[h]
        go(way.limits, depth, u, v, h)
        _offer(heap, busy, hops, v, come, way)
    if left:
        undo(busy, hops, hop, start, done)
        return -1
    return done


@compiled
def deliver(
    busy: BusyIntervals,
    hops: SearchHops,
    come: Come,
    wanted: Bools,
    way: Travel,
    hop: Ints,
    start: Ints,
) -> int:
    """As :func:`flood`, to those that want the chunk: the nearest first, by its quickest way."""
    ready, depth = come
    n, done = len(ready), 0
    # hop by which a rank is reached in this search; -1: it had the chunk
    via = np.empty(n, np.int64)
    while True:
        # of this search; ready and depth change once a rank is chosen
        at, deep = ready.copy(), depth.copy()
        heap = [(np.int64(0), np.int64(0), np.int64(0), np.int64(0))]
        heap.pop()
        left = False
        for v in range(n):
            via[v] = -1
            if ready[v] == NEVER:
                left = left or wanted[v]
            else:
                _offer(heap, busy, hops, v, Come(at, deep), way)
        if not left:
            return done
        reached = -1
        while reached < 0 and len(heap):
            _, _, _, h = heapq.heappop(heap)
            u, v = hops.src[h], hops.dst[h]
            if at[v] != NEVER:
                continue
            at[v] = earliest(busy, hops, h, at[u]) + hops.arrives[h]
            go(way.limits, deep, u, v, h)
            via[v] = h
            if wanted[v]:
                reached = v
            else:
                _offer(heap, busy, hops, v, Come(at, deep), way)
        if reached < 0:
            undo(busy, hops, hop, start, done)
            return -1
        length, v = 0, reached
        while via[v] >= 0:
            length += 1
            v = hops.src[via[v]]
        v = reached
        for i in range(length):
            hop[done + length - 1 - i] = via[v]
            v = hops.src[via[v]]
        for _ in range(length):
            h = hop[done]
            u, v = hops.src[h], hops.dst[h]
            start[done] = earliest(busy, hops, h, ready[u])
            reserve(busy, hops, h, start[done])
            ready[v] = start[done] + hops.arrives[h]
            go(way.limits, depth, u, v, h)
            done += 1


@compiled
def gather(
    busy: BusyIntervals,
    hops: SearchHops,
    root: int,
    pivot: int,
    allowed: Bools,
    bias: Ints,
    most: int,
    shortest: bool,
    hop: Ints,
    start: Ints,
    depth: Ints,
) -> int:
    """Add a chunk of all ranks up at the root until ``pivot``: how many transfers, -1 if some
    cannot reach it. Starts may be negative: then the pivot is too early.

    No more than ``most`` hops; ``shortest``: the ways of fewest hops. ``hop`` and ``start`` get the
    transfers, the last ones first, ``depth`` the hops from each rank to the root.
    """
    n, done = len(hops.out) - 1, 0
    # tick by which a rank must hold the sum that comes through it; NEVER: it sends nothing yet
    due = np.full(n, NEVER)
    depth[root] = 0
    heap = [(np.int64(0), np.int64(0), np.int64(0), np.int64(0))]
    heap.pop()
    due[root] = pivot
    last = root
    while True:
        if depth[last] < most:
            for i in range(hops.into[last], hops.into[last + 1]):
                h = hops.ins[i]
                if allowed[h] and due[hops.src[h]] == NEVER:
                    leaves = latest(busy, hops, h, due[last])
                    far = depth[last] if shortest else np.int64(0)
                    heapq.heappush(heap, (far, bias[h] - leaves, hops.turn[h], np.int64(h)))
        if done == n - 1:
            return done
        found = False
        while len(heap) and not found:
            # key: bias less start, so that the last to leave comes first
            far, key, turn, h = heapq.heappop(heap)
            u, v = hops.src[h], hops.dst[h]
            if due[u] != NEVER:
                continue
            leaves = latest(busy, hops, h, due[v])
            if bias[h] - leaves > key:
                heapq.heappush(heap, (far, bias[h] - leaves, turn, h))
                continue
            reserve(busy, hops, h, leaves)
            hop[done], start[done] = h, leaves
            done += 1
            due[u], depth[u] = leaves, depth[v] + 1
            last, found = u, True
        if not found:
            undo(busy, hops, hop, start, done)
            return -1
