"""The engine ``sketched``: routes and times at once, under a sketch, by search in the α-β model."""

from __future__ import annotations

from dataclasses import field
from fractions import Fraction
from typing import ClassVar

from weft.dsl.base.errors import UserError, WeftError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.collective import Collective, Kind
from weft.dsl.nouns.problem import Objective, Problem
from weft.dsl.nouns.sketch import (
    Chunks,
    FixedSend,
    Forbid,
    MaxDetour,
    MaxHops,
    MaxSteps,
    Only,
    OwnFirst,
    Relay,
    Sketch,
    SwitchPolicy,
    Symmetry,
)

from ...base.engine import Budget, Observer, Outcome, Point, Status
from ...base.meter import Meter
from ...bounds import Bounds, binding, bounds, lower_bound_us
from ...bounds.whole_chunks import WholeChunks, left_out, not_counted, whole_chunk_bound
from ...frontier.objective import pareto, point_of, sizes_of
from ...time.schedule_time import simulate, simulation_steps
from .effort import SKETCHED_EFFORT, SketchedEffort
from .field import SearchInstance
from .limits import refusal_of
from .search import PlacementSearch
from .search_kernel import Placements

FOLLOWED = (
    Only,
    Forbid,
    Relay,
    Symmetry,
    SwitchPolicy,
    Chunks,
    MaxHops,
    MaxSteps,
    MaxDetour,
    FixedSend,
    OwnFirst,
)


@dataclass(frozen=True, slots=True)
class Sketched:
    """Search that puts chunks into gaps of links and NICs, then moves some again and again.

    Each chunk first takes the quickest way. It keeps to the rules of a sketch, and needs none.

    Options:
        chunks: pieces that every unit of the collective is cut into; 0: as the sketch says, else a
            few are tried.
        patience: turns without a better schedule that end the search of one cut.
    """

    name: ClassVar[str] = "sketched"
    cites: ClassVar[str] = (
        "sketches: Shah et al., TACCL, NSDI 2023; large-neighbourhood search: Shaw, CP 1998; here "
        "routes and times are searched together"
    )

    chunks: int = 0
    patience: int = 2000
    effort: SketchedEffort = field(default=SKETCHED_EFFORT, repr=False)

    def __post_init__(self) -> None:
        if self.chunks < 0 or self.patience < 1:
            raise UserError("sketched: chunks is 0 or more, patience a number of turns")

    @classmethod
    def availability(cls) -> str | None:
        """It needs nothing."""
        return None

    def refuses(self, problem: Problem) -> str | None:
        """Rules that it cannot keep, sums other than allreduce, too much to search."""
        collective = problem.collective
        for rule in problem.sketch.rules if problem.sketch else ():
            known = isinstance(rule, FOLLOWED)
            why = refusal_of(rule, problem) if known else "such rules are not supported"
            if why:
                return f"its search cannot follow the rule {rule.label!r}: {why}"
        if collective.ranks < 2:
            return "nothing has to move: every rank holds already what it wants"
        if collective.sizes or collective.local_reduce:
            return "its chunks are all of one size, and no rank adds up by itself"
        if collective.combining and collective.kind is not Kind.ALLREDUCE:
            return "it copies, or sums for all ranks"
        if _transfers(collective) > self.effort.most_transfers:
            return f"{_transfers(collective)} transfers are too many to be searched"
        return None

    def solve(self, problem: Problem, budget: Budget, observer: Observer) -> Outcome:
        """The best schedule at each size that the objective looks at.

        Raises:
            UserError: a chunk cannot reach all ranks that want it, or the rules exclude each other.
        """
        run = _ChunkCountSearch(self, problem, budget, observer)
        sizes = sizes_of(problem, self.effort.sizes)
        meter = budget.meter(observer.cancelled)
        points = [run.best(s, meter.part(1 / (len(sizes) - i))) for i, s in enumerate(sizes)]
        proved = run.met and problem.objective is Objective.TIME
        status = Status.OPTIMAL if proved else Status.FEASIBLE
        return Outcome(status, tuple(pareto(points)), tuple(run.said))

    def cuts(self, problem: Problem) -> tuple[int, ...]:
        """Return the numbers of pieces to cut units into."""
        rules = [r.count for r in (problem.sketch or Sketch("")).rules if isinstance(r, Chunks)]
        if rules:
            return (rules[0],)
        if self.chunks:
            return (self.chunks,)
        most = self.effort.most_transfers // max(1, _transfers(problem.collective))
        first = problem.collective.ranks if problem.collective.kind is Kind.ALLREDUCE else 1
        # No move of a symmetry leaves a piece where it is, so of a sum there is one for each rank.
        whole = () if first > 1 and _moves(problem) else (1,)
        return (*whole, *(first * k for k in self.effort.pieces if 1 < first * k <= most)) or (
            first,
        )


@dataclass(slots=True)
class _ChunkCountSearch:
    """Search of one chunk count after the other, each until it no longer improves."""

    engine: Sketched
    problem: Problem
    budget: Budget
    observer: Observer
    said: list[str] = field(default_factory=list)
    bound: Bounds | None = None
    fields: dict[int, SearchInstance] = field(default_factory=dict)
    met: bool = False

    def best(self, size: int, meter: Meter) -> Point:
        """Return the fastest schedule over all chunk counts."""
        self.bound = bounds(self.problem.topology, self.problem.collective)
        goal = float(lower_bound_us(self.bound, size)) * (1 + 1e-9)
        cuts = self.engine.cuts(self.problem)
        self.met = False
        found: list[tuple[float, Point]] = []
        for place, pieces in enumerate(cuts):
            if found and meter.over():
                break
            share = meter.part(1 / (len(cuts) - place))
            took, point = self._search_cut(pieces, size, goal, share)
            self.met = self.met or took <= goal
            found.append((took, point))
            least = min(took for took, _ in found)
            slow = (
                self.engine.effort.slower * least
            )  # two: one may be bad luck of a search cut short
            if least <= goal or all(took > slow for took, _ in found[-2:]):
                break
        took, best = min(found, key=lambda x: x[0])
        if len(cuts) == 1:
            self._judge(took, size, best)
        return best

    def _judge(self, took: float, size: int, point: Point) -> None:
        """Compare a schedule of a requested number of chunks with all such schedules."""
        if point.schedule.collective.combining:
            return
        whole = self._whole(point.schedule.collective, size)
        assert self.bound is not None, "best comes first"
        any_cutting = binding(self.bound, size)
        least, why = max((whole.us, whole.certificate), any_cutting, key=lambda x: x[0])
        beyond = left_out(self.problem.topology) if least > any_cutting[0] else ()
        self.met = self.met or (not beyond and took <= float(least) * (1 + 1e-9))
        gap = took / float(least) - 1 if least else 0.0
        if gap < -1e-9:
            raise WeftError(f"a schedule of {took} µs beats its bound: {why.text}")
        above = f"{gap:.2%} above" if gap > 1e-9 else "which is"
        self.said.append(
            f"{took:,.3f} µs, {above} the least that any schedule in these chunks takes"
            f"{not_counted(beyond)}: {why.text}"
        )

    def _whole(self, collective: Collective, size: int) -> WholeChunks:
        field = self.fields[collective.factor]
        grain = Fraction(size, collective.message_chunks)
        return whole_chunk_bound(self.problem.topology, collective, grain, field.usable)

    def _search_cut(self, pieces: int, size: int, goal: float, meter: Meter) -> tuple[float, Point]:
        self.observer.stage(f"{pieces} chunk{'s' * (pieces > 1)} per unit")
        collective = self.problem.collective
        if pieces > 1:
            collective = collective.split(pieces)
        grain = Fraction(size, collective.message_chunks)
        field = self.fields[collective.factor] = SearchInstance.of(
            self.problem, collective, grain, self.engine.effort
        )
        proved = goal
        if not collective.combining:
            goal = max(goal, float(self._whole(collective, size).us))
            proved = proved if left_out(self.problem.topology) else goal
        search = PlacementSearch.of(field, self.budget.seed, self.engine.effort)

        limits = self.bound
        assert limits is not None, "best comes first"
        found: list[tuple[float, Point]] = []

        def improved(placed: Placements) -> None:
            """Judge it by the simulator, which follows the planned order, not the planned times:
            where something waits for two resources, others may pass it."""
            schedule = field.schedule(placed)
            took = simulate(schedule, size).time_us
            meter.spend(simulation_steps(schedule))
            if not found or took < found[0][0]:
                found[:] = [(took, point_of(schedule, limits, us=took, least_us=proved))]
                self.observer.incumbent(found[0][1])

        search.run(meter, self.engine.patience, goal, improved)
        if not found:  # nothing has to move
            improved(search.best)
        return found[0]


def _moves(problem: Problem) -> bool:
    return any(isinstance(r, Symmetry) for r in (problem.sketch or Sketch("")).rules)


def _transfers(collective: Collective) -> int:
    if collective.kind is Kind.ALLREDUCE:
        return 2 * (collective.ranks - 1) * collective.chunks
    return len(collective.post)
