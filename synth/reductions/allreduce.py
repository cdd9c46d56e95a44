"""Allreduce from allgather and reduce_scatter: composed for bandwidth, direct for few steps.

* composed: reduce_scatter of n·k chunks, then allgather of them (BlueConnect, SCCL §3.5);
* direct: an allgather of all whole buffers, then a local sum on each rank: the fewest steps there
  are, n times the traffic;
* with casts, where switches copy and sum: an engine that knows them (``exact``) searches the
  sum as a whole, for its two ways overlap in time and may turn in a switch.

All pairs of points of the two frontiers are combined, so mixed ones (a short reduce_scatter
with a longer allgather) are found too. What breaks a rule of the sketch only as a whole (its number
of chunks or of steps) is left out.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator, Sequence
from dataclasses import field, replace
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from weft.dsl.base.arrays import Ints32
from weft.dsl.base.errors import UserError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.tables import count
from weft.dsl.base.unique_rows import rows_of
from weft.dsl.nouns.casts import Casts
from weft.dsl.nouns.collective import Collective, Kind, make, one_shot_allreduce
from weft.dsl.nouns.problem import Objective, Problem
from weft.dsl.nouns.schedule import Schedule
from weft.dsl.nouns.sketch import Chunks, Sketch
from weft.dsl.nouns.topology import Topology

from ..base.effort import Effort, setting
from ..base.engine import Budget, Certificate, Observer, Outcome, Point, Status
from ..bounds import bounds
from ..bounds.steps.demands import demands, find_orbits, reach
from ..bounds.steps.flow_bound import flow_bound
from ..fabric.occupancy import rounds_per_chunk
from ..frontier.objective import meets_bound, pareto
from ..judge.verify import verify
from ..time.order import LARGE, arranged, counted_us
from ..time.schedule_time import simulate
from .reduction import Quiet, Steps, Subproblem


@dataclass(frozen=True, slots=True)
class ComposeEffort(Effort):
    """Limits of the search for a reduce_scatter and an allgather that overlap well."""

    attempts: int = setting(4, "seeds tried for halves that do not hold each other up, at most")
    whole: float = setting(
        3.0,
        "effort of a search for the least time at one size from which a sum with casts is asked "
        "for as a whole: trees in many slices are as quick, and take less work",
    )


@dataclass(frozen=True, slots=True)
class Composed:
    """An allreduce from a reduce_scatter and an allgather."""

    name: ClassVar[str] = "compose"

    effort: ComposeEffort = field(default_factory=ComposeEffort)

    def fits(self, problem: Problem) -> bool:
        """Every allreduce in which something is added."""
        return problem.collective.kind is Kind.ALLREDUCE and problem.collective.combining

    def apply(self, problem: Problem, budget: Budget, observer: Observer, solver: str) -> Steps:
        """Solve the halves and combine them, as :func:`composed_allreduce`."""
        whole = Outcome(Status.NOTHING)
        worth = problem.objective is not Objective.TIME or budget.effort >= self.effort.whole
        asked = replace(problem, collective=as_sum(problem.collective.ranks))
        if solver == "exact" and worth and takes_sum(asked):
            share = replace(budget, effort=budget.effort / 3)
            whole = yield Subproblem(asked, share, Quiet(observer))
            budget = replace(budget, effort=budget.effort - share.effort)
        return (yield from composed_allreduce(problem, budget, observer, self.effort, whole))


def composed_allreduce(
    problem: Problem, budget: Budget, observer: Observer, effort: ComposeEffort, whole: Outcome
) -> Steps:
    """Solve the two halves and combine their points, and those found as a ``whole``, into one
    frontier.

    Halves that are optimal alone can delay each other where they overlap in time; then other
    seeds give other halves, and the fastest combination is kept.

    Raises:
        UserError: no combination obeys the sketch.
    """
    meter = budget.meter(observer.cancelled)
    size = problem.bytes or LARGE
    static = bounds(problem.topology, problem.collective)
    best: list[Point] = []
    gathers = scatters = Outcome(Status.NOTHING)
    for attempt in range(effort.attempts):
        if attempt and meter.left < meter.limit / 2:
            break
        seeded = replace(budget.within(meter), seed=budget.seed + attempt)
        gathers, scatters = yield from _halves(problem, seeded, Quiet(observer))
        if not gathers.points:
            return gathers
        found = [*map(_direct, gathers.points)]
        found += _composed(scatters.points, gathers.points, problem.collective.ranks)
        named = make(Kind.ALLREDUCE, problem.collective.ranks)
        for p in whole.points:  # a sum requested as a whole: its schedule is an allreduce's
            schedule = replace(p.schedule, collective=named.split(p.factor))
            found.append(replace(p, schedule=schedule))
        found = _obedient(found, problem.sketch)
        points = [
            replace(p, schedule=arranged(p.schedule, size, budget.seed, meter=meter))
            for p in pareto(found)
        ]
        best = _quicker(best, points, size)
        if observer.cancelled() or all(
            simulate(p.schedule, size).time_us <= counted_us(p.schedule, size) * (1 + 1e-9)
            for p in best  # no longer than the rounds predict
        ):
            break
    points = [_certified(p, problem, static.rounds_per_chunk, static.certificate) for p in best]
    return _outcome(problem, points, gathers, scatters, whole)


def takes_sum(problem: Problem, most_ranks: int = 16) -> bool:
    """Return True for an allreduce called custom (:func:`as_sum`) where switches copy and sum."""
    topology, collective = problem.topology, problem.collective
    if problem.sketch is not None or topology.ranks > most_ranks:
        return False
    if collective.kind is not Kind.CUSTOM or collective.chunks != 1 or not collective.combining:
        return False
    able = any(node.multicast for node in topology.nodes)
    able = able and any(node.reduces for node in topology.nodes)
    return able and collective == as_sum(collective.ranks)


def as_sum(ranks: int) -> Collective:
    """Return the allreduce as a collective of its own: a sum at all ranks, not two halves."""
    return replace(make(Kind.ALLREDUCE, ranks), kind=Kind.CUSTOM, name="allreduce")


def _halves(
    problem: Problem, budget: Budget, observer: Observer
) -> Generator[Subproblem, Outcome, tuple[Outcome, Outcome]]:
    """The allgather and, unless only the fewest steps are wanted, the reduce_scatter."""
    n, size = problem.collective.ranks, problem.bytes or LARGE
    problem = replace(problem, sketch=_for_blocks(problem.sketch, n))
    share = replace(budget, effort=budget.effort / 2)
    gather = replace(problem, collective=make("allgather", n))
    gathers = yield Subproblem(gather, share, observer)
    if problem.objective is Objective.LATENCY:
        return gathers, Outcome(Status.NOTHING)
    points = tuple(
        replace(p, schedule=arranged(p.schedule, size, budget.seed)) for p in gathers.points
    )
    scatter = replace(problem, collective=make("reduce_scatter", n))
    scatters = yield Subproblem(scatter, share, observer)
    return replace(gathers, points=points), scatters


def _for_blocks(sketch: Sketch | None, ranks: int) -> Sketch | None:
    """The sketch for a half, in which each rank has one block: of N chunks of the buffer a block
    has N / ranks. Where that is not a whole number only a sum at home can have N."""
    rules = (
        replace(x, count=x.count // ranks) if isinstance(x, Chunks) and x.count % ranks == 0 else x
        for x in (sketch.rules if sketch else ())
    )
    return sketch and replace(sketch, rules=tuple(rules))


def _obedient(points: Sequence[Point], sketch: Sketch | None) -> list[Point]:
    if sketch is None:
        return list(points)
    verdicts = [verify(p.schedule, sketch) for p in points]
    kept = [p for p, verdict in zip(points, verdicts, strict=True) if verdict.ok]
    if points and not kept:
        why = verdicts[0].problems[0]
        raise UserError(
            f"a reduce_scatter and an allgather, put together, break a rule: {why}",
            hint="drop or loosen it, or choose an engine that knows sums (sketched, classic)",
        )
    return kept


def _quicker(old: Sequence[Point], new: Sequence[Point], size: int) -> list[Point]:
    def key(p: Point) -> tuple[int, Fraction, float]:
        return p.steps, p.rounds_per_chunk, simulate(p.schedule, size).time_us

    return pareto(sorted([*old, *new], key=key))


def _outcome(
    problem: Problem, points: list[Point], gathers: Outcome, scatters: Outcome, whole: Outcome
) -> Outcome:
    objective = problem.objective
    if objective is Objective.BANDWIDTH:
        points = points[-1:]
    elif objective is Objective.LATENCY:
        points = points[:1]
    gaps = tuple(
        f"{count(p.steps, 'step')}: found {p.rounds_per_chunk}, proved at least "
        f"{count(p.bound, 'round')} per chunk"
        for p in points
        if not p.optimal
    )
    named = (("allgather", gathers), ("reduce_scatter", scatters), ("with casts", whole))
    halves = tuple(f"{name}: {s}" for name, half in named for s in half.statements)
    # A latency answer promises the fewest steps; the others, that nothing beats the last.
    proved = not gaps and (objective is Objective.LATENCY or points[-1].bandwidth_optimal)
    if objective is Objective.TIME:
        proved = any(meets_bound(p, problem) for p in points)
    status = Status.OPTIMAL if proved else Status.FEASIBLE
    return Outcome(status, tuple(points), (*gaps, *halves))


def _direct(gather: Point) -> Point:
    schedule = one_shot_allreduce_from(gather.schedule)
    return replace(gather, schedule=schedule, bandwidth_optimal=False)


def _composed(scatters: Sequence[Point], gathers: Sequence[Point], ranks: int) -> Iterator[Point]:
    for a in scatters:
        for b in gathers:
            factor = math.lcm(a.factor, b.factor)
            first = refine(a.schedule, factor // a.factor)
            second = refine(b.schedule, factor // b.factor)
            schedule = compose_allreduce(first, second)
            rounds = sum(schedule.rounds)
            # Halves of engines that know times, not rounds: the load of the busiest link.
            rate = None if rounds else rounds_per_chunk(schedule)
            yield Point(
                schedule,
                a.steps + b.steps,
                rounds,
                factor * ranks,
                Fraction(0),
                a.certificate,
                rate=rate,
            )


def _certified(point: Point, problem: Problem, static: Fraction, certificate: Certificate) -> Point:
    """The point with the better of two bounds: the one for any number of steps, and that of a
    broadcast of S steps, which every allreduce of S steps contains for every root. The latter
    counts in rounds: it is none of a schedule without rounds, whose steps may overlap."""
    steps_bound, root = (Fraction(0), 0)
    if point.rate is None and point.rounds_per_chunk > static:
        steps_bound, root = _broadcast_bound(problem.topology, point.steps)
    bound = max(static, steps_bound)
    if steps_bound > static:
        certificate = Certificate(
            "broadcast",
            f"allreduce contains the broadcast of rank {root}'s buffer, which needs {bound} rounds "
            f"per chunk in {point.steps} steps (flow LP)",
            {"root": root, "steps": point.steps, "rounds_per_chunk": str(bound)},
        )
    return replace(
        point,
        bound=bound,
        certificate=certificate,
        bandwidth_optimal=point.rounds_per_chunk == static,
    )


def _broadcast_bound(topology: Topology, steps: int) -> tuple[Fraction, int]:
    near = reach(topology)
    best = (Fraction(0), 0)
    for root in range(topology.ranks):
        wanted = demands(make("broadcast", topology.ranks, roots=(root,)))
        orbits = find_orbits(topology, wanted, (), ())
        flow = flow_bound(topology, wanted, near, steps, orbits)
        best = max(best, (flow.rounds_per_chunk, root))
    return best


def compose_allreduce(scatter: Schedule, gather: Schedule) -> Schedule:
    """The reduce_scatter schedule followed by the allgather schedule, as one allreduce.

    Chunk j of block b is chunk ``b * k + j`` in all three collectives. Rounds are concatenated
    where both schedules have them.

    Raises:
        UserError: not these two collectives, different cuts, or different machines.
    """
    first, second = scatter.collective, gather.collective
    if first.kind is not Kind.REDUCE_SCATTER or second.kind is not Kind.ALLGATHER:
        raise UserError(f"a reduce_scatter and an allgather are needed, not {first} and {second}")
    if first.factor != second.factor:
        raise UserError(f"blocks are cut in {first.factor} chunks here, in {second.factor} there")
    if scatter.topology != gather.topology:
        raise UserError("the two halves of an allreduce are on different machines")
    if first.sizes != second.sizes:
        raise UserError("the blocks are cut in other shares here than there")
    if scatter.segments != 1 or gather.segments != 1:
        raise UserError("the halves of an allreduce are put together before they are segmented")
    n = first.ranks
    whole = make(Kind.ALLREDUCE, n)
    cut = whole.cut([first.sizes]) if first.sizes else whole.split(n * first.factor)
    offset = len(scatter.rounds) or scatter.steps
    one, two = scatter.columns(), gather.columns()
    two["step"] = two["step"] + offset
    if "priority" in one and "priority" in two:  # sums go before copies
        two["priority"] = two["priority"].astype(np.int64) + one["priority"].max(initial=-1) + 1
    joined: dict[str, Any] = {
        name: np.concatenate([one[name], two[name]]) for name in one if name in two
    }
    rounds = scatter.rounds + gather.rounds
    return Schedule.from_columns(
        scatter.topology,
        cut,
        **joined,
        rounds=rounds if scatter.rounds and gather.rounds else (),
        casts=Casts.of(
            (*scatter.casts, *(replace(one, step=one.step + offset) for one in gather.casts))
        ),
        provenance={
            "reduction": "compose",
            "parts": [dict(scatter.provenance), dict(gather.provenance)],
        },
    )


def one_shot_allreduce_from(gather: Schedule) -> Schedule:
    """An allgather schedule as the allreduce in which every rank sums at home.

    Chunk j of rank r is chunk ``r * k + j`` in both; the transfers are the same.

    Raises:
        UserError: the schedule is not an allgather, or its chunks are not equal.
    """
    c = gather.collective
    if c.kind is not Kind.ALLGATHER:
        raise UserError(f"a one-shot allreduce is made from an allgather, not {c}")
    if c.sizes:
        raise UserError("a one-shot allreduce is made of equal chunks; these have unequal sizes")
    return replace(
        gather,
        collective=one_shot_allreduce(c.ranks, chunks=c.factor),
        bytes=None,
        provenance={"reduction": "one-shot", "parts": [dict(gather.provenance)]},
    )


# --- the same schedule on smaller chunks ----------------------------------------------------------


def refine(schedule: Schedule, pieces: int) -> Schedule:
    """Every chunk cut into ``pieces``, each taking the same way; rounds grow with them.

    Rounds per chunk stay the same. Pieces of a chunk stay together inside a step and in the
    planned order. Times do not survive.

    Raises:
        UserError: a custom collective whose chunks are of unequal sizes.
    """
    if pieces == 1:
        return schedule
    columns = schedule.columns()
    del columns["route_links"]
    columns = {name: np.repeat(column, pieces) for name, column in columns.items()}
    row = np.repeat(np.arange(len(schedule)), pieces)
    columns["chunk"] = columns["chunk"] * pieces + np.tile(np.arange(pieces), len(schedule))
    finer = (
        replace(one, chunk=one.chunk * pieces + piece)
        for one in schedule.casts
        for piece in range(pieces)
    )
    made = Schedule.from_columns(
        schedule.topology,
        _finer(schedule.collective, pieces),
        **columns,
        route_links=schedule.route_links[rows_of(schedule.route_start, row)[1]],
        rounds=tuple(r * pieces for r in schedule.rounds),
        provenance=schedule.provenance,
        stride=schedule.stride,
        segments=schedule.segments,
        casts=Casts.of(finer, _repeated(schedule.casts.priority, pieces)),
    )
    return replace(made, bytes=schedule.bytes)


def _repeated(priority: Ints32 | None, pieces: int) -> list[int] | None:
    return None if priority is None else np.repeat(priority, pieces).tolist()


def _finer(collective: Collective, pieces: int) -> Collective:
    if not collective.sizes:
        return collective.split(pieces)
    if collective.kind is Kind.CUSTOM or collective.local_reduce:
        raise UserError(f"chunks of {collective.name}, of unequal sizes, are cut once, not again")
    grains = collective.grains
    of_chunk = (np.cumsum(grains) - grains) // collective.factor
    return collective.plain().cut_in(np.repeat(grains, pieces), np.bincount(of_chunk) * pieces)
