"""Schedules: chunk, source, destination, route and step of every transfer, in columns.

Beside its transfers a schedule may have :mod:`.casts`: copies and sums by switches.

**Transfers of one step read the state before that step; their results can be used from the next
step on.** So verification, simulation and lowering are single passes over the steps.

>>> from weft.dsl.nouns.topology import Topology, both_ways, gpu
>>> from weft.dsl.nouns.collective import make
>>> pair = Topology("pair", (gpu(0), gpu(1)), both_ways(0, 1, 25, "0.7"))
>>> s = Schedule.of(pair, make("allgather", 2), [Transfer(0, 0, 1, (0,)), Transfer(1, 1, 0, (1,))])
>>> s.steps, len(s), next(iter(s)).dst
(1, 2, 1)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from ..base.arrays import AnyArray, Bools, Floats, Ints, Ints32
from ..base.errors import BadFile, UserError, require_type
from ..base.files import SCHEMA, Fields, only, parse_json, read_text, require_kind, write_ascii
from ..base.json_text import RaggedRows, compact, pieces, plain
from ..base.lazy_dataclass import Frozen, dataclass
from ..base.tables import count
from ..base.unique_rows import rows_of
from ..base.units import format_bytes
from ..base.views import Tabled, Viewed
from .casts import NO_CASTS, Cast, CastRanges, Casts, read_casts
from .collective import Collective
from .merged import MergedPart, read_parts
from .topology import Topology

LARGEST = {"bytes": 1 << 60, "segments": 1 << 16}
"""Largest message size and segment count accepted; a simulation of more would not end."""


_COLUMNS = ("chunk", "src", "dst", "step", "reduce")
"""Columns with a number for each transfer that every schedule has."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """Transfer of one chunk; ``route`` lists link indices from ``src`` through switches to ``dst``.

    ``reduce``: the destination adds the received data to its own instead of storing it.
    """

    chunk: int
    src: int
    dst: int
    route: tuple[int, ...]
    step: int = 0
    reduce: bool = False


class Schedule(Viewed, Tabled, Frozen, eq=False):
    """A well-formed (not yet verified) list of transfers with its machine and collective.

    Columns have one entry per transfer and are sorted by step; the order inside a step is a
    priority: of transfers that compete for a link, the first goes first. ``chunk``, ``src``,
    ``dst``, ``step``, ``reduce``; ``route_links[route_start[i]:route_start[i+1]]`` is the route of
    transfer i. ``start_us``/``end_us`` are optional times in µs. ``segments`` is the
    number of equal slices of every chunk on which the pattern is repeated, pipelined. Where
    ``priority`` is given, the transfer with the smallest ``priority + slice * stride`` of those
    that wait for a link goes first, otherwise the one that has waited longest. ``rounds`` holds the
    rounds of each step if the engine works in rounds. ``bytes`` is the message size M the schedule
    was made for, if any. ``casts`` stand beside the transfers, in the same steps; where both plan
    their order, it is one order, and of equals transfers go first. ``parts`` are the collectives
    that a merged schedule does at once, and ``launch`` the order in which each rank starts them
    (:mod:`.merged`).
    """

    _view: ClassVar = "schedule"
    _frame: ClassVar = "schedule"

    topology: Topology
    collective: Collective
    chunk: Ints32
    src: Ints32
    dst: Ints32
    step: Ints32
    reduce: Bools
    route_start: Ints
    route_links: Ints32
    rounds: tuple[int, ...] = ()
    bytes: int | None = None
    segments: int = 1
    start_us: Floats | None = None
    end_us: Floats | None = None
    priority: Ints32 | None = None
    stride: int = 0
    provenance: Mapping[str, Any] = field(default_factory=dict)
    casts: Casts = NO_CASTS
    parts: tuple[MergedPart, ...] = ()
    launch: tuple[tuple[int, ...], ...] = ()

    @staticmethod
    def of(
        topology: Topology,
        collective: Collective,
        transfers: Iterable[Transfer],
        *,
        rounds: tuple[int, ...] = (),
        provenance: Mapping[str, Any] | None = None,
        casts: Iterable[Cast] = (),
    ) -> Schedule:
        """Return a schedule from transfers in any order (small schedules; engines use columns)."""
        rows = list(transfers)
        columns: dict[str, Any] = {n: [getattr(t, n) for t in rows] for n in _COLUMNS}
        links = np.array([i for t in rows for i in t.route], np.int32)
        return Schedule.from_columns(
            topology,
            collective,
            **columns,
            route_lengths=[len(t.route) for t in rows],
            route_links=links,
            rounds=rounds,
            provenance=provenance,
            casts=Casts.of(casts),
        )

    @staticmethod
    def from_columns(
        topology: Topology,
        collective: Collective,
        chunk: npt.ArrayLike,
        src: npt.ArrayLike,
        dst: npt.ArrayLike,
        step: npt.ArrayLike,
        reduce: npt.ArrayLike,
        route_lengths: npt.ArrayLike,
        route_links: npt.ArrayLike,
        *,
        rounds: tuple[int, ...] = (),
        priority: npt.ArrayLike | None = None,
        stride: int = 0,
        segments: int = 1,
        provenance: Mapping[str, Any] | None = None,
        casts: Casts = NO_CASTS,
    ) -> Schedule:
        """Return a schedule from columns in any order, sorted by step with a stable sort.

        The order inside a step is kept: of transfers that compete for a link, the first goes first.
        """
        steps, starts = np.asarray(step, np.int32), np.zeros(np.size(step) + 1, np.int64)
        np.cumsum(route_lengths, out=starts[1:])
        links, order = np.asarray(route_links, np.int32), None
        if (steps[1:] < steps[:-1]).any():
            order = np.argsort(steps, kind="stable")
            starts, at = rows_of(starts, order)
            links = links[at]
        schedule = Schedule(
            topology,
            collective,
            _column(chunk, np.int32, order),
            _column(src, np.int32, order),
            _column(dst, np.int32, order),
            _column(steps, np.int32, order),
            _column(reduce, np.bool_, order),
            starts,
            _column(links, np.int32, None),
            rounds=rounds,
            segments=segments,
            stride=stride,
            provenance=dict(provenance or {}),
            priority=None if priority is None else _column(priority, np.int32, order),
            casts=casts,
        )
        for name in (*_COLUMNS, "route_start", "route_links", "priority"):
            if (column := getattr(schedule, name)) is not None:
                column.setflags(write=False)
        return schedule

    def __repr__(self) -> str:
        what = self.collective.name or str(self.collective.kind)
        parts = [count(self.steps, "step"), count(len(self), "transfer")]
        if len(self.casts):
            parts.append(count(len(self.casts), "cast"))
        if self.segments > 1:
            parts.append(count(self.segments, "segment"))
        if self.bytes is not None:
            parts.append(f"for {format_bytes(self.bytes)}")
        if found_by := self.provenance.get("found_by"):
            parts.append(f"found by {found_by}")
        return f"<Schedule {what} on {self.topology.name}: {', '.join(parts)}>"

    def __len__(self) -> int:
        return len(self.chunk)

    def __iter__(self) -> Iterator[Transfer]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, i: int) -> Transfer:
        return Transfer(
            int(self.chunk[i]),
            int(self.src[i]),
            int(self.dst[i]),
            self.route(i),
            int(self.step[i]),
            bool(self.reduce[i]),
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schedule) and dump(self) == dump(other)

    __hash__ = None  # type: ignore[assignment]

    def route(self, i: int) -> tuple[int, ...]:
        """Return the link indices of transfer ``i``."""
        return tuple(self.route_links[self.route_start[i] : self.route_start[i + 1]].tolist())

    @property
    def steps(self) -> int:
        """Return the number of steps: one more than the last step used."""
        return max(int(self.step.max(initial=-1)), int(self.casts.step.max(initial=-1))) + 1

    @property
    def moves(self) -> int:
        """Return how many transfers and legs of casts it has."""
        return len(self) + len(self.casts.links)

    @property
    def planned(self) -> bool:
        """Return True if the schedule plans its order by priorities."""
        return self.priority is not None or self.casts.priority is not None

    def anchors(self) -> tuple[Any, ...]:
        """Return all but size, times, provenance and parts: the key of results cached for it.

        See :func:`weft.dsl.base.kept.kept`.
        """
        names = ("topology", "collective", *_COLUMNS, "route_start", "route_links", "priority")
        held = (getattr(self, name) for name in (*names, "rounds", "segments", "stride"))
        return (*held, *self.casts.anchors())

    def columns(self) -> dict[str, Any]:
        """Return the transfer columns by name, with route lengths, for :meth:`from_columns`."""
        return {
            **{name: getattr(self, name) for name in _COLUMNS},
            "route_lengths": np.diff(self.route_start),
            "route_links": self.route_links,
            **({} if self.priority is None else {"priority": self.priority}),
        }

    def with_provenance(self, **entries: Any) -> Schedule:
        """Return the schedule with entries added to its provenance."""
        return replace(self, provenance={**self.provenance, **entries})


NO_SWITCHES = "nvls=off, sharp=off or --capable 'SWITCH=none' gives a schedule of transfers"


def move_words(schedules: Sequence[Schedule]) -> str:
    """Return how many transfers and casts schedules have, in words."""
    casts = sum(len(one.casts) for one in schedules)
    beside = f" and {count(casts, 'cast')}" if casts else ""
    return count(sum(map(len, schedules)), "transfer") + beside


def refuse_casts(schedule: Schedule, what: str, hint: str = NO_SWITCHES) -> None:
    """Refuse a schedule in which switches sum or copy.

    ``what`` gives the reason: "MSCCL XML lacks instructions …", without a full stop.

    Raises:
        UserError: the schedule has casts.
    """
    if casts := len(schedule.casts):
        raise UserError(
            f"{what}, and the schedule has {count(casts, 'cast')}",
            where=f"{schedule.collective} on {schedule.topology.name}",
            hint=hint,
        )


def _column(values: npt.ArrayLike, kind: type[np.generic], order: Ints | None) -> AnyArray:
    return np.array(values, kind) if order is None else np.asarray(values, kind)[order]


def dump(schedule: Schedule) -> dict[str, Any]:
    """Return the JSON object of a schedule, with its topology and collective (docs/formats.md)."""
    data: dict[str, Any] = plain(_described(schedule))
    return data


def _described(schedule: Schedule) -> dict[str, Any]:
    data: dict[str, Any] = {
        "weft": "schedule",
        "schema": SCHEMA,
        "topology": schedule.topology.to_json(),
        "collective": schedule.collective.described(),
        "bytes": schedule.bytes,
        "segments": schedule.segments,
        "rounds": list(schedule.rounds),
        **({"stride": schedule.stride} if schedule.planned else {}),
        "transfers": {
            "chunk": schedule.chunk,
            "src": schedule.src,
            "dst": schedule.dst,
            "route": RaggedRows(schedule.route_start, schedule.route_links),
            "reduce": schedule.reduce.astype(np.int8),
            "step": schedule.step,
            "start_us": schedule.start_us,
            "end_us": schedule.end_us,
            **({} if schedule.priority is None else {"priority": schedule.priority}),
        },
        **({"casts": schedule.casts.described()} if len(schedule.casts) else {}),
        "provenance": dict(schedule.provenance),
    }
    if schedule.parts:
        data["parts"] = [one.to_json() for one in schedule.parts]
        data["launch"] = [list(order) for order in schedule.launch]
    return data


def dumps(schedule: Schedule) -> str:
    """Return the file text of a schedule."""
    return compact(_described(schedule)) + "\n"


def write(path: str | Path, schedule: Schedule, *, force: bool = False) -> None:
    """Write the text of :func:`dumps` to a file, in pieces.

    Raises:
        UserError: as :func:`weft.dsl.base.files.write_text`.
    """
    require_type(schedule, Schedule, "the schedule to write", "write_schedule(path, schedule)")
    if not isinstance(path, Path):
        require_type(path, str, "the path of the file", "write_schedule(path, schedule)")
    write_ascii(path, chain(pieces(_described(schedule)), [b"\n"]), force=force)


def read(path: str | Path) -> Schedule:
    """Read a schedule from a file; raises as :func:`load`."""
    return load(parse_json(read_text(path), str(path)), str(path))


def load(data: Any, where: str = "schedule") -> Schedule:
    """Parse the object that :func:`dump` writes. The result is well formed, not verified.

    Raises:
        BadFile, UserError: not such an object, or indices outside the machine or collective.
    """
    require_kind(data, "schedule", where)
    fields = Fields(data, where)
    topology = Topology.from_json(fields.get("topology", dict), f"{where}: topology")
    collective = Collective.from_json(fields.get("collective", dict), f"{where}: collective")
    transfers = fields.get("transfers", dict)
    table = Fields(transfers, f"{where}: transfers")
    columns: dict[str, Any] = {k: np.array(table.integers(k), np.int64) for k in _COLUMNS}
    routes = table.get("route", list)
    times = [table.get(k, (list, type(None)), None) for k in ("start_us", "end_us")]
    planned = "priority" in transfers
    priority = np.array(table.integers("priority", []), np.int64)
    table.finish()
    if len({len(routes), *(len(c) for c in columns.values())}) != 1:
        raise BadFile("columns of different lengths", where=f"{where}: transfers")
    _check_ranges(topology, collective, columns, where)
    lengths, links = _routes(routes, len(topology.links), where)
    rounds = tuple(fields.integers("rounds", []))
    size = fields.get("bytes", (int, type(None)), None)
    segments = fields.get("segments", int, 1)
    stride = fields.get("stride", int, 0)
    ranges = CastRanges(collective.chunks, topology.ranks, len(topology.links))
    casts = fields.get("casts", dict, None)
    held = NO_CASTS if casts is None else read_casts(casts, ranges, where)
    _check_order(_PlannedOrder(planned, priority, stride, len(routes)), held, where)
    provenance = fields.get("provenance", dict, {})
    merged = _merged(fields, where)
    fields.finish()
    for name, value in (("bytes", size), ("segments", segments)):
        if value is not None and not 1 <= value <= LARGEST[name]:
            shown = value if abs(value) < 10**30 else "absurdly large"
            raise BadFile(f"{name} is {shown}, outside 1 … {LARGEST[name]}", where=where)
    schedule = Schedule.from_columns(
        topology,
        collective,
        **columns,
        route_lengths=lengths,
        route_links=links,
        rounds=rounds,
        provenance=provenance,
        priority=priority if planned else None,
        stride=stride,
        casts=held,
    )
    if any(t is not None for t in times) and np.any(np.diff(columns["step"]) < 0):
        raise BadFile("transfers with times must be sorted by step", where=where)
    start, end = (_times(t, len(schedule), where) for t in times)
    held_us: dict[str, Any] = {"start_us": start, "end_us": end}
    return replace(schedule, bytes=size, segments=segments, **held_us, **merged)


def _merged(fields: Fields, where: str) -> dict[str, Any]:
    """Return the parts of a merged schedule, and the orders in which ranks launch them."""
    parts = read_parts(fields.get("parts", list, []), where)
    rows: list[Any] = fields.get("launch", list, [])
    if not all(isinstance(row, list) and only(row, int) for row in rows):
        raise BadFile("'launch' lists the parts of every rank", where=where)
    return {"parts": parts, "launch": tuple(map(tuple, rows))}


class _PlannedOrder(Frozen, eq=False):
    """A file's order of transfers: whether it plans one, and which."""

    planned: bool
    priority: Ints
    stride: int
    transfers: int


def _check_order(order: _PlannedOrder, casts: Casts, where: str) -> None:
    """Refuse priorities that do not fit the transfers, or order only transfers or only casts."""
    if order.planned and len(order.priority) != order.transfers:
        raise BadFile("priority must be one number per transfer", where=f"{where}: transfers")
    ends = (int(order.priority.min(initial=0)), int(order.priority.max(initial=0)), order.stride)
    if not all(0 <= p < 1 << 31 for p in ends):
        raise BadFile("a priority is outside 0 … 2^31 - 1", where=f"{where}: transfers")
    if len(casts) and order.transfers and order.planned != (casts.priority is not None):
        raise BadFile(
            "transfers have priorities and casts have none, or the other way round",
            where=where,
            hint="one order is planned for both, or for neither",
        )
    if order.stride and not order.planned and casts.priority is None:
        raise BadFile(
            "a stride spaces the priorities of slices, and transfers have none",
            where=where,
            hint="add the column priority, or drop the stride",
        )


def _times(values: list[Any] | None, count: int, where: str) -> Floats | None:
    if values is None:
        return None
    try:
        # Times are neither bools nor integers outside the range of floats.
        times = np.array(values, np.float64) if only(values, int, float) else None
    except OverflowError:
        times = None
    if times is None or len(times) != count or not np.isfinite(times).all():
        raise BadFile("times must be one finite number per transfer", where=f"{where}: transfers")
    return times


def _check_ranges(
    topology: Topology,
    collective: Collective,
    columns: Mapping[str, Ints],
    where: str,
) -> None:
    if collective.ranks != topology.ranks:
        raise UserError(
            f"the collective has {collective.ranks} ranks, the topology {topology.ranks}",
            where=where,
        )
    limits = {
        "chunk": collective.chunks,
        "src": topology.ranks,
        "dst": topology.ranks,
        "step": 1 << 24,
        "reduce": 2,
    }
    for name, limit in limits.items():
        column = columns[name]
        for row in np.flatnonzero((column < 0) | (column >= limit)).tolist():
            raise BadFile(
                f"transfer {row}: {name} {column[row]} is outside 0 … {limit - 1}", where=where
            )


def _routes(routes: list[Any], links: int, where: str) -> tuple[Ints, Ints]:
    def known(route: Any) -> bool:
        return type(route) is list and only(route, int) and all(0 <= i < links for i in route)

    try:
        flat = list(chain.from_iterable(routes)) if only(routes, list) else None
        named = np.array(flat, np.int64) if flat is not None and only(flat, int) else None
    except OverflowError:
        named = None
    if named is None or ((named < 0) | (named >= links)).any():
        row = next(i for i, route in enumerate(routes) if not known(route))
        raise BadFile(f"transfer {row}: the route names a link that does not exist", where=where)
    return np.fromiter(map(len, routes), np.int64, len(routes)), named
