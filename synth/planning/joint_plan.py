"""Schedules for several collectives at once, each verified on the whole machine.

Several ways, the quickest in simulation wins: each collective by its own routes (where nothing is
to be gained, that is enough), each on the share of the machine that the joint solution gives it,
where others forward, or what goes where is stated, the joint solution's own trees and paths, and,
where a collective alone is far from its bound, as small ones are, what the best of all engines
finds for it alone. Where these one after another are quicker than all at once, that is the plan.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import field, replace
from fractions import Fraction
from functools import cached_property

from weft.dsl.base.arrays import Floats
from weft.dsl.base.errors import NothingFound, WeftError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.collective import Collective, Kind
from weft.dsl.nouns.deliveries import shard_collective
from weft.dsl.nouns.problem import Objective, Problem
from weft.dsl.nouns.schedule import Schedule
from weft.dsl.nouns.topology import Topology
from weft.dsl.nouns.workload import DEMANDS, Shard, WorkKind, WorkloadOperation

from ..api import synthesize
from ..base.effort import Effort, setting
from ..base.engine import Budget, Certificate, Observer
from ..bounds.bounds import binding, bounds
from ..bounds.demand import copying_demand, representatives
from ..bounds.distance import latency_path, path_certificate, required_matrix
from ..bounds.effort import BOUND_EFFORT
from ..engines.packing.trees.quantize import halved
from ..fabric.occupancy import us_per_byte
from ..joint.bound import JointBound, joint_bound
from ..joint.carried import Carrier, carried_piece, collective_of
from ..joint.carriers import is_trees, path_carriers, tree_carriers
from ..joint.demands import CollectiveDemand, TreePart, shard_key
from ..joint.merge import MachineShare, MergePiece, merged, nameless, share_of, shares
from ..joint.rails import rail_planner
from ..judge.verify import require_valid
from ..time.schedule_time import simulate


@dataclass(frozen=True, slots=True)
class AloneEffort(Effort):
    """Limits within which the bound of one operation alone is computed."""

    latencies: float = setting(
        50.0, "times the latency; where rates alone take longer, latency is left out"
    )
    hops: float = setting(8.0, "links on the way of a message, to tell so without looking closer")


ALONE_EFFORT = AloneEffort()
"""Default limit."""


@dataclass(frozen=True, slots=True)
class AloneBound:
    """A lower bound on the time of one operation, and so of any workload with it."""

    name: str  # of the operation
    us: Fraction  # the bound in µs, latency counted
    certificate: Certificate  # why


def is_standard(demand: CollectiveDemand) -> bool:
    """Return True for a standard collective: no matrix, shards or transfer."""
    return demand.operation.kind in set(Kind)


def largest_alone(
    topology: Topology, demands: Sequence[CollectiveDemand], rates_us: Fraction
) -> AloneBound | None:
    """Return the largest bound of single operations; None: none is above ``rates_us``."""
    most = max((float(one.latency) for one in topology.links), default=0.0)
    if rates_us > most * ALONE_EFFORT.hops * ALONE_EFFORT.latencies:
        return None
    found: AloneBound | None = None
    known: set[object] = set()
    for demand in demands:
        if not demand.parts:
            continue
        one = AloneQuestion.of(topology, demand)
        if one.key in known:
            continue
        known.add(one.key)
        us, certificate = one.bound(rates_us)
        if us > (rates_us if found is None else found.us):
            found = AloneBound(demand.name, us, certificate)
    return found


@dataclass(frozen=True, eq=False)
class AloneQuestion:
    """An operation on the part of the machine that may forward for it."""

    share: MachineShare  # that part
    collective: Collective  # on its ranks. Of demands of several shards: with a byte for each.
    bytes: int | None  # its message size M; None where the sizes of shards are left out

    @staticmethod
    def of(topology: Topology, demand: CollectiveDemand) -> AloneQuestion:
        """Return the question of a demand."""
        one = demand.operation
        ranks = one.group if set(demand.forwarders) == set(one.group) else demand.forwarders
        if tuple(ranks) == tuple(range(topology.ranks)):
            share = MachineShare(topology, tuple(ranks), tuple(range(len(topology.links))))
        else:
            share = share_of(topology, ranks)
        place = {rank: i for i, rank in enumerate(share.ranks)}
        if is_standard(demand):
            collective = collective_of(one)
            if share.ranks != tuple(one.group):
                collective = collective.within([place[v] for v in one.group], len(place))
            return AloneQuestion(share, collective, one.bytes)
        shards = [  # of one byte each: the data that ranks need, not its size
            Shard(tuple(place[v] for v in x.holders), tuple(place[v] for v in x.receivers), 1)
            for x in one.deliveries
        ]
        collective = shard_collective(len(place), shards, [[1]] * len(shards))
        size = one.deliveries[0].bytes if len(shards) == 1 else None
        return AloneQuestion(share, collective, size)

    @property
    def key(self) -> object:
        """Return the key of its bound, equal for alike operations."""
        return nameless(self.share.topology).digest(), self.collective, self.bytes

    def waits(self, us: Fraction | float) -> bool:
        """Return True if latency may matter in a time of ``us`` µs."""
        return float(self._latency[0]) * ALONE_EFFORT.latencies >= us

    def bound(self, rates_us: Fraction = Fraction(0)) -> tuple[Fraction, Certificate]:
        """Return a lower bound in µs and its proof.

        All bounds count, unless latency hardly matters beside ``rates_us`` or sizes are left out:
        then the latency of the farthest pair.
        """
        if self.bytes is None or not self.waits(rates_us):
            return self._latency
        return binding(bounds(self.share.topology, self.collective), self.bytes)

    @cached_property
    def _latency(self) -> tuple[Fraction, Certificate]:
        machine = self.share.topology
        needs = required_matrix(self.collective, copying_demand(self.collective))
        path = latency_path(machine, needs, representatives(machine, BOUND_EFFORT.few_ranks))
        us = Fraction(0) if path is None else path.length
        return us, path_certificate(machine, path, "µs")


@dataclass(frozen=True, slots=True)
class PlanEffort(Effort):
    """Limits of the search for a plan."""

    engine: float = setting(4.0, "effort of the engine for each different share")
    good: float = setting(1.002, "a plan within this factor of the bound ends the search")
    flow_ranks: int = setting(
        48, "ranks up to which an alltoall is planned on its share, all engines on large messages"
    )
    jobs: int = setting(600_000, "slices of transfers of one simulation, at most")
    grains: int = setting(1 << 18, "grains of a message to which ragged shares are rounded")
    grain_bits: int = setting(20, "buffers of demands have at most 2 to this many grains")
    rounding: float = setting(0.0005, "part of the time that may be lost by that")
    far: float = setting(
        1.02, "times its bound; where packing takes longer for a collective, all engines are asked"
    )


PLAN_EFFORT = PlanEffort()
"""Default limits."""

OWN, BEST = "own routes", "best routes"
"""Ways that take each collective by itself."""

SEGMENTS = (1, 4, 16, 64, 128, 256)
"""Numbers of slices that are tried."""


@dataclass(frozen=True, eq=False)
class JointPlan:
    """A verified schedule for all demands."""

    schedule: Schedule  # of all, on the whole machine
    us: float  # its simulated time in µs
    ends: tuple[float, ...]  # when each demand is done, in µs
    # How it was found: own routes, partition, trees and paths of the joint solution, best routes of
    # all engines, or those in turn
    way: str


def by_engine(demand: CollectiveDemand) -> bool:
    """Return True if an engine can plan it on a share of the machine: no demand, no relays."""
    return is_standard(demand) and not demand.relayed


@dataclass(eq=False)
class JointPlanner:
    """Plans for the demands of one bound; answers of engines are kept."""

    topology: Topology
    bound: JointBound
    budget: Budget = field(default_factory=Budget)
    observer: Observer | None = None
    effort: PlanEffort = PLAN_EFFORT
    known: dict[object, Schedule] = field(default_factory=dict)

    def plan(self) -> JointPlan:
        """Return the quickest plan found.

        Raises:
            NothingFound: no engine solves some of the collectives.
        """
        best: JointPlan | None = None
        alone: list[MergePiece] = []
        told: list[str] = []
        trees = [is_trees(one) for one in self.bound.demands]
        routes = "trees" if all(trees) else "trees and paths" if any(trees) else "paths"
        for way, make_pieces in (
            (OWN, lambda: self.own),
            ("partition", self.partition),
            (routes, self.routed),
            (BEST, self.raced),
        ):
            try:
                pieces = make_pieces()
            except WeftError as error:
                told.append(f"{way}: {error.message}")
                continue
            if pieces is None:
                continue
            found = self.quickest(pieces, way)
            if best is None or found.us < best.us:
                best = found
            if way in (OWN, BEST):
                alone = pieces
            if self._is_good(best):
                break
        if best is None:
            raise NothingFound("no plan was found: " + "; ".join(told))
        return self._in_turn(best, alone)

    @cached_property
    def alone(self) -> AloneBound | None:
        """Return the bound of one operation that is above that of the rates of all, if any is."""
        return largest_alone(self.topology, self.bound.demands, self.bound.us)

    @cached_property
    def least_us(self) -> float:
        """Return the larger of the fluid time of all and the bound of one alone, in µs."""
        return max(self.bound.value_us, 0.0 if self.alone is None else float(self.alone.us))

    def _is_good(self, plan: JointPlan) -> bool:
        return plan.us <= self.least_us * self.effort.good

    @cached_property
    def multiple(self) -> int:
        """Bytes to whose multiples those of matrices and shards are rounded up: 1, or a power of
        two that is about a millionth of the largest buffers, where their grains would be finer."""
        asked = [one.operation for one in self.bound.demands]
        demands = [one for one in asked if one.kind in DEMANDS]
        sizes = [piece.bytes for one in demands for piece in one.deliveries]
        total = sum(one.bytes for one in asked if one.kind not in DEMANDS)
        for one in demands:
            held = Counter[int]()
            for piece in one.deliveries:
                held.update(dict.fromkeys((*piece.holders, *piece.receivers), piece.bytes))
            total += max(held.values(), default=0)
        if total <= math.gcd(*sizes) << self.effort.grain_bits:
            return 1
        return 1 << (total >> self.effort.grain_bits).bit_length()

    # --- ways -------------------------------------------------------------------------------------

    @cached_property
    def own(self) -> list[MergePiece]:
        """Return each demand by itself on the whole machine."""
        return [self._piece(k, None) for k in self._asked()]

    def partition(self) -> list[MergePiece] | None:
        """Return each demand on its share of the joint solution. None: no engine plans any."""
        asked = self._asked()
        if not any(by_engine(self.bound.demands[k]) for k in asked):
            return None
        parts = shares(self.bound.loads)
        return [self._piece(k, parts[k]) for k in asked]

    def routed(self) -> list[MergePiece] | None:
        """Return the joint solution's own trees and paths; for flows that an engine can plan, its
        share. None: nothing but those."""
        demands = self.bound.demands
        routed = {k for k in self._asked() if is_trees(demands[k]) or not by_engine(demands[k])}
        if not routed:
            return None
        parts = shares(self.bound.loads)
        return [
            routed_piece(self.topology, self.bound, k, self.multiple)
            if k in routed
            else self._piece(k, parts[k])
            for k in self._asked()
        ]

    def raced(self) -> list[MergePiece] | None:
        """Return each demand by itself, by the best of all engines where packing is far from its
        bound. None: it is so for none."""
        each = zip(self._asked(), self.own, strict=True)
        found = [self._raced(piece, self.bound.demands[k]) for k, piece in each]
        return None if all(a is b for a, b in zip(found, self.own, strict=True)) else found

    def _raced(self, piece: MergePiece, demand: CollectiveDemand) -> MergePiece:
        """Return the quicker of a piece and of all engines' schedules; for one far off."""
        if not is_standard(demand):
            return piece
        question = AloneQuestion.of(self.topology, demand)
        took = alone_us(piece)
        large = demand.relayed or len(question.share.ranks) > self.effort.flow_ranks
        if large and not question.waits(took):
            return piece
        if took <= float(question.bound()[0]) * self.effort.far:
            return piece
        other = self._answered(question, demand, "portfolio")
        return other if alone_us(other) < took else piece

    def _asked(self) -> list[int]:
        return [k for k, one in enumerate(self.bound.demands) if one.parts]

    def _piece(self, k: int, share: Floats | None) -> MergePiece:
        demand = self.bound.demands[k]
        if not by_engine(demand):
            everyone = len(demand.forwarders) == self.topology.ranks
            if share is None and everyone and demand.operation.kind == WorkKind.ALLTOALLV:
                rails = rail_planner(self.topology)
                if rails is not None:
                    return rails.piece(demand.operation.rounded_up(self.multiple))
            if share is not None or len(self._asked()) == 1:
                return routed_piece(self.topology, self.bound, k, self.multiple)
            alone = joint_bound(self.topology, [demand])
            return routed_piece(self.topology, alone, 0, self.multiple)
        many = len(demand.operation.group) > self.effort.flow_ranks
        if share is not None and many and not is_trees(demand):
            return routed_piece(self.topology, self.bound, k)
        part = share_of(self.topology, demand.operation.group, share)
        question = AloneQuestion(part, collective_of(demand.operation), demand.operation.bytes)
        return self._answered(question, demand, "packing")

    def _answered(self, asked: AloneQuestion, demand: CollectiveDemand, engine: str) -> MergePiece:
        """Return an engine's schedule of a collective; alike questions are solved once."""
        key, one = (engine, asked.key), demand.operation
        if key not in self.known:
            problem = Problem(
                nameless(asked.share.topology),
                asked.collective,
                objective=Objective.TIME,
                bytes=asked.bytes,
            )
            budget = replace(self.budget, effort=min(self.effort.engine, self.budget.effort))
            outcome = synthesize(problem, engine, budget, self.observer)
            # A merged schedule's parts cannot express what ranks sum by themselves at the end.
            found = [x.schedule for x in outcome.points if not x.schedule.collective.local_reduce]
            if not found:
                raise NothingFound(f"{demand.name}: no schedule on its share")
            self.known[key] = self._rounded(found[0])
        return MergePiece(one, self.known[key], asked.share.ranks, asked.share.links, one.bytes)

    def _rounded(self, schedule: Schedule) -> Schedule:
        """Return a schedule on a grid of a power of two, if it had a very fine one.

        Links of a share have ragged bandwidths, so trees have ragged parts: merged, the schedules
        would lack a common grain.
        """
        if schedule.collective.message_chunks <= self.effort.grains:
            return schedule
        most = us_per_byte(schedule) * (1 + Fraction(self.effort.rounding))
        return halved(schedule, self.effort.grains, most) or schedule

    def _in_turn(self, best: JointPlan, pieces: Sequence[MergePiece]) -> JointPlan:
        """Return a plan, or its pieces one after another where they take less time so.

        The first goes first with every slice, and leaves nothing but gaps to the others.
        """
        if len(pieces) < 2 or best.us <= sum(map(alone_us, pieces)):
            return best
        asked = _ranked([piece.operation.priority for piece in pieces]) or [0] * len(pieces)
        order = sorted(range(len(pieces)), key=asked.__getitem__)
        places = [order.index(i) for i in range(len(pieces))]
        once = merged(self.topology, pieces, priorities=places)
        for segments in sorted({piece.schedule.segments for piece in pieces}):
            found = self._timed(replace(once, segments=segments), "best routes in turn")
            best = min(best, found, key=lambda plan: plan.us)
        return best

    # --- the merged schedule ----------------------------------------------------------------------

    def quickest(self, pieces: Sequence[MergePiece], way: str) -> JointPlan:
        """Return the plan of some pieces with the number of slices that is quickest.

        Where no operation has a priority, those of most steps go first if that is quicker: chains
        wait for themselves, what has few steps fills the gaps.
        """
        asked = _ranked([piece.operation.priority for piece in pieces])
        once = merged(self.topology, pieces, priorities=asked or None)
        require_valid(once)
        best = self._sliced(once, way)
        if len(pieces) == 1:
            only = pieces[0].schedule  # in the order and slices that its engine chose
            kept = replace(once, priority=only.priority, stride=only.stride, segments=only.segments)
            return min(best, self._timed(kept, way), key=lambda plan: plan.us)
        depths = _ranked([-piece.schedule.steps for piece in pieces])
        if asked or self._is_good(best) or len({*depths}) == 1:
            return best
        deep = merged(self.topology, pieces, priorities=depths)
        for segments in (best.schedule.segments, 2 * best.schedule.segments):
            if len(deep) * segments > 2 * self.effort.jobs or segments > SEGMENTS[-1]:
                break
            found = self._timed(replace(deep, segments=segments), way)
            if found.us < best.us:
                best = found
        return best

    def _sliced(self, once: Schedule, way: str) -> JointPlan:
        best: JointPlan | None = None
        for segments in SEGMENTS:
            if best is not None and len(once) * segments > self.effort.jobs:
                break
            found = self._timed(replace(once, segments=segments), way)
            if best is not None and found.us > best.us * 1.02:
                break
            if best is None or found.us < best.us:
                best = found
        assert best is not None
        return best

    def _timed(self, schedule: Schedule, way: str) -> JointPlan:
        assert schedule.bytes is not None
        run = simulate(schedule, schedule.bytes)
        ends = []
        for part in schedule.parts:
            mine = (schedule.chunk >= part.first) & (schedule.chunk < part.last)
            ends.append(float(run.end_us[mine].max(initial=0.0)))
        return JointPlan(schedule, float(run.time_us), tuple(ends), way)


def alone_us(piece: MergePiece) -> float:
    """Return the time of a piece without the others, in µs."""
    return float(simulate(piece.schedule, piece.bytes).time_us)


def _ranked(wanted: Sequence[int | None]) -> list[int]:
    """Return the place of each number among all, those without one last; empty: none has one."""
    known = sorted({x for x in wanted if x is not None})
    if not known:
        return []
    return [len(known) if x is None else known.index(x) for x in wanted]


# --- the schedule of a demand by the joint solution's routes --------------------------------------


def routed_piece(topology: Topology, bound: JointBound, k: int, multiple: int = 1) -> MergePiece:
    """Return the schedule of demand k along the trees or paths that the solution uses for it.

    ``multiple``: that to which the bytes of matrices and shards are rounded up.
    """
    demand = bound.demands[k]
    operation = demand.operation
    if operation.kind in DEMANDS:
        operation = operation.rounded_up(multiple)
    carriers: Sequence[Sequence[Carrier]]
    if not is_trees(demand):
        pairs = path_carriers(topology, bound, k)
        carriers = [pairs.get(pair, ()) for pair in _pairs(operation)]
    else:
        carriers = tree_carriers(topology, bound, k)
        if operation.kind == WorkKind.MULTICAST:
            parts = [one for one in demand.parts if isinstance(one, TreePart)]
            place = {(one.holders, one.receivers): p for p, one in enumerate(parts)}
            parts_of = [place.get(shard_key(one)) for one in operation.deliveries]
            carriers = [() if p is None else carriers[p] for p in parts_of]
    return carried_piece(topology, operation, carriers)


def _pairs(operation: WorkloadOperation) -> list[tuple[int, int]]:
    if operation.kind in DEMANDS:
        return [(one.holders[0], one.receivers[0]) for one in operation.deliveries]
    plain, group = collective_of(operation), operation.group
    ends: list[tuple[int, int]] = [(-1, -1)] * plain.chunks
    source = dict(zip(plain.pre.chunks.tolist(), plain.pre.ranks.tolist(), strict=True))
    for chunk, rank in zip(plain.post.chunks.tolist(), plain.post.ranks.tolist(), strict=True):
        ends[chunk] = group[source[chunk]], group[rank]
    return ends
