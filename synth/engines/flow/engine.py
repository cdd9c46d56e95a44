"""The engine ``flow``: path flows with latency by linear programs; copies in epochs by MILP.

**Paths**: spare bandwidth is traded for lower latency. A transfer over a row (a link or a shared
resource) has α before and behind it, at least ``wait``; so T >= wait + load in every row. The least
T of that linear program, over all paths and all splits of the pairs among them, bounds every
schedule from below; its dual prices prove it, in rationals. Then, for T and some times above it,
the flow of least α that fits is computed: small messages get short paths, large ones the best rate,
and sizes between them a compromise. **Copies** are in :mod:`.copies`.
"""

from __future__ import annotations

import math
from dataclasses import field, replace
from fractions import Fraction
from functools import cached_property
from typing import ClassVar

import numpy as np

from weft.dsl.base.arrays import Floats
from weft.dsl.base.errors import UserError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.units import BYTES_PER_US_PER_GBPS
from weft.dsl.nouns.collective import Collective, Kind
from weft.dsl.nouns.problem import Objective, Problem
from weft.dsl.nouns.sketch import Chunks, MaxDetour, MaxHops, MaxSteps, Sketch, Symmetry
from weft.dsl.nouns.topology import Topology
from weft.dsl.symmetry.orbits import orbits_of

from ...base.engine import Budget, Certificate, Observer, Outcome, Point, Status
from ...base.meets import meets
from ...base.meter import Meter
from ...bounds import Bounds, Composite, binding, bounds, lower_bound_us
from ...bounds.composite import always, waiting
from ...bounds.distance import Lengths
from ...bounds.flow import priced
from ...fabric.fabric import fabric_of
from ...fabric.occupancy import us_per_byte
from ...frontier.objective import point_of
from ...judge.allowed_pairs import orbits_for
from ...lp.certified import common_denominator
from ...time.schedule_time import simulate
from ..packing.order.order_search import ORDER_EFFORT, OrderLimits, Planned, quickest
from ..packing.order.plan import PackingPlan, PlanQuotient, unfolded
from ..packing.paths.columns import SplitTask, figures, generate, split, trees_of
from ..packing.paths.matching import in_rounds
from ..packing.paths.net import PathNet, PathPool, net_of
from ..packing.paths.paths import pack_paths
from ..packing.paths.route import PathJob, Routing, Split, get_ready
from ..packing.trees.demands import PairDemand, moves_pairs, pairs_of, symmetric
from ..packing.trees.model import Packing
from ..sketched.engine import Sketched
from .copies import Copied, solve_copies
from .effort import FLOW_EFFORT, FlowEffort


@dataclass(frozen=True, slots=True)
class FlowEngine:
    """Flows over the paths that suit the message's size; copies are searched in epochs.

    A chunk with one source and one destination flows over paths. What is copied is searched in
    epochs that round down, then timed without them.

    Options:
        solver: solver of the program with copies: ``highs``, ``cbc`` (both come with weft), or the
            name of a solver that PuLP finds, such as ``GUROBI_CMD`` or ``CPLEX_CMD``.
        chunks: pieces that every unit is cut into where it is copied; 0: 1, 2 and 4 are tried.
        epochs: epochs of a schedule with copies, at most; 0: as many as its program has room for.
    """

    name: ClassVar[str] = "flow"
    cites: ClassVar[str] = (
        "Liu et al., TE-CCL, SIGCOMM 2024; Ford & Fulkerson, A suggested computation for maximal "
        "multi-commodity network flows, 1958"
    )

    solver: str = "highs"
    chunks: int = 0
    epochs: int = 0
    effort: FlowEffort = field(default=FLOW_EFFORT, repr=False)

    def __post_init__(self) -> None:
        if not 0 <= self.chunks <= 64 or not 0 <= self.epochs <= 1000:
            raise UserError("flow: chunks is 0 … 64, epochs is 0 … 1000")
        if self.solver not in ("highs", "cbc"):
            _check_solver(self.solver)

    @classmethod
    def availability(cls) -> str | None:
        """It needs nothing that weft does not need."""
        return None

    def refuses(self, problem: Problem) -> str | None:
        """Sums, sketches of paths, chunks that are cut already, too large problems."""
        collective = problem.collective
        if collective.ranks < 2 or not len(collective.post):
            return "nothing has to move: every rank holds already what it wants"
        if collective.combining or collective.local_reduce:
            return "it moves and copies, and adds nothing up"
        if collective.sizes:
            return "its chunks are all of one size"
        if moves_pairs(collective) and collective.factor == 1:
            return self._refuses_paths(problem)
        if why := self._refuses_ranks(problem):
            return why
        for rule in problem.sketch.rules if problem.sketch else ():
            if isinstance(rule, MaxHops | MaxSteps | MaxDetour):
                return f"its program does not count how far chunks come ({rule.label!r})"
        return Sketched().refuses(self.moved(problem))

    def _refuses_ranks(self, problem: Problem) -> str | None:
        most, ranks = self.effort.copy_ranks, problem.collective.ranks
        if ranks <= most:
            return None
        if ranks > self.effort.symmetric_ranks:
            return (
                f"copies in epochs are for {self.effort.symmetric_ranks} ranks at most, not {ranks}"
            )
        moved = self.moved(problem)
        alike = orbits_for(problem.topology, moved.sketch).order if moved.sketch else 1
        if ranks > most * alike:
            return (
                f"copies in epochs are for {most} ranks at most of which none is moved to another, "
                f"not {ranks // alike}"
            )
        return None

    def moved(self, problem: Problem) -> Problem:
        """The problem of more ranks than the program has room for, whose schedules are to have the
        symmetry of the machine; any other as it is."""
        collective = problem.collective
        few = collective.ranks <= self.effort.copy_ranks
        if few or problem.sketch is not None or collective.kind is not Kind.ALLGATHER:
            return problem
        images = orbits_of(problem.topology).images[1:, : collective.ranks].tolist()
        rules = tuple(Symmetry(tuple(x), label="symmetry of the machine") for x in images)
        return replace(problem, sketch=Sketch("", rules)) if rules else problem

    def _refuses_paths(self, problem: Problem) -> str | None:
        if problem.sketch is not None:
            return "flows of paths are for the machine as it is; a sketch guides a search"
        count = pairs_to_solve(problem.topology, problem.collective)
        if not count:
            return "nothing has to move: every rank holds already what it wants"
        if count > self.effort.most_pairs:
            return f"its linear program takes {self.effort.most_pairs} pairs, not {count}"
        return None

    def solve(self, problem: Problem, budget: Budget, observer: Observer) -> Outcome:
        """The best schedule at the size that the objective looks at.

        Raises:
            UserError: a chunk cannot reach all ranks that want it.
            Missing: the solver does not run here.
        """
        if moves_pairs(problem.collective) and problem.collective.factor == 1:
            return _paths(self.effort, problem, budget, observer)
        return _copies(self, self.moved(problem), budget, observer)

    def cuts(self, problem: Problem) -> tuple[int, ...]:
        """Into how many pieces units that are copied may be cut."""
        rules = problem.sketch.rules if problem.sketch else ()
        said = [rule.count for rule in rules if isinstance(rule, Chunks)]
        return (said[0],) if said else (self.chunks,) if self.chunks else self.effort.cuts


def _check_solver(solver: str) -> None:
    import pulp

    names = sorted(pulp.listSolvers())
    if solver not in names:
        raise UserError(
            f"flow: no solver {solver!r}", hint=f"highs, cbc, or of PuLP: {', '.join(names)}"
        )


def _size(problem: Problem, effort: FlowEffort) -> int:
    match problem.objective:
        case Objective.LATENCY:
            return 1
        case Objective.TIME:
            return problem.bytes or 1
        case _:
            return problem.bytes or effort.size


# --- paths ----------------------------------------------------------------------------------------


def _paths(effort: FlowEffort, problem: Problem, budget: Budget, observer: Observer) -> Outcome:
    observer.stage("linear program")
    size, meter = _size(problem, effort), budget.meter(observer.cancelled)
    found = path_flows(
        problem.topology,
        problem.collective,
        size,
        meter=meter.part(effort.paths_share),
        seed=budget.seed,
        effort=effort,
    )
    observer.stage("order")
    packings = _candidates(effort, problem, found, budget, meter)
    trial = OrderLimits(
        meter.part(effort.order_share), seed=budget.seed, effort=ORDER_EFFORT.of(problem)
    )
    candidates = [_quotient(p, effort.most_unfolded) for p in packings]
    planned = quickest(candidates, size, trial)
    point = _planned_point(problem, planned)
    observer.incumbent(point)
    took = simulate(point.schedule, size).time_us
    status = Status.FEASIBLE
    if problem.objective is Objective.TIME and meets(took, found.bound_us):
        status = Status.OPTIMAL
    return Outcome(status, (point,), (_paths_words(found, planned, took),))


def _candidates(
    effort: FlowEffort, problem: Problem, found: PathFlows, budget: Budget, meter: Meter
) -> list[Packing]:
    """The flows of this size, those that suit every size, and messages in rounds."""
    always = pack_paths(
        problem.topology,
        problem.collective,
        meter=meter.of(round(effort.packed_share * meter.limit)),
        seed=budget.seed,
    )
    settled = in_rounds(always[0], budget.seed)
    return [*([] if settled is None else [settled]), *found.packings, *always]


def _quotient(packing: Packing, most_unfolded: int) -> PlanQuotient:
    """The packing made ready to be run: on orbits, unless images meet at resources and are few."""
    quotient = PlanQuotient.of(PackingPlan.of(packing))
    if quotient.exact or quotient.plan.transfers > most_unfolded:
        return quotient
    return PlanQuotient.of(PackingPlan.of(unfolded(packing)))


def _planned_point(problem: Problem, planned: Planned) -> Point:
    packing = planned.quotient.plan.packing
    schedule = planned.schedule()
    rate = us_per_byte(schedule)
    unit = (
        BYTES_PER_US_PER_GBPS
        * packing.collective.message_chunks
        * problem.topology.round_bandwidth()
    )
    return Point(
        schedule,
        schedule.steps,
        0,
        schedule.collective.factor,
        packing.bound * unit,
        packing.certificate,
        bandwidth_optimal=rate == packing.bound,
        rate=rate * unit,
        finer_us=planned.finer_us,
    )


def _paths_words(found: PathFlows, planned: Planned, took: float) -> str:
    gap = took / float(found.bound_us) - 1
    above = f"at most {gap:.2%} above the least" if gap > 1e-9 else "the least"
    return (
        f"{took:,.3f} µs, {above} of any schedule at this size; linear program over paths: "
        f"{found.program_us:,.3f} µs, of which {float(found.bound_us):,.3f} µs are proved; "
        f"{len(planned.quotient.plan.packing.trees)} paths, {planned.segments} slices"
    )


# --- copies ---------------------------------------------------------------------------------------


def _copies(engine: FlowEngine, problem: Problem, budget: Budget, observer: Observer) -> Outcome:
    size, meter = _size(problem, engine.effort), budget.meter(observer.cancelled)
    limits = bounds(problem.topology, problem.collective)
    cuts = engine.cuts(problem)
    found: list[Copied] = []
    for place, pieces in enumerate(cuts):
        if found and meter.over():
            break
        observer.stage(f"{pieces} chunk{'s' * (pieces > 1)} per unit")
        left = max(meter.left, engine.effort.least_steps)
        share = budget.within(meter, left // (len(cuts) - place))
        cut = solve_copies(
            problem, pieces, size, engine.solver, engine.epochs, share, observer, engine.effort
        )
        found.append(cut)
        observer.incumbent(point_of(cut.schedule, limits))
    best = min(found, key=lambda x: x.us)
    met = meets(best.us, lower_bound_us(limits, size))
    status = Status.OPTIMAL if met and problem.objective is Objective.TIME else Status.FEASIBLE
    return Outcome(status, (point_of(best.schedule, limits),), tuple(x.words for x in found))


# --- path_lp -------------------------------------------------------------------------------------


_ERRORS = (1e-9, 1e-7, 1e-6)
_GRID = 1 << 24  # denominators of prices that are not simple fractions


@dataclass(frozen=True, eq=False)
class PathFlows:
    """Flows at one message size as packings, and a lower bound on schedules of that size.

    ``bound_us`` is a rational in µs, ``certificate`` says why; ``program_us`` is the optimum of
    the linear program in floats, which the rational bound may miss by rounding.
    """

    packings: tuple[Packing, ...]
    bound_us: Fraction
    certificate: Certificate
    program_us: float


def pairs_to_solve(topology: Topology, collective: Collective) -> int:
    """Return the number of pairs in the linear program: those of one source per orbit."""
    pairs = pairs_of(collective)
    if symmetric(collective):
        pairs = pairs.of_sources(net_of(topology, symmetric=True).sources)
    return len(pairs)


def path_flows(
    topology: Topology,
    collective: Collective,
    message_bytes: int,
    *,
    meter: Meter,
    seed: int,
    effort: FlowEffort = FLOW_EFFORT,
) -> PathFlows:
    """The flows of a plain collective from one rank to one other for a message of M bytes.

    Raises:
        UserError: chunks that several ranks hold, want or add to.
        BadTopology: a rank that its chunks cannot reach.
    """
    get_ready()
    found = bounds(topology, collective)
    net = net_of(topology, symmetric=symmetric(collective))
    everything = pairs_of(collective)
    part = everything.of_sources(net.sources) if net.orbits.order > 1 else everything
    us = Fraction(message_bytes, collective.message_chunks) / BYTES_PER_US_PER_GBPS
    programs = _Programs(
        net, part, us, _waits(net, found.latency_us), PathPool.empty(net), seed, meter, effort
    )
    least, prices = programs.least()
    bound, certificate = binding(found, message_bytes)
    mine = _proven_bound(topology, collective, everything, prices, found, message_bytes)
    if mine is not None and mine.at(message_bytes) > bound:
        bound, certificate = mine.at(message_bytes), mine.certificate
    roof = bound / us if float(bound / us) > least * (1 - 1e-6) else Fraction(least * (1 + 1e-6))
    ways = programs.ways(roof, found.us_per_byte * message_bytes / us)
    unit = BYTES_PER_US_PER_GBPS * collective.message_chunks
    packings = tuple(
        Packing(
            net.topology,
            collective,
            trees_of(net, part, way),
            net.orbits.images,
            net.orbits.link_images,
            figures(net, way)[0] / unit,
            found.us_per_byte,
            found.certificate,
        )
        for way in ways
    )
    return PathFlows(packings, bound, certificate, max(least * float(us), float(found.latency_us)))


@dataclass(frozen=True, eq=False)
class _Programs:
    """The programs of one size; times in chunks per GB/s, of which one is ``us`` µs."""

    net: PathNet
    pairs: PairDemand
    us: Fraction
    waits: tuple[Fraction, ...]
    pool: PathPool
    seed: int
    meter: Meter
    effort: FlowEffort

    def task(self, roof: Fraction, grid: Fraction | None = None) -> SplitTask:
        """Pairs in the room that a time leaves: after the α, in every row orbit; with ``grid`` in
        whole steps of that, so that the shares are simple."""
        left = [roof - wait / self.us for wait in self.waits]
        if grid is not None:
            left = [math.floor(x / grid) * grid for x in left]
        room = [x * w for x, w in zip(left, self.net.width, strict=True)]
        return SplitTask(self.job, room, self.quick.time(self.net))

    @cached_property
    def job(self) -> PathJob:
        """The pairs and the paths found so far."""
        pairs = self.pairs
        return PathJob(
            self.net, pairs.src, pairs.dst, pairs.count, self.pool, self.seed, self.meter
        )

    @cached_property
    def quick(self) -> Routing:
        """Every pair on a path of least α."""
        return self.job.shortest(Fraction(1 << 40))

    def least(self) -> tuple[float, Floats]:
        """The least T, and the price of every row orbit that proves it, up to rounding."""
        quick = self.quick
        self.pool.add(quick.pair, quick.links, quick.length)
        task = self.task(Fraction(0))
        answer = generate(task, None, self.effort.rounds)
        if answer is None:
            return 0.0, np.zeros(self.net.resource_orbits)
        return answer.excess * float(task.scale), answer.resource_price / task.capacity()

    def ways(self, least: Fraction, rate: Fraction) -> list[Split]:
        """Flows of least α for some times, split and whole, and every pair on its quickest path.

        ``rate``: the time of the best rate, of which simple parts are tried first.
        """
        quick = self.quick
        found = [quick.split()]
        for factor in self.effort.roofs:
            if self.meter.over():
                break
            roof = least * factor
            whole, fits = self._whole(quick, roof)
            if fits:
                found.append(whole.split())
            solved = self._split(self.task(roof, rate / self.effort.steps)) or self._split(
                self.task(roof)
            )
            found += [] if solved is None else [solved]
            if quick.time(self.net) <= roof - max(self.waits) / self.us:
                break
        each: dict[tuple[bytes, bytes, tuple[Fraction, ...]], Split] = {}
        for way in found:
            each.setdefault((way.pair.tobytes(), way.links.tobytes(), way.weight), way)
        return list(each.values())

    def _split(self, task: SplitTask) -> Split | None:
        """Shares of least α in the room of a task, where there is room."""
        if min(task.room or (0,)) < 0 or not len(self.pairs):
            return None
        found = split(task)
        return None if found is None else found[0]

    def _whole(self, quick: Routing, roof: Fraction) -> tuple[Routing, bool]:
        """One path for every pair; a detour costs as much as its α matters at this size."""
        target = max(roof - min(self.waits) / self.us, Fraction(0))
        mean = float(np.mean([float(x.latency) for x in self.net.topology.links]))
        weight = max(0.01, mean / float(roof * self.us))
        return self.job.negotiate(quick, target, weight)


def _waits(net: PathNet, latency: Fraction) -> tuple[Fraction, ...]:
    """The least α of a transfer over each row orbit, in µs."""
    topology = net.topology
    lengths = Lengths.of(topology)
    each = always(topology, lengths, range(fabric_of(topology).resources), latency)
    least = [Fraction(0)] * net.resource_orbits
    for row, orbit in enumerate(net.orbits.row_orbit.tolist()):
        least[orbit] = int(each[row]) * lengths.unit
    return tuple(least)


def _proven_bound(
    topology: Topology,
    collective: Collective,
    pairs: PairDemand,
    prices: Floats,
    found: Bounds,
    message_bytes: int,
) -> Composite | None:
    """Return the bound T >= a + b·M that the prices prove, in rationals, on the whole machine."""
    largest = float(prices.max(initial=0.0))
    lengths, best = Lengths.of(topology), None
    orbit = net_of(topology, symmetric=symmetric(collective)).orbits.row_orbit
    for error in _ERRORS if largest > 0 else ():
        scaled = np.maximum(prices / largest, 0.0)
        common = min(common_denominator(scaled, error) or _GRID, _GRID)
        rows = np.rint(scaled * common).astype(np.int64)[orbit]
        proof = priced(topology, pairs.table(topology.ranks), rows)
        if proof is None:
            continue
        rate = proof.bound(topology, collective.message_chunks)
        line = waiting(topology, lengths, rate.certificate, found.latency_us, rate.us_per_byte)
        if best is None or line.at(message_bytes) > best.at(message_bytes):
            best = line
    return best
