"""Rings and chains: every rank sends to its successor only.

=====================  ==================  =============  ==============================
algorithm              steps               share of M     source
=====================  ==================  =============  ==============================
ring allgather         n-1                 (n-1)/n        Patarasuk & Yuan 2009
ring reduce_scatter    n-1                 (n-1)/n        "
ring allreduce         2(n-1)              2(n-1)/n       "
ring broadcast         n-2+c               (n-2+c)/c      NCCL: a chain round the ring
chain broadcast        n-2+c               (n-2+c)/c      Pješivac-Grbović et al. 2007
chain reduce           n-2+c               (n-2+c)/c      "
biring allgather       ⌊n/2⌋               (n-1)/2n       both directions of the cables
biring reduce_scatter  ⌊n/2⌋               (n-1)/2n       "
biring allreduce       2⌊n/2⌋              (n-1)/n        "
biring broadcast       n-2+c               (n-2+c)/2c     "
=====================  ==================  =============  ==============================

P. Patarasuk, X. Yuan: Bandwidth optimal all-reduce algorithms for clusters of workstations,
J. Parallel Distrib. Comput. 69 (2009). In the two-way forms ("biring") a block leaves its owner on
both sides and meets itself half-way round; of an even number of ranks, the last one gets one half
from each side. In a chain the best number of chunks c is sqrt((n-2) β M / α): J. Pješivac-Grbović
et al., Performance analysis of MPI collective operations, Cluster Computing 10 (2007).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from fractions import Fraction

from weft.dsl.author.builder import Builder

from .model import HockneyCost
from .parcels import blocks_in_order, pieces, runs
from .phases import Blocks, Order, add, ring_allgather, ring_reduce_scatter, send


def allgather(p: Builder, order: Order) -> None:
    """Every block once round the ring."""
    ring_allgather(p, order, blocks_in_order(p, order))


def reduce_scatter(p: Builder, order: Order) -> None:
    """Every block once round the ring, to its owner."""
    ring_reduce_scatter(p, order, blocks_in_order(p, order))


def allreduce(p: Builder, order: Order) -> None:
    """reduce_scatter, then allgather."""
    blocks = runs(p, p.ranks)
    ring_reduce_scatter(p, order, blocks)
    ring_allgather(p, order, blocks)


def broadcast(p: Builder, order: Order) -> None:
    """Chunk after chunk along the ring, up to the root's predecessor."""
    for k in range(p.chunks):
        pass_on(p, order, [k])


def chain_reduce(p: Builder, order: Order) -> None:
    """Chunk after chunk from the far end to the root, summed on the way."""
    back = order[::-1]
    for k in range(p.chunks):
        for here, there in itertools.pairwise(back):
            add(p, here, [k], there)


def pass_on(p: Builder, order: Order, chunks: Sequence[int]) -> None:
    """Chunks from the first rank to the last."""
    for here, there in itertools.pairwise(order):
        send(p, here, chunks, there)


# --- both directions ------------------------------------------------------------------------------


def _ways(n: int, distance: int, chunks: Sequence[int]) -> list[tuple[int, Sequence[int]]]:
    """(direction, chunks) that cross the hop from ``distance``-1 to ``distance`` off the owner."""
    if 2 * distance == n:
        first, second = pieces(chunks, 2)
        return [(1, first), (-1, second)]
    return [(1, chunks), (-1, chunks)]


def two_way_allgather_phase(p: Builder, order: Order, blocks: Blocks) -> None:
    """Each block leaves its owner on both sides."""
    n = len(order)
    for distance in range(1, n // 2 + 1):
        for i in range(n):
            for way, chunks in _ways(n, distance, blocks[i]):
                here, there = (i + way * (distance - 1)) % n, (i + way * distance) % n
                send(p, order[here], chunks, order[there])


def two_way_reduce_scatter_phase(p: Builder, order: Order, blocks: Blocks) -> None:
    """Each block comes to its owner from both sides: the allgather backwards."""
    n = len(order)
    for distance in range(n // 2, 0, -1):
        for i in range(n):
            for way, chunks in _ways(n, distance, blocks[i]):
                here, there = (i + way * distance) % n, (i + way * (distance - 1)) % n
                add(p, order[here], chunks, order[there])


def two_way_allgather(p: Builder, order: Order) -> None:
    """Every block half-way round on both sides."""
    two_way_allgather_phase(p, order, blocks_in_order(p, order))


def two_way_reduce_scatter(p: Builder, order: Order) -> None:
    """Every block to its owner from both sides."""
    two_way_reduce_scatter_phase(p, order, blocks_in_order(p, order))


def two_way_allreduce(p: Builder, order: Order) -> None:
    """reduce_scatter, then allgather."""
    blocks = runs(p, p.ranks)
    two_way_reduce_scatter_phase(p, order, blocks)
    two_way_allgather_phase(p, order, blocks)


def two_way_broadcast(p: Builder, order: Order) -> None:
    """One half of the chunks round the ring, the other half the other way round."""
    back = [order[0], *reversed(order[1:])]
    for forth, other in zip(*runs(p, 2), strict=True):
        pass_on(p, order, [forth])
        pass_on(p, back, [other])


# --- what they cost -------------------------------------------------------------------------------


def half_cost(n: int, chunks: int = 1) -> HockneyCost:
    """Allgather or reduce_scatter."""
    return HockneyCost(n - 1, Fraction(n - 1, n))


def allreduce_cost(n: int, chunks: int = 1) -> HockneyCost:
    """Both."""
    return HockneyCost(2 * (n - 1), Fraction(2 * (n - 1), n))


def chain_cost(n: int, chunks: int = 1) -> HockneyCost:
    """A pipeline of n-1 hops: the last of c chunks starts after c-1 others."""
    return HockneyCost(n - 2 + chunks, Fraction(n - 2 + chunks, chunks), chained=chunks == 1)


def two_way_half_cost(n: int, chunks: int = 1) -> HockneyCost:
    """Allgather or reduce_scatter on both directions."""
    return HockneyCost(n // 2, Fraction(n - 1, 2 * n), chained=n % 2 == 1)


def two_way_allreduce_cost(n: int, chunks: int = 1) -> HockneyCost:
    """Both."""
    return HockneyCost(2 * (n // 2), Fraction(n - 1, n), chained=n % 2 == 1)


def two_way_chain_cost(n: int, chunks: int = 1) -> HockneyCost:
    """Two pipelines, each with half of the data."""
    return HockneyCost(n - 2 + chunks, Fraction(n - 2 + chunks, 2 * chunks), chained=chunks == 1)


def two_way(n: int) -> str:
    """Two ranks have one cable, not two ways round."""
    return "" if n >= 3 else "it needs at least three ranks: two have one cable"


def halves_if_even(n: int) -> int:
    """The block that meets itself is cut in two."""
    return 2 if n % 2 == 0 else 1


def allreduce_halves(n: int) -> int:
    """A block for each rank, cut in two if it meets itself."""
    return n * halves_if_even(n)
