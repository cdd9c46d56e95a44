"""All-pairs algorithms: every rank sends to all others at once, over one link per pair.

==============================  ======  ============  =======================================
algorithm                       steps   share of M    source
==============================  ======  ============  =======================================
one-shot allreduce              1       1             MSCCL's and TensorRT-LLM's one-shot
two-shot allreduce ("allpairs") 2       2/n           MSCCL's all-pairs
direct allgather                1       1/n           Thakur, Rabenseifner, Gropp 2005
direct reduce_scatter           1       1/n           "
direct gather, scatter          1       1/n           "
==============================  ======  ============  =======================================

M/B is the time of the whole message on one link. R. Thakur, R. Rabenseifner, W. Gropp:
Optimization of collective communication operations in MPICH, IJHPCA 19 (2005); M. Cowan et al.:
MSCCLang: Microsoft collective communication language, ASPLOS 2023 (all-pairs).
"""

from __future__ import annotations

from fractions import Fraction

from weft.dsl.author.builder import Builder

from .model import HockneyCost
from .parcels import blocks_in_order, exchange_sums, runs
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


def direct_cost(n: int, chunks: int = 1) -> HockneyCost:
    """A block on every link that is used."""
    return HockneyCost(1, Fraction(1, n))
