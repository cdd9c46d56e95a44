"""PAT, parallel aggregated trees: Bruck's steps backwards, so that most data goes to neighbours.

===============  ==========  ============
algorithm        steps       share of M
===============  ==========  ============
allgather        ⌈log2 n⌉    (n-1)/n
reduce_scatter   ⌈log2 n⌉    (n-1)/n
===============  ==========  ============

S. Jeaugey: PAT: a new algorithm for all-gather and reduce-scatter operations at scale,
arXiv:2506.20252 (NCCL 2.23). Every block has a binomial tree of its own, shifted by its owner's
number; the far hops come first, with one block each, and all trees' messages of one step between
two ranks are one. reduce_scatter runs the trees backwards. ``aggregate`` bounds the blocks of one
message, and with them the buffers: longer ones go in pieces, one after the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from weft.dsl.author.builder import Builder
from weft.dsl.base.errors import UserError

from .model import HockneyCost, is_power
from .parcels import blocks_in_order, chunks_of, exchange_sums, send_packed, settle
from .phases import Order


def _steps(n: int) -> Iterator[tuple[int, list[int]]]:
    """(hop, distances from the owner at which it is made), the far hops first."""
    reach = 1 << ((n - 1).bit_length() - 1) if n > 1 else 0
    while reach:
        yield reach, list(range(0, n - reach, 2 * reach))
        reach //= 2


def allgather(p: Builder, order: Order, aggregate: int = 0) -> None:
    """Down all trees at once."""
    settle(p)
    n, blocks = len(order), blocks_in_order(p, order)
    for hop, distances in _steps(n):
        for part in _split_distances(distances, aggregate):
            for i in range(n):
                chunks = chunks_of(blocks, [(i - j) % n for j in part])
                send_packed(p, order[i], chunks, order[(i + hop) % n])


def reduce_scatter(p: Builder, order: Order, aggregate: int = 0) -> None:
    """Up all trees at once."""
    n, blocks = len(order), blocks_in_order(p, order)
    for hop, distances in reversed(list(_steps(n))):
        for part in _split_distances(distances, aggregate):
            exchange_sums(
                p,
                [
                    (order[(i + hop) % n], order[i], chunks_of(blocks, [(i - j) % n for j in part]))
                    for i in range(n)
                ],
            )


def _split_distances(distances: list[int], aggregate: int) -> list[list[int]]:
    if aggregate < 0:
        raise UserError(
            f"messages of {aggregate} blocks", hint="aggregate: 1, 2 …, 0 for any number"
        )
    size = aggregate or len(distances)
    return [distances[i : i + size] for i in range(0, len(distances), size)]


def cost(n: int, chunks: int = 1, aggregate: int = 0) -> HockneyCost:
    """1, 2, 4 … blocks, fewer where the tree is not full; the pieces of a step need no other."""
    whole = not 0 < aggregate < n // 2
    return HockneyCost((n - 1).bit_length(), Fraction(n - 1, n), is_power(n) and whole)
