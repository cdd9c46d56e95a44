"""Matching in equal steps, where all links are alike: receiver by receiver, link by link."""

from __future__ import annotations

import numpy as np

from weft.dsl.base.jit import Array, compiled

from .bits_kernel import draw, put, rarest

STEP, LEFT, IDLE = 0, 1, 2
"""Places of ``clock``: the next step, what is still wanted, steps in a row without any transfer."""


@compiled
def run_steps(
    first: Array,
    source: Array,
    link: Array,
    have: Array,
    promised: Array,
    missing: Array,
    count: Array,
    flight: Array,
    flying: Array,
    clock: Array,
    rng: Array,
    enough: int,
    out_link: Array,
    out_bit: Array,
    out_count: Array,
) -> tuple[int, int]:
    """Whole steps until the output is full or nothing is left: (steps, transfers) written.

    ``source[first[v]:first[v+1]]`` and ``link`` are the links into v. What goes in a step can be
    sent on ``len(flying)`` steps later; until then it is in ``flight[k] = (ranks, bits)``.
    ``out_count`` gets the transfers of each step, ``out_link`` and ``out_bit`` what they are.
    """
    steps, filled, delay = 0, 0, len(flying)
    room = len(source)
    while clock[LEFT] > 0 and steps < len(out_count) and filled + room <= len(out_link):
        slot = clock[STEP] % delay
        went = match_all(
            first,
            source,
            link,
            have,
            promised,
            missing,
            count,
            flight[slot],
            rng,
            enough,
            out_link[filled:],
            out_bit[filled:],
        )
        flying[slot] = went
        out_count[steps] = went
        filled += went
        steps += 1
        clock[LEFT] -= went
        clock[STEP] += 1
        clock[IDLE] = 0 if went else clock[IDLE] + 1
        if clock[IDLE] > delay:
            break
        land(have, flight[clock[STEP] % delay], flying[clock[STEP] % delay])
    return steps, filled


@compiled
def match_all(
    first: Array,
    source: Array,
    link: Array,
    have: Array,
    promised: Array,
    missing: Array,
    count: Array,
    flight: Array,
    rng: Array,
    enough: int,
    out_link: Array,
    out_bit: Array,
) -> int:
    """One step: for every rank a chunk over each link into it, if one can be had; how many."""
    words, went = have.shape[1], 0
    for v in range(len(missing)):
        if missing[v] == 0:
            continue
        begin = first[v]
        degree = first[v + 1] - begin
        start, turn = draw(rng, words), draw(rng, degree) if degree else 0
        for j in range(degree):
            e = begin + (j + turn) % degree
            bit = rarest(have, source[e], promised, v, count, start, enough)
            if bit < 0:
                continue
            put(promised, v, bit)
            count[bit] += 1
            missing[v] -= 1
            flight[0, went] = v
            flight[1, went] = bit
            out_link[went] = link[e]
            out_bit[went] = bit
            went += 1
            if missing[v] == 0:
                break
    return went


@compiled
def land(have: Array, flight: Array, many: int) -> None:
    """Mark the chunks in flight as held at their destinations."""
    for i in range(many):
        put(have, flight[0, i], np.int64(flight[1, i]))
