"""Binomial trees: in every round, each rank that has the data sends to one that lacks it.

==========  ==========  ============
algorithm   steps       share of M
==========  ==========  ============
broadcast   ⌈log2 n⌉    ⌈log2 n⌉
reduce      ⌈log2 n⌉    ⌈log2 n⌉
scatter     ⌈log2 n⌉    (n-1)/n
gather      ⌈log2 n⌉    (n-1)/n
==========  ==========  ============

R. Thakur, R. Rabenseifner, W. Gropp: Optimization of collective communication operations in
MPICH, IJHPCA 19 (2005). Position i hangs below i without its lowest bit; large subtrees first.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from weft.dsl.author.builder import Builder

from .model import HockneyCost, is_power
from .parcels import blocks_in_order, chunks_of, send_packed, send_parcel, send_whole
from .phases import Order, add


def rounds(n: int) -> int:
    """⌈log2 n⌉."""
    return (n - 1).bit_length()


def edges(n: int) -> Iterator[tuple[int, int, int]]:
    """(parent, child, positions below the child with itself) from the root on, round by round."""
    for k in reversed(range(rounds(n))):
        reach = 1 << k
        for parent in range(0, n - reach, 2 * reach):
            child = parent + reach
            yield parent, child, min(reach, n - child)


def broadcast(p: Builder, order: Order) -> None:
    """Everything down the tree."""
    for parent, child, _ in edges(len(order)):
        send_whole(p, order[parent], range(p.chunks), order[child])


def reduce(p: Builder, order: Order) -> None:
    """Everything up the tree, summed at every rank."""
    for parent, child, _ in reversed(list(edges(len(order)))):
        add(p, order[child], range(p.chunks), order[parent])


def scatter(p: Builder, order: Order) -> None:
    """To every child the blocks of all who hang below it."""
    blocks = blocks_in_order(p, order)
    for parent, child, below in edges(len(order)):
        chunks = chunks_of(blocks, range(child, child + below))
        (send_parcel if below > 1 else send_whole)(p, order[parent], chunks, order[child])


def gather(p: Builder, order: Order) -> None:
    """From every child the blocks of all who hang below it."""
    blocks = blocks_in_order(p, order)
    for parent, child, below in reversed(list(edges(len(order)))):
        chunks = chunks_of(blocks, range(child, child + below))
        send_packed(p, order[child], chunks, order[parent])


def whole_cost(n: int, chunks: int = 1) -> HockneyCost:
    """Everything in every round."""
    return HockneyCost(rounds(n), Fraction(rounds(n)), chained=is_power(n))


def blocks_cost(n: int, chunks: int = 1) -> HockneyCost:
    """The root's port carries every block of the others once."""
    return HockneyCost(rounds(n), Fraction(n - 1, n), chained=is_power(n))
