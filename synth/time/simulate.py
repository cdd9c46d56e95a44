"""How long a schedule takes: α–β time over links and shared resources, by one rule.

A transfer **occupies** every link and shared resource of its route from its start, each for
bytes ÷ that resource's own bandwidth (cut-through: all from the same start), and **arrives** when
the slowest of them is done plus the route's α (the sum over its links). α occupies nothing. Its
bytes are those of its chunk: M ÷ (grains of the message) × (grains of the chunk).

* *Ready*: a transfer is ready when its source holds what it sends: when everything that came to
  the source for this chunk in earlier steps has arrived (copies of what was there already do not
  count). Steps order the data, not the clock: nothing waits for a step to end.
* *Served*: first come first served by (ready time, slice, step, position in the schedule); where
  the schedule plans its order, by (priority + slice · stride, slice, position). Whenever something
  is freed or gets ready, waiting transfers are looked at in that order, and each one all of whose
  resources are free starts. A transfer that must wait holds nothing and keeps nobody from
  starting: those behind it may pass. So nothing idles that could work, and ties are settled by
  the schedule's own order.
* *Slices*: with ``segments`` > 1 the pattern is repeated on equal slices of every chunk. Slice k
  of a transfer is ready when its source holds that slice and slice k-1 of the same transfer has
  left; so the slices follow each other through the whole pattern, pipelined.

Sums at the destination and local reductions cost nothing, and an arrival never waits for the
destination (it is buffered, as in the runtimes' FIFOs). Several chunks on one hop in one step are
separate transfers: they queue for the link, their α overlap.

Arithmetic is exact: durations are rationals, brought to one unit, so equal times are equal and the
result does not depend on rounding. Large runs are compiled (:mod:`.prepare`) and count 64-bit ticks
of that unit, or of a coarser one where the whole run does not fit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise

import numpy as np

from weft.dsl.base.arrays import Bools, Floats, Ints, Ints32
from weft.dsl.base.errors import UserError
from weft.dsl.base.units import BYTES_PER_US_PER_GBPS
from weft.dsl.nouns.collective import Collective, Kind
from weft.dsl.nouns.schedule import Schedule
from weft.dsl.nouns.topology import BANDWIDTHS, Topology

from ..judge.replay import replay
from .serve import Jobs, Leg, Served, serve

LARGE = 5_000
"""Of more transfers times slices the event loop is compiled, and ticks have 64 bits."""

_UNIT_BITS = 256  # a finer common unit than 2^-256 µs is not worth its price
_COARSE_UNIT = 1 << 64


@dataclass(frozen=True, slots=True)
class CostModel:
    """The rule above, and the conventions of others.

    Attributes:
        alpha_occupies: the route's α is part of the occupancy of everything on the route, as
            TACOS and TACCL count.
        store_and_forward: a route of several links is passed link by link; a switch sends on
            what it has received whole. Each link is queued for separately.
        overhead_us: added to the occupancy of every message (on every link, where links are
            passed one by one): LogP's o.
        barrier: a step begins when all transfers of all earlier steps have arrived (SCCL's cost
            α·S + β·R, where links are not shared).
    """

    alpha_occupies: bool = False
    store_and_forward: bool = False
    overhead_us: Fraction | float = 0
    barrier: bool = False


@dataclass(frozen=True, eq=False, kw_only=True)
class Timing:
    """How long something takes, and the figures that follow.

    Attributes:
        message_bytes: the message size M.
        time_us: until the end.
        bus_factor: busbw ÷ algbw, as nccl-tests define it.
        bound_us: a lower bound on the time, if one was given.
        exact: whether the rule was followed to the end; false where later parts are taken to cost
            what earlier ones did on average.
    """

    message_bytes: int
    time_us: float
    bus_factor: float
    bound_us: float | None = None
    exact: bool = True

    @property
    def algbw_GBps(self) -> float:
        """M / T in GB/s; infinite where nothing moves."""
        if self.time_us == 0:
            return math.inf
        return self.message_bytes / self.time_us / BYTES_PER_US_PER_GBPS

    @property
    def busbw_GBps(self) -> float:
        """What nccl-tests call bus bandwidth: comparable with a link's, for any rank count."""
        return self.algbw_GBps * self.bus_factor

    @property
    def of_bound(self) -> float | None:
        """Bound ÷ time: 1 is perfect. None without a bound."""
        if self.bound_us is None:
            return None
        return self.bound_us / self.time_us if self.time_us else 1.0


@dataclass(frozen=True, eq=False, kw_only=True)
class Simulation(Timing):
    """What happened when: ``time_us`` is when the last transfer has arrived.

    Attributes:
        start_us, end_us: start of the first and arrival of the last slice of every transfer.
        busy_us: how long each row was occupied: links, then shared resources.
    """

    start_us: Floats
    end_us: Floats
    busy_us: Floats


def simulate(
    schedule: Schedule,
    message_bytes: int,
    model: CostModel | None = None,
    *,
    bound_us: float | None = None,
) -> Simulation:
    """Run a verified schedule for a message of M bytes (see :attr:`Collective.message_chunks`).

    Cost: O(transfers · segments · log), a few µs each. To time one schedule with many sizes,
    slices or orders, :func:`~.prepare.prepare` it once.

    Raises:
        UserError: a size below one byte, or an overhead that is negative or not finite.
    """
    model = model or CostModel()
    if message_bytes < 1:
        raise UserError(f"a message of {message_bytes} bytes cannot be simulated")
    if not 0 <= model.overhead_us < math.inf:
        raise UserError(f"an overhead of {model.overhead_us} µs makes no sense")
    if len(schedule) * schedule.segments > LARGE:
        from .prepare import prepare

        run = prepare(schedule, model).run(message_bytes)
        return Simulation(
            message_bytes=message_bytes,
            time_us=run.time_us,
            start_us=run.start_us,
            end_us=run.end_us,
            busy_us=run.busy_us,
            bus_factor=bus_factor(schedule.collective),
            bound_us=bound_us,
        )
    found = run_in_ticks(schedule, message_bytes, model)
    served, shape = found.served, (schedule.segments, len(schedule))
    start, end = (in_us(t, found.unit).reshape(shape) for t in (served.start, served.end))
    return Simulation(
        message_bytes=message_bytes,
        time_us=float(end.max(initial=0)),
        start_us=start.min(axis=0),
        end_us=end.max(axis=0),
        busy_us=in_us(served.busy, found.unit),
        bus_factor=bus_factor(schedule.collective),
        bound_us=bound_us,
    )


@dataclass(frozen=True, slots=True)
class Ticked:
    """A whole run in ticks: who waited for what, the distinct legs, and what happened.

    ``unit``: ticks in a µs.
    """

    jobs: Jobs
    legs: list[tuple[Leg, ...]]
    served: Served
    unit: int


def run_in_ticks(schedule: Schedule, message_bytes: int, model: CostModel) -> Ticked:
    """Every slice of every transfer, one by one, whatever their number; some 10 µs each."""
    size = Fraction(message_bytes, schedule.collective.message_chunks * schedule.segments)
    ticks = _Ticks.of(schedule.topology, size, Fraction(model.overhead_us))
    legs, route_of = _legs(schedule, ticks, model)
    jobs = _jobs(schedule, model, route_of)
    return Ticked(jobs, legs, serve(jobs, legs, len(ticks.row)), ticks.unit)


def latency_us(schedule: Schedule) -> float:
    """α alone, in µs: the time on the same machine with links that take no time to fill."""
    # One byte on the fastest links there can be takes a trillionth of a µs: rounded away.
    links = tuple(replace(x, bandwidth=BANDWIDTHS[1]) for x in schedule.topology.links)
    machine = replace(schedule.topology, links=links, resources=())
    return round(simulate(replace(schedule, topology=machine, segments=1), 1).time_us, 6)


def bus_factor(collective: Collective) -> float:
    """busbw ÷ algbw (nccl-tests' PERFORMANCE.md): 2(n-1)/n for allreduce, (n-1)/n, or 1."""
    share = (collective.ranks - 1) / collective.ranks
    if collective.kind is Kind.ALLREDUCE:
        return 2 * share
    shared = (Kind.ALLGATHER, Kind.REDUCE_SCATTER, Kind.ALLTOALL, Kind.GATHER, Kind.SCATTER)
    return share if collective.kind in shared else 1.0


def in_us(ticks: Iterable[int], unit: int) -> Floats:
    """Ticks in µs."""
    return np.array([t / unit for t in ticks], np.float64)  # exact integers, rounded once


# --- what each route costs ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Ticks:
    """Costs in ticks: the time of a grain on each row, the α of each link, and o."""

    unit: int
    row: list[int]
    alpha: list[int]
    overhead: int
    shared: dict[int, list[int]]

    @staticmethod
    def of(topology: Topology, size: Fraction, overhead: Fraction) -> _Ticks:
        """For grains of ``size`` bytes. The unit is one over a common denominator, so that all are
        whole."""
        rows = [size / (x * BYTES_PER_US_PER_GBPS) for x in topology.capacities()]
        alphas = [x.latency for x in topology.links]
        unit = math.lcm(*{x.denominator for x in (*rows, *alphas, overhead)})
        if unit.bit_length() > _UNIT_BITS:
            unit = _COARSE_UNIT
        shared: dict[int, list[int]] = {}
        for row, resource in enumerate(topology.resources, len(topology.links)):
            for i in resource.links:
                shared.setdefault(i, []).append(row)
        return _Ticks(
            unit,
            [max(1, round(x * unit)) for x in rows],
            [round(x * unit) for x in alphas],
            round(overhead * unit),
            shared,
        )

    def leg(self, links: tuple[int, ...], grains: int, alpha_occupies: bool) -> Leg:
        """Links that are passed at once. A row that holds two of them is held for both."""
        alpha = sum(self.alpha[i] for i in links)
        fixed = self.overhead + (alpha if alpha_occupies else 0)
        holds: dict[int, int] = {}
        for i in links:
            for row in (i, *self.shared.get(i, ())):
                holds[row] = holds.get(row, fixed) + grains * self.row[row]
        leaves = max(holds.values())
        arrives = leaves + (0 if alpha_occupies else alpha)
        return Leg(tuple(holds), tuple(holds.values()), leaves, arrives)


def _legs(s: Schedule, ticks: _Ticks, model: CostModel) -> tuple[list[tuple[Leg, ...]], list[int]]:
    """For each distinct route and size of a chunk the legs; and which of them each transfer has."""
    index: dict[tuple[tuple[int, ...], int], int] = {}
    starts, links = s.route_start.tolist(), s.route_links.tolist()
    sizes = s.collective.grains[s.chunk].tolist()
    route_of = [
        index.setdefault((tuple(links[a:b]), size), len(index))
        for (a, b), size in zip(pairwise(starts), sizes, strict=True)
    ]
    legs = []
    for route, size in index:
        parts = [(i,) for i in route] if model.store_and_forward else [route]
        legs.append(tuple(ticks.leg(part, size, model.alpha_occupies) for part in parts))
    return legs, route_of


# --- who waits for what ---------------------------------------------------------------------------


def _jobs(s: Schedule, model: CostModel, route_of: list[int]) -> Jobs:
    """One job per slice and transfer, slice by slice; and which arrivals each one waits for."""
    n, k = len(s), s.segments
    step = np.tile(s.step.astype(np.int64), k)
    if model.barrier:
        source = target = np.zeros(n * k, np.int64)
        brings = np.ones(n * k, bool)
    else:
        place = s.chunk.astype(np.int64) * s.topology.ranks
        width = s.collective.chunks * s.topology.ranks
        slices = np.repeat(np.arange(k) * width, n)
        source, target = np.tile(place + s.src, k) + slices, np.tile(place + s.dst, k) + slices
        brings = np.tile(~replay(s).redundant, k)
    jobs = _linked(source, target, step, brings, route_of * k, n)
    return jobs if s.priority is None else replace(jobs, planned=_planned(s.priority, s.stride, k))


def _planned(priority: Ints32, stride: int, slices: int) -> list[int]:
    """The keys of all jobs, by slice and position; ties are settled by the number of the job."""
    keys = priority.astype(np.int64) + stride * np.arange(slices)[:, None]
    planned: list[int] = keys.ravel().tolist()
    return planned


def _linked(
    source: Ints,
    target: Ints,
    step: Ints,
    brings: Bools,
    route_of: list[int],
    stride: int,
) -> Jobs:
    """Number the arrivals of each place by step; each job needs a prefix of those of its source."""
    _, places = np.unique(np.concatenate([source, target]), return_inverse=True)
    source, target = places[: len(source)], places[len(source) :]
    arrivals = np.flatnonzero(brings)
    arrivals = arrivals[np.lexsort((step[arrivals], target[arrivals]))]
    width = int(step.max(initial=0)) + 1
    keys = target[arrivals] * width + step[arrivals]
    begin = np.searchsorted(keys, source * width)
    slot = np.full(len(source), -1, np.int64)
    slot[arrivals] = np.arange(len(arrivals))
    return Jobs(
        route_of,
        stride,
        source.tolist(),
        target.tolist(),
        (np.searchsorted(keys, source * width + step) - begin).tolist(),
        slot.tolist(),
        np.searchsorted(target[arrivals], np.arange(int(places.max(initial=-1)) + 2)).tolist(),
    )
