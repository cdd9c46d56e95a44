"""The engine ``packing``: trees or paths that use every link to the full, then a timed order.

First the rate: packings of the highest throughput, which meet their bound where one is known. Then
the time: for each message size, the packing, number of slices and order that are fastest in a
simulation of its orbits. For small messages, trees of least latency are candidates too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import field, replace
from fractions import Fraction
from typing import ClassVar

from weft.dsl.base.errors import UserError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.units import BYTES_PER_US_PER_GBPS
from weft.dsl.nouns.collective import Collective, Kind
from weft.dsl.nouns.problem import Objective, Problem
from weft.dsl.nouns.sketch import Forbid, Only, Relay, SwitchPolicy, Symmetry
from weft.dsl.symmetry.orbits import orbits_of

from ...base.engine import Budget, Observer, Outcome, Point, Status
from ...base.meets import meets
from ...base.meter import Meter
from ...bounds.switch_gain import beyond_transfers
from ...fabric.occupancy import us_per_byte
from ...frontier.objective import sizes_of
from ...judge.allowed_pairs import orbits_for, same_for_all
from ...time.schedule_time import simulate
from .casts.search import OnMachine, cast_points, casts_help, forwarding, outcome_on_machine
from .effort import PACKING_EFFORT, PackingEffort
from .hosts.hosts import pack_hosts
from .order.order_search import OrderLimits, Planned, quickest, summary
from .order.plan import PackingPlan, PlanQuotient, unfolded
from .order.plan_quick import Automorphisms, low_load_packing, quick_packing
from .paths.matching import in_rounds
from .paths.paths import pack_paths
from .trees.demands import moves_pairs, pairs_of
from .trees.machine import peers_of
from .trees.model import Packing, tree_depth
from .trees.task import Under
from .trees.trees import pack
from .unions import packs_union, union_outcome

TREES = frozenset(
    {
        Kind.BROADCAST,
        Kind.REDUCE,
        Kind.MULTIROOT_BROADCAST,
        Kind.ALLGATHER,
        Kind.REDUCE_SCATTER,
        Kind.ALLREDUCE,
    }
)
"""Collectives that are packed as trees; pairwise collectives are packed as paths."""

_SEGMENTS = 1 << 16  # as many as schedule files may have
_LARGEST = 10**7  # of an option; loops over them hold a word for each

STEPS_PER_PLAN, STEPS_PER_HOP = 1_000, 5
"""Work to prepare a packing for its runs: of any, and of each hop of its templates."""

STEPS_PER_TRANSFER = 2
"""Work to write a transfer into the schedule, and to verify it."""


@dataclass(frozen=True, slots=True)
class Packer:
    """Packings of trees and paths at the optimum rate, pipelined in slices and ordered.

    ``effort`` holds the limits of the search.

    Options:
        trees: trees per root, at most; 0 for no limit.
        height: hops between a root and a leaf (allreduce: up, and again down), at most; 0 for no
            limit.
        peers: ranks that each rank sends to, and ranks that it hears from, at most; 0 for no limit.
        segments: slices of the message; 0 picks a number that is quick at its size.
        grains: number of grains of the message to which shares are rounded, for runtimes that
            cut it in equal chunks; 0 leaves them exact.
        boxes: trees over boxes times trees inside them; large machines without much symmetry are
            packed so anyway. What that loses against the bound is told.
    """

    name: ClassVar[str] = "packing"
    cites: ClassVar[str] = (
        "Edmonds, Edge-disjoint branchings (1973); Plotkin, Shmoys & Tardos, Fast approximation "
        "algorithms for fractional packing, MOR 20 (1995); Zhao et al., ForestColl (2024)"
    )

    trees: int = 0
    height: int = 0
    peers: int = 0
    segments: int = 0
    grains: int = 0
    boxes: bool = False
    effort: PackingEffort = field(default=PACKING_EFFORT, repr=False)

    def __post_init__(self) -> None:
        for option in ("trees", "height", "peers", "segments", "grains"):
            most = _SEGMENTS if option == "segments" else _LARGEST
            if not 0 <= getattr(self, option) <= most:
                raise UserError(f"packing: {option} is {getattr(self, option)}", hint=f"0 … {most}")
        limit = next(iter(self._limits()), None)
        if self.boxes and limit:
            raise UserError(
                f"packing: trees over boxes times trees inside them keep no limit of {limit}",
                hint=f"leave out {limit}, or boxes=true",
            )

    def _limits(self) -> list[str]:
        """The options that limit trees and are given."""
        return [name for name in ("trees", "height", "peers") if getattr(self, name)]

    @classmethod
    def availability(cls) -> str | None:
        """It needs nothing that weft does not need."""
        return None

    def refuses(self, problem: Problem) -> str | None:
        """Sketches, sums that a rank makes by itself, chunks of many holders, nothing to do."""
        collective = problem.collective
        if problem.sketch is not None and (why := _cannot_follow(problem)):
            return why
        if collective.ranks < 2:
            return "nothing has to move: every rank holds already what it wants"
        if packs_union(problem):
            limit = next(iter(self._limits()), None)
            return f"the option {limit} is for one collective, not for several" if limit else None
        if collective.local_reduce or collective.factor != 1 or collective.sizes:
            return "packings cut chunks themselves; these are cut already"
        if collective.kind in TREES:
            return None
        if moves_pairs(collective):
            if not len(pairs_of(collective)):
                return "nothing has to move: every rank holds already what it wants"
            limit = next(iter(self._limits()), None)
            return f"the option {limit} is for trees, not for paths" if limit else None
        what = collective.name or collective.kind
        return f"{what} is neither made of trees from one to all nor of paths from one to one"

    def solve(self, problem: Problem, budget: Budget, observer: Observer) -> Outcome:
        """Packings, then the quickest plan for each size that the objective looks at.

        Raises:
            UserError: grains that are too few.
        """
        meter = budget.meter(observer.cancelled)
        if packs_union(problem):
            observer.stage("packing")
            return union_outcome(problem, sizes_of(problem, self.effort.sizes), meter)
        with_casts = self._with_casts(problem, meter, observer)
        if not with_casts:
            return self._transfers(problem, budget, observer, meter)
        if not _need_no_transfers(problem, with_casts):
            watch = OnMachine(problem, observer)
            plain = self._transfers(forwarding(problem), budget, watch, meter)
            if plain.points:
                return _joined(problem, outcome_on_machine(problem, plain), with_casts)
        return Outcome(Status.FEASIBLE, tuple(with_casts), (with_casts[0].words,))

    def _transfers(
        self, problem: Problem, budget: Budget, observer: Observer, meter: Meter
    ) -> Outcome:
        """Packings of transfers, each in the order that is quickest at a size.

        Raises:
            UserError: grains that are too few.
        """
        packers = meter.part(self.effort.packing_share)
        observer.stage("packing")
        packings = self._packings(problem, budget, observer, packers)
        if not packings:
            return Outcome(Status.NOTHING, (), ("the budget ended before the first packing",))
        if problem.objective is Objective.BANDWIDTH:
            least = min(p.us_per_byte for p in packings)
            packings = [p for p in packings if p.us_per_byte == least]
        quotients = [self._quotient(p, meter) for p in packings]
        if problem.sketch is None and self._contended(problem, quotients):
            # First, so that it is tried before those that it is to beat.
            low = low_load_packing(
                self._without_symmetry(packings[0]),
                self.effort.low_load_rounds,
                meter.part(self.effort.low_share),
            )
            quotients = [*([] if low is None else [self._quotient(low, meter)]), *quotients]
        settled = None if problem.sketch else self._in_rounds(problem, packings[0], budget.seed)
        quotients = [*([] if settled is None else [self._quotient(settled, meter)]), *quotients]
        trial = OrderLimits(
            meter.of(max(meter.left, round(self.effort.order_least * meter.limit))),
            segments=self.segments,
            seed=budget.seed,
            effort=self.effort.order,
        )
        observer.stage("order")
        points: list[Point] = []
        kept: list[Planned] = []
        for size in sizes_of(problem, self.effort.sizes):
            if kept and trial.over():
                break
            found = quickest(quotients, size, trial)
            most = self.effort.same * found.time_us
            enough = [i for i, p in enumerate(kept) if _time(p, size) <= most]
            if enough:
                points[enough[0]] = _good_at(points[enough[0]], size)
                continue
            kept.append(found)
            points.append(_good_at(_point(found), size))
            meter.spend(STEPS_PER_TRANSFER * found.quotient.plan.transfers)
            observer.incumbent(points[-1])
        return self._outcome(problem, kept, points, meter, packers)

    def _with_casts(self, problem: Problem, meter: Meter, observer: Observer) -> list[Point]:
        """Return schedules in which switches copy and sum, where they can; no limit applies.

        Packings without them get as much work as on a machine whose switches only forward.
        """
        if self._limits() or self.boxes or not casts_help(problem):
            return []
        observer.stage("casts")
        before = meter.done
        found = cast_points(problem, sizes_of(problem, self.effort.sizes), meter)
        meter.came_on_top(before)
        for point in found:
            observer.incumbent(point)
        return found

    def _quotient(self, packing: Packing, meter: Meter) -> PlanQuotient:
        """The packing made ready to be run: on orbits, unless images meet at rows and there are
        few enough of them to look at each."""
        quotient = _prepared(PackingPlan.of(packing, self.grains), meter)
        if quotient.exact or quotient.plan.transfers > self.effort.most_unfolded:
            return quotient
        return _prepared(PackingPlan.of(unfolded(packing), self.grains), meter)

    def _contended(self, problem: Problem, quotients: list[PlanQuotient]) -> bool:
        """Return True if transfers contend at several rows: low-load trees are then worth their
        lower rate.
        """
        few = (
            problem.topology.ranks**2 <= self.effort.most_low_load
            and not self.height
            and not self.peers
            and problem.objective is not Objective.BANDWIDTH
        )
        switched = len(problem.topology.nodes) > problem.topology.ranks
        return few and switched and len(quotients[0].plan.packing.images) == 1

    def _without_symmetry(self, packing: Packing) -> Packing:
        """Return a small packing without its group, so that trees of its images may differ."""
        if packing.topology.ranks > self.effort.few:
            return packing
        return replace(packing, images=packing.images[:1], link_images=packing.link_images[:1])

    def _in_rounds(self, problem: Problem, packing: Packing, seed: int) -> Packing | None:
        """Return messages in rounds, if they are as good for the objective."""
        if problem.collective.kind in TREES:
            return None
        found = in_rounds(packing, seed, self.effort.paths)
        if found is None or problem.objective is not Objective.BANDWIDTH:
            return found
        return found if found.us_per_byte <= packing.us_per_byte else None

    def _packings(
        self, problem: Problem, budget: Budget, observer: Observer, meter: Meter
    ) -> list[Packing]:
        """Of the packers, and the quickest routes."""
        topology, collective = problem.topology, problem.collective
        if problem.sketch is not None:
            return self._pack_sketch(problem, budget, observer, meter)
        if collective.kind in TREES:
            found = self._trees(problem, budget, observer, meter)
        else:
            found = pack_paths(
                topology,
                collective,
                meter=meter,
                seed=budget.seed,
                effort=self.effort.paths,
            )
        roots = collective.chunks // (len(found[0].images) if found else 1)
        if found and problem.objective is not Objective.BANDWIDTH:
            if roots * collective.ranks <= self.effort.most_quick:
                quick = _fastest_routes(found, meter)
                if self._low_and_narrow(quick):
                    found.append(quick)
        return found

    def _trees(
        self, problem: Problem, budget: Budget, observer: Observer, meter: Meter
    ) -> list[Packing]:
        """Trees of the whole machine; of boxes times fabric where those lose little, or are asked
        for, or the whole is too much."""

        effort, seed = self.effort, budget.seed
        topology, collective = problem.topology, problem.collective
        many = (
            not self._limits()
            and collective.ranks > effort.many
            and len(orbits_of(topology).images) < effort.alike
        )
        if self.boxes or many:
            made = pack_hosts(topology, collective, meter=meter, seed=seed, effort=effort.hosts)
            little = made is not None and made.us_per_byte <= (1 + effort.little) * made.bound
            large = collective.ranks > effort.too_many
            if made is not None and (self.boxes or little or large):
                return [made]
            if self.boxes:
                raise UserError(
                    f"packing: {topology.name} is not made of boxes that hang together",
                    hint="leave out boxes=true",
                )
        return pack(
            topology,
            collective,
            trees=self.trees,
            height=self.height,
            peers=self.peers,
            meter=meter,
            seed=seed,
            observer=observer,
            effort=effort.trees,
        )

    def _pack_sketch(
        self, problem: Problem, budget: Budget, observer: Observer, meter: Meter
    ) -> list[Packing]:
        """Return trees over the hops that a sketch allows, under the symmetry that it demands."""

        assert problem.sketch is not None
        topology, collective = problem.topology, problem.collective
        pairs = same_for_all(topology, collective, problem.sketch)
        assert pairs is not None, "else it was refused"
        return pack(
            topology,
            collective,
            trees=self.trees,
            height=self.height,
            under=Under(orbits_for(topology, problem.sketch), pairs),
            meter=meter,
            seed=budget.seed,
            observer=observer,
            effort=self.effort.trees,
        )

    def _low_and_narrow(self, packing: Packing) -> bool:
        """Return True if the packing keeps the limits on height and peers."""
        fits = not self.height or tree_depth(packing) <= self.height
        return fits and (not self.peers or peers_of(packing) <= self.peers)

    def _outcome(
        self,
        problem: Problem,
        kept: list[Planned],
        points: list[Point],
        meter: Meter,
        packers: Meter,
    ) -> Outcome:
        """The points, and what is to be said of them."""
        statements = [point.words for point in points]
        statements += dict.fromkeys(
            f.quotient.plan.packing.remark for f in kept if f.quotient.plan.packing.remark
        )
        if self.peers:
            most = max(peers_of(f.quotient.plan.packing) for f in kept)
            statements.append(f"{most} peers of a rank at most, {self.peers} allowed")
        if meter.cut or meter.stopped():
            what = "trees" if packers.cut else "orders"
            statements.append(f"stopped before all {what} were tried")
        proved = _meets_bound(problem, kept[0], points[0])
        return Outcome(
            Status.OPTIMAL if proved else Status.FEASIBLE, tuple(points), tuple(statements)
        )


_FOLLOWED = (Only, Forbid, Relay, Symmetry, SwitchPolicy)
"""Rules of sketches that trees can keep, if they are the same for all chunks."""


def _need_no_transfers(problem: Problem, casts: list[Point]) -> bool:
    """Return True if a schedule with casts beats the bound of all without: no search for those."""
    size = problem.bytes or 1
    best = min((simulate(p.schedule, size).time_us for p in casts), default=math.inf)
    return beyond_transfers(problem, best)


def _joined(problem: Problem, plain: Outcome, casts: list[Point]) -> Outcome:
    """Return the answers without and with casts together; of rates only the best."""
    if not casts:
        return plain
    points = [*casts, *plain.points]
    if problem.objective is Objective.BANDWIDTH:
        least = min(p.rounds_per_chunk for p in points)
        points = [p for p in points if p.rounds_per_chunk == least]
    met = problem.objective is Objective.BANDWIDTH and any(p.optimal for p in points)
    status = Status.OPTIMAL if met else plain.status
    words = dict.fromkeys(p.words for p in casts if p in points)
    return Outcome(status, tuple(points), (*words, *plain.statements))


def _cannot_follow(problem: Problem) -> str | None:
    """Return the reason why trees cannot obey a sketch."""
    sketch, kind = problem.sketch, problem.collective.kind
    assert sketch is not None
    for rule in sketch.rules:
        limited = isinstance(rule, SwitchPolicy) and rule.limit is not None
        if limited or not isinstance(rule, _FOLLOWED):
            return f"packings cannot follow the rule {rule.label!r}"
    if kind not in TREES:
        return "packings of paths are for the machine as it is; a sketch guides a search"
    if same_for_all(problem.topology, problem.collective, sketch) is None:
        return "the sketch lets different chunks go different ways"
    return None


def _prepared(plan: PackingPlan, meter: Meter) -> PlanQuotient:
    """Return the quotient of a plan; counted."""
    meter.spend(STEPS_PER_PLAN + STEPS_PER_HOP * len(plan.hops))
    return PlanQuotient.of(plan)


def _good_at(point: Point, size: int) -> Point:
    """The point, chosen for one more message size."""
    return replace(point, sizes=tuple(sorted({*point.sizes, size})))


def _fastest_routes(found: Sequence[Packing], meter: Meter) -> Packing:
    """Return the fastest routes, under the group and with the bound of the packings."""
    best = max(found, key=lambda p: p.bound)
    group = Automorphisms(found[0].images, found[0].link_images)
    return quick_packing(
        best.topology, best.collective, best.bound, best.certificate, group, meter=meter
    )


def _time(planned: Planned, size: int) -> float:
    """Return the µs of the same plan at another size."""
    order = planned.order
    return planned.quotient.time_us(size, planned.segments, order.priority, order.stride)


def rounds_per_us_per_byte(problem_collective: Collective, round_bandwidth: Fraction) -> Fraction:
    """Return the factor from µs per byte of M to rounds per chunk of the plain collective."""
    return BYTES_PER_US_PER_GBPS * problem_collective.message_chunks * round_bandwidth


def _point(found: Planned) -> Point:
    """Return the schedule with its rate and the bound on the rate."""
    plan, packing = found.quotient.plan, found.quotient.plan.packing
    schedule = found.schedule()
    rate = packing.us_per_byte if plan.shares.exact else us_per_byte(schedule)
    unit = rounds_per_us_per_byte(packing.collective, packing.topology.round_bandwidth())
    point = Point(
        schedule,
        schedule.steps,
        0,
        schedule.collective.factor,
        packing.bound * unit,
        packing.certificate,
        bandwidth_optimal=rate == packing.bound,
        rate=rate * unit,
    )
    return replace(point, words=summary(found, point))


def _meets_bound(problem: Problem, found: Planned, point: Point) -> bool:
    """Return True if the point meets the bound of the objective."""
    if problem.objective is Objective.BANDWIDTH:
        return point.optimal
    bound = found.quotient.plan.packing.bound
    at_bound = meets(found.time_us, bound * (problem.bytes or 1))
    return problem.objective is Objective.TIME and found.quotient.exact and at_bound
