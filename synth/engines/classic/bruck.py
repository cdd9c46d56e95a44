"""Bruck's algorithms: ⌈log2 n⌉ steps on any number of ranks.

===========  ==========  ===================================================
algorithm    steps       share of M
===========  ==========  ===================================================
allgather    ⌈log2 n⌉    (n-1)/n
alltoall     ⌈log2 n⌉    Σ over bits of (numbers below n with this bit) / n;
                         (1/2) log2 n on a power of two
===========  ==========  ===================================================

J. Bruck, C.-T. Ho, S. Kipnis, E. Upfal, D. Weathersby: Efficient algorithms for all-to-all
communications in multiport message-passing systems, IEEE TPDS 8 (1997).
"""

from __future__ import annotations

from fractions import Fraction

from weft.dsl.author.builder import Builder

from .model import HockneyCost, is_power
from .parcels import make_contiguous, post
from .phases import Order


def allgather(p: Builder, order: Order) -> None:
    """In step k each rank sends all it holds, 2^k blocks from its own on, to the rank 2^k before.

    They lie in scratch in that order, so that every message is one piece; the rotation is at the
    end.
    """
    n, factor = len(order), p.chunks // p.ranks
    for rank in order:
        p.chunk(rank, rank * factor, count=factor).copy_to(buffer="scratch", index=0)
    reach = 1
    while reach < n:
        size = min(reach, n - reach) * factor
        for i in range(n):
            parcel = p.chunk(order[i], 0, count=size, buffer="scratch")
            post(parcel, order[i - reach], "scratch", reach * factor)
        reach *= 2
    for i in range(n):
        for j in range(n):
            p.chunk(order[i], j * factor, count=factor, buffer="scratch").copy_to()


def alltoall(p: Builder, order: Order) -> None:
    """In step k, blocks whose way to go has bit k move on by 2^k, as one message.

    ``at[i][j]`` is the block on member i that has come from, and has to go, so far that both
    together are j; between steps it rests where it landed.
    """
    n, factor = len(order), p.chunks // p.ranks**2

    def number(i: int, j: int, reach: int) -> int:
        source = (i - j % reach) % n  # it has made the hops of the lower bits
        return (order[source] * n + order[(source + j) % n]) * factor

    at = [[p.chunk(order[i], number(i, j, 1), count=factor) for j in range(n)] for i in range(n)]
    reach = 1
    while reach < n:
        parcels = []
        for i in range(n):
            going = [j for _, j in sorted((number(i, j, reach), j) for j in range(n) if j & reach)]
            first, *others = (at[i][j] for j in going)
            parcels.append((make_contiguous(first.group(*others)), going))
        for i, (parcel, going) in enumerate(parcels):
            there = (i + reach) % n
            parts = post(parcel, order[there], "scratch").split(len(going))
            for j, part in zip(going, parts, strict=True):
                at[there][j] = part
        reach *= 2
    for i in range(n):  # at the end: in place, the output is what others were waiting for
        for j in range(n):
            at[i][j].copy_to(buffer="output", index=order[i - j] * factor)


def allgather_cost(n: int, chunks: int = 1) -> HockneyCost:
    """1, 2, 4 … blocks, and what is left in the last step."""
    return HockneyCost((n - 1).bit_length(), Fraction(n - 1, n), is_power(n))


def alltoall_cost(n: int, chunks: int = 1) -> HockneyCost:
    """In each step, the blocks whose distance has its bit."""
    steps = (n - 1).bit_length()
    return HockneyCost(steps, Fraction(sum(j.bit_count() for j in range(n)), n), is_power(n))
