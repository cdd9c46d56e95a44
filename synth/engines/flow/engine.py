"""The engine ``flow``: path flows with latency by linear programs; copies in epochs by MILP."""

from __future__ import annotations

from dataclasses import field
from typing import ClassVar

from weft.dsl.base.errors import UserError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.units import BYTES_PER_US_PER_GBPS
from weft.dsl.nouns.problem import Objective, Problem
from weft.dsl.nouns.sketch import Chunks, MaxDetour, MaxHops, MaxSteps

from ...base.engine import Budget, Observer, Outcome, Point, Status
from ...base.meets import meets
from ...base.meter import Meter
from ...bounds import Bounds, bounds, lower_bound_us
from ...fabric.occupancy import rounds_per_chunk, us_per_byte
from ...time.schedule_time import simulate
from ..packing.order.order_search import OrderLimits, Planned, quickest
from ..packing.order.plan import PackingPlan, PlanQuotient, unfolded
from ..packing.paths.matching import in_rounds
from ..packing.paths.paths import pack_paths
from ..packing.trees.demands import moves_pairs
from ..packing.trees.model import Packing
from ..sketched.engine import Sketched
from .copies import Copied, solve_copies
from .effort import FLOW_EFFORT, FlowEffort
from .path_lp import PathFlows, pairs_to_solve, path_flows


@dataclass(frozen=True, slots=True)
class FlowEngine:
    """Flows over the paths that suit the message's size; copies are searched in epochs.

    A chunk with one source and one destination flows over paths. What is copied is searched in
    epochs that round down, then timed without them.

    Options:
        solver: solver of the program with copies: ``highs``, ``cbc`` (both come with weft), or the
            name of a solver that PuLP finds, such as ``GUROBI_CMD`` or ``CPLEX_CMD``.
        chunks: pieces that every unit is cut into where it is copied; 0: 1, 2 and 4 are tried.
        epochs: epochs of a schedule with copies, at most.
    """

    name: ClassVar[str] = "flow"
    cites: ClassVar[str] = (
        "Liu et al., TE-CCL, SIGCOMM 2024; Ford & Fulkerson, A suggested computation for maximal "
        "multi-commodity network flows, 1958"
    )

    solver: str = "highs"
    chunks: int = 0
    epochs: int = 24
    effort: FlowEffort = field(default=FLOW_EFFORT, repr=False)

    def __post_init__(self) -> None:
        if not 0 <= self.chunks <= 64 or not 1 <= self.epochs <= 1000:
            raise UserError("flow: chunks is 0 … 64, epochs is 1 … 1000")
        if self.solver not in ("highs", "cbc"):
            _check_solver(self.solver)

    @classmethod
    def availability(cls) -> str | None:
        """It needs nothing that weft does not need."""
        return None

    def refuses(self, problem: Problem) -> str | None:
        """Sums, sketches of paths, chunks that are cut already, what is too large."""
        collective = problem.collective
        if collective.ranks < 2 or not len(collective.post):
            return "nothing has to move: every rank holds already what it wants"
        if collective.combining or collective.local_reduce:
            return "it moves and copies, and adds nothing up"
        if collective.sizes:
            return "its chunks are all of one size"
        if moves_pairs(collective) and collective.factor == 1:
            return self._refuses_paths(problem)
        most = self.effort.copy_ranks
        if collective.ranks > most:
            return f"copies in epochs are for {most} ranks at most, not {collective.ranks}"
        for rule in problem.sketch.rules if problem.sketch else ():
            if isinstance(rule, MaxHops | MaxSteps | MaxDetour):
                return f"its program does not count how far chunks come ({rule.label!r})"
        return Sketched().refuses(problem)

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
        return _copies(self, problem, budget, observer)

    def cuts(self, problem: Problem) -> tuple[int, ...]:
        """Into how many pieces units that are copied may be cut."""
        rules = problem.sketch.rules if problem.sketch else ()
        said = [rule.count for rule in rules if isinstance(rule, Chunks)]
        return (said[0],) if said else (self.chunks,) if self.chunks else self.effort.cuts


def _check_solver(solver: str) -> None:
    """Raise UserError if PuLP does not know a solver."""
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
    """Flows for one size, and the quickest order of the best of them."""
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
    trial = OrderLimits(meter.part(effort.order_share), seed=budget.seed)
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
    """The best of some cuts, each by a program in epochs."""
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
        observer.incumbent(_copied_point(limits, cut))
    best = min(found, key=lambda x: x.us)
    met = meets(best.us, lower_bound_us(limits, size))
    status = Status.OPTIMAL if met and problem.objective is Objective.TIME else Status.FEASIBLE
    return Outcome(status, (_copied_point(limits, best),), tuple(x.words for x in found))


def _copied_point(limits: Bounds, cut: Copied) -> Point:
    schedule = cut.schedule
    rate, limit = rounds_per_chunk(schedule), limits.rounds_per_chunk
    return Point(
        schedule,
        schedule.steps,
        0,
        schedule.collective.factor,
        limit,
        limits.certificate,
        step_optimal=schedule.steps == limits.steps,
        bandwidth_optimal=rate == limit,
        rate=rate,
    )
