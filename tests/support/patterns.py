"""Schedules from the textbook, as lists of transfers, for feeding the compiler."""

import random
from collections import deque

from weft.dsl.nouns.collective import Collective, custom, make, one_shot_allreduce
from weft.dsl.nouns.schedule import Schedule, Transfer
from weft.dsl.nouns.topology import Topology, gpu, link

DGX1 = [
    (0, 1),
    (0, 2),
    (0, 3),
    (0, 4),
    (1, 2),
    (1, 3),
    (1, 5),
    (2, 3),
    (2, 6),
    (3, 7),
    (4, 5),
    (4, 6),
    (4, 7),
    (5, 6),
    (5, 7),
    (6, 7),
]


def ring(n: int) -> list[tuple[int, int]]:
    return [(r, (r + 1) % n) for r in range(n)]


def both(edges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    return sorted({*edges, *((b, a) for a, b in edges)})


def full(n: int) -> list[tuple[int, int]]:
    return [(a, b) for a in range(n) for b in range(n) if a != b]


def hub(n: int) -> list[tuple[int, int]]:
    return both([(0, r) for r in range(1, n)])


def machine(n: int, edges: list[tuple[int, int]], name: str = "net") -> Topology:
    return Topology(name, tuple(map(gpu, range(n))), tuple(link(a, b, 25, 1) for a, b in edges))


def schedule(
    n: int, edges: list[tuple[int, int]], c: Collective, rows: list[tuple[int, ...]]
) -> Schedule:
    """``rows`` are (chunk, src, dst, step[, reduce])."""
    where = {edge: i for i, edge in enumerate(edges)}
    return Schedule.of(
        machine(n, edges),
        c,
        [Transfer(k, s, d, (where[s, d],), t, any(adds)) for k, s, d, t, *adds in rows],
    )


def ring_allgather(n: int, k: int) -> Schedule:
    rows = [
        (c * k + j, (c + t) % n, (c + t + 1) % n, t)
        for c in range(n)
        for j in range(k)
        for t in range(n - 1)
    ]
    return schedule(n, ring(n), make("allgather", n, chunks=k), rows)


def ring_reduce_scatter(n: int, k: int) -> Schedule:
    return schedule(n, ring(n), make("reduce_scatter", n, chunks=k), _ring_sums(n, k))


def _ring_sums(n: int, k: int) -> list[tuple[int, ...]]:
    return [
        (c * k + j, (c + 1 + t) % n, (c + 2 + t) % n, t, 1)
        for c in range(n)
        for j in range(k)
        for t in range(n - 1)
    ]


def ring_allreduce(n: int, k: int) -> Schedule:
    rows = _ring_sums(n, k)
    rows += [
        (c * k + j, (c + t) % n, (c + t + 1) % n, n - 1 + t)
        for c in range(n)
        for j in range(k)
        for t in range(n - 1)
    ]
    return schedule(n, ring(n), make("allreduce", n, chunks=n * k), rows)


def doubling_allgather(n: int, k: int) -> Schedule:
    rows, step = [], 0
    while 1 << step < n:
        rows += [
            (c * k + j, r, r ^ 1 << step, step)
            for r in range(n)
            for c in range(n)
            if c >> step == r >> step
            for j in range(k)
        ]
        step += 1
    return schedule(n, full(n), make("allgather", n, chunks=k), rows)


def doubling_allreduce(n: int, k: int) -> Schedule:
    """Both ends send and add the same chunk in one step."""
    steps = (n - 1).bit_length()
    rows = [(j, r, r ^ 1 << t, t, 1) for t in range(steps) for r in range(n) for j in range(k)]
    return schedule(n, full(n), make("allreduce", n, chunks=k), rows)


def halving_doubling_allreduce(n: int, k: int) -> Schedule:
    rows, steps = [], (n - 1).bit_length()
    for t in range(steps):
        bit = n >> t + 1
        for r in range(n):
            for c in range(n):
                if c // (2 * bit) == r // (2 * bit) and c & bit != r & bit:
                    rows += [(c * k + j, r, r ^ bit, t, 1) for j in range(k)]
    rows += [(c, d, s, 2 * steps - 1 - t) for c, s, d, t, _ in rows]
    return schedule(n, full(n), make("allreduce", n, chunks=n * k), rows)


def tree(n: int, edges: list[tuple[int, int]], root: int) -> list[tuple[int, int, int]]:
    """(parent, child, depth of the parent), breadth first."""
    depth, rows, queue = {root: 0}, [], deque([root])
    while queue:
        u = queue.popleft()
        for a, b in edges:
            if a == u and b not in depth:
                depth[b] = depth[u] + 1
                rows.append((u, b, depth[u]))
                queue.append(b)
    assert len(depth) == n
    return rows


def tree_broadcast(n: int, edges: list[tuple[int, int]], k: int, root: int = 0) -> Schedule:
    rows = [(j, u, v, d + j) for u, v, d in tree(n, edges, root) for j in range(k)]
    return schedule(n, edges, make("broadcast", n, chunks=k, roots=[root]), rows)


def tree_reduce(n: int, edges: list[tuple[int, int]], k: int, root: int = 0) -> Schedule:
    down = tree(n, edges, root)
    last = max(d for _, _, d in down)
    rows = [(j, v, u, last - d, 1) for u, v, d in down for j in range(k)]
    return schedule(n, edges, make("reduce", n, chunks=k, roots=[root]), rows)


def trees_allgather(n: int, edges: list[tuple[int, int]], k: int) -> Schedule:
    rows = [
        (c * k + j, u, v, d) for c in range(n) for u, v, d in tree(n, edges, c) for j in range(k)
    ]
    return schedule(n, edges, make("allgather", n, chunks=k), rows)


def trees_allreduce(n: int, edges: list[tuple[int, int]], k: int) -> Schedule:
    """Chunk c is reduced to rank c and broadcast from there."""
    rows = []
    for c in range(n):
        down = tree(n, edges, c)
        last = max(d for _, _, d in down)
        for j in range(k):
            rows += [(c * k + j, v, u, last - d, 1) for u, v, d in down]
            rows += [(c * k + j, u, v, n + d) for u, v, d in down]
    return schedule(n, edges, make("allreduce", n, chunks=n * k), rows)


def direct_alltoall(n: int, k: int) -> Schedule:
    rows = [((s * n + d) * k + j, s, d, (d - s) % n - 1) for s, d in full(n) for j in range(k)]
    return schedule(n, full(n), make("alltoall", n, chunks=k), rows)


def routed(kind: str, n: int, edges: list[tuple[int, int]], k: int, **options: object) -> Schedule:
    """Any copying collective: every chunk to everybody who wants it, along a tree."""
    c = make(kind, n, chunks=k, **options)
    start = dict(zip(c.pre.chunks.tolist(), c.pre.ranks.tolist(), strict=True))
    wanted: dict[int, set[int]] = {}
    for rank, chunk in zip(c.post.ranks.tolist(), c.post.chunks.tolist(), strict=True):
        wanted.setdefault(chunk, set()).add(rank)
    rows = []
    for chunk, ranks in wanted.items():
        down = tree(n, edges, start[chunk])
        parent = {v: (u, d) for u, v, d in down}
        needed: set[int] = set()
        for v in ranks:
            while v in parent and v not in needed:
                needed.add(v)
                v = parent[v][0]
        rows += [(chunk, parent[v][0], v, parent[v][1]) for v in needed]
    return schedule(n, edges, c, rows)


def one_shot(n: int, k: int) -> Schedule:
    rows = [(r * k + j, r, v, 0) for r, v in full(n) for j in range(k)]
    return schedule(n, full(n), one_shot_allreduce(n, chunks=k), rows)


def one_shot_ring(n: int, k: int) -> Schedule:
    rows = [
        (c * k + j, (c + t) % n, (c + t + 1) % n, t)
        for c in range(n)
        for j in range(k)
        for t in range(n - 1)
    ]
    return schedule(n, ring(n), one_shot_allreduce(n, chunks=k), rows)


def rotation(n: int) -> Schedule:
    """A custom collective: rank r's two chunks, exchanged, end on rank r + 1."""
    pre = [(r, 2 * r + j, {r}, j) for r in range(n) for j in range(2)]
    post = [((r + 1) % n, 2 * r + j, {r}, 1 - j) for r in range(n) for j in range(2)]
    rows = [(2 * r + j, r, (r + 1) % n, j) for r in range(n) for j in range(2)]
    return schedule(n, ring(n), custom("rotation", n, pre, post), rows)


def random_allreduce(n: int, k: int, seed: int) -> Schedule:
    """Reduction and broadcast along random trees, steps stretched at random."""
    dice, rows, edges = random.Random(seed), [], full(n)
    for c in range(k):
        shuffled = dice.sample(edges, len(edges))
        down = tree(n, shuffled, dice.randrange(n))
        last = max(d for _, _, d in down)
        at, times = 0, []
        for _ in range(2 * last + 2):
            times.append(at)
            at += dice.randint(1, 2)
        rows += [(c, v, u, times[last - d], 1) for u, v, d in down]
        rows += [(c, u, v, times[last + 1 + d]) for u, v, d in down]
    return schedule(n, edges, make("allreduce", n, chunks=k), rows)
