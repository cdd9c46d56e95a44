"""Matching on a grid: where all links are alike, everybody sends at the same times.

In every step each link carries a chunk that its end lacks and is not promised over another link,
the rarest of those it finds (TACOS, Won et al., MICRO 2024, chooses at random and without
reservation). A step lasts as long as the link is busy. What arrives needs α more, so it can be
sent on ``delay`` steps later: 1 if α is waited for in every step, else 1 + ⌈α / time of a
chunk⌉, and then links never wait for α.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from weft.dsl.base.errors import UserError

from ...fabric.greedy_machine import Machine, grouped
from .block import BLOCK, Block
from .demand import Tables

ENOUGH = 2
"""Chunks that are compared before one is chosen. More than two or three change nothing measurable
(32×32 torus: 257 steps with 1, 2, 8, 64; the bound is 256), and cost time."""


def delays(machine: Machine) -> tuple[tuple[int, int], ...]:
    """(delay, ticks of a step) that make sense on a uniform machine."""
    hold, alpha = int(machine.hold[0]), int(machine.alpha[0])
    if not alpha:
        return ((1, hold),)
    return ((1, hold + alpha), (1 + -(-alpha // hold), hold))


def match_grid(
    machine: Machine,
    bits: Tables,
    delay: int,
    step: int,
    seed: int,
    *,
    enough: int = ENOUGH,
    block: int = BLOCK,
) -> Iterator[Block]:
    """Match until everybody has what it wants; ``bits`` are changed. Yields blocks of whole steps.

    Raises:
        UserError: somebody cannot be reached.
    """
    from .grid_kernel import IDLE, LEFT, STEP, run_steps

    first, link = grouped(machine.dst, machine.ranks)
    source = machine.src[link].astype(np.int32)
    room = max(block, len(link))
    flight = np.zeros((delay, 2, len(link)), np.int32)
    flying = np.zeros(delay, np.int64)
    clock = np.zeros(3, np.int64)
    clock[LEFT] = bits.missing.sum()
    rng = start_of(seed)
    while clock[LEFT]:
        out_link, out_bit = np.empty(room, np.int32), np.empty(room, np.int32)
        counts = np.empty(max(1, room // 16), np.int64)
        begin = int(clock[STEP])
        steps, filled = run_steps(
            first,
            source,
            link,
            bits.have,
            bits.promised,
            bits.missing,
            bits.count,
            flight,
            flying,
            clock,
            rng,
            enough,
            out_link,
            out_bit,
            counts,
        )
        ticks = (begin + np.arange(steps, dtype=np.int64)) * step
        yield Block(ticks, counts[:steps], out_link[:filled], bits.chunk_of[out_bit[:filled]])
        if clock[IDLE] > delay:
            raise stuck(int(clock[LEFT]))


def start_of(seed: int) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    """The state of the kernels' random numbers for a seed: never 0."""
    return np.random.default_rng(seed).integers(1, 1 << 63, 1, np.uint64)


def stuck(left: int) -> UserError:
    """What is said where something cannot be brought where it is wanted."""
    return UserError(
        f"{left} chunks cannot reach ranks that want them",
        hint="check that the machine is connected: weft topo show",
    )
