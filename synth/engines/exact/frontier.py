"""The frontier of steps against rounds per chunk, complete over all chunk counts.

For each number of steps S the flow LP gives the least rounds per chunk that *any* number of
chunks can reach; its rational value names the chunk count, a solver realizes it. A point whose
value equals the LP's is optimal, and every better one is refuted by the LP's dual. The search
ends when a point reaches the bound that holds for any number of steps, or at the step limit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import islice

import numpy as np

from weft.dsl.base.errors import Infeasible, NothingFound
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.tables import count
from weft.dsl.nouns.collective import Collective
from weft.dsl.nouns.schedule import Schedule
from weft.dsl.nouns.topology import Topology

from ...base.engine import Certificate, Point
from ...base.meter import STEPS, Meter
from ...bounds.steps.demands import CopyDemand, DemandOrbits, HopDistances
from ...bounds.steps.flow_bound import FlowBound, flow_bound
from ...judge.prune import prune
from ..classic.schedule import rounds_of
from . import realize as cp_sat
from .effort import ExactEffort
from .instance import ExactQuestion, ExactRun, Space
from .realize import Realization, SolverVerdict

Solver = Callable[[Space, ExactQuestion, Meter, ExactRun], Realization]


@dataclass(frozen=True)
class FrontierSearch:
    """Everything the frontier search needs; ``spaces`` are tried in turn, the last is complete.

    ``forwarding`` are spaces without casts, where others have some.
    ``left`` is the machine with the links that a sketch leaves, which the flow LP is about;
    ``near`` and ``orbits`` are of that machine.

    Inside the search rounds are counted per *unit*: per chunk of ``collective`` as given, which is
    1/``collective.factor`` of the plain one. ``static`` is the proven number for any number of
    steps; ``factor`` the chunk count
    that a sketch demands, if any.
    """

    topology: Topology
    collective: Collective
    wanted: tuple[CopyDemand, ...]
    left: Topology
    near: HopDistances
    orbits: DemandOrbits
    spaces: tuple[Space, ...]
    solver: Solver
    static: Fraction
    static_certificate: Certificate
    factor: int | None
    max_chunks: int
    least_steps: int
    run: ExactRun
    forwarding: tuple[Space, ...] = ()

    def bound(self, steps: int, meter: Meter) -> FlowBound | None:
        """The flow LP of S steps; None if S steps are too few for any schedule.

        Where it is not solved with half of what is left, the bound for any number of steps stands
        in for it.
        """
        try:
            half = meter.part(0.5)
            return flow_bound(self.left, self.wanted, self.near, steps, self.orbits, half)
        except Infeasible:
            return None
        except NothingFound:
            nothing = np.zeros((len(self.orbits.capacities), steps), np.int64)
            return FlowBound(steps, self.static, False, float(self.static), nothing, 1, 0)

    def spaces_at(self, steps: int, lower: Fraction, meter: Meter) -> tuple[Space, ...]:
        """The spaces to try for S steps: those without casts first, where the flow LP says that
        switches which only forward suffice for ``lower``."""
        if not self.forwarding:
            return self.spaces
        plain = replace(self, left=self.left.without_capabilities())
        flow = plain.bound(steps, meter)
        enough = flow is not None and flow.rounds_per_chunk <= lower
        return (*self.forwarding, *self.spaces) if enough else self.spaces


def candidates(
    factor: int | None, max_chunks: int, effort: ExactEffort, steps: int, lower: Fraction
) -> Iterator[tuple[int, int]]:
    """(chunks, rounds) to try for S steps, best ratio first, never below ``lower``; chunks are
    ``factor``, if one is demanded, or at most ``max_chunks``.

    First the LP's own ratio, at its denominator and small multiples; then larger ratios of small
    chunk counts. Rounds are at least S, since every step has one.
    """
    if factor is not None:
        least = max(steps, -(-lower.numerator * factor // lower.denominator))
        yield from ((factor, rounds) for rounds in range(least, 64 * least + 64))
        return
    multiples = range(1, max_chunks // lower.denominator + 1)
    long_enough = (k for k in multiples if k * lower.numerator >= steps)
    for k in islice(long_enough, effort.multiples):
        yield k * lower.denominator, k * lower.numerator
    ratios: dict[Fraction, int] = {}
    for c in range(1, min(max_chunks, effort.next_best) + 1):
        least = max(steps, -(-lower.numerator * c // lower.denominator))
        for rounds in (least, least + 1, least + 2):
            if Fraction(rounds, c) > lower:
                ratios.setdefault(Fraction(rounds, c), c)
    for ratio, c in sorted(ratios.items()):
        yield c, int(ratio * c)


@dataclass(frozen=True, slots=True)
class Realized:
    """Result of a search over candidates: an answer and its chunk count, or neither.

    ``refuted``: every smaller candidate number of rounds has been proved impossible.
    """

    answer: Realization | None
    chunks: int
    refuted: bool


def realize(
    search: FrontierSearch,
    steps: int,
    lower: Fraction,
    worst: Fraction | None,
    meter: Meter,
) -> Realized:
    """The first candidate better than ``worst`` that a solver finds, or else the best it can find.

    A candidate that the solver cannot decide ends the list: later ones are not easier. Then
    the least rounds of small chunk counts are searched with the effort that is left.
    """
    refuted = True
    spaces = search.spaces_at(steps, lower, meter)
    limits = search.factor, search.max_chunks, search.run.effort
    for chunks, rounds in candidates(*limits, steps, lower):
        if worst is not None and Fraction(rounds, chunks) >= worst:
            return Realized(None, 0, refuted)
        for i, space in enumerate(spaces):
            if meter.over():
                return Realized(None, 0, False)
            complete = i == len(spaces) - 1
            share = meter.part(search.run.effort.question_share)
            if not complete:
                share = meter.of(
                    min(share.limit, round(search.run.effort.invariant_effort * STEPS))
                )
            search.run.observer.stage(f"{steps} steps: {rounds} rounds for {chunks} chunks")
            question = ExactQuestion(chunks, steps, rounds)
            answer = search.solver(space, question, share, search.run)
            if answer.verdict is SolverVerdict.YES:
                return Realized(answer, chunks, refuted)
            proved = answer.verdict is SolverVerdict.NO and space.conclusive and space.refutes
            refuted = refuted and (proved or not complete)
            if complete and answer.verdict is SolverVerdict.UNKNOWN:
                return _fewest(search, spaces, steps, lower, worst, meter)
    return Realized(None, 0, False)


def _fewest(
    search: FrontierSearch,
    spaces: tuple[Space, ...],
    steps: int,
    lower: Fraction,
    worst: Fraction | None,
    meter: Meter,
) -> Realized:
    """The best of small chunk counts, each with as few rounds as its share of effort finds.

    CP-SAT minimises; z3's paper encoding does not, and finds nothing here.
    """
    best = Realized(None, 0, False)
    counts = search.run.effort.few_chunks if search.factor is None else (search.factor,)
    for chunks in counts:
        most = 4 * steps + 4 * int(lower * chunks)
        if worst is not None:
            most = -(-worst.numerator * chunks // worst.denominator) - 1
        if chunks > search.max_chunks or most < steps or most < lower * chunks:
            continue
        for space in spaces[:1] + spaces[1:][-1:]:
            if meter.over():
                return best
            if most < steps or most < lower * chunks:
                break  # no fewer are possible
            search.run.observer.stage(f"{steps} steps: fewest rounds for {chunks} chunks")
            question = ExactQuestion(chunks, steps, most, fewest=True)
            share = meter.part(search.run.effort.question_share / 2)
            answer = search.solver(space, question, share, search.run)
            if answer.verdict is SolverVerdict.YES:
                value = Fraction(sum(answer.rounds), chunks)
                if worst is None or value < worst:
                    best, worst = Realized(answer, chunks, False), value
                    most = sum(answer.rounds) - 1
    return best


@dataclass(frozen=True, slots=True)
class Frontier:
    """Points with ever more steps and fewer rounds per chunk; ``gaps`` in words; ``complete``:
    the last point reaches the bound for any number of steps."""

    points: tuple[Point, ...]
    gaps: tuple[str, ...]
    complete: bool


def walk(
    search: FrontierSearch, numbers: range, meter: Meter, *, points: int | None = None
) -> Frontier:
    """The best point for each number of steps that is better than those before it.

    Ends at the bound for any number of steps, or once there are as many ``points`` as wanted.
    """
    given = search.collective.factor
    found: list[Point] = []
    gaps: list[str] = []
    worst: Fraction | None = None
    for steps in numbers:
        if meter.over():
            gaps.append(f"stopped before schedules of {count(steps, 'step')} were searched")
            break
        point, lower = point_at(search, steps, worst, meter)
        if point is not None:
            found.append(replace(point, step_optimal=point.steps == search.least_steps))
            worst = point.rounds_per_chunk * given
        if lower is not None and (worst is None or worst > lower):
            best = "nothing found" if worst is None else f"best found {worst / given}"
            least = count(lower / given, "round")
            gaps.append(f"{count(steps, 'step')}: {best}, proved at least {least} per chunk")
        if worst == search.static or len(found) == points:
            break
    return Frontier(tuple(found), tuple(gaps), worst == search.static)


def first_at_best(search: FrontierSearch, first: int, last: int, meter: Meter) -> int:
    """The least number of steps whose flow LP reaches the bound for any number of steps."""
    for steps in range(first, last):
        if meter.over():
            return steps
        flow = search.bound(steps, meter)
        if flow is not None and flow.rounds_per_chunk <= search.static:
            return steps
    return last


def any_point(search: FrontierSearch, numbers: range, meter: Meter) -> Point | None:
    """A schedule with as many rounds as its loads need, and the bound for any number of steps.

    Without capacities the question is easy; its schedule is far from good, but runs.
    """
    space = search.spaces[-1]
    for steps in numbers:
        if meter.over():
            return None
        question = ExactQuestion(search.factor or 1, steps, None)
        half = meter.part(0.5)
        answer = cp_sat.solve(space, question, half, search.run)
        if answer.verdict is not SolverVerdict.YES:
            continue
        collective = search.collective.split(question.factor)
        found = Schedule.of(search.topology, collective, answer.transfers, casts=answer.casts)
        schedule = prune(found)
        schedule = replace(schedule, rounds=rounds_of(schedule))
        point = Point(
            schedule,
            schedule.steps,
            sum(schedule.rounds),
            collective.factor,
            search.static / search.collective.factor,
            search.static_certificate,
        )
        search.run.observer.incumbent(point)
        return point
    return None


def point_at(
    search: FrontierSearch,
    steps: int,
    worst: Fraction | None,
    meter: Meter,
) -> tuple[Point | None, Fraction | None]:
    """The best point of at most S steps, if better than ``worst``; and the proven bound for S."""
    search.run.observer.stage(f"{steps} steps: lower bound")
    flow = search.bound(steps, meter)
    if flow is None:
        return None, None
    lower = max(flow.rounds_per_chunk, search.static)
    if worst is not None and lower >= worst:
        return None, lower
    found = realize(search, steps, lower, worst, meter)
    # With the number of chunks given, refuting all fewer rounds is as good as a bound.
    searched = search.factor is not None and found.refuted
    if found.answer is None:
        return None, worst if searched else lower
    pinned = search.spaces[-1].pinned
    # Steps that a rule names keep their numbers; a send that must be may be redundant.
    named = any(rule.step is not None for rule in pinned)
    answer = found.answer if named else without_empty_steps(found.answer)
    schedule = Schedule.of(
        search.topology,
        search.collective.split(found.chunks),
        answer.transfers,
        rounds=answer.rounds,
        casts=answer.casts,
    )
    schedule = schedule if any(rule.must for rule in pinned) else prune(schedule)
    point = _with_proof(search, schedule, flow, lower, searched)
    search.run.observer.incumbent(point)
    return point, point.bound * search.collective.factor


def _with_proof(
    search: FrontierSearch, schedule: Schedule, flow: FlowBound, lower: Fraction, searched: bool
) -> Point:
    """A schedule with the proof of how good it is, rounds counted per chunk of the plain form."""
    given, factor, rounds = search.collective.factor, schedule.collective.factor, schedule.rounds
    bound = lower / given
    certificate = price_certificate(search.left, search.orbits, flow, given)
    if search.static > flow.rounds_per_chunk or not flow.columns:
        certificate = search.static_certificate
    value = Fraction(sum(rounds), factor)
    if searched and value > bound:
        text = (
            f"exhaustive search: no schedule of {flow.steps} steps with {factor} chunks takes "
            f"fewer than {sum(rounds)} rounds (over any number of chunks: {certificate.text})"
        )
        data = {"steps": flow.steps, "rounds": sum(rounds), "chunks": factor}
        bound, certificate = value, Certificate("search", text, data)
    return Point(
        schedule,
        schedule.steps,
        sum(rounds),
        factor,
        bound,
        certificate,
        bandwidth_optimal=value * given == search.static,
    )


def without_empty_steps(answer: Realization) -> Realization:
    """A solver may leave a step unused where more rounds are requested than it needs."""
    used = sorted({t.step for t in answer.transfers} | {one.step for one in answer.casts})
    place = {step: i for i, step in enumerate(used)}
    return replace(
        answer,
        transfers=tuple(replace(t, step=place[t.step]) for t in answer.transfers),
        casts=tuple(replace(one, step=place[one.step]) for one in answer.casts),
        rounds=tuple(answer.rounds[step] for step in used),
    )


def price_certificate(
    topology: Topology, orbits: DemandOrbits, flow: FlowBound, given: int
) -> Certificate:
    """Prices per resource and step: per step they cost one round at most, and a chunk cannot be
    delivered for less than ``rounds_per_chunk`` of them (weak duality; checked in integers). The
    collective as given has ``given`` chunks per unit of the plain one."""
    value = flow.rounds_per_chunk / given
    prices = [
        [resource_name(topology, resource), step + 1, str(Fraction(int(price), flow.denominator))]
        for resource, orbit in enumerate(orbits.resource_orbit.tolist())
        for step, price in enumerate(flow.prices[orbit].tolist())
        if price
    ]
    text = (
        f"{flow.steps}-step flow LP: at {len(prices)} prices on links and steps, whose capacity in "
        f"any step costs at most 1 per round, delivering a chunk per unit costs at least {value}; "
        f"so every schedule of {count(flow.steps, 'step')} needs {count(value, 'round')} per chunk"
    )
    if flow.exact:
        text += " (attained by a fractional flow)"
    data = {
        "steps": flow.steps,
        "rounds_per_chunk": str(value),
        "prices": prices,
    }
    return Certificate("lp", text, data)


def resource_name(topology: Topology, resource: int) -> str:
    """A link by its ends, a shared resource by its name."""
    if resource >= len(topology.links):
        return topology.resources[resource - len(topology.links)].name
    one = topology.links[resource]
    return f"{topology.nodes[one.src].name} -> {topology.nodes[one.dst].name}"
