"""Tables of a schedule for its simulation with many sizes, slices, and orders.

Tables that do not depend on these are made once, in arrays: the arrivals that each transfer waits
for, and the resources that each distinct route holds, with grains. Only a few numbers per distinct
route depend on them. The rule is that of :mod:`.schedule_time`. Times are integer ticks of the
common unit of all durations; in the compiled kernel ticks have 64 bits, and if that unit is too
fine for the whole run, a coarser one is used.

>>> from weft.dsl.nouns.collective import make
>>> from weft.dsl.nouns.schedule import Schedule, Transfer
>>> from weft.dsl.nouns.topology import Topology, both_ways, gpu
>>> pair = Topology("pair", (gpu(0), gpu(1)), both_ways(0, 1, 25, "0.7"))
>>> both = [Transfer(r, r, 1 - r, (r,)) for r in range(2)]
>>> ready = prepare(Schedule.of(pair, make("allgather", 2), both))
>>> ready.time(1_000_000), ready.time(1_000_000, segments=4)
(20.7, 20.7)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, replace
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from weft.dsl.base.arrays import AnyArray, Floats, Ints, Ints32, random_words
from weft.dsl.base.jit import fast
from weft.dsl.base.kept import kept
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.unique_rows import rows_of
from weft.dsl.base.units import BYTES_PER_US_PER_GBPS
from weft.dsl.nouns.schedule import Schedule, refuse_casts
from weft.dsl.nouns.topology import Topology

from ..fabric.fabric import Fabric, fabric_of
from . import queue_kernel as q
from . import schedule_kernel as k
from .folded import FoldedSchedule
from .legs import rows_held
from .moves import QueuedRows, moves_of, moves_with

SPARSE = 32
"""Of more places (chunks times ranks) for each transfer, only those that occur are listed."""

_FITS = 60
"""Durations and loads of resources are below 2^60 ticks each; else the unit is a coarser one."""
_COARSE = 58
"""In a coarse unit even all jobs one after the other end before 2^58 ticks."""
_LATEST = 1 << 62
"""No tick of 64 bits is later; a run that gets there is given up."""

_UNIT_BITS = 256  # a finer common unit than 2^-256 µs is not worth its price
_COARSE_UNIT = 1 << 64

MOST_PLAIN = 50_000
"""Slices of transfers of runs that stay in exact ticks, in plain Python, where these do not fit 64
bits."""


def _none() -> Floats:
    return np.zeros(0)


_EVENTS = 1024
"""Messages on their way that there is room for at first."""


@dataclass(frozen=True, slots=True)
class CostModel:
    """The rule of :mod:`.schedule_time`, and the conventions of others."""

    # The route's α is part of the occupancy of everything on the route, as TACOS and TACCL count
    alpha_occupies: bool = False
    # A route of several links is passed link by link; a switch sends on what it has received whole.
    # Each link is queued for separately.
    store_and_forward: bool = False
    # Added to the occupancy of every message (on every link, where links are passed one by one):
    # LogP's o
    overhead_us: Fraction | float = 0
    # A step begins when all transfers of all earlier steps have arrived (SCCL's cost α·S + β·R,
    # where links are not shared)
    barrier: bool = False

    def anchors(self) -> tuple[object, ...]:
        """The values that kept results depend on (:func:`weft.dsl.base.kept.kept`)."""
        return self.alpha_occupies, self.store_and_forward, self.overhead_us, self.barrier


@dataclass(frozen=True, eq=False)
class Served:
    """Result of a run in µs: start of the first and arrival of the last slice of each transfer, the
    time that each resource was held, and the last arrival of all; the first two of each leg of
    casts, too, in the order of ``Casts.links``."""

    time_us: float
    start_us: Floats
    end_us: Floats
    busy_us: Floats
    leg_start_us: Floats = field(default_factory=_none)
    leg_end_us: Floats = field(default_factory=_none)


@dataclass(frozen=True, eq=False)
class TickedRun:
    """A whole run in ticks."""

    unit: int  # ticks in a µs
    words: Any  # the memory of the kernel at the end: a list of Python's integers, or an array
    # The addresses of its tables; rows of transfers are those of what ran
    where: Mapping[str, range]
    legs: QueuedRows | None  # what ran, where some of it is legs of casts

    def column(self, table: str, column: int) -> Any:
        """Return a column of a table, of the type of the memory."""
        at = self.where[table]
        return self.words[at.start + column : at.stop : at.step]

    @property
    def time_us(self) -> float:
        """Return µs until the last arrival: exact integers, rounded once."""
        ends = self.column("transfers", k.END)
        return (
            int(max(ends, default=0) if isinstance(ends, list) else ends.max(initial=0)) / self.unit
        )

    def in_us(self) -> Served:
        """In µs, by transfers, and by legs of casts."""
        columns = (("transfers", k.START), ("transfers", k.END), ("rows", q.BUSY))
        start, end, busy = (ticks_us(self.column(*one), self.unit) for one in columns)
        m = self.legs
        if m is None:
            return Served(self.time_us, start, end, busy)
        of_transfers, of_legs = (start[m.transfers], end[m.transfers]), (start[m.legs], end[m.legs])
        return Served(self.time_us, *of_transfers, busy, *of_legs)


@dataclass(frozen=True, eq=False)
class Routes:
    """The distinct routes with the grains they carry, and their legs."""

    which: Ints  # route of each transfer
    leg_start: Ints  # (routes + 1,): the legs of each route
    link_start: Ints  # (legs + 1,): of links, those of each leg
    links: Ints  # in the order of the route
    row_start: Ints  # (legs + 1,): of rows and weights, those of each leg
    rows: Ints  # resources, as the leg's links come to them; each once a leg
    weights: Ints  # grains for whose time each is held: once for each link that loads it


@dataclass(frozen=True, eq=False)
class Waits:
    """The arrivals that transfers wait for; columns of :mod:`.schedule_kernel` by name."""

    source: Ints  # place that a transfer reads, numbered densely
    target: Ints  # place at which it arrives
    needs: Ints  # arrivals at its source, the first ones, that it waits for
    slot: Ints  # which arrival at its target it is; -1: one that nothing waits for
    slot_start: Ints  # (places + 1,): the arrivals of each place
    reader_start: Ints  # (places + 1,): of readers, those of each place
    readers: Ints  # transfers that wait at their source, those that need least first
    step_start: Ints  # first transfer of each step that has any, and the end; or empty


@dataclass(frozen=True, eq=False)
class QueueTables:
    """Tables of rows that queue for links, without sizes: routes, waits and a cost model.

    ``legs``: the rows, where some of them are legs of casts. ``copies``: of how many equal parts
    this is one (:mod:`.folded`).
    """

    routes: Routes
    waits: Waits
    model: CostModel
    legs: QueuedRows | None = None
    copies: int = 1

    def time_us(self, topology: Topology, grain_bytes: Fraction, slices: int, stride: int) -> float:
        """Return µs until the last arrival, in the planned order of ``legs``, if it has one."""
        costs = self.costs(topology, grain_bytes / slices)
        order = None if self.legs is None else self.legs.priority
        return self.rounded(costs, slices, order, stride).time_us

    def costs(self, topology: Topology, grain: Fraction) -> _Costs:
        """Return the costs of grains of ``grain`` bytes."""
        paces = () if self.legs is None else self.legs.pace
        return _Costs.of(topology, grain, Fraction(self.model.overhead_us), paces)

    def rounded(self, costs: _Costs, slices: int, order: AnyArray | None, stride: int) -> TickedRun:
        """Return a whole compiled run; where exact ticks do not fit, coarser ones are taken."""
        coarse = costs.coarse(self.ends(costs, slices))
        for unit in (costs.unit, coarse) if self.fits(costs, costs.unit, slices) else (coarse,):
            run = self.run(costs, unit, np.int64, slices, order, stride)
            if run is not None:
                return run
        raise AssertionError("a coarse unit always fits")

    def run(
        self,
        costs: _Costs,
        unit: int,
        kind: type,
        slices: int,
        order: AnyArray | None,
        stride: int,
    ) -> TickedRun | None:
        """Run to the end, compiled on integers of 64 bits or plain on Python's (``object``); None
        if that is later than 64 bits."""
        words, where = self.memory(costs, unit, kind, slices, order, stride)
        m: Any = words.tolist() if kind is object else words
        kernel: Any = k if kind is object else fast(k)
        kernel.begin(m)
        while (why := kernel.run(m)) == k.FULL:
            m = q.longer(m)
        return TickedRun(unit, m, where, self.legs) if why == k.ENDED else None

    def ends(self, costs: _Costs, slices: int) -> float:
        """Return µs until all jobs have arrived if they run one after the other."""
        r = self.routes
        if not len(r.which):
            return 0.0
        alpha = np.add.reduceat(costs.alpha[r.links], r.link_start[:-1])
        held = np.maximum.reduceat(costs.row[r.rows] * r.weights, r.row_start[:-1])
        per_route = np.add.reduceat(alpha + held + float(costs.overhead), r.leg_start[:-1])
        return float(per_route[r.which].sum() + sum(costs.paces)) * slices * self.copies

    def fits(self, costs: _Costs, unit: int, slices: int) -> bool:
        """Return True if every duration and the load of every resource fit 64 bits."""
        r = self.routes
        if not len(r.which):
            return float(costs.alpha.max(initial=0)) * unit < 2.0**_FITS
        uses = np.bincount(r.which, minlength=len(r.leg_start) - 1)
        per_leg = np.repeat(uses, np.diff(r.leg_start))
        each = np.repeat(per_leg, np.diff(r.row_start))
        fixed = float(costs.overhead) + (costs.alpha.sum() if self.model.alpha_occupies else 0)
        load = np.bincount(r.rows, each * (r.weights * costs.row[r.rows] + fixed))
        longest = float(costs.alpha.max() * np.diff(r.link_start).max())
        longest = max([longest, *map(float, set(costs.paces))])
        return max(float(load.max()) * slices, longest) * unit < 2.0**_FITS

    def memory(
        self,
        costs: _Costs,
        unit: int,
        kind: type,
        slices: int,
        order: AnyArray | None,
        stride: int,
    ) -> tuple[AnyArray, dict[str, range]]:
        """The memory of the kernel at time 0, in integers of a kind, and where its tables are."""
        r, w = self.routes, self.waits
        n, rows = len(w.source), len(costs.row)
        places, slots = len(w.slot_start) - 1, int(w.slot_start[-1])
        latencies, of_link = costs.latencies
        alphas: AnyArray = np.array([round(x * unit) for x in latencies], kind)[of_link][r.links]
        if len(alphas):
            alphas = np.add.reduceat(alphas, r.link_start[:-1])
        held = costs.held(unit, r, kind) + round(costs.overhead * unit)
        if self.model.alpha_occupies:
            held = held + np.repeat(alphas, np.diff(r.row_start))
        leaves = np.maximum.reduceat(held, r.row_start[:-1]) if len(held) else held
        arrives = leaves if self.model.alpha_occupies else leaves + alphas
        jobs = np.zeros((n * slices, q.CLIENT_COLUMNS), np.int64)
        jobs[:, [q.CHILD, q.SIBLING]] = -1
        beside = n + rows + 2  # at a time one event for each resource and for each transfer
        # At a time a transfer gets ready at most once on each of its legs.
        heads = n * int(np.diff(r.leg_start).max(initial=1)) + rows + 1
        meetings = 0 if self.legs is None else self.legs.meetings
        steps = np.zeros((len(w.step_start), k.STEP_COLUMNS), np.int64)
        if len(steps):
            steps[:, k.FIRST], steps[:-1, k.LEFT] = w.step_start, np.diff(w.step_start) * slices
        tables = {
            "rows": q.idle_rows(rows),
            "transfers": self._transfers(costs, unit, alphas, order, kind),
            "places": np.stack([w.slot_start, w.reader_start], axis=1),
            "readers": w.readers,
            "steps": steps,
            "legs": np.stack([r.row_start[:-1], r.row_start[1:], leaves, arrives], axis=1),
            "holds": np.stack([r.rows, held], axis=1),
            "slots": np.zeros(slots * slices, np.int64),
            "progress": np.zeros(places * slices * k.PROGRESS_COLUMNS, np.int64),
            "meetings": np.zeros(meetings * slices, np.int64),
            "jobs": jobs,
            "heads": np.zeros(heads * q.HEAD_COLUMNS, np.int64),
            "events": np.zeros((beside + _EVENTS) * q.EVENT_COLUMNS, np.int64),
        }
        words, where = q.placed(k.COUNTS, tables, (*q.NAMED, *k.NAMED))
        words[[k.TRANSFERS, k.SLICES, k.PLACES, k.SLOTS]] = n, slices, places, slots
        words[[k.STEPS, k.PLANNED, k.STRIDE]] = len(steps) - 1, int(order is not None), stride
        words[[k.BESIDE, k.LIMIT]] = beside, -1 if kind is object else _LATEST
        words[[k.MEETINGS, k.FIRST_MEETING]] = meetings, places - meetings
        for word, table in k.BEGINS.items():
            words[word] = where[table].start
        return words, where

    def _transfers(
        self, costs: _Costs, unit: int, alphas: AnyArray, order: AnyArray | None, kind: type
    ) -> AnyArray:
        r, w, m = self.routes, self.waits, self.legs
        shape = (len(w.source), k.TRANSFER_COLUMNS)
        rows: AnyArray = np.zeros(shape, np.int64 if m is None else kind)
        rows[:, k.GOES_ON] = k.ARRIVED
        for column, values in (
            (k.FIRST_LEG, r.leg_start[r.which]),
            (k.END_LEG, r.leg_start[r.which + 1]),
            (k.SOURCE, w.source),
            (k.TARGET, w.target),
            (k.NEEDS, w.needs),
            (k.SLOT, w.slot),
            (k.PRIORITY, 0 if order is None else order),
        ):
            rows[:, column] = values
        if len(w.step_start):
            sizes = np.diff(w.step_start)
            rows[:, k.STEP] = np.repeat(np.arange(len(sizes)), sizes)
        if m is not None:
            rows[:, k.JOINS] = m.joins
            # The first byte is at the switch α after the start, or all of them must be.
            goes_on = k.WHOLE if self.model.store_and_forward else alphas[r.leg_start[r.which]]
            rows[:, k.GOES_ON] = np.where(m.feeds, goes_on, k.ARRIVED)
            if costs.paces:
                rows[:, k.PACE] = [round(x * unit) for x in costs.paces]
        return rows


@dataclass(frozen=True, eq=False)
class Prepared:
    """A schedule and its queueing rows, ready for :meth:`time`. Made by :func:`prepare`."""

    schedule: Schedule
    queue: QueueTables

    def time(
        self,
        message_bytes: int,
        *,
        segments: int | None = None,
        priority: npt.ArrayLike | None = None,
        stride: int | None = None,
    ) -> float:
        """µs until the last arrival, for a message of M bytes, compiled; slices, order and stride
        are the schedule's unless given.

        ``priority``: one integer per transfer (not of schedules with casts).
        """
        s = self.schedule
        slices = s.segments if segments is None else segments
        order = self._priority() if priority is None else np.asarray(priority, np.int64)
        step = s.stride if stride is None else stride
        return self.queue.rounded(self._costs(message_bytes, slices), slices, order, step).time_us

    def run(self, message_bytes: int) -> Served:
        """The whole run, compiled. Cost: O(transfers · segments · log), about a µs each, and some
        60 bytes."""
        s, costs = self.schedule, self._costs(message_bytes, self.schedule.segments)
        return self.queue.rounded(costs, s.segments, self._priority(), s.stride).in_us()

    def exact(self, message_bytes: int) -> TickedRun:
        """The whole run in exact ticks: about a µs for each slice of a transfer, and 10 where they
        do not fit 64 bits."""
        s, queue = self.schedule, self.queue
        costs = self._costs(message_bytes, s.segments)
        unit = costs.unit if costs.unit.bit_length() <= _UNIT_BITS else _COARSE_UNIT
        for kind in (np.int64, object) if queue.fits(costs, unit, s.segments) else (object,):
            run = queue.run(costs, unit, kind, s.segments, self._priority(), s.stride)
            if run is not None:
                return run if kind is object else replace(run, words=run.words.tolist())
        raise AssertionError("ticks of any size always fit")

    def longer_us(self, message_bytes: int, levels: Ints, level_us: Fraction) -> float:
        """Return the µs with the α of each link longer by its levels; few slices in exact
        ticks, as :meth:`exact`."""
        s, order = self.schedule, self._priority()
        costs = self._costs(message_bytes, s.segments).longer(levels, level_us)
        small = costs.unit.bit_length() <= _UNIT_BITS and s.moves * s.segments <= MOST_PLAIN
        if small and not self.queue.fits(costs, costs.unit, s.segments):
            run = self.queue.run(costs, costs.unit, object, s.segments, order, s.stride)
            assert run is not None, "ticks of any size always fit"
            return run.time_us
        return self.queue.rounded(costs, s.segments, order, s.stride).time_us

    def _priority(self) -> Ints32 | None:
        s = self.schedule
        return moves_of(s).priority if len(s.casts) else s.priority

    def _costs(self, message_bytes: int, slices: int) -> _Costs:
        s = self.schedule
        grain = Fraction(message_bytes, s.collective.message_chunks * slices)
        return self.queue.costs(s.topology, grain)


def prepare(schedule: Schedule, model: CostModel | None = None) -> Prepared:
    """Make a verified schedule ready to be timed. O(links of all routes · log), in arrays.

    The tables of one schedule are made once.

    Raises:
        UserError: a barrier model and casts.
    """
    model = model or CostModel()
    if model.barrier:
        refuse_casts(schedule, "steps with barriers are of transfers")
    waits = barriers(schedule) if model.barrier else data_waits(schedule)
    routes = routes_of(schedule, model.store_and_forward)
    legs = moves_of(schedule) if len(schedule.casts) else None
    return Prepared(schedule, QueueTables(routes, waits, model, legs))


def prepare_folded(folded: FoldedSchedule, model: CostModel | None = None) -> Prepared:
    """Make the part of a folded schedule ready to be timed: its times are those of the whole."""
    model, part = model or CostModel(), folded.part
    waits = barriers(part) if model.barrier else waits_of(moves_with(part, folded.redundant))
    routes = routes_of(part, model.store_and_forward)
    routes = replace(routes, rows=folded.first_row[routes.rows])
    return Prepared(part, QueueTables(routes, waits, model, copies=folded.copies))


def ticks_us(ticks: Any, unit: int) -> Floats:
    """Ticks in µs: integers of any size rounded once, those of 64 bits as floats."""
    if isinstance(ticks, np.ndarray) and ticks.dtype != object:
        return np.asarray(ticks / np.float64(unit))
    return np.array([t / unit for t in ticks], np.float64)


# --- costs of a grain -----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Costs:
    """Durations in µs: exact ones of each kind, rounded ones of each resource and link.

    ``unit`` is one over a common denominator of all; ``times``: a grain on each distinct bandwidth.
    ``paces``: the least of each row, where some have one.
    """

    fabric: Fabric
    latencies: tuple[tuple[Fraction, ...], Ints]
    unit: int
    times: list[Fraction]
    row: Floats
    alpha: Floats
    overhead: Fraction
    paces: tuple[Fraction, ...] = ()

    @staticmethod
    def of(
        topology: Topology, grain: Fraction, overhead: Fraction, paces: tuple[Fraction, ...] = ()
    ) -> _Costs:
        """Return the costs of grains of ``grain`` bytes."""
        fabric = fabric_of(topology)
        (bandwidths, of_row), (latencies, of_link) = fabric.bandwidths, fabric.latencies
        times = [grain / (x * BYTES_PER_US_PER_GBPS) for x in bandwidths]
        least = {x: x * grain for x in set(paces)}
        exact = (*times, *latencies, overhead, *least.values())
        return _Costs(
            fabric,
            fabric.latencies,
            math.lcm(*{x.denominator for x in exact}),
            times,
            np.array(times, np.float64)[of_row],
            np.array(latencies, np.float64)[of_link],
            overhead,
            tuple(least[x] for x in paces),
        )

    def longer(self, levels: Ints, level_us: Fraction) -> _Costs:
        """Return the costs with the α of each link longer by its levels."""
        known, of_link = self.latencies
        width = int(levels.max(initial=0)) + 1
        codes, which = np.unique(of_link * width + levels, return_inverse=True)
        latencies = tuple(known[x // width] + x % width * level_us for x in codes.tolist())
        return replace(
            self,
            latencies=(latencies, which),
            unit=math.lcm(self.unit, *(x.denominator for x in latencies)),
            alpha=np.array(latencies, np.float64)[which],
        )

    def coarse(self, total: float) -> int:
        """Return ticks per µs such that ``total`` µs are less than 2^``_COARSE`` ticks."""
        return 1 << max(0, _COARSE - math.ceil(math.log2(max(total, 1.0))))

    def held(self, unit: int, routes: Routes, kind: type) -> AnyArray:
        """Ticks for which the grains hold each resource of each leg, as integers of a kind."""
        if unit % self.unit == 0 or kind is object:
            _, of_row = self.fabric.bandwidths
            each: AnyArray = np.array([max(1, round(x * unit)) for x in self.times], kind)
            return np.asarray(each[of_row][routes.rows] * routes.weights)
        # One tick may be much of the time of a grain: round the time of the whole chunk.
        ticks = np.rint(self.row[routes.rows] * routes.weights * float(unit)).astype(np.int64)
        return np.maximum(1, ticks)


# --- routes ---------------------------------------------------------------------------------------


@kept(most=8)
def routes_of(s: Schedule, one_by_one: bool) -> Routes:
    """The routes of transfers and legs of casts; with ``one_by_one`` each link is a leg."""
    m = moves_of(s) if len(s.casts) else s
    grains = s.collective.grains[m.chunk]
    return routes_with(s.topology, m.route_start, m.route_links, grains, one_by_one)


def routes_with(
    topology: Topology, start: Ints, route_links: Ints32, grains: Ints, one_by_one: bool = False
) -> Routes:
    """The routes ``route_links[start[i]:start[i+1]]`` with the grains that each carries."""
    first, which = distinct_routes(start, route_links.astype(np.int64), grains)
    whole, at = rows_of(start, first)
    links = route_links[at].astype(np.int64)
    if one_by_one:
        link_start, leg_start = np.arange(len(links) + 1), whole
    else:
        link_start, leg_start = whole, np.arange(len(first) + 1)
    # A resource that two links of a leg load is held for both.
    row_start, rows, times = rows_held(topology, link_start, links)
    weights = times * np.repeat(np.repeat(grains[first], np.diff(leg_start)), np.diff(row_start))
    return Routes(which, leg_start, link_start, links, row_start, rows, weights)


def distinct_routes(start: Ints, links: Ints, grains: Ints) -> tuple[Ints, Ints]:
    """Different routes with the grains they carry: one transfer of each, and which one each has.

    Distinguished by sums of random words (a universal hash), which are checked: so it is exact.
    """
    count, length = len(start) - 1, np.diff(start)
    if not count:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    if len(links) == count and (length == 1).all() and (grains == grains[0]).all():
        return _distinct_links(links)
    most = max(int(links.max(initial=0)), int(length.max())) + 1
    words = random_words(2 * most).view(np.int64).reshape(2, most)
    inside = np.arange(len(links)) - np.repeat(start[:-1], length)
    mixed = words[0][links] * (words[1][inside] | 1)
    code = np.zeros(count, np.int64)
    some = np.flatnonzero(length)
    code[some] = np.add.reduceat(mixed, start[some])
    code += (grains * 2 + 1) * 0x5851F42D4C957F2D
    order = np.argsort(code, kind="stable")
    head = np.diff(code[order], prepend=code[order[:1]] - 1) != 0
    which = np.empty(count, np.int64)
    which[order] = np.cumsum(head) - 1
    first = order[head]
    twin = first[which]
    same = (length == length[twin]) & (grains == grains[twin])
    shifted = np.minimum(np.repeat(start[twin], length) + inside, len(links) - 1)
    if not same.all() or not (links == links[shifted]).all():
        raise AssertionError("two routes of one hash")
    return first, which


def _distinct_links(links: Ints) -> tuple[Ints, Ints]:
    """Routes of one link each, all with the same grains: a table instead of a sort."""
    first = np.full(int(links.max()) + 1, -1, np.int64)
    first[links[::-1]] = np.arange(len(links) - 1, -1, -1)  # the last one written is the first
    used = first >= 0
    return first[used], (np.cumsum(used) - 1)[links]


# --- the arrivals that each transfer waits for ----------------------------------------------------


@kept(most=8)
def data_waits(s: Schedule) -> Waits:
    """Number the arrivals of each place by step; each job needs a prefix of those of its source."""
    return waits_of(moves_of(s))


def waits_of(m: QueuedRows) -> Waits:
    """Number the arrivals of each place; departures of a meeting need all that come to it."""
    source, target, places = _dense(m.source, m.target, m.places + m.meetings)
    width = int(m.step.max(initial=0)) + 2
    arrivals = np.flatnonzero(~m.redundant)
    keys = target[arrivals] * width + m.step[arrivals]
    order = np.argsort(keys, kind="stable")
    keys, arrivals = keys[order], arrivals[order]
    slot_start = np.searchsorted(keys, np.arange(places + 1) * width)
    # Ascending by step, so that the search reads memory in order and equal needs keep their order.
    wanted = source * width + m.step
    if m.meetings:  # legs that meet are of one step
        wanted += m.joins
    readers = np.argsort(wanted, kind="stable")
    needs = np.empty(len(m), np.int64)
    needs[readers] = np.searchsorted(keys, wanted[readers])
    needs -= slot_start[source]
    slot = np.full(len(m), -1, np.int64)
    slot[arrivals] = np.arange(len(arrivals)) - slot_start[target[arrivals]]
    most = np.zeros(places, np.int64)
    np.maximum.at(most, source, needs)
    slot[slot >= most[target]] = -1
    reader_start = np.searchsorted(source[readers], np.arange(places + 1))
    nothing = np.zeros(0, np.int64)
    return Waits(source, target, needs, slot, slot_start, reader_start, readers, nothing)


def _dense(source: Ints, target: Ints, places: int) -> tuple[Ints, Ints, int]:
    """The places that occur, numbered in their order, and how many there are."""
    if places > SPARSE * max(1, len(source)):  # alltoall: a table of all would be mostly empty
        if places <= 256 * len(source):
            return _dense_by_bits(source, target, places)
        used, which = np.unique(np.concatenate([source, target]), return_inverse=True)
        return which[: len(source)], which[len(source) :], len(used)
    everywhere = np.zeros(places, bool)
    everywhere[source] = everywhere[target] = True
    dense = np.cumsum(everywhere) - 1
    return dense[source], dense[target], int(everywhere.sum())


def _dense_by_bits(source: Ints, target: Ints, places: int) -> tuple[Ints, Ints, int]:
    """As :func:`_dense`, with one bit for each place: a number counts the bits before its own."""
    words = np.zeros(-(-places // 64), np.uint64)
    for column in (source, target):
        np.bitwise_or.at(words, column >> 6, np.uint64(1) << (column & 63).astype(np.uint64))
    ones = np.bitwise_count(words).astype(np.int64)
    before = np.cumsum(ones) - ones

    def numbered(column: Ints) -> Ints:
        lower = (np.uint64(1) << (column & 63).astype(np.uint64)) - np.uint64(1)
        word = column >> 6
        return np.asarray(before[word] + np.bitwise_count(words[word] & lower))

    return numbered(source), numbered(target), int(ones.sum())


@kept(most=8)
def barriers(s: Schedule) -> Waits:
    """Waits with barriers: a step waits for all steps before it; places do not matter."""
    n = len(s)
    first = np.flatnonzero(np.diff(s.step, prepend=-1))
    nothing, nowhere = np.zeros(n, np.int64), np.zeros(1, np.int64)
    return Waits(
        nothing,
        nothing,
        nothing,
        np.full(n, -1, np.int64),
        nowhere,
        nowhere,
        np.zeros(0, np.int64),
        np.append(first, n).astype(np.int64),
    )


# --- slices ---------------------------------------------------------------------------------------


def doubled(time: Callable[[int], float], most: int, longer: float) -> Iterator[tuple[float, int]]:
    """Yield the µs of 1, 2, 4 … slices, at most ``most`` (but 1 in any case), and their number.

    It ends with slices that take more than ``longer`` times the least µs so far.
    """
    slices, least = 1, float("inf")
    while slices <= max(1, most):
        us = time(slices)
        yield us, slices
        if us > longer * least:
            return
        slices, least = 2 * slices, min(us, least)
