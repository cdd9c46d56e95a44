"""Matching in the time-expanded network: whenever a link is free it takes the rarest useful chunk.

On a *grid*, where all links are alike, all ranks send at the same times. In every step each link
carries a chunk that its end lacks and is not promised over another link, the rarest of those it
finds (TACOS, Won et al., MICRO 2024, chooses at random and without reservation). A step lasts as
long as the link is busy. What arrives needs α more, so it can be sent on ``delay`` steps later: 1
if α is waited for in every step, else 1 + ⌈α / time of a chunk⌉, and then links never wait for α.

At *any time* (links of different speed, routes through switches, shared resources) the hops that
become possible when something gets free or arrives are tried, those into the ranks that lack most
first. ``patient``: a slow hop leaves a chunk alone that its end will get over one twice as quick.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from weft.dsl.base.arrays import Ints
from weft.dsl.base.errors import UserError

from ...fabric.fabric import grouped
from ...fabric.hop_table import HopTable
from .demand import ChunkDemand, Tables, tables
from .effort import GreedyEffort
from .plan import BLOCK, TransferBlock, TransferPlan, plan_of

COMPARED = GreedyEffort().compared

Attempt = Callable[[], TransferPlan]


def match_events(
    machine: HopTable,
    bits: Tables,
    seed: int,
    *,
    patient: bool = False,
    enough: int = COMPARED,
    block: int = BLOCK,
) -> Iterator[TransferBlock]:
    """Match until every rank has the chunks it wants; ``bits`` are changed.

    Raises:
        UserError: a rank cannot be reached.
    """
    from .kernels import LEFT, SIZE, run_events

    m = machine
    left, flights = int(bits.missing.sum()), 1
    if m.hops:  # an upper bound on the number of chunks in flight at one time
        flights = max(1, min(left, int((m.arrives // m.hold[m.first[:-1]] + 2).sum())))
    quickest = np.lexsort((m.arrives, m.dst)).astype(np.int64)
    into, out_hops = (grouped(m.dst, m.ranks)[0], quickest), grouped(m.src, m.ranks)
    ahead = _ahead(m, into, patient)
    resource_first, order = grouped(m.resource, m.resources)
    resource_hops = (resource_first, np.repeat(np.arange(m.hops), np.diff(m.first))[order])
    flight = np.zeros((2, flights), np.int64)
    free = np.arange(flights, -1, -1, dtype=np.int64)  # a stack: its height, then free places
    free[0], free[1:] = flights, np.arange(flights)
    until = np.zeros(m.resources, np.int64)
    when, what = (np.zeros(flights + 2 * m.resources + 1, np.int64) for _ in range(2))
    clock, rng = np.zeros(4, np.int64), start_of(seed)
    what[: m.resources] = np.arange(m.resources)  # at time 0 everything gets free
    clock[SIZE], clock[LEFT] = m.resources, left
    stamp, found, key = (np.zeros(m.hops, np.int64) for _ in range(3))
    while clock[LEFT]:
        hop, bit, start = (np.empty(max(block, m.resources), np.int64) for _ in range(3))
        filled = run_events(
            (m.src, m.dst),
            (m.first, m.resource, m.hold),
            m.arrives,
            (into[0], m.src[into[1]]),
            out_hops,
            resource_hops,
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
        yield TransferBlock(start[cuts], counts, hop, bits.chunk_of[bit])
        if clock[LEFT] and not clock[SIZE]:
            raise stuck(int(clock[LEFT]))


def _ahead(machine: HopTable, into: tuple[Ints, Ints], patient: bool) -> Ints:
    """Count, for each hop, the hops into the same rank that are at least twice as fast."""
    ahead = np.zeros(machine.hops, np.int64)
    if patient:
        for hop, v in enumerate(machine.dst.tolist()):
            times = machine.arrives[into[1][into[0][v] : into[0][v + 1]]]
            ahead[hop] = np.searchsorted(times * 2, machine.arrives[hop], side="right")
    return ahead


def delays(machine: HopTable) -> tuple[tuple[int, int], ...]:
    """(delay, ticks of a step) that make sense on a uniform machine."""
    hold, alpha = int(machine.hold[0]), int(machine.alpha[0])
    if not alpha:
        return ((1, hold),)
    return ((1, hold + alpha), (1 + -(-alpha // hold), hold))


def match_grid(
    machine: HopTable,
    bits: Tables,
    delay: int,
    step: int,
    seed: int,
    *,
    enough: int = COMPARED,
    block: int = BLOCK,
) -> Iterator[TransferBlock]:
    """Match until all ranks have all they want; ``bits`` are changed. Yields whole steps.

    Raises:
        UserError: a rank cannot be reached.
    """
    from .kernels import IDLE, LEFT, STEP, run_steps

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
            (first, source, link),
            (bits.have, bits.promised, bits.missing, bits.count),
            flight,
            flying,
            clock,
            rng,
            enough,
            (out_link, out_bit, counts),
        )
        ticks = (begin + np.arange(steps, dtype=np.int64)) * step
        yield TransferBlock(
            ticks, counts[:steps], out_link[:filled], bits.chunk_of[out_bit[:filled]]
        )
        if clock[IDLE] > delay:
            raise stuck(int(clock[LEFT]))


def start_of(seed: int) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    """Return the random state of the kernels for a seed: never 0."""
    return np.random.default_rng(seed).integers(1, 1 << 63, 1, np.uint64)


def stuck(left: int) -> UserError:
    """Return the error for chunks that cannot reach the ranks that want them."""
    return UserError(
        f"{left} chunks cannot reach ranks that want them",
        hint="check that the machine is connected: weft topo show",
    )


def attempts(
    machine: HopTable, demand: ChunkDemand, seed: int, compared: int = COMPARED
) -> Iterator[Attempt]:
    """Yield the variants of matching with one seed, the most promising first.

    On uniform machines both grids (α waited for in every step, or never), then any time; where
    links differ, with patience and without.
    """

    def grid(delay: int, step: int) -> TransferPlan:
        bits = tables(demand, seed)
        return plan_of(machine, match_grid(machine, bits, delay, step, seed, enough=compared))

    def events(patient: bool) -> TransferPlan:
        bits = tables(demand, seed)
        blocks = match_events(machine, bits, seed, patient=patient, enough=compared)
        return plan_of(machine, blocks)

    if machine.uniform:
        grids = sorted(delays(machine), key=lambda grid: -grid[0])
        yield from (partial(grid, *one) for one in grids)
        if len(grids) > 1:
            yield partial(events, False)
        return
    yield from (partial(events, patient) for patient in (True, False))
