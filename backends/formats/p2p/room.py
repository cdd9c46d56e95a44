"""Scratch memory used again: parts that are not needed at the same time get the same place.

Before::

    round 0: s[0] < 7          round 1: s[1] < 7          round 2: s[2] < 7

After (each is added to something in its round, and then done with)::

    round 0: s[0] < 7          round 1: s[0] < 7          round 2: s[0] < 7

Slots that some message or sum names together stay together. Such blocks are placed in the order of
their first use, each as low as it fits among those still in use (first fit, as register allocation
by linear scan does: Poletto and Sarkar, TOPLAS 1999).
"""

from __future__ import annotations

from bisect import insort

import numpy as np

from weft.dsl.base.arrays import Ints


def packed(first: Ints, count: Ints, time: Ints) -> tuple[Ints, int]:
    """New places of the uses of one rank's scratch memory, and its new size.

    Each use is of slots ``first … first + count - 1`` at a time; uses of one time are at once.
    """
    if not len(first):
        return first, 0
    block, base = _blocks(first, count)
    blocks = len(base)
    size = np.zeros(blocks, np.int64)
    np.maximum.at(size, block, first + count - base[block])
    born, dead = np.full(blocks, np.iinfo(np.int64).max), np.full(blocks, -1)
    np.minimum.at(born, block, time)
    np.maximum.at(dead, block, time)
    place = _first_fit(size.tolist(), born.tolist(), dead.tolist())
    moved = np.array(place, np.int64)
    return moved[block] + first - base[block], int((moved + size).max())


def _blocks(first: Ints, count: Ints) -> tuple[Ints, Ints]:
    """The block of each use, and where each block starts: uses that overlap are of one block."""
    order = np.argsort(first, kind="stable")
    reach = np.maximum.accumulate((first + count)[order])
    opens = np.ones(len(order), bool)
    opens[1:] = first[order][1:] >= reach[:-1]
    block = np.empty(len(order), np.int64)
    block[order] = np.cumsum(opens) - 1
    return block, first[order][opens]


def _first_fit(size: list[int], born: list[int], dead: list[int]) -> list[int]:
    place = [0] * len(size)
    used: list[tuple[int, int, int]] = []  # (place, end, last time)
    for block in sorted(range(len(size)), key=lambda b: (born[b], -size[b], b)):
        used = [entry for entry in used if entry[2] >= born[block]]
        at = 0
        for low, high, _ in used:
            if at + size[block] <= low:
                break
            at = max(at, high)
        place[block] = at
        insort(used, (at, at + size[block], dead[block]))
    return place
