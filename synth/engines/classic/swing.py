"""Swing: exchanges with partners that alternate sides and stay close on rings and tori.

===============  ==========  =============
algorithm        steps       share of M
===============  ==========  =============
allreduce        2 ⌈log2 n⌉  2(n-1)/n
===============  ==========  =============

In step s, an even rank r exchanges with r + ρ(s), an odd one with r - ρ(s), where ρ(s) is
(1 - (-2)^(s+1)) / 3: 1, -1, 3, -5, 11 …, two thirds of the distances of recursive doubling.
D. De Sensi, T. Bonato, D. Saam, T. Hoefler: Swing: short-cutting rings for higher bandwidth
allreduce, NSDI 2024. Any even number of ranks: where two ways lead to one rank, a block takes the
one that comes first; the reduction uses the same trees backwards.
"""

from __future__ import annotations

from fractions import Fraction

from weft.dsl.author.builder import Builder

from .model import HockneyCost, is_power
from .parcels import chunks_of, exchange_sums, runs, send_packed
from .phases import Order

Hop = tuple[int, int]


def partner(position: int, step: int, n: int) -> int:
    """Return the partner of a position in a step."""
    rho: int = (1 - (-2) ** (step + 1)) // 3
    return (position + (rho if position % 2 == 0 else -rho)) % n


def trees(n: int) -> list[dict[Hop, list[int]]]:
    """For every step of the allgather, (from, to) -> the blocks that go that way.

    The allgather runs the steps from the farthest on; a block goes where it has not been.
    """
    found = []
    have = [{i} for i in range(n)]
    for step in reversed(range((n - 1).bit_length())):
        new: dict[Hop, list[int]] = {}
        for i in range(n):
            j = partner(i, step, n)
            new[i, j] = sorted(have[i] - have[j])
        for (_, j), blocks in new.items():
            have[j] |= set(blocks)
        found.append(new)
    return found


def allreduce(p: Builder, order: Order) -> None:
    """Sum up all trees, then copy down."""
    blocks = runs(p, p.ranks)
    steps = trees(len(order))
    for step in reversed(steps):
        exchange_sums(
            p,
            [(order[j], order[i], chunks_of(blocks, block)) for (i, j), block in step.items()],
        )
    for step in steps:
        for (i, j), block in step.items():
            send_packed(p, order[i], chunks_of(blocks, block), order[j])


def cost(n: int, chunks: int = 1) -> HockneyCost:
    """Halves, quarters … and back."""
    return HockneyCost(2 * (n - 1).bit_length(), Fraction(2 * (n - 1), n), is_power(n))
