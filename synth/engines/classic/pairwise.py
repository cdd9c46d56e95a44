"""Alltoall by direct messages of one block.

==========  ======  ============
algorithm   steps   share of M
==========  ======  ============
pairwise    n-1     (n-1)/n
spread-out  1       (n-1)/n
==========  ======  ============

R. Thakur, R. Rabenseifner, W. Gropp: Optimization of collective communication operations in MPICH,
IJHPCA 19 (2005). The messages are the same. Pairwise, for long messages, exchanges with one partner
after the other (number xor k on a power of two; else to i+k while i-k's arrives); spread-out, for
shorter ones, posts all of them from i+1 on and waits once, so that only one α is paid.
"""

from __future__ import annotations

from fractions import Fraction

from weft.dsl.author.builder import Builder

from .model import HockneyCost
from .phases import Order


def _block(p: Builder, source: int, target: int) -> None:
    factor = p.chunks // p.ranks**2
    number = (source * p.ranks + target) * factor
    p.chunk(source, number, count=factor).copy_to(rank=target)


def pairwise(p: Builder, order: Order) -> None:
    """Round k: exchange with the partner of round k."""
    n = len(order)
    for k in range(n):
        for i in range(n):
            partner = i ^ k if n & (n - 1) == 0 else (i + k) % n
            _block(p, order[i], order[partner])


def spread_out(p: Builder, order: Order) -> None:
    """Every rank sends to all others, beginning with its successor."""
    n = len(order)
    for i in range(n):
        for k in range(n):
            _block(p, order[i], order[(i + k) % n])


def pairwise_cost(n: int, chunks: int = 1) -> HockneyCost:
    """A block in every round; no round needs what another brought."""
    return HockneyCost(n - 1, Fraction(n - 1, n), chained=n == 2)


def spread_out_cost(n: int, chunks: int = 1) -> HockneyCost:
    """All at once, one port."""
    return HockneyCost(1, Fraction(n - 1, n))
