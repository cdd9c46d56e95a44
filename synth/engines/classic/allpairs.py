"""All-pairs algorithms: every rank sends to all others at once, over one link per pair.

==============================  ======  ============  =======================================
algorithm                       steps   share of M    source
==============================  ======  ============  =======================================
one-shot allreduce              1       1             MSCCL's and TensorRT-LLM's one-shot
two-shot allreduce ("allpairs") 2       2/n           MSCCL's all-pairs
direct allgather                1       1/n           Thakur, Rabenseifner, Gropp 2005
direct reduce_scatter           1       1/n           "
direct gather, scatter          1       1/n           "
two-shot broadcast, reduce      2       2/(n-1)       its scatter-allgather, in a step each
==============================  ======  ============  =======================================

M/B is the time of the whole message on one link. R. Thakur, R. Rabenseifner, W. Gropp:
Optimization of collective communication operations in MPICH, IJHPCA 19 (2005); M. Cowan et al.:
MSCCLang: Microsoft collective communication language, ASPLOS 2023 (all-pairs).
"""

from __future__ import annotations

from fractions import Fraction

from weft.dsl.author.builder import Builder

from .model import HockneyCost
from .parcels import add_whole, blocks_in_order, exchange_sums, runs, send_whole
from .phases import Order, direct_allgather, direct_reduce_scatter, send


def one_shot(p: Builder, order: Order) -> None:
    """Every rank sends its whole buffer to all others and sums the received ones."""
    n, everything = len(order), range(p.chunks)
    exchange_sums(
        p,
        [(order[i], order[(i + k) % n], everything) for k in range(1, n) for i in range(n)],
    )


def two_shot(p: Builder, order: Order) -> None:
    """reduce_scatter, then allgather, each in one step."""
    blocks = runs(p, p.ranks)
    direct_reduce_scatter(p, order, blocks)
    direct_allgather(p, order, blocks)


def allgather(p: Builder, order: Order) -> None:
    """Send each block directly to all ranks."""
    direct_allgather(p, order, blocks_in_order(p, order))


def reduce_scatter(p: Builder, order: Order) -> None:
    """Send each block directly to its owner."""
    direct_reduce_scatter(p, order, blocks_in_order(p, order))


def two_shot_broadcast(p: Builder, order: Order) -> None:
    """The root sends every other rank a piece of its own, which that one sends to the rest.

    A thread block that received and sent on would hold up those that send the same to others.
    """
    root, *others = order
    parts = list(zip(others, runs(p, len(others)), strict=True))
    for rank, piece in parts:
        send_whole(p, root, piece, rank)
    for shift in range(1, len(others)):
        for i, (rank, piece) in enumerate(parts):
            send_whole(p, rank, piece, others[(i + shift) % len(others)])


def two_shot_reduce(p: Builder, order: Order) -> None:
    """The mirror: every rank but the root sums one piece of all others and adds it to the root."""
    root, *others = order
    parts = list(zip(others, runs(p, len(others)), strict=True))
    for shift in range(1, len(others)):
        for i, (rank, piece) in enumerate(parts):
            add_whole(p, others[(i + shift) % len(others)], piece, rank)
    for rank, piece in parts:
        add_whole(p, rank, piece, root)


def per_other(n: int) -> int:
    """A piece for each rank but the root."""
    return max(1, n - 1)


def gather(p: Builder, order: Order) -> None:
    """Send each block directly to the root."""
    for rank, block in list(zip(order, blocks_in_order(p, order), strict=True))[1:]:
        send(p, rank, block, order[0])


def scatter(p: Builder, order: Order) -> None:
    """Send each block directly from the root."""
    for rank, block in list(zip(order, blocks_in_order(p, order), strict=True))[1:]:
        send(p, order[0], block, rank)


def one_shot_cost(n: int, chunks: int = 1) -> HockneyCost:
    """The whole buffer on every link."""
    return HockneyCost(1, Fraction(1))


def two_shot_cost(n: int, chunks: int = 1) -> HockneyCost:
    """Twice a block on every link."""
    return HockneyCost(2, Fraction(2, n))


def rooted_two_shot_cost(n: int, chunks: int = 1) -> HockneyCost:
    """A piece on every link, down and across, where each pair of ranks has one."""
    return HockneyCost(2, Fraction(2, n - 1)) if n > 2 else HockneyCost(1, Fraction(1))


def direct_cost(n: int, chunks: int = 1) -> HockneyCost:
    """A block on every link that is used."""
    return HockneyCost(1, Fraction(1, n))
