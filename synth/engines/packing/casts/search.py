"""The quickest schedules with casts for the sizes that an objective looks at.

Allreduce: the best mixture of trees (:mod:`weft.synth.steiner.packing`), and single pairs of trees
that are cheap at the size, α counted; broadcast and reduce: such trees alone, since no mixture of
them is quicker than without casts where as much enters every node as leaves it. Each is tried in
several numbers of slices and orders by simulation. Allgather and reduce_scatter gain nothing.

Packings of transfers on a machine whose switches compute, as if they only forwarded.

Their search then knows the bound that transfers can meet, and ends there: it is the search of the
machine without capabilities, to the last step. Its results are reported for the machine itself,
with the bound of all schedules.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from itertools import chain

import numpy as np

from weft.dsl.base.arrays import Floats
from weft.dsl.base.kept import kept
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.units import format_bytes
from weft.dsl.nouns.collective import Collective, Kind
from weft.dsl.nouns.problem import Objective, Problem
from weft.dsl.nouns.schedule import Schedule
from weft.dsl.nouns.topology import Topology
from weft.dsl.symmetry.orbits import orbits_of

from ....base.effort import Effort, setting
from ....base.engine import Observer, Outcome, Point, Status
from ....base.meter import Meter
from ....bounds import bounds
from ....fabric.fabric import fabric_of
from ....fabric.occupancy import us_per_byte
from ....frontier.objective import meets_bound
from ....judge.casts import cast_problems
from ....judge.verify import verify
from ....steiner.packing import CastPacking, cast_packing, quick_pairs, rooted_tree, time_of
from ....time.schedule_tables import doubled, prepare
from ....time.schedule_time import simulate
from ....time.slices import SLICE_EFFORT, SliceEffort, fewest_slices
from ..trees.model import point_of
from .schedule import Pair, lifted, planned, schedule_of

KINDS = (Kind.ALLREDUCE, Kind.BROADCAST, Kind.REDUCE)


@dataclass(frozen=True, slots=True, weakref_slot=True)
class CastEffort(Effort):
    """Limits of the search for schedules with casts."""

    most_jobs: int = setting(
        1_500_000, "slices of transfers and legs that one simulation looks at, at most"
    )
    most_segments: int = setting(128, "slices of the message, at most")
    worse: float = setting(
        1.02, "more slices are not tried once the time is this factor above the best"
    )
    some_segments: int = setting(
        8, "slices from which an order that is behind another one gets no more of its own"
    )
    slices: SliceEffort = SLICE_EFFORT

    def of(self, problem: Problem) -> CastEffort:
        """Return these limits with the cost of a message that the problem states, if any."""
        return replace(self, slices=self.slices.of(problem))


CAST_EFFORT = CastEffort()

LAGS = (None, 0, 1, 2, 3)
"""Orders: first come first served, and slice by slice with later steps half slices behind."""


@dataclass(frozen=True, eq=False)
class _CastSchedule:
    """A schedule in one slice and no order, with its rate in µs per byte and its description."""

    schedule: Schedule
    rate: Fraction
    words: str


def casts_help(problem: Problem) -> bool:
    """Return True if switches of the machine may copy or sum for this collective."""
    collective = problem.collective
    able = any(node.computes for node in problem.topology.nodes)
    plain = collective.factor == 1 and not collective.sizes and not collective.local_reduce
    return able and plain and problem.sketch is None and collective.kind in KINDS


def cast_points(problem: Problem, sizes: Sequence[int], meter: Meter) -> list[Point]:
    """Return the best schedules with casts, one for each size at which another one is best."""
    points: list[Point] = []
    by_rate, effort = problem.objective is Objective.BANDWIDTH, CAST_EFFORT.of(problem)
    for size in sizes:
        if points and meter.over():
            break
        found = _best_of(problem.topology, problem.collective, by_rate, size, effort)
        if found is not None:
            steps, schedule, candidate = found
            meter.spend(steps)
            points.append(_point(problem, size, schedule, candidate))
    return points


@kept(most=16)
def _best_of(
    topology: Topology, collective: Collective, by_rate: bool, size: int, effort: CastEffort
) -> tuple[int, Schedule, _CastSchedule] | None:
    """The steps of work, and schedule in the best order and slices, and its name; with
    ``by_rate`` of those of the best rate alone."""
    meter = Meter(sys.maxsize)
    candidates = list(_within_groups(topology, collective, by_rate, size, meter))
    if by_rate:
        least = min((c.rate for c in candidates), default=Fraction(0))
        candidates = [c for c in candidates if c.rate == least]
    best: tuple[float, Schedule, _CastSchedule] | None = None
    for one in sorted(candidates, key=lambda c: c.rate):
        if best is None or float(one.rate) * size < best[0]:
            us, schedule = in_slices(one.schedule, size, meter, effort)
            if best is None or us < best[0]:
                best = us, schedule, one
    return None if best is None else (meter.done, *best[1:])


def _within_groups(
    topology: Topology, collective: Collective, by_rate: bool, size: int, meter: Meter
) -> Iterator[_CastSchedule]:
    """Yield the candidates that keep to the numbers of groups of the switches.

    Trees to many roots take a group for each, of all others; with the issuer in it, all take one.
    """
    kept_any = False
    for one in _candidates(topology, collective, by_rate, size, meter):
        if not any(cast_problems(one.schedule)):
            kept_any = True
            yield one
    machine = _with_issuers(topology)
    if kept_any or machine is None:
        return
    for one in _candidates(machine, collective, by_rate, size, meter):
        moved = replace(one, schedule=replace(one.schedule, topology=topology))
        if not any(cast_problems(moved.schedule)):  # other trees pass a switch with issuers
            yield moved


def _with_issuers(topology: Topology) -> Topology | None:
    """Return the machine with the issuer in all groups of switches of few groups, if any has."""
    few = [
        v
        for v, node in enumerate(topology.nodes)
        if node.computes and not node.issuer_in_group and node.limits.groups is not None
    ]
    if not few:
        return None
    words = {v: (*topology.nodes[v].capabilities, "issuer_in_group") for v in few}
    return topology.with_capabilities(words)


def _candidates(
    topology: Topology, collective: Collective, by_rate: bool, size: int, meter: Meter
) -> Iterator[_CastSchedule]:
    fabric = fabric_of(topology)
    per_byte = fabric.byte_us
    alpha = np.zeros(fabric.resources)
    alpha[: len(topology.links)] = [float(x.latency) for x in topology.links]
    # A share of the message, or all of it, on every link of a tree.
    prices = [alpha + per_byte * size / parts for parts in (1, topology.ranks)]
    if by_rate:
        prices = [per_byte]
    if collective.kind is Kind.ALLREDUCE:
        packing, seen = cast_packing(topology), set[frozenset[Pair]]()
        offered = _single_pairs(topology, prices)
        if packing is not None:
            meter.spend(packing.steps)
            offered = chain([(lifted(packing), "trees through switches")], offered)
        for pairs, words in offered:
            if frozenset(pairs) not in seen:
                seen.add(frozenset(pairs))
                yield _made(topology, collective, pairs, words)
        return
    inward = collective.kind is Kind.REDUCE
    for rows in prices:
        tree = rooted_tree(topology, rows, collective.roots[0], inward=inward)
        if tree is not None:
            pair = (Fraction(1), tree, None) if inward else (Fraction(1), None, tree)
            yield _made(topology, collective, [pair], "one tree through switches")


def _single_pairs(topology: Topology, prices: list[Floats]) -> Iterator[tuple[list[Pair], str]]:
    """Yield the cheapest trees of one root, and with a share for each image of them under the
    symmetries of the machine."""
    orbits = orbits_of(topology)
    for rows in prices:
        for forth, back in quick_pairs(topology, rows):
            pairs = ((Fraction(1), forth, back),)
            yield list(pairs), "one root"
            if forth.root < topology.ranks and orbits.order > 1:
                turned = lifted(CastPacking(topology, orbits, pairs, Fraction(0), None))
                yield turned, "a root in every rank"


def _made(
    topology: Topology, collective: Collective, pairs: Sequence[Pair], words: str
) -> _CastSchedule:
    schedule = schedule_of(topology, collective, pairs)
    rate = time_of(
        topology,
        [
            (weight, [i for tree in trees if tree is not None for i in tree.links()])
            for weight, *trees in pairs
        ],
    )
    return _CastSchedule(schedule, min(rate, us_per_byte(schedule)), words)


def in_slices(
    plain: Schedule, size: int, meter: Meter, effort: CastEffort = CAST_EFFORT
) -> tuple[float, Schedule]:
    """Return the time, with the cost of messages, of the best order in the fewest slices that are
    nearly as quick as any, and the schedule in it."""
    jobs = max(1, len(plain) + len(plain.casts.links))
    runs = {lag: plain if lag is None else planned(plain, lag) for lag in LAGS}
    tables = {lag: prepare(one, effort.slices.model) for lag, one in runs.items()}
    found: list[tuple[float, int, int | None]] = []
    least: dict[int, float] = {}

    def tried(lag: int | None, segments: int) -> float:
        us = tables[lag].time(size, segments=segments)
        meter.spend(2 * jobs * segments)
        found.append((us, segments, lag))
        return us

    most = min(effort.most_segments, effort.most_jobs // jobs)
    for lag in (1, None):
        for us, segments in doubled(partial(tried, lag), most, effort.worse):
            if segments >= effort.some_segments and us > least.setdefault(segments, us):
                break
    free = {lag: prepare(runs[lag]) for lag in (1, None)}
    segments = fewest_slices(
        ((us, n) for us, n, _ in found),
        lambda n: min(free[lag].time(size, segments=n) for _, m, lag in found if m == n),
        effort.slices,
    )
    for lag in LAGS:
        same = lag == 0 and plain.steps <= 2  # as 1, half a slice behind
        if not same and (segments, lag) not in {(n, one) for _, n, one in found}:
            tried(lag, segments)
    us, _, lag = min((one for one in found if one[1] == segments), key=lambda one: one[0])
    return us, replace(runs[lag], segments=segments)


def _point(problem: Problem, size: int, schedule: Schedule, candidate: _CastSchedule) -> Point:
    topology, collective = problem.topology, problem.collective
    assert verify(schedule).ok, "casts are built to be right"
    found = bounds(topology, collective)
    casts, us = len(schedule.casts), simulate(schedule, size).time_us
    words = (
        f"{candidate.words}: {casts} cast{'s' * (casts != 1)} beside {len(schedule)} transfers, "
        f"{schedule.segments} slices, {us:.4g} µs at {format_bytes(size)}"
    )
    bound, certificate = found.us_per_byte, found.certificate
    return point_of(schedule, collective, candidate.rate, bound, certificate, size, words)


WORDS = "where switches only forward: "


@dataclass(frozen=True, slots=True)
class OnMachine:
    """An observer of the search without capabilities, which reports its results to another one."""

    problem: Problem
    observer: Observer

    def stage(self, name: str) -> None:
        """Pass it on."""
        self.observer.stage(name)

    def incumbent(self, point: Point) -> None:
        """Pass it on, as a schedule of the machine itself."""
        self.observer.incumbent(on_machine(self.problem, point))

    def cancelled(self) -> bool:
        """Return the answer of the other observer."""
        return self.observer.cancelled()


def on_machine(problem: Problem, point: Point) -> Point:
    """Return a schedule of transfers as one of the machine itself."""
    found = bounds(problem.topology, problem.collective)
    return replace(
        point,
        schedule=replace(point.schedule, topology=problem.topology),
        bound=found.rounds_per_chunk,
        certificate=found.certificate,
        bandwidth_optimal=point.rounds_per_chunk == found.rounds_per_chunk,
        words=f"{WORDS}{point.words}" if point.words else "",
    )


def outcome_on_machine(problem: Problem, plain: Outcome) -> Outcome:
    """Return an answer without capabilities as one of the machine itself: optimal only if it meets
    the bound of all schedules."""
    points = tuple(on_machine(problem, point) for point in plain.points)
    told = {point.words: f"{WORDS}{point.words}" for point in plain.points if point.words}
    statements = tuple(told.get(line, line) for line in plain.statements)
    status = plain.status
    if problem.objective is not Objective.TIME:
        optimal = all(point.bandwidth_optimal for point in points)
    else:
        optimal = any(meets_bound(point, problem) for point in points)
    if status is Status.OPTIMAL and not optimal:
        status = Status.FEASIBLE
    return replace(plain, status=status, points=points, statements=statements)
