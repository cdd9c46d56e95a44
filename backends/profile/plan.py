"""Which echoes tell what: every pair alone first, then those that may be in each other's way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import permutations

from .model import Echo, Flow

SMALL, LARGE = 8, 1 << 20
"""Bytes: almost nothing but α, and almost nothing but β."""

SIZES = (SMALL, 1 << 10, 1 << 13, 1 << 16, 1 << 18, LARGE)
"""Bytes of a pair's messages."""


def pairs(ranks: int, sizes: Sequence[int] = SIZES) -> list[Echo]:
    """Every direction of every pair alone, at every size."""
    return [Echo((flow,), size) for flow in permutations(range(ranks), 2) for size in sizes]


def together(groups: Sequence[Sequence[int]], size: int = LARGE) -> dict[str, Echo]:
    """What may share something, by the name of what it would share.

    The two directions of a pair; what leaves, and what enters, a rank; what leaves and enters a
    group; everybody at once.
    """
    ranks = [rank for group in groups for rank in group]
    found: dict[str, tuple[Flow, ...]] = {}
    if len(ranks) > 1:
        a, b = ranks[0], ranks[1]
        found["both directions"] = ((a, b), (b, a))
    for rank, others in _others(groups):
        if len(others) > 1:
            found[f"out of rank {rank}"] = tuple((rank, other) for other in others[:2])
            found[f"into rank {rank}"] = tuple((other, rank) for other in others[:2])
    for number, group in enumerate(groups):
        outside = [rank for other in groups if other is not group for rank in other]
        if len(group) > 1 and len(outside) > 1:
            cross = tuple(zip(group, _around(outside, number, len(group)), strict=True))
            found[f"out of group {number}"] = cross
            found[f"into group {number}"] = tuple((b, a) for a, b in cross)
    if len(ranks) > 2:
        found["everybody"] = tuple(zip(ranks, [*ranks[1:], ranks[0]], strict=True))
    return {name: Echo(flows, size) for name, flows in found.items()}


def _others(groups: Sequence[Sequence[int]]) -> Iterator[tuple[int, list[int]]]:
    """Every rank with two others, of its own group where there are so many."""
    everybody = [rank for group in groups for rank in group]
    for group in groups:
        for place, rank in enumerate(group):
            near = [*group[place + 1 :], *group[:place]]
            yield rank, near if len(near) > 1 else [r for r in everybody if r != rank]


def _around(ranks: Sequence[int], first: int, count: int) -> list[int]:
    """``count`` of them from a place on, round and round."""
    return [ranks[(first + i) % len(ranks)] for i in range(count)]
