"""A schedule made ready to be timed many times: with other sizes, slices, and orders.

What does not depend on these is done once, in arrays: who waits for what, and which rows each
distinct route holds for how much of a grain's time. What depends on them is a few numbers per
distinct route. The rule is that of :mod:`.simulate`, and times are whole ticks here too, of 64
bits: of the common unit of all durations, or where that is too fine for the whole run, of a
coarser one.

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
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from weft.dsl.base.arrays import AnyArray, Floats, Ints
from weft.dsl.base.unique_rows import rows_of
from weft.dsl.base.units import BYTES_PER_US_PER_GBPS
from weft.dsl.nouns.schedule import Schedule
from weft.dsl.nouns.topology import Topology

from ..fabric.occupancy import LinkTable
from ..judge.replay import replay
from .simulate import CostModel

if TYPE_CHECKING:
    from .serve_kernel import Work

SPARSE = 32
"""Of more places (chunks times ranks) for each transfer, only those that occur are listed."""

_FITS = 60
"""Durations are below 2^60 ticks each, and so is the load of every row: else the unit is coarse."""
_COARSE = 58
"""In a coarse unit even all jobs one after the other end before 2^58 ticks."""


@dataclass(frozen=True, eq=False)
class Served:
    """What happened, in µs: start of the first and arrival of the last slice of each transfer, how
    long each row was held, and the last arrival of all."""

    time_us: float
    start_us: Floats
    end_us: Floats
    busy_us: Floats


@dataclass(frozen=True, eq=False)
class _Routes:
    """The distinct routes with the grains they carry, and their legs.

    Attributes:
        which: for each transfer its route; ``leg_start[r]:leg_start[r+1]`` are the legs of one.
        link_start, links: the links of each leg.
        row_start, rows, weights: the rows of each leg, and how many grains each is held for.
    """

    which: Ints
    leg_start: Ints
    link_start: Ints
    links: Ints
    row_start: Ints
    rows: Ints
    weights: Ints


@dataclass(frozen=True, eq=False)
class _Data:
    """Who waits for whose arrival: columns of :class:`~.serve_kernel.Work` by name."""

    source: Ints
    target: Ints
    needs: Ints
    slot: Ints
    slot_start: Ints
    reader_start: Ints
    readers: Ints
    step_start: Ints


@dataclass(frozen=True, eq=False)
class Prepared:
    """A schedule and a cost model, ready for :meth:`time`. Made by :func:`prepare`."""

    schedule: Schedule
    model: CostModel
    _routes: _Routes
    _data: _Data

    def time(
        self,
        message_bytes: int,
        *,
        segments: int | None = None,
        priority: npt.ArrayLike | None = None,
        stride: int | None = None,
    ) -> float:
        """µs until the last arrival, for a message of M bytes; as :meth:`run`."""
        found = self.run(message_bytes, segments=segments, priority=priority, stride=stride)
        return found.time_us

    def run(
        self,
        message_bytes: int,
        *,
        segments: int | None = None,
        priority: npt.ArrayLike | None = None,
        stride: int | None = None,
    ) -> Served:
        """The whole run; slices, planned order and stride are the schedule's unless given.

        ``priority``: one integer per transfer. Cost: O(transfers · segments · log), about a µs
        each, and some 30 bytes.
        """
        from .serve_kernel import run

        s = self.schedule
        slices = s.segments if segments is None else segments
        order = s.priority if priority is None else np.asarray(priority, np.int64)
        step = s.stride if stride is None else stride
        grain = Fraction(message_bytes, s.collective.message_chunks * slices)
        costs = _Costs.of(s.topology, grain, Fraction(self.model.overhead_us))
        for unit in (costs.unit, costs.coarse(self._ends(costs, slices))):
            if not self._fits(costs, unit, slices):
                continue
            tables = run(self._work(costs, unit, slices, order, step))
            if tables is not None:
                return _in_us(*tables, unit)
        raise AssertionError("a coarse unit always fits")

    def _ends(self, costs: _Costs, slices: int) -> float:
        """When all jobs have arrived that run one after the other, in µs."""
        r = self._routes
        if not len(r.which):
            return 0.0
        alpha = np.add.reduceat(costs.alpha[r.links], r.link_start[:-1])
        held = np.maximum.reduceat(costs.row[r.rows] * r.weights, r.row_start[:-1])
        per_route = np.add.reduceat(alpha + held + costs.overhead, r.leg_start[:-1])
        return float(per_route[r.which].sum()) * slices

    def _fits(self, costs: _Costs, unit: int, slices: int) -> bool:
        """Whether no number can leave 64 bits: each duration, and the load of each row."""
        r = self._routes
        if not len(r.which):
            return True
        uses = np.bincount(r.which, minlength=len(r.leg_start) - 1)
        per_leg = np.repeat(uses, np.diff(r.leg_start))
        each = np.repeat(per_leg, np.diff(r.row_start))
        fixed = costs.overhead + (costs.alpha.sum() if self.model.alpha_occupies else 0)
        load = np.bincount(r.rows, each * (r.weights * costs.row[r.rows] + fixed))
        longest = float(costs.alpha.max() * np.diff(r.link_start).max())
        return max(float(load.max()) * slices, longest) * unit < 2.0**_FITS

    def _work(
        self, costs: _Costs, unit: int, slices: int, order: AnyArray | None, stride: int
    ) -> Work:
        from .serve_kernel import (
            FIRST_LEG,
            LAST_LEG,
            NEEDS,
            PRIORITY,
            SLOT,
            SOURCE,
            STEP,
            TARGET,
            TRANSFER_COLUMNS,
            Work,
        )

        r, d = self._routes, self._data
        row, alpha, overhead = costs.ticks(unit)
        alphas = _sums(alpha[r.links], r.link_start)
        held = costs.held(unit, row, r) + overhead
        if self.model.alpha_occupies:
            held += np.repeat(alphas, np.diff(r.row_start))
        leaves = np.maximum.reduceat(held, r.row_start[:-1]) if len(held) else held
        arrives = leaves if self.model.alpha_occupies else leaves + alphas
        s = self.schedule
        table = np.zeros((len(s), TRANSFER_COLUMNS), np.int64)
        table[:, FIRST_LEG], table[:, LAST_LEG] = r.leg_start[r.which], r.leg_start[r.which + 1]
        columns = (SOURCE, d.source), (TARGET, d.target), (NEEDS, d.needs), (SLOT, d.slot)
        for column, values in columns:
            table[:, column] = values
        if len(d.step_start):
            table[:, STEP] = np.repeat(np.arange(len(d.step_start) - 1), np.diff(d.step_start))
        if order is not None:
            table[:, PRIORITY] = order
        return Work(
            slices,
            table,
            np.stack([r.row_start[:-1], r.row_start[1:], leaves, arrives], axis=1),
            np.stack([r.rows, held], axis=1),
            len(costs.row),
            np.stack([d.slot_start, d.reader_start], axis=1),
            d.readers,
            d.step_start,
            order is not None,
            stride,
        )


def prepare(schedule: Schedule, model: CostModel | None = None) -> Prepared:
    """Make a verified schedule ready to be timed. O(links of all routes · log), in arrays."""
    model = model or CostModel()
    routes = _routes(schedule, model.store_and_forward)
    return Prepared(
        schedule, model, routes, _barriers(schedule) if model.barrier else _data(schedule)
    )


def _in_us(transfers: Ints, rows: Ints, unit: int) -> Served:
    from .serve_kernel import BUSY, END, START

    start, end, busy = (
        x / np.float64(unit) for x in (transfers[:, START], transfers[:, END], rows[:, BUSY])
    )
    return Served(int(transfers[:, END].max(initial=0)) / unit, start, end, busy)


def _sums(values: Ints, start: Ints) -> Ints:
    """The sum of each row, ``values[start[i]:start[i+1]]``; no row is empty."""
    if not len(values):
        return values
    sums: Ints = np.add.reduceat(values, start[:-1])
    return sums


# --- what a grain costs ---------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Costs:
    """Durations in µs: exact ones of each kind, rounded ones of each row and link.

    ``unit`` is one over a common denominator of all.
    """

    unit: int
    kinds: tuple[list[Fraction], list[Fraction], Fraction]
    row_kind: Ints
    link_kind: Ints
    row: Floats
    alpha: Floats
    overhead: float

    @staticmethod
    def of(topology: Topology, grain: Fraction, overhead: Fraction) -> _Costs:
        """For grains of so many bytes."""
        widths, row_kind = _kinds(topology.capacities())
        alphas, link_kind = _kinds(tuple(x.latency for x in topology.links))
        times = [grain / (x * BYTES_PER_US_PER_GBPS) for x in widths]
        unit = math.lcm(*{x.denominator for x in (*times, *alphas, overhead)})
        return _Costs(
            unit,
            (times, alphas, overhead),
            row_kind,
            link_kind,
            np.array(times, np.float64)[row_kind],
            np.array(alphas, np.float64)[link_kind],
            float(overhead),
        )

    def coarse(self, total: float) -> int:
        """A unit in which so many µs are less than 2^``_COARSE`` ticks."""
        return 1 << max(0, _COARSE - math.ceil(math.log2(max(total, 1.0))))

    def ticks(self, unit: int) -> tuple[Ints, Ints, int]:
        """A grain's time on each row, the α of each link, and o, in whole ticks."""
        times, alphas, overhead = self.kinds
        rows = np.array([max(1, round(x * unit)) for x in times], np.int64)
        links = np.array([round(x * unit) for x in alphas], np.int64)
        return rows[self.row_kind], links[self.link_kind], round(overhead * unit)

    def held(self, unit: int, row: Ints, routes: _Routes) -> Ints:
        """Ticks that each row of each leg is held by the grains."""
        if unit % self.unit == 0:
            return row[routes.rows] * routes.weights
        # One tick may be much of the time of a grain: round the time of the whole chunk.
        ticks = np.rint(self.row[routes.rows] * routes.weights * float(unit)).astype(np.int64)
        return np.maximum(1, ticks)


def _kinds(values: tuple[Fraction, ...]) -> tuple[list[Fraction], Ints]:
    """The different values, and which of them each one is."""
    index: dict[Fraction, int] = {}
    which = np.array([index.setdefault(x, len(index)) for x in values], np.int64)
    return list(index), which


# --- routes ---------------------------------------------------------------------------------------


def _routes(s: Schedule, one_by_one: bool) -> _Routes:
    grains = s.collective.grains[s.chunk]
    first, which = distinct_routes(s.route_start, s.route_links.astype(np.int64), grains)
    whole, at = rows_of(s.route_start, first)
    links = s.route_links[at].astype(np.int64)
    route = np.repeat(np.arange(len(first)), np.diff(whole))
    if one_by_one:
        link_start, leg_start, leg = np.arange(len(links) + 1), whole, np.arange(len(links))
    else:
        link_start, leg_start, leg = whole, np.arange(len(first) + 1), route
    # A row that two links of a leg load is held for both.
    table = LinkTable.of(s.topology)
    position, row = table.rows_of(links)
    width = len(s.topology.links) + len(s.topology.resources)
    key = np.sort(leg[position] * width + row)
    head = np.flatnonzero(np.diff(key, prepend=-1))
    times = np.diff(head, append=len(key))
    legs, rows = key[head] // width, key[head] % width
    route_of_leg = np.repeat(np.arange(len(first)), np.diff(leg_start))
    return _Routes(
        which,
        leg_start,
        link_start,
        links,
        np.searchsorted(legs, np.arange(int(leg_start[-1]) + 1)),
        rows,
        times * grains[first][route_of_leg[legs]],
    )


def distinct_routes(start: Ints, links: Ints, grains: Ints) -> tuple[Ints, Ints]:
    """Different routes with the grains they carry: one transfer of each, and which one each has.

    Told apart by sums of random words (a universal hash), which are checked: so it is exact.
    """
    count, length = len(start) - 1, np.diff(start)
    if not count:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    rng = np.random.default_rng(0)
    words = rng.integers(0, 1 << 63, (2, max(int(links.max(initial=0)), int(length.max())) + 1))
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


# --- who waits for what ---------------------------------------------------------------------------


def _data(s: Schedule) -> _Data:
    """Number the arrivals of each place by step; each job needs a prefix of those of its source."""
    place, ranks = s.chunk.astype(np.int64) * s.topology.ranks, s.topology.ranks
    source, target, places = _dense(place + s.src, place + s.dst, s.collective.chunks * ranks)
    width = s.steps + 1
    arrivals = np.flatnonzero(~replay(s).redundant)
    keys = target[arrivals] * width + s.step[arrivals]
    order = np.argsort(keys, kind="stable")
    keys, arrivals = keys[order], arrivals[order]
    slot_start = np.searchsorted(keys, np.arange(places + 1) * width)
    needs = np.searchsorted(keys, source * width + s.step) - slot_start[source]
    slot = np.full(len(s), -1, np.int64)
    slot[arrivals] = np.arange(len(arrivals)) - slot_start[target[arrivals]]
    most = np.zeros(places, np.int64)
    np.maximum.at(most, source, needs)
    slot[slot >= most[target]] = -1
    readers = np.lexsort((needs, source))
    reader_start = np.searchsorted(source[readers], np.arange(places + 1))
    nothing = np.zeros(0, np.int64)
    return _Data(source, target, needs, slot, slot_start, reader_start, readers, nothing)


def _dense(source: Ints, target: Ints, places: int) -> tuple[Ints, Ints, int]:
    """The places that occur, numbered in their order, and how many there are."""
    if places > SPARSE * max(1, len(source)):  # alltoall: a table of all would be mostly empty
        used, which = np.unique(np.concatenate([source, target]), return_inverse=True)
        return which[: len(source)], which[len(source) :], len(used)
    everywhere = np.zeros(places, bool)
    everywhere[source] = everywhere[target] = True
    dense = np.cumsum(everywhere) - 1
    return dense[source], dense[target], int(everywhere.sum())


def _barriers(s: Schedule) -> _Data:
    """A step waits for all before it; places do not matter."""
    n = len(s)
    first = np.flatnonzero(np.diff(s.step, prepend=-1))
    nothing, nowhere = np.zeros(n, np.int64), np.zeros(1, np.int64)
    return _Data(
        nothing,
        nothing,
        nothing,
        np.full(n, -1, np.int64),
        nowhere,
        nowhere,
        np.zeros(0, np.int64),
        np.append(first, n).astype(np.int64),
    )
