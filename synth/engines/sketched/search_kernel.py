"""Insert chunks one after another; then remove some and insert them again, repeatedly.

Large-neighbourhood search (Shaw 1998): a chunk that ends last and others are removed, and inserted
again in a random order and with random biases, so over other hops. The new plan is kept if its end
is not later, or hardly later, and undone otherwise.
"""

from __future__ import annotations

import heapq
from typing import Any, NamedTuple

import numpy as np

from weft.dsl.base.arrays import Bools, Ints
from weft.dsl.base.jit import compiled

from .place_kernel import (
    BY_ARRIVAL,
    NEVER,
    Come,
    Limits,
    Travel,
    deliver,
    flood,
    gather,
    go,
    undo,
    within,
)
from .timeline_kernel import BusyIntervals, SearchHops, Whole, earliest, reserve


class ChunkJobs(NamedTuple):
    """Chunks to be moved, one array row per chunk (job). Sums have at most one measure, hops."""

    holds: Bools  # (jobs, ranks): the chunk starts there
    wants: Bools  # (jobs, ranks): it must get there
    root: Ints  # rank that forms the sum; -1 for copies
    kind: Ints  # row of allowed, by job
    everywhere: Bools  # by job: every rank holds or wants the chunk
    allowed: Bools  # (kinds, hops)
    length: Ints  # (measures, hops): the length of every hop in each limited measure
    most: Ints  # (measures, jobs, ranks): the longest path to each rank
    up: Ints  # limit on hops up to the root of a sum, which leaves enough for the way down


class Placements(NamedTuple):
    """The transfers of every job: ``hop[j, :length[j]]``, those of a sum first."""

    length: Ints  # transfers of a job
    sums: Ints  # how many of them, the first, are added up; 0 for copies
    hop: Ints  # (jobs, 2 · ranks)
    start: Ints  # (jobs, 2 · ranks): ticks
    end: Ints  # tick at which the last rank that wants the chunk has it
    pivot: Ints  # tick at which the root of a sum has it; of copies of no meaning


class Board(NamedTuple):
    """State of the search: when resources are occupied, the hops, the jobs, and where they
    are placed."""

    busy: BusyIntervals
    hops: SearchHops
    jobs: ChunkJobs
    placed: Placements


def nothing_placed(jobs: int, ranks: int) -> Placements:
    """Room for transfers of ``jobs``."""
    length, sums, end, pivot = np.zeros((4, jobs), np.int64)
    hop, start = np.zeros((2, jobs, 2 * ranks), np.int64)
    return Placements(length, sums, hop, start, end, pivot)


_PIVOTS = 40
"""Moments tried for a sum."""


@compiled
def _sum(board: Board, bias: Ints, j: int, pivot: int, shortest: bool, depth: Ints) -> int:
    """Add a chunk up as early as it goes from ``pivot`` on; when it is done, or -1."""
    busy, hops, jobs, placed = board
    allowed = jobs.allowed[jobs.kind[j]]
    for attempt in range(_PIVOTS):
        made = gather(
            busy,
            hops,
            jobs.root[j],
            pivot,
            allowed,
            bias,
            jobs.up[j],
            shortest,
            placed.hop[j],
            placed.start[j],
            depth,
        )
        if made < 0:
            return -1
        early = 0  # the least start: below 0 the pivot was too early
        for i in range(made):
            early = min(early, placed.start[j, i])
        if early == 0:
            placed.sums[j] = placed.length[j] = made
            return pivot
        undo(busy, hops, placed.hop[j], placed.start[j], made)
        pivot -= early << max(0, attempt - 8)  # patience ends: then it need not be the earliest
    return -1


@compiled
def place(board: Board, bias: Ints, j: int, pivot: int) -> bool:
    """Put a job into the gaps; False if it cannot be done, and then nothing has changed.

    The quickest ways may be too long to be passed on; then the shortest ones are taken.
    """
    for by in range(BY_ARRIVAL, len(board.jobs.length)):
        if _placed_by(board, bias, j, pivot, by):
            return True
    return False


@compiled
def _placed_by(board: Board, bias: Ints, j: int, pivot: int, by: int) -> bool:
    busy, hops, jobs, placed = board
    n = len(hops.out) - 1
    ready, depth = np.full(n, NEVER), np.zeros((len(jobs.length), n), np.int64)  # of this job alone
    allowed = jobs.allowed[jobs.kind[j]]
    way = Travel(allowed, bias, Limits(jobs.length, jobs.most[:, j]), by)
    placed.length[j] = placed.sums[j] = 0
    if jobs.root[j] >= 0:
        up = np.zeros(n, np.int64)
        moment = _sum(board, bias, j, pivot, by >= 0, up)
        if moment < 0:
            return False
        placed.pivot[j] = moment
        ready[jobs.root[j]] = moment
        depth[:, jobs.root[j]] = up.max()  # a sum has come as far as its farthest part
    else:
        for v in range(n):
            if jobs.holds[j, v]:
                ready[v] = 0
    before = placed.length[j]
    hop, start = placed.hop[j, before:], placed.start[j, before:]
    if jobs.everywhere[j]:
        made = flood(busy, hops, Come(ready, depth), way, hop, start)
    else:
        made = deliver(busy, hops, Come(ready, depth), jobs.wants[j], way, hop, start)
    if made < 0:
        undo(busy, hops, placed.hop[j], placed.start[j], before)
        placed.length[j] = 0
        return False
    placed.length[j] += made
    placed.end[j] = 0
    for v in range(n):
        if jobs.wants[j, v]:
            placed.end[j] = max(placed.end[j], ready[v])
    return True


@compiled
def take_out(busy: BusyIntervals, hops: SearchHops, placed: Placements, j: int) -> None:
    """Release the resources of a job; its transfers stay written down."""
    undo(busy, hops, placed.hop[j], placed.start[j], placed.length[j])


@compiled
def put_back(busy: BusyIntervals, hops: SearchHops, placed: Placements, j: int) -> None:
    """Undo :func:`take_out`."""
    for i in range(placed.length[j]):
        reserve(busy, hops, placed.hop[j, i], placed.start[j, i])


@compiled
def biases(hops: int, scale: int) -> Ints:
    """Random preferences among hops, in ticks."""
    found = np.zeros(hops, np.int64)
    if scale > 0:
        for h in range(hops):
            found[h] = np.random.randint(0, scale + 1)
    return found


@compiled
def construct(board: Board, order: Ints, scale: int, seed: int) -> bool:
    """Put all jobs into free resources, in an order; whether all could be."""
    np.random.seed(seed)
    board.busy.used[:] = 0
    bias = biases(len(board.hops.src), scale)
    for j in order:
        if not place(board, bias, j, 0):
            return False
    return True


@compiled
def grow_together(board: Board, scale: int, seed: int) -> bool:
    """Place all chunks at once, for jobs that all ranks want, by earliest arrival.

    Placing one chunk after the other spreads each as fast as possible, over hops that the others
    need; where all ports are always busy, this balances them. Returns True if all were placed.
    """
    busy, hops, jobs, placed = board
    np.random.seed(seed)
    busy.used[:] = 0
    total, n = len(placed.length), len(hops.out) - 1
    bias = biases(len(hops.src), scale)
    ready = np.full((total, n), NEVER)
    depth = np.zeros((total, len(jobs.length), n), np.int64)
    heap: Any = [(np.int64(0), np.int64(0), np.int64(0), np.int64(0))]
    heap.pop()
    left = 0  # pairs of a chunk and a rank that lacks it
    for j in range(total):
        placed.length[j] = placed.sums[j] = placed.end[j] = 0
        for v in range(n):
            if jobs.holds[j, v]:
                ready[j, v] = 0
            else:
                left += 1
    for j in range(total):
        for v in range(n):
            if ready[j, v] == 0:
                _offer_one(heap, board, bias, Come(ready[j], depth[j]), j, v)
    while left and len(heap):
        key, turn, h, j = heapq.heappop(heap)
        u, v = hops.src[h], hops.dst[h]
        if ready[j, v] != NEVER:
            continue
        begin = earliest(busy, hops, h, ready[j, u])
        if begin + hops.arrives[h] + bias[h] > key:
            heapq.heappush(heap, (begin + hops.arrives[h] + bias[h], turn, h, j))
            continue
        reserve(busy, hops, h, begin)
        at = placed.length[j]
        placed.hop[j, at], placed.start[j, at] = h, begin
        placed.length[j] += 1
        ready[j, v] = begin + hops.arrives[h]
        go(Limits(jobs.length, jobs.most[:, j]), depth[j], u, v, h)
        placed.end[j] = max(placed.end[j], ready[j, v])
        left -= 1
        _offer_one(heap, board, bias, Come(ready[j], depth[j]), j, v)
    return left == 0


@compiled
def _offer_one(heap: Any, board: Board, bias: Ints, come: Come, j: Whole, v: Whole) -> None:
    """Put the hops by which chunk j can leave rank v on the heap."""
    busy, hops, jobs, _ = board
    ready, depth = come
    limits = Limits(jobs.length, jobs.most[:, j])
    for i in range(hops.out[v], hops.out[v + 1]):
        h = hops.outs[i]
        w = hops.dst[h]
        if jobs.allowed[jobs.kind[j], h] and ready[w] == NEVER and within(limits, depth, v, w, h):
            arrival = earliest(busy, hops, h, ready[v]) + hops.arrives[h]
            heapq.heappush(heap, (arrival + bias[h], hops.turn[h], np.int64(h), np.int64(j)))


@compiled
def cost(placed: Placements) -> float:
    """The end of all, plus a small share of the other ends, which makes shorter waits better."""
    return float(placed.end.max() + 0.01 * placed.end.mean())


@compiled
def improve(board: Board, turns: int, most_out: int, heat: float, seed: int) -> int:
    """Make ``turns``; ``placed`` ends as the best one seen. Returns how many turns were kept."""
    busy, hops, jobs, placed = board
    np.random.seed(seed)
    total = len(placed.length)
    now = cost(placed)
    best, kept = now, 0
    saved = _copy(placed)  # the best one seen
    old = _copy(placed)  # what this turn took out
    # jobs taken out in a turn
    out = np.zeros(most_out + 1, np.int64)
    for _ in range(turns):
        size = _chosen(placed, out, min(most_out, total))
        for i in range(size):
            take_out(busy, hops, placed, out[i])
            _keep(placed, old, out[i])
        scale = np.random.randint(0, 4)
        bias = biases(len(hops.src), 0 if scale == 0 else placed.end.max() >> (4 * scale))
        made = size
        for i in range(size):
            pivot = 0
            if jobs.root[out[i]] >= 0 and np.random.randint(0, 2):
                pivot = np.random.randint(0, placed.pivot[out[i]] + 1)
            if not place(board, bias, out[i], pivot):
                made = i
                break
        then = cost(placed) if made == size else np.inf
        if then <= now * (1 + heat * np.random.random()):
            now = then
            kept += 1
            if now < best:
                best = now
                for j in range(total):
                    _keep(placed, saved, j)
        else:
            for i in range(made):
                take_out(busy, hops, placed, out[i])
            for i in range(size):
                _keep(old, placed, out[i])
                put_back(busy, hops, placed, out[i])
    for j in range(total):
        _keep(saved, placed, j)
    busy.used[:] = 0
    for j in range(total):
        put_back(busy, hops, placed, j)
    return kept


@compiled
def _chosen(placed: Placements, out: Ints, most: int) -> int:
    """Draw the chunks to take out, in a random order: one that ends last, and others."""
    total = len(placed.length)
    size = np.random.randint(1, most + 1)
    last = placed.end.max()
    late = np.random.randint(0, total)
    for i in range(total):
        j = (late + i) % total
        if placed.end[j] == last:
            out[0] = j
            break
    made = 1
    for _ in range(4 * size):
        j = np.random.randint(0, total)
        new = made < size
        for i in range(made):
            new = new and out[i] != j
        if new:
            out[made] = j
            made += 1
    for i in range(made - 1, 0, -1):
        k = np.random.randint(0, i + 1)
        out[i], out[k] = out[k], out[i]
    return made


@compiled
def _copy(placed: Placements) -> Placements:
    return Placements(
        placed.length.copy(),
        placed.sums.copy(),
        placed.hop.copy(),
        placed.start.copy(),
        placed.end.copy(),
        placed.pivot.copy(),
    )


@compiled
def _keep(source: Placements, target: Placements, j: int) -> None:
    target.length[j], target.sums[j] = source.length[j], source.sums[j]
    target.end[j], target.pivot[j] = source.end[j], source.pivot[j]
    for i in range(source.length[j]):
        target.hop[j, i], target.start[j, i] = source.hop[j, i], source.start[j, i]
