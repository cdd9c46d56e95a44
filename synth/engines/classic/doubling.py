"""Exchanges at doubling or halving distance.

==================================  =============================  ===============================
algorithm                           steps                          share of M
==================================  =============================  ===============================
recursive doubling allgather        log2 n                         (n-1)/n
recursive doubling allreduce        log2 n                         log2 n
halving-doubling allreduce          2 log2 n                       2(n-1)/n
recursive halving reduce_scatter    log2 n                         (n-1)/n
==================================  =============================  ===============================

Of other numbers of ranks, q = 2^⌊log2 n⌋ exchange and each of the n-q others hands its data to one
of them before and gets the result after: two more steps, and the data twice more (of the
reduce_scatter's result: a block). Allgather: powers of two only; Bruck's takes any number.

R. Thakur, R. Rabenseifner, W. Gropp: Optimization of collective communication operations in
MPICH, IJHPCA 19 (2005); R. Rabenseifner: Optimization of collective reduction operations, ICCS
2004 (halving-doubling, with the largest messages at the smallest distance).
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from weft.dsl.author.builder import Builder

from .model import HockneyCost, is_power
from .parcels import (
    add_whole,
    blocks_in_order,
    chunks_of,
    exchange_sums,
    pieces,
    send_packed,
    send_whole,
    settle,
)
from .phases import Blocks, Order


def core(n: int) -> int:
    """The largest power of two up to n."""
    return 1 << (n.bit_length() - 1)


def couples(n: int) -> list[tuple[int, ...]]:
    """Positions in 2^⌊log2 n⌋ groups: the first 2 (n - q) by twos, the others alone."""
    q = core(n)
    extra = n - q
    return [(2 * i, 2 * i + 1) if i < extra else (i + extra,) for i in range(q)]


def fold(p: Builder, order: Order, chunks: Sequence[int]) -> list[int]:
    """Fold the second rank of each pair into the first; return the remaining ranks."""
    members = [[order[i] for i in couple] for couple in couples(len(order))]
    for head, *guests in members:
        for guest in guests:
            add_whole(p, guest, chunks, head)
    return [head for head, *_ in members]


def unfold(p: Builder, order: Order, chunks: Sequence[int]) -> None:
    """Send the result to the ranks that were folded."""
    for head, *guests in couples(len(order)):
        for guest in guests:
            send_whole(p, order[head], chunks, order[guest])


def doubling_allgather(p: Builder, order: Order) -> None:
    """Exchange all held data with a partner, at twice the distance each time."""
    settle(p)
    doubling_phase(p, order, blocks_in_order(p, order))


def doubling_phase(p: Builder, order: Order, blocks: Blocks) -> None:
    """Member i holds block i; a power of two of members."""
    n, reach = len(order), 1
    while reach < n:
        for i in range(n):
            start = i // reach * reach
            chunks = chunks_of(blocks, range(start, start + reach))
            send_packed(p, order[i], chunks, order[i ^ reach])
        reach *= 2


def doubling_allreduce(p: Builder, order: Order) -> None:
    """Exchange all held data and add it."""
    everything = range(p.chunks)
    members = fold(p, order, everything)
    q, reach = len(members), 1
    while reach < q:
        exchange_sums(p, [(members[i], members[i ^ reach], everything) for i in range(q)])
        reach *= 2
    unfold(p, order, everything)


def halving_doubling(p: Builder, order: Order) -> None:
    """Rabenseifner: halve the vector while the distance doubles, then back.

    Neighbours exchange the largest halves; a member ends the first part with the piece of its
    number read backwards in binary.
    """
    members = fold(p, order, range(p.chunks))
    q = len(members)
    part: list[Sequence[int]] = [range(p.chunks)] * q
    taken = []
    reach = 1
    while reach < q:
        taken.append(part)
        halves = [pieces(chunks, 2) for chunks in part]
        for i in range(q):
            add_whole(p, members[i], halves[i][0 if i & reach else 1], members[i ^ reach])
        part = [halves[i][1 if i & reach else 0] for i in range(q)]
        reach *= 2
    while reach > 1:
        reach //= 2
        for i in range(q):
            send_whole(p, members[i], part[i], members[i ^ reach])
        part = taken.pop()
    unfold(p, order, range(p.chunks))


def halving_reduce_scatter(p: Builder, order: Order) -> None:
    """Halve the data with a partner at half the distance, until the own block is left."""
    blocks = blocks_in_order(p, order)
    groups = couples(len(order))
    members = [order[head] for head, *_ in groups]
    exchange_sums(
        p,
        [
            (order[guest], order[head], range(p.chunks))
            for head, *guests in groups
            for guest in guests
        ],
    )
    q = len(members)
    reach = q // 2
    while reach:
        messages = []
        for i in range(q):
            start = (i ^ reach) // reach * reach
            theirs = [
                k for group in groups[start : start + reach] for k in chunks_of(blocks, group)
            ]
            messages.append((members[i], members[i ^ reach], theirs))
        exchange_sums(p, messages)
        reach //= 2
    for head, *guests in groups:
        for guest in guests:
            send_whole(p, order[head], blocks[guest], order[guest])


# --- what they cost -------------------------------------------------------------------------------


def allgather_cost(n: int, chunks: int = 1) -> HockneyCost:
    """1, 2, 4 … blocks."""
    return HockneyCost(core(n).bit_length() - 1, Fraction(n - 1, n))


def doubling_allreduce_cost(n: int, chunks: int = 1) -> HockneyCost:
    """The whole message in every step."""
    steps = core(n).bit_length() - 1 + 2 * (n > core(n))
    return HockneyCost(steps, Fraction(steps), is_power(n))


def halving_doubling_cost(n: int, chunks: int = 1) -> HockneyCost:
    """Halves, quarters … and back; the whole message to fold, and to unfold."""
    q = core(n)
    folds = 2 * (n > q)
    return HockneyCost(2 * (q.bit_length() - 1) + folds, Fraction(2 * (q - 1), q) + folds)


def halving_cost(n: int, chunks: int = 1) -> HockneyCost:
    """Of the members, the first n-q have two blocks each: those halves are the longest way."""
    q = core(n)
    extra = n - q
    blocks, reach, steps = 0, q // 2, 0
    while reach:
        blocks += reach + min(reach, extra)
        reach //= 2
        steps += 1
    if not extra:
        return HockneyCost(steps, Fraction(blocks, n))
    return HockneyCost(steps + 2, 1 + Fraction(blocks + 1, n), chained=False)
