"""The engine ``packing``: trees or paths that use every link to the full, then a timed order.

First the rate: packings of the highest throughput, which meet their bound where one is known. Then
the time: for each message size, the packing, number of slices and order that are fastest in a
simulation of its orbits. For small messages, trees of least latency are candidates too.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import field, replace
from functools import partial
from typing import ClassVar

from weft.dsl.base.errors import UserError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.units import format_bytes
from weft.dsl.nouns.collective import Kind
from weft.dsl.nouns.problem import Objective, Problem
from weft.dsl.nouns.schedule import Schedule
from weft.dsl.nouns.sketch import Forbid, Only, Relay, SwitchPolicy, Symmetry
from weft.dsl.symmetry.orbits import orbits_of

from ...base.effort import Effort, setting, share
from ...base.engine import Budget, Observer, Outcome, Point, Status
from ...base.meets import meets
from ...base.meter import Meter
from ...bounds import bounds
from ...bounds.switch_gain import beyond_transfers
from ...fabric.occupancy import us_per_byte
from ...frontier.objective import sizes_of
from ...joint.carried import carried_columns
from ...joint.union import has_union, joint_union, union_carriers
from ...judge.allowed_pairs import orbits_for, same_for_all
from ...time.schedule_tables import Prepared, doubled, prepare
from ...time.schedule_time import simulate
from ...time.slices import SLICE_EFFORT, fewest_slices
from .casts.search import (
    CastEffort,
    OnMachine,
    cast_points,
    casts_help,
    outcome_on_machine,
)
from .hosts.hosts import pack_hosts
from .hosts.search import HOST_EFFORT, HostEffort
from .order.order_search import ORDER_EFFORT, OrderEffort, OrderLimits, Planned, quickest, summary
from .order.plan import PackingPlan, PlanQuotient, unfolded
from .order.plan_quick import low_load_packing, quick_packing
from .paths.matching import in_rounds
from .paths.net import PATH_EFFORT, PathEffort
from .paths.paths import pack_paths
from .trees.demands import moves_pairs, pairs_of
from .trees.machine import TREE_EFFORT, TREES, TreeEffort, Under, peers_of
from .trees.model import Packing, point_of, tree_depth
from .trees.trees import pack

UNION_EFFORT = CastEffort(most_jobs=600_000, most_segments=256)
"""Limits of the search for the number of slices of unions."""


def packs_union(problem: Problem) -> bool:
    """Return True if a problem is a union, and not of flows of equal chunks, which are paths."""
    collective = problem.collective
    if collective.kind is not Kind.CUSTOM or problem.sketch is not None:
        return False
    if collective.factor != 1 or (not collective.sizes and moves_pairs(collective)):
        return False
    return has_union(problem.topology, collective)


def union_outcome(problem: Problem, sizes: Sequence[int], meter: Meter) -> Outcome:
    """Return the trees and paths of the joint solution, in as many slices as each size needs.

    Raises:
        UserError: a rank is not reached.
    """
    topology, collective = problem.topology, problem.collective
    found = joint_union(topology, collective)
    assert found is not None, "else it was refused"
    shares, columns = carried_columns(union_carriers(topology, found))
    plain = Schedule.from_columns(topology, collective.cut_further(shares), *columns)
    meter.spend(2 * len(plain))
    slices, points = SLICE_EFFORT.of(problem), list[Point]()
    charged, free = prepare(plain, slices.model), prepare(plain)
    most = min(UNION_EFFORT.most_segments, UNION_EFFORT.most_jobs // max(1, len(plain)))

    def time(tables: Prepared, segments: int) -> float:
        meter.spend(2 * len(plain) * segments)
        return tables.time(size, segments=segments)

    for size in sizes if problem.objective is not Objective.BANDWIDTH else sizes[:1]:
        if points and meter.over():
            break
        tried = doubled(partial(time, charged), most, UNION_EFFORT.worse)
        segments = fewest_slices(tried, partial(time, free), slices)
        point = _union_point(problem, replace(plain, segments=segments), size)
        points.append(point)
    best = list({point.schedule.segments: point for point in reversed(points)}.values())[::-1]
    met = problem.objective is Objective.BANDWIDTH and best[0].optimal
    status = Status.OPTIMAL if met else Status.FEASIBLE
    return Outcome(status, tuple(best), (best[0].words,))


def _union_point(problem: Problem, schedule: Schedule, size: int) -> Point:
    topology, collective = problem.topology, problem.collective
    us = simulate(schedule, size).time_us
    found, rate = bounds(topology, collective), us_per_byte(schedule)
    above = float(rate / found.us_per_byte - 1) if found.us_per_byte else 0.0
    words = (
        f"trees and paths of the joint solution, {above:.2%} above the bound on the rate: "
        f"{len(schedule)} transfers, {schedule.segments} slices, {us:.4g} µs at "
        f"{format_bytes(size)}"
    )
    return point_of(
        schedule, collective.plain(), rate, found.us_per_byte, found.certificate, size, words
    )


@dataclass(frozen=True, slots=True)
class PackingEffort(Effort):
    """Limits of the search; its parts have their own."""

    trees: TreeEffort = TREE_EFFORT
    paths: PathEffort = PATH_EFFORT
    hosts: HostEffort = HOST_EFFORT
    order: OrderEffort = ORDER_EFFORT
    sizes: tuple[int, ...] = setting(
        (1 << 30, 1 << 25, 1 << 20, 1 << 16, 1 << 10),
        "message sizes in bytes that the objective frontier looks at, the largest first",
    )
    packing_share: float = share(
        0.5,
        "part of the work for packings; the rest is for orders",
    )
    low_share: float = share(0.5, "part of the rest in which trees that load little are grown")
    order_least: float = share(
        0.25,
        "part of the work that orders get in any case: a packing in one slice is far from its rate",
    )
    same: float = setting(
        1.01,
        "a schedule within this many times a size's best makes another one needless",
    )
    most_unfolded: int = setting(
        20_000,
        "transfers up to which a packing is looked at without its symmetry",
    )
    most_low_load: int = setting(6_000, "ranks², up to which trees that load little are grown")
    low_load_rounds: int = setting(
        24, "rounds in which such trees are torn up and grown again, with ever steeper prices"
    )
    few: int = setting(32, "ranks up to which trees that load little need no symmetry")
    many: int = setting(
        256,
        "machines of more ranks with fewer than alike symmetries are packed as hosts times "
        "fabric first",
    )
    alike: int = setting(16, "symmetries below which these machines have few")
    little: float = setting(
        0.02,
        "part of the bound's rate that hosts times fabric may lose before the whole machine is "
        "packed, too",
    )
    too_many: int = setting(768, "ranks that are not alike: to pack the whole takes minutes")
    most_quick: int = setting(
        300_000,
        "ranks · representatives up to which trees of least latency are built",
    )


PACKING_EFFORT = PackingEffort()
"""Default limits."""


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
        peers: ranks that each rank sends to, and receives from, at most; 0 for no limit.
        segments: slices of the message; 0 picks a number that is quick at its size.
        grains: number of grains of the message to which shares are rounded, for runtimes that
            cut it in equal chunks; 0 leaves them exact.
        boxes: trees over boxes times trees inside them; large machines without much symmetry are
            packed so anyway. The loss against the bound is reported.
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
        if self.boxes and self.limit:
            raise UserError(
                f"packing: trees over boxes times trees inside them keep no limit of {self.limit}",
                hint=f"leave out {self.limit}, or boxes=true",
            )

    @property
    def limit(self) -> str | None:
        """The first option that limits trees and is given."""
        given = (name for name in ("trees", "height", "peers") if getattr(self, name))
        return next(given, None)

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
            several = f"the option {self.limit} is for one collective, not for several"
            return several if self.limit else None
        if collective.local_reduce or collective.factor != 1 or collective.sizes:
            return "packings cut chunks themselves; these are cut already"
        if collective.kind in TREES:
            return None
        if moves_pairs(collective):
            if not len(pairs_of(collective)):
                return "nothing has to move: every rank holds already what it wants"
            return f"the option {self.limit} is for trees, not for paths" if self.limit else None
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
        casts: list[Point] = []
        if not (self.limit or self.boxes) and casts_help(problem):
            # Packings without casts get as much work as where switches only forward.
            observer.stage("casts")
            before = meter.done
            casts = cast_points(problem, sizes_of(problem, self.effort.sizes), meter)
            meter.came_on_top(before)
            for point in casts:
                observer.incumbent(point)
        if not casts:
            return _TransferSearch(self, problem, budget, observer, meter).outcome()
        # If a schedule with casts beats the bound of all without, none of those is searched for.
        best = min(simulate(p.schedule, problem.bytes or 1).time_us for p in casts)
        if not beyond_transfers(problem, best):
            watch = OnMachine(problem, observer)
            plain = replace(problem, topology=problem.topology.without_capabilities())
            found = _TransferSearch(self, plain, budget, watch, meter).outcome()
            if found.points:
                return _joined(problem, outcome_on_machine(problem, found), casts)
        return Outcome(Status.FEASIBLE, tuple(casts), (casts[0].words,))


@dataclass(frozen=True, eq=False)
class _TransferSearch:
    """The search for schedules of transfers: packings, each in the order quickest at a size."""

    packer: Packer
    problem: Problem
    budget: Budget
    observer: Observer
    meter: Meter

    @property
    def effort(self) -> PackingEffort:
        return self.packer.effort

    @property
    def by_rate(self) -> bool:
        return self.problem.objective is Objective.BANDWIDTH

    def outcome(self) -> Outcome:
        """The points, and remarks on them.

        Raises:
            UserError: grains that are too few.
        """
        packers = self.meter.part(self.effort.packing_share)
        self.observer.stage("packing")
        packings = self._packings(packers)
        if not packings:
            return Outcome(Status.NOTHING, (), ("the budget ended before the first packing",))
        if self.by_rate:
            least = min(p.us_per_byte for p in packings)
            packings = [p for p in packings if p.us_per_byte == least]
        kept, points = self._planned(self._quotients(packings))
        told = [point.words for point in points]
        used = [one.quotient.plan.packing for one in kept]
        told += dict.fromkeys(packing.remark for packing in used if packing.remark)
        if self.packer.peers:
            most = max(map(peers_of, used))
            told.append(f"{most} peers of a rank at most, {self.packer.peers} allowed")
        if self.meter.cut or self.meter.stopped():
            told.append(f"stopped before all {'trees' if packers.cut else 'orders'} were tried")
        status = Status.OPTIMAL if self._meets_bound(kept[0], points[0]) else Status.FEASIBLE
        return Outcome(status, tuple(points), tuple(told))

    def _planned(self, quotients: Sequence[PlanQuotient]) -> tuple[list[Planned], list[Point]]:
        """The quickest plan for each size, unless that of another size is as good."""
        trial = OrderLimits(
            self.meter.of(max(self.meter.left, round(self.effort.order_least * self.meter.limit))),
            segments=self.packer.segments,
            seed=self.budget.seed,
            effort=self.effort.order.of(self.problem),
        )
        self.observer.stage("order")
        points: list[Point] = []
        kept: list[Planned] = []
        for size in sizes_of(self.problem, self.effort.sizes):
            if kept and trial.over():
                break
            found = quickest(quotients, size, trial)
            most = self.effort.same * found.time_us
            enough = next((i for i, p in enumerate(kept) if p.us_at(size) <= most), None)
            if enough is not None:
                sizes = {*points[enough].sizes, size}
                points[enough] = replace(points[enough], sizes=tuple(sorted(sizes)))
                continue
            kept.append(found)
            points.append(_point(found, size))
            self.meter.spend(STEPS_PER_TRANSFER * found.quotient.plan.transfers)
            self.observer.incumbent(points[-1])
        return kept, points

    def _quotients(self, packings: Sequence[Packing]) -> list[PlanQuotient]:
        """The packings ready to be run, those first that others are to beat: messages in rounds,
        then trees that load little, where transfers contend at several rows."""
        found = [self._quotient(p) for p in packings]
        problem, effort, best = self.problem, self.effort, packings[0]
        if problem.sketch is not None:
            return found
        ranks = problem.topology.ranks
        contended = (
            ranks**2 <= effort.most_low_load
            and not (self.packer.height or self.packer.peers or self.by_rate)
            and len(problem.topology.nodes) > ranks
            and len(found[0].plan.packing.images) == 1
        )
        if contended:
            alone = best
            if ranks <= effort.few:  # without its group, so that trees of its images may differ
                alone = replace(best, images=best.images[:1], link_images=best.link_images[:1])
            part = self.meter.part(effort.low_share)
            low = low_load_packing(alone, effort.low_load_rounds, part)
            found = [*([] if low is None else [self._quotient(low)]), *found]
        if problem.collective.kind in TREES:
            return found
        settled = in_rounds(best, self.budget.seed, effort.paths)
        if settled is None or (self.by_rate and settled.us_per_byte > best.us_per_byte):
            return found
        return [self._quotient(settled), *found]

    def _quotient(self, packing: Packing) -> PlanQuotient:
        """The packing made ready to be run: on orbits, unless images meet at rows and there are
        few enough of them to look at each."""
        quotient = self._prepared(packing)
        if quotient.exact or quotient.plan.transfers > self.effort.most_unfolded:
            return quotient
        return self._prepared(unfolded(packing))

    def _prepared(self, packing: Packing) -> PlanQuotient:
        plan = PackingPlan.of(packing, self.packer.grains)
        self.meter.spend(STEPS_PER_PLAN + STEPS_PER_HOP * len(plan.hops))
        return PlanQuotient.of(plan)

    def _packings(self, meter: Meter) -> list[Packing]:
        """Of the packers, and the quickest routes."""
        collective, limits, seed = self.problem.collective, self.packer, self.budget.seed
        if self.problem.sketch is None and collective.kind not in TREES:
            topology, effort = self.problem.topology, self.effort.paths
            found = pack_paths(topology, collective, meter=meter, seed=seed, effort=effort)
        else:
            found = self._trees(meter)
            fit = [p for p in found if _moves(p) <= (self.problem.most_moves or sys.maxsize)]
            found = fit or (self._trees(meter, self._most_trees()) if found else [])
        if self.problem.sketch is not None or not found or self.by_rate:
            return found
        group = found[0].images, found[0].link_images
        if collective.chunks // len(group[0]) * collective.ranks <= self.effort.most_quick:
            best = max(found, key=lambda p: p.bound)
            quick = quick_packing(
                best.topology, best.collective, best.bound, best.certificate, group, meter=meter
            )
            low = not limits.height or tree_depth(quick) <= limits.height
            if low and (not limits.peers or peers_of(quick) <= limits.peers):
                found.append(quick)
        return found

    def _most_trees(self) -> int:
        """Return the trees of each root with as many transfers as a rank may send, about."""
        collective = self.problem.collective
        ways = {Kind.ALLREDUCE: 2, Kind.BROADCAST: 0, Kind.REDUCE: 0}.get(collective.kind, 1)
        each = max(1, ways * (collective.ranks - 1))
        return max(1, (self.problem.most_moves or 0) // each)

    def _trees(self, meter: Meter, most: int = 0) -> list[Packing]:
        """Trees of the whole machine, as a sketch allows; of boxes times fabric where those lose
        little, or are requested, or the whole is too much. ``most``: of a root; 0: as given."""
        effort, limits, sketch = self.effort, self.packer, self.problem.sketch
        topology, collective = self.problem.topology, self.problem.collective
        many = (
            sketch is None
            and not limits.limit
            and collective.ranks > effort.many
            and len(orbits_of(topology).images) < effort.alike
        )
        if many or (limits.boxes and sketch is None):
            made = pack_hosts(
                topology, collective, meter=meter, seed=self.budget.seed, effort=effort.hosts
            )
            little = made is not None and made.us_per_byte <= (1 + effort.little) * made.bound
            large = collective.ranks > effort.too_many
            if made is not None and (limits.boxes or little or large):
                return [made]
            if limits.boxes:
                raise UserError(
                    f"packing: {topology.name} is not made of boxes that hang together",
                    hint="leave out boxes=true",
                )
        under = None
        if sketch is not None:
            pairs = same_for_all(topology, collective, sketch)
            assert pairs is not None, "else it was refused"
            under = Under(orbits_for(topology, sketch), pairs)
        return pack(
            topology,
            collective,
            trees=min(most, limits.trees) if most and limits.trees else most or limits.trees,
            height=limits.height,
            peers=0 if under else limits.peers,
            under=under,
            meter=meter,
            seed=self.budget.seed,
            observer=self.observer,
            effort=effort.trees,
        )

    def _meets_bound(self, found: Planned, point: Point) -> bool:
        if self.by_rate:
            return point.optimal
        bound = found.quotient.plan.packing.bound
        at_bound = meets(found.time_us, bound * (self.problem.bytes or 1))
        return self.problem.objective is Objective.TIME and found.quotient.exact and at_bound


def _moves(packing: Packing) -> int:
    """Return the transfers that a rank sends, in the mean."""
    hops = sum(len(tree) for tree in packing.trees) * len(packing.images)
    return -(-hops // packing.topology.ranks)


_FOLLOWED = (Only, Forbid, Relay, Symmetry, SwitchPolicy)
"""Rules of sketches that trees can keep, if they are the same for all chunks."""


def _joined(problem: Problem, plain: Outcome, casts: list[Point]) -> Outcome:
    """Return the answers without and with casts together; of rates only the best."""
    points = [*casts, *plain.points]
    met = False
    if problem.objective is Objective.BANDWIDTH:
        least = min(p.rounds_per_chunk for p in points)
        points = [p for p in points if p.rounds_per_chunk == least]
        met = any(p.optimal for p in points)
    words = dict.fromkeys(p.words for p in casts if p in points)
    status = Status.OPTIMAL if met else plain.status
    return Outcome(status, tuple(points), (*words, *plain.statements))


def _cannot_follow(problem: Problem) -> str | None:
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


def _point(found: Planned, size: int) -> Point:
    plan, packing = found.quotient.plan, found.quotient.plan.packing
    schedule = found.schedule()
    rate = packing.us_per_byte if plan.shares.exact else us_per_byte(schedule)
    point = point_of(schedule, packing.collective, rate, packing.bound, packing.certificate, size)
    return replace(point, words=summary(found, point), finer_us=found.finer_us)
