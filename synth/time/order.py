"""The order inside a step: precedence of transfers that compete for a link.

Any order is correct; a good one keeps links busy when steps overlap in time: transfers that others
wait for go first, and ranks start with different peers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from weft.dsl.base.arrays import Ints, Ints32
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.units import BYTES_PER_US_PER_GBPS
from weft.dsl.nouns.schedule import Schedule

from ..base.effort import Effort, setting
from ..base.meter import Meter
from . import folded
from .folded import taken
from .schedule_tables import CostModel
from .schedule_time import simulate, simulation_steps

LARGE = 1 << 30
"""Message size in bytes for which transfers are ordered when none is given."""


@dataclass(frozen=True, slots=True)
class StepOrderEffort(Effort):
    """Limits of the search for an order of transfers; each try is a simulation."""

    random_orders: int = setting(48, "seeded random orders tried, after the fixed rules")
    most_transfers: int = setting(
        20_000, "transfers of a schedule whose orders are tried; larger ones go by urgency alone"
    )
    most_started: int = setting(
        400_000, "slices of transfers of a schedule that is written in the order of its starts"
    )


ORDER_EFFORT = StepOrderEffort()


def hops_to_go(schedule: Schedule) -> Ints32:
    """For each transfer, how many hops its chunk still makes from its destination (the longest
    branch). One backward pass over the steps, O(transfers + ranks · chunks)."""
    ranks = schedule.topology.ranks
    tail = np.zeros(len(schedule), np.int32)
    longest = np.zeros(schedule.collective.chunks * ranks, np.int32)
    there = schedule.chunk.astype(np.int64) * ranks + schedule.dst
    here = schedule.chunk.astype(np.int64) * ranks + schedule.src
    starts = np.searchsorted(schedule.step, np.arange(schedule.steps + 1))
    for step in reversed(range(schedule.steps)):
        rows = slice(int(starts[step]), int(starts[step + 1]))
        tail[rows] = longest[there[rows]]
        # Transfers of one step read the state before it: update after all of them have looked.
        np.maximum.at(longest, here[rows], tail[rows] + 1)
    return tail


def by_urgency(schedule: Schedule) -> Schedule:
    """Within each step: the longest remaining path first, then by the distance (dst - src) mod
    ranks (every rank begins with another peer), then by chunk."""
    ranks = schedule.topology.ranks
    shift = (schedule.dst - schedule.src) % ranks
    return _reordered(schedule, (schedule.chunk, shift, -hops_to_go(schedule), schedule.step))


def arranged(
    schedule: Schedule,
    message_bytes: int,
    seed: int,
    meter: Meter | None = None,
) -> Schedule:
    """Return the schedule in the order that is fastest at a message size, of some dozens tried.

    First come first served has anomalies: where steps overlap in time, an early transfer of a late
    step can hold up a late one of an early step, and ranks that meet at one port make others
    idle. So: the order as given, urgency first, rotations (each rank's k-th peer is k further on),
    then seeded random orders, until one is as quick as the engine's own count. At most
    ``random_orders`` + 5 simulations.
    A schedule that says its own order (``priority``), or has casts, keeps the one it has.
    ``meter`` counts the tries.
    """
    if schedule.planned or len(schedule.casts):
        return schedule
    if len(schedule) > ORDER_EFFORT.most_transfers:
        return by_urgency(schedule)
    goal = counted_us(schedule, message_bytes) * (1 + 1e-9)
    best, time = schedule, simulate(schedule, message_bytes).time_us
    tried = 0
    for other in _orders(schedule, seed, ORDER_EFFORT.random_orders):
        tried += 1
        if time <= goal:
            break
        attempt = simulate(other, message_bytes).time_us
        if attempt < time:
            best, time = other, attempt
    if meter is not None:
        meter.spend(simulation_steps(schedule, tried + 2))
    return best


def in_start_order(schedule: Schedule, message_bytes: int) -> Schedule:
    """Return the schedule with the transfers of each step in the order in which they start.

    Ties go by (dst - src) mod ranks, in large schedules by their old order. A rank's port may be
    given to a later transfer while the receiver of an earlier one is busy; simulators and runtimes
    that take a rank's messages in the order of the file do not, and where all ranks begin with rank
    0 it becomes their bottleneck. In start order nothing has to be passed over.

    The simulated time stays the same without slices: at every instant those that started then
    still find their resources free, and those that were held up still wait for one of them. With
    slices, which start in orders of their own, the order is kept as it was if it was better.
    """
    jobs = len(schedule) * schedule.segments
    if jobs > ORDER_EFFORT.most_started or len(schedule.casts):
        return schedule
    before = simulate(schedule, message_bytes)
    start = before.start_us if schedule.start_us is None else schedule.start_us
    shift = (schedule.dst - schedule.src) % schedule.topology.ranks
    # Images under a symmetry start together and have to stay side by side: see `folded`.
    tie = shift if jobs < folded.MANY else np.zeros_like(shift)
    order = np.lexsort((tie, start, schedule.step))
    if (order[1:] > order[:-1]).all():
        return schedule
    ordered = taken(schedule, order)
    if schedule.start_us is not None and schedule.end_us is not None:
        ordered = replace(ordered, start_us=schedule.start_us[order], end_us=schedule.end_us[order])
    slower = simulate(ordered, message_bytes).time_us > before.time_us
    return schedule if slower else ordered


def counted_us(schedule: Schedule, message_bytes: int) -> float:
    """Time in µs as an engine that thinks in rounds counts it: SCCL's Σ α + rounds · chunk / unit.

    A perfect order takes no longer. Without rounds: the time with a barrier between steps.
    """
    if not schedule.rounds:
        return simulate(schedule, message_bytes, CostModel(barrier=True)).time_us
    topology = schedule.topology
    chunk = message_bytes / schedule.collective.message_chunks
    per_round = chunk / float(topology.round_bandwidth() * BYTES_PER_US_PER_GBPS)
    alpha = np.array([float(x.latency) for x in topology.links])
    sums = np.add.reduceat(alpha[schedule.route_links], schedule.route_start[:-1])
    slowest = np.zeros(schedule.steps)
    np.maximum.at(slowest, schedule.step, sums)
    return float(sum(schedule.rounds) * per_round + slowest.sum())


def mirrored(
    dual: Schedule,
    schedule: Schedule,
    message_bytes: int,
    effort: StepOrderEffort = ORDER_EFFORT,
) -> Schedule:
    """The undone reverse of ``dual``, its transfers ordered as a mirror of dual's run.

    What arrives last in the dual goes first here: run backwards, a good order is a good order.
    A schedule with casts keeps its order.
    """
    if len(schedule.casts):
        return schedule
    if dual.priority is not None:
        return replace(schedule, priority=_mirrored_plan(dual, schedule, message_bytes))
    if len(dual) > effort.most_transfers:
        return by_urgency(schedule)
    arrival = simulate(dual, message_bytes).end_us
    rank = np.empty(len(dual), np.int32)
    rank[np.argsort(-arrival, kind="stable")] = np.arange(len(dual), dtype=np.int32)
    keys = zip(dual.chunk.tolist(), dual.dst.tolist(), dual.src.tolist(), strict=True)
    place = dict(zip(keys, rank.tolist(), strict=True))
    own = zip(schedule.chunk.tolist(), schedule.src.tolist(), schedule.dst.tolist(), strict=True)
    order = np.array([place.get(key, 0) for key in own], np.int32)
    return _reordered(schedule, (order, schedule.step))


def _mirrored_plan(dual: Schedule, schedule: Schedule, message_bytes: int) -> Ints32:
    """The planned order of the undone reverse: the last arrival in the dual's plan is first."""
    ranks = dual.topology.ranks

    def keys(chunk: Ints32, src: Ints32, dst: Ints32) -> Ints:
        return (chunk.astype(np.int64) * ranks + src) * ranks + dst

    turned = keys(dual.chunk, dual.dst, dual.src)
    order = np.argsort(turned, kind="stable")
    own = keys(schedule.chunk, schedule.src, schedule.dst)
    place = order[np.searchsorted(turned[order], own)]
    plan = np.empty(len(own), np.int32)
    arrival = simulate(dual, message_bytes).end_us
    plan[np.argsort(-arrival[place], kind="stable")] = np.arange(len(own), dtype=np.int32)
    return plan


def _orders(schedule: Schedule, seed: int, random: int) -> Iterator[Schedule]:
    yield by_urgency(schedule)
    ranks = schedule.topology.ranks
    shift, late = (schedule.dst - schedule.src) % ranks, -hops_to_go(schedule)
    yield _reordered(schedule, (shift, schedule.step))
    yield _reordered(schedule, (shift, late, schedule.step))
    yield _reordered(schedule, (late, shift, schedule.step))
    rng = np.random.default_rng(seed)
    for _ in range(random):
        shuffled = rng.permutation(len(schedule)).astype(np.int32)
        yield _reordered(schedule, (shuffled, schedule.step))


def _reordered(schedule: Schedule, keys: tuple[Ints32, ...]) -> Schedule:
    """Sorted by the keys, the last one being the most significant (it must be the step)."""
    return taken(schedule, np.lexsort(keys))
