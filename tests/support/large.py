"""Schedules of a million transfers, made as columns."""

import numpy as np

from weft.dsl.base.arrays import Ints
from weft.dsl.nouns.collective import Collective, make
from weft.dsl.nouns.schedule import Schedule
from weft.dsl.nouns.topology import Topology, gpu, link

Rows = tuple[Ints, Ints, Ints, int, bool]
"""Chunks, sources, destinations of one step, and whether they are added."""


def schedule(c: Collective, rows: list[Rows]) -> Schedule:
    """The rows, each pair of ranks that they name with a link of its own."""
    chunk, src, dst = (np.concatenate([row[i] for row in rows]) for i in range(3))
    sizes = [len(row[0]) for row in rows]
    step = np.repeat([row[3] for row in rows], sizes)
    reduce = np.repeat([row[4] for row in rows], sizes)
    pairs, route = np.unique(src * c.ranks + dst, return_inverse=True)
    links = [link(int(k) // c.ranks, int(k) % c.ranks, 25, 1) for k in pairs]
    machine = Topology("net", tuple(map(gpu, range(c.ranks))), tuple(links))
    return Schedule.from_columns(
        machine, c, chunk, src, dst, step, reduce, np.ones(len(chunk), np.int64), route.reshape(-1)
    )


def ring_allgather(n: int) -> Schedule:
    """Chunk c goes round the ring from rank c."""
    c = np.arange(n)
    rows = [(c, (c + t) % n, (c + t + 1) % n, t, False) for t in range(n - 1)]
    return schedule(make("allgather", n), rows)


def all_pairs_allreduce(n: int) -> Schedule:
    """Two shots: every rank sums the chunk of its number, then sends it to all."""
    c, r = (x.reshape(-1) for x in np.meshgrid(np.arange(n), np.arange(n), indexing="ij"))
    c, r = c[c != r], r[c != r]
    rows = [(c, r, c, 0, True), (c, c, r, 1, False)]
    return schedule(make("allreduce", n, chunks=n), rows)


def hierarchical_allreduce(nodes: int, g: int) -> Schedule:
    """Rings inside the nodes, rings across them between ranks of one place, and back."""
    n = nodes * g
    c = np.arange(n)
    home, place = c // g, c % g
    rows: list[Rows] = []

    def inside(hop: int, step: int, reduce: bool) -> None:
        for m in range(nodes):
            rows.append((c, m * g + (place + hop) % g, m * g + (place + hop + 1) % g, step, reduce))

    def across(hop: int, step: int, reduce: bool) -> None:
        a, b = (home + hop) % nodes, (home + hop + 1) % nodes
        rows.append((c, a * g + place, b * g + place, step, reduce))

    step = 0
    for move, hops, first, reduce in (
        (inside, g - 1, 1, True),
        (across, nodes - 1, 1, True),
        (across, nodes - 1, 0, False),
        (inside, g - 1, 0, False),
    ):
        for t in range(hops):
            move(first + t, step, reduce)
            step += 1
    return schedule(make("allreduce", n, chunks=n), rows)
