"""Words of 64 bits: the lowest one, random numbers, and the choice of a chunk."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.dsl.base.jit import Array, compiled

Number = int | np.int64

FEW = 1 << 60


@compiled
def lowest(word: np.uint64) -> int:
    """The place of the lowest bit of a word that has one."""
    place = 0
    if word & np.uint64(0xFFFFFFFF) == 0:
        place += 32
        word >>= np.uint64(32)
    if word & np.uint64(0xFFFF) == 0:
        place += 16
        word >>= np.uint64(16)
    if word & np.uint64(0xFF) == 0:
        place += 8
        word >>= np.uint64(8)
    if word & np.uint64(0xF) == 0:
        place += 4
        word >>= np.uint64(4)
    if word & np.uint64(3) == 0:
        place += 2
        word >>= np.uint64(2)
    if word & np.uint64(1) == 0:
        place += 1
    return place


@compiled
def draw(rng: Array, below: int) -> Any:
    """A number 0 … below-1 (below < 2^31) from Marsaglia's xorshift64; ``rng`` is its state."""
    state = rng[0]
    state ^= state << np.uint64(13)
    state ^= state >> np.uint64(7)
    state ^= state << np.uint64(17)
    rng[0] = state
    return np.int64(((state >> np.uint64(32)) * np.uint64(below)) >> np.uint64(32))


@compiled
def rarest(
    have: Array, u: int, promised: Array, v: int, count: Array, start: int, enough: int
) -> int:
    """A chunk that u has and v lacks and is not promised; -1 if there is none.

    Words are looked at from ``start`` on, round the end, until ``enough`` such chunks were seen:
    of these the one that fewest ranks have (rarest first; ``count``). So a choice costs the words
    until something is found, not all of them.
    """
    words = have.shape[1]
    seen, least, best = 0, FEW, -1
    w = start
    for _ in range(words):
        word = have[u, w] & ~promised[v, w]
        while word != 0:
            bit = w * 64 + lowest(word)
            word &= word - np.uint64(1)
            seen += 1
            if count[bit] < least:
                least, best = count[bit], bit
        if seen >= enough:
            break
        w += 1
        if w == words:
            w = 0
    return best


@compiled
def put(bits: Array, row: int, bit: Number) -> None:
    """Set a bit of a row."""
    bits[row, bit >> 6] |= np.uint64(1) << np.uint64(bit & 63)
