"""Matching at any time: links of different speed, routes through switches, shared resources.

Whenever something gets free or arrives, the hops that this makes possible are tried, those into the
ranks that lack most first; each takes the rarest chunk that it finds. ``patient``: a slow hop
leaves a chunk alone that the end of it will get over one twice as quick.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from weft.dsl.base.arrays import Ints

from ...fabric.greedy_machine import Machine, grouped
from .block import BLOCK, Block
from .demand import Tables
from .grid import ENOUGH, start_of, stuck


def match_events(
    machine: Machine,
    bits: Tables,
    seed: int,
    *,
    patient: bool = False,
    enough: int = ENOUGH,
    block: int = BLOCK,
) -> Iterator[Block]:
    """Match until everybody has what it wants; ``bits`` are changed.

    Raises:
        UserError: somebody cannot be reached.
    """
    from .events_kernel import LEFT, SIZE, run_events

    m = machine
    left, flights = int(bits.missing.sum()), most_under_way(m, int(bits.missing.sum()))
    into, out_hops = _into(m), grouped(m.src, m.ranks)
    ahead = _ahead(m, into, patient)
    row_first, order = grouped(m.row, m.rows)
    row_hops = (row_first, np.repeat(np.arange(m.hops), np.diff(m.first))[order])
    flight = np.zeros((2, flights), np.int64)
    free = np.arange(flights, -1, -1, dtype=np.int64)  # a stack: its height, then free places
    free[0], free[1:] = flights, np.arange(flights)
    until = np.zeros(m.rows, np.int64)
    when, what = (np.zeros(flights + 2 * m.rows + 1, np.int64) for _ in range(2))
    clock, rng = np.zeros(4, np.int64), start_of(seed)
    what[: m.rows] = np.arange(m.rows)  # at time 0 everything gets free
    clock[SIZE], clock[LEFT] = m.rows, left
    stamp, found, key = (np.zeros(m.hops, np.int64) for _ in range(3))
    while clock[LEFT]:
        hop, bit, start = (np.empty(max(block, m.rows), np.int64) for _ in range(3))
        filled = run_events(
            (m.src, m.dst),
            (m.first, m.row, m.hold),
            m.arrives,
            into,
            out_hops,
            row_hops,
            ahead,
            (bits.have, bits.promised, bits.missing, bits.count),
            flight,
            free,
            until,
            when,
            what,
            clock,
            rng,
            enough,
            stamp,
            found,
            key,
            (hop, bit, start),
        )
        hop, bit, start = hop[:filled], bit[:filled], start[:filled]
        cuts = np.flatnonzero(np.diff(start, prepend=-1))
        counts = np.diff(cuts, append=filled)
        yield Block(start[cuts], counts, hop, bits.chunk_of[bit])
        if clock[LEFT] and not clock[SIZE]:
            raise stuck(int(clock[LEFT]))


def most_under_way(machine: Machine, left: int) -> int:
    """How many chunks can be under way at one time, at most."""
    if not machine.hops:
        return 1
    queue = machine.arrives // machine.hold[machine.first[:-1]] + 2
    return max(1, min(left, int(queue.sum())))


def _into(machine: Machine) -> tuple[Ints, Ints]:
    """The hops into every rank, the quickest first."""
    order = np.lexsort((machine.arrives, machine.dst)).astype(np.int64)
    return grouped(machine.dst, machine.ranks)[0], order


def _ahead(machine: Machine, into: tuple[Ints, Ints], patient: bool) -> Ints:
    """How many hops into the same rank are at least twice as quick as each hop."""
    ahead = np.zeros(machine.hops, np.int64)
    if patient:
        for hop, v in enumerate(machine.dst.tolist()):
            times = machine.arrives[into[1][into[0][v] : into[0][v + 1]]]
            ahead[hop] = np.searchsorted(times * 2, machine.arrives[hop], side="right")
    return ahead
