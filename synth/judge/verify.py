"""The verifier: replay a schedule on contribution sets and report every error with its place.

It shares no code with any engine. The conditions that it checks:

1. *shape*: indices in range, sorted by step, no rank sends to itself;
2. *routes*: each is a walk over links from source to destination, over nodes that do not store,
   no node twice; casts (:mod:`.casts`) are trees of links over switches that can do what they do;
3. *contents*: transfers of one step read what held before that step; a source holds what it
   sends; a reduction adds disjoint sets (adding to nothing stores); a plain transfer loses
   nothing (what it replaces is contained in what it brings); of several arrivals at one place in
   one step all must reduce;
4. *postcondition*: exactly the wanted contributions, and whole groups for ``local_reduce``;
5. *times*, where given: a transfer ends no earlier than it starts, and starts no earlier than
   what it sends has arrived, unless slices overlap (loads over time are not checked);
6. *rounds*, where given: in a step of r rounds a link or shared resource of k times the round
   bandwidth carries at most r·k chunks, of one grain each (SCCL's k-synchronous steps);
7. *the sketch*, where given (:mod:`weft.synth.judge.sketch_rules`);
8. *the parts* of a merged schedule: each is a collective of its kind, and the order in which ranks
   launch them cannot deadlock (:mod:`weft.synth.judge.merged`).

Ranks, chunks, transfers and steps are numbered from 0 in all messages, as in the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import chain, islice
from math import lcm

import numpy as np

from weft.dsl.base.arrays import Bools, Floats, Ints
from weft.dsl.base.errors import CheckFailed, require_type
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.tables import count
from weft.dsl.base.unique_rows import in_blocks
from weft.dsl.nouns.casts import cast_name
from weft.dsl.nouns.schedule import Schedule
from weft.dsl.nouns.sketch import Sketch

from ..fabric.fabric import Fabric, fabric_of
from ..fabric.occupancy import resource_name, step_loads, step_runs, transfer_name, transfer_of_link
from .casts import cast_problems, cast_shape_problems
from .merged import part_problems
from .replay import DOUBLE, EMPTY, LOST, Replay, Unmet, replay
from .sketch_rules import broken_rules

PROBLEMS_TOLD = 50
"""A verdict lists at most this many problems."""

_TIME_SLACK = 1e-9  # relative: times in files are rounded


@dataclass(frozen=True, slots=True)
class Verdict:
    """Result of the verifier.

    Attributes:
        ok: True if the schedule does its collective, on its machine, within its rules.
        problems: messages that name the transfer, step, chunk and rank; the first one is usually
            the cause of the others.
        transfers, steps: size of the schedule.
        redundant: number of transfers that bring only data that is there already: allowed, useless.
        casts: how many casts it has beside the transfers.
    """

    ok: bool
    problems: tuple[str, ...]
    transfers: int
    steps: int
    redundant: int = 0
    casts: int = 0

    def __bool__(self) -> bool:
        return self.ok


def verify(schedule: Schedule, sketch: Sketch | None = None) -> Verdict:
    """Check a schedule against its topology and collective, and a sketch if one is given.

    A million transfers take seconds: all work is on columns, one pass per step.
    """
    require_type(schedule, Schedule, "schedule", "outcome.points[0].schedule")
    if sketch is not None:
        hint = "weft.elaborate(weft.load_sketch(NAME), topology)"
        require_type(sketch, Sketch, "sketch", hint)
    problems = list(islice(_shape_problems(schedule), PROBLEMS_TOLD + 1))
    redundant = 0
    if not problems:
        result = replay(schedule)
        redundant = int(result.redundant.sum() + result.cast_redundant.sum())
        problems = list(islice(_problems(schedule, sketch, result), PROBLEMS_TOLD + 1))
    if len(problems) > PROBLEMS_TOLD:
        problems[PROBLEMS_TOLD:] = ["… and more"]
    return Verdict(
        not problems,
        tuple(problems),
        len(schedule),
        schedule.steps,
        redundant,
        len(schedule.casts),
    )


def require_valid(schedule: Schedule) -> Verdict:
    """Return the verdict if the schedule is valid.

    Raises:
        CheckFailed: it is not valid; the message has the first problems.
    """
    verdict = verify(schedule)
    if verdict.ok:
        return verdict
    shown = "\n  ".join(verdict.problems[:5])
    more = len(verdict.problems) - 5
    if more > 0:
        shown += f"\n  … and {more} more"
    raise CheckFailed(
        f"the schedule is wrong:\n  {shown}",
        where=f"{schedule.collective} on {schedule.topology.name}",
        hint="weft check lists every problem of a schedule",
    )


def _problems(schedule: Schedule, sketch: Sketch | None, result: Replay) -> Iterator[str]:
    table = fabric_of(schedule.topology)
    yield from _route_problems(schedule, table)
    yield from cast_problems(schedule)
    if result.meet:
        yield from _arrival_problems(schedule)
    yield from _content_problems(schedule, result)
    yield from _end_problems(schedule, result)
    yield from _time_problems(schedule, result)
    yield from _round_problems(schedule, table)
    if sketch is not None:
        yield from broken_rules(schedule, sketch, result.redundant)
    yield from part_problems(schedule)


# --- shape ----------------------------------------------------------------------------------------


def _shape_problems(s: Schedule) -> Iterator[str]:
    if s.collective.ranks != s.topology.ranks:
        yield f"the collective has {s.collective.ranks} ranks, the topology {s.topology.ranks}"
        return
    columns = (s.chunk, s.src, s.dst, s.step, s.reduce)
    if {len(c) for c in columns} != {len(s)} or len(s.route_start) != len(s) + 1:
        yield "the columns of the schedule have different lengths"
        return
    if (
        s.route_start[0] != 0
        or s.route_start[-1] != len(s.route_links)
        or (np.diff(s.route_start) < 0).any()
    ):
        yield "the routes of the schedule do not fit its links"
        return
    limits = (
        ("chunk", s.chunk, s.collective.chunks),
        ("src", s.src, s.topology.ranks),
        ("dst", s.dst, s.topology.ranks),
        ("step", s.step, 1 << 31),
    )
    for label, column, limit in limits:
        for i in np.flatnonzero((column < 0) | (column >= limit)).tolist():
            yield f"transfer {i}: {label} {column[i]} is outside 0 … {limit - 1}"
    links = len(s.topology.links)
    outside = (s.route_links < 0) | (s.route_links >= links)
    for k in np.flatnonzero(outside).tolist():
        i = int(transfer_of_link(s)[k])
        yield f"{transfer_name(s, i)}: its route names link {s.route_links[k]} of {links}"
    for i in (np.flatnonzero(np.diff(s.step) < 0) + 1).tolist():
        yield f"{transfer_name(s, i)} stands after one of step {s.step[i - 1]}: not sorted by step"
    for i in np.flatnonzero(s.src == s.dst).tolist():
        yield f"{transfer_name(s, i)}: a rank sends to itself"
    yield from cast_shape_problems(s)


# --- routes ---------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _RouteBlock:
    """The routes of some transfers of a schedule.

    Attributes:
        whole, fabric: the schedule and its machine.
        first: the first transfer; the others follow.
        start, links: the route of transfer ``first + i`` is ``links[start[i] : start[i + 1]]``.
        owner: the transfer of each link.
        inner: the links that another one of the same route follows.
    """

    whole: Schedule
    fabric: Fabric
    first: int
    start: Ints
    links: Ints
    owner: Ints
    inner: Ints

    @staticmethod
    def of(s: Schedule, fabric: Fabric, block: slice) -> _RouteBlock:
        start = s.route_start[block.start : block.stop + 1]
        links = s.route_links[start[0] : start[-1]].astype(np.int64)
        owner = np.repeat(np.arange(block.start, block.stop), np.diff(start))
        inner = np.flatnonzero(owner[:-1] == owner[1:])
        return _RouteBlock(s, fabric, block.start, start - start[0], links, owner, inner)

    def problems(self) -> tuple[Iterator[str], ...]:
        """Return the problems of each kind."""
        lengths = np.diff(self.start)
        some = np.flatnonzero(lengths > 0)
        return (
            self._empty(np.flatnonzero(lengths == 0)),
            self._wrong_starts(some),
            self._wrong_ends(some),
            self._broken(),
            self._through_storing(),
            self._loops(),
        )

    def _name(self, transfer: int) -> str:
        return transfer_name(self.whole, transfer)

    def _empty(self, rows: Ints) -> Iterator[str]:
        for i in rows.tolist():
            yield f"{self._name(self.first + i)}: its route is empty"

    def _wrong_starts(self, some: Ints) -> Iterator[str]:
        s, ends = self.whole, self.fabric.src
        wrong = ends[self.links[self.start[some]]] != s.src[self.first + some]
        for i in (self.first + some[wrong]).tolist():
            yield f"{self._name(i)}: its route starts at {_node(s, ends, s.route(i)[0])}"

    def _wrong_ends(self, some: Ints) -> Iterator[str]:
        s, ends = self.whole, self.fabric.dst
        wrong = ends[self.links[self.start[some + 1] - 1]] != s.dst[self.first + some]
        for i in (self.first + some[wrong]).tolist():
            yield f"{self._name(i)}: its route ends at {_node(s, ends, s.route(i)[-1])}"

    def _broken(self) -> Iterator[str]:
        ends = self.fabric.dst[self.links[self.inner]]
        apart = ends != self.fabric.src[self.links[self.inner + 1]]
        for k in self.inner[apart].tolist():
            pair = self.links[k : k + 2].tolist()
            here, after = (resource_name(self.whole.topology, i) for i in pair)
            yield f"{self._name(int(self.owner[k]))}: its route breaks: {here}, then {after}"

    def _through_storing(self) -> Iterator[str]:
        stores = np.array([node.stores for node in self.whole.topology.nodes])
        for k in self.inner[stores[self.fabric.dst[self.links[self.inner]]]].tolist():
            name, node = self._name(int(self.owner[k])), int(self.links[k])
            node_name = _node(self.whole, self.fabric.dst, node)
            yield f"{name}: its route passes through {node_name}, which stores"

    def _loops(self) -> Iterator[str]:
        """Yield routes that enter a node twice (a route does not enter its start)."""
        longer = np.flatnonzero(np.diff(self.start)[self.owner - self.first] > 1)
        nodes = self.whole.topology.nodes
        entered = self.owner[longer] * len(nodes) + self.fabric.dst[self.links[longer]]
        keys, counts = np.unique(entered, return_counts=True)
        for key in keys[counts > 1].tolist():
            name = nodes[key % len(nodes)].name
            yield f"{self._name(key // len(nodes))}: its route enters {name} twice"


def _route_problems(s: Schedule, fabric: Fabric) -> Iterator[str]:
    """Yield the problems of one kind before those of the next; in blocks, to save memory."""
    found: dict[int, list[str]] = {}
    for block in in_blocks(len(s)):
        for kind, problems in enumerate(_RouteBlock.of(s, fabric, block).problems()):
            told = found.setdefault(kind, [])
            told += islice(problems, PROBLEMS_TOLD + 1 - len(told))
    yield from chain.from_iterable(found.values())


def _node(s: Schedule, ends: Ints, link: int) -> str:
    return s.topology.nodes[int(ends[link])].name


# --- contents -------------------------------------------------------------------------------------


def _arrival_problems(s: Schedule) -> Iterator[str]:
    """Several arrivals at one place in one step, unless all are added up."""
    c, n = s.casts, len(s)
    which = np.repeat(np.arange(len(c)), np.diff(c.destination_start))
    step = np.concatenate((s.step, c.step[which]))
    chunk = np.concatenate((s.chunk, c.chunk[which]))
    dst, adds = np.concatenate((s.dst, c.destinations)), np.concatenate((s.reduce, c.reduce[which]))

    def named(row: int) -> str:
        if row < n:
            return transfer_name(s, row)
        return cast_name(c[int(which[row - n])], int(which[row - n]))

    place = chunk.astype(np.int64) * s.collective.ranks + dst
    order = np.lexsort((place, step))
    follows = (np.diff(step[order]) == 0) & (np.diff(place[order]) == 0)
    for k in np.flatnonzero(follows).tolist():
        i, j = int(order[k]), int(order[k + 1])
        if not (adds[i] and adds[j]):
            origin = f"from rank {s.src[i]}" if i < n else f"by cast {which[i - n]}"
            yield (
                f"{named(j)}: rank {dst[j]} also gets chunk {chunk[j]} {origin} in that step, "
                "and not both are reductions"
            )


_FAULTS = {
    EMPTY: "rank {src} holds nothing of chunk {chunk} yet",
    DOUBLE: "rank {dst} adds to chunk {chunk} a contribution that it already holds",
    LOST: "rank {dst} loses contributions of chunk {chunk} that it holds and this does not bring",
}


def _content_problems(s: Schedule, result: Replay) -> Iterator[str]:
    for i in np.flatnonzero(result.fault).tolist():
        text = _FAULTS[int(result.fault[i])]
        detail = text.format(src=s.src[i], dst=s.dst[i], chunk=s.chunk[i])
        yield f"{transfer_name(s, i)}: {detail}"
    for i in np.flatnonzero(result.cast_fault).tolist():
        one = s.casts[i]
        yield f"{cast_name(one, i)}: {_CAST_FAULTS[int(result.cast_fault[i])]}"


_CAST_FAULTS = {
    EMPTY: "one of its sources holds nothing of the chunk yet",
    DOUBLE: "a contribution would be in a sum twice: in two of its sources, or in what a "
    "destination adds to",
    LOST: "a destination loses contributions that it holds and this does not bring",
}


def _end_problems(s: Schedule, result: Replay) -> Iterator[str]:
    for one in result.unmet:
        yield _unmet(one)
    if result.unmet_count > len(result.unmet):
        yield f"… {result.unmet_count - len(result.unmet)} more places end with the wrong content"
    for place in result.empty_at_end.tolist():
        chunk, rank = divmod(place, s.collective.ranks)
        yield f"rank {rank} sums a group locally and does not hold its chunk {chunk} at the end"


def _unmet(one: Unmet) -> str:
    where = f"chunk {one.chunk} on rank {one.rank} at the end"
    if not one.holds:
        return f"{where}: nothing arrived"
    missing, extra = sorted(one.wants - one.holds), sorted(one.holds - one.wants)
    parts = [f"lacks the contributions of {_some(missing)}"] if missing else []
    parts += [f"has those of {_some(extra)} in its sum"] if extra else []
    return f"{where}: {' and '.join(parts)}"


def _some(ranks: list[int]) -> str:
    shown = ", ".join(map(str, ranks[:8]))
    return shown + (f", … ({len(ranks)} ranks)" if len(ranks) > 8 else "")


# --- times ----------------------------------------------------------------------------------------


def _time_problems(s: Schedule, result: Replay) -> Iterator[str]:
    if s.start_us is None and s.end_us is None:
        return
    if s.start_us is None or s.end_us is None or {len(s.start_us), len(s.end_us)} != {len(s)}:
        yield "times are given for some transfers only, or without their ends"
        return
    good = np.isfinite(s.start_us) & np.isfinite(s.end_us) & (s.start_us >= 0)
    for i in np.flatnonzero(~good | (s.end_us < s.start_us)).tolist():
        yield f"{transfer_name(s, i)} lasts from {s.start_us[i]:g} to {s.end_us[i]:g} µs"
    if s.segments > 1:  # the first slice goes on before the last has come
        return
    known = _known_since(s, ~result.redundant)
    early = s.start_us < known - _TIME_SLACK * np.maximum(1.0, np.abs(known))
    for i in np.flatnonzero(early).tolist():
        yield (
            f"{transfer_name(s, i)} starts at {s.start_us[i]:g} µs, "
            f"what it sends has arrived at {known[i]:g} µs"
        )


def _known_since(s: Schedule, brings: Bools) -> Floats:
    """Time at which all that earlier steps send to the source of each transfer has arrived."""
    assert s.end_us is not None
    place = s.chunk.astype(np.int64) * s.collective.ranks
    source, target = place + s.src, place + s.dst
    latest = np.zeros(s.collective.chunks * s.collective.ranks)
    known = np.zeros(len(s))
    for begin, end in step_runs(s):
        known[begin:end] = latest[source[begin:end]]
        here = brings[begin:end]
        np.maximum.at(latest, target[begin:end][here], s.end_us[begin:end][here])
    return known


# --- rounds ---------------------------------------------------------------------------------------


def _round_problems(s: Schedule, table: Fabric) -> Iterator[str]:
    if not s.rounds:
        return
    if len(s.rounds) != s.steps:
        yield f"rounds are given for {len(s.rounds)} steps, the schedule has {s.steps}"
        return
    for step, rounds in enumerate(s.rounds):
        if rounds < 1:
            yield f"step {step} has {rounds} rounds"
    unit = s.topology.round_bandwidth()
    # In whole numbers: over a common denominator of all widths in chunks per round.
    widths = [min(b / unit, Fraction(1 << 30)) for b in s.topology.capacities()]
    per_chunk = lcm(*(w.denominator for w in widths))
    width = np.array([int(w * per_chunk) for w in widths], object)
    rounds_of = np.clip(np.array(s.rounds, np.int64), 0, 1 << 31)
    steps, rows, loads = step_loads(s, table)
    noun = "grains" if s.collective.sizes else "chunks"
    for k in np.flatnonzero(loads * per_chunk > rounds_of[steps] * width[rows]).tolist():
        limit = int(rounds_of[steps[k]] * width[rows[k]] // per_chunk)
        given = count(s.rounds[int(steps[k])], "round")
        name = resource_name(s.topology, int(rows[k]))
        yield f"step {steps[k]}: {name} carries {loads[k]} {noun}, {limit} fit into {given}"
