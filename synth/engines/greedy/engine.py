"""The engine ``greedy``: matching in the time-expanded network, and trees that avoid load."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from fractions import Fraction
from typing import ClassVar

import numpy as np

from weft.dsl.base.arrays import Ints
from weft.dsl.base.errors import UserError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.collective import Collective, Kind
from weft.dsl.nouns.problem import Objective, Problem
from weft.dsl.nouns.schedule import Schedule

from ...base.engine import Budget, Observer, Outcome, Point, Status
from ...base.meter import Meter
from ...bounds import Bounds, bounds, lower_bound_us
from ...fabric.hop_table import HopTable, hop_table_of
from ...frontier.objective import pareto, point_of
from ...time.margin import MARGIN_EFFORT, steadiest, worst_us
from ...time.slices import SLICE_EFFORT, fewest_slices
from .demand import ChunkDemand, demand_of, refusal
from .effort import GreedyEffort
from .lists import TransferJobs, jobs_of, plans
from .matching import attempts
from .plan import TransferPlan, schedule_of
from .routes import ChunkEnds, Trees, both_ways, grow_trees, with_reversed_copy

GIB = 1 << 30

PER_TRANSFER = 256
"""Bytes that a transfer of a plan needs in memory, about, until it is a schedule (measured)."""


STEPS_PER_TRANSFER = 3
"""Steps of work to plan a transfer, each about 1 µs."""


@dataclass(frozen=True, slots=True)
class Greedy:
    """Greedy matching: whenever a link is free it takes the rarest chunk that is of use.

    Options:
        chunks: pieces that every unit of the collective is cut into; 0 tries a few.
        seeds: how often everything is tried with other random numbers; the best is kept.
        memory: GiB it may use; problems that need more are refused.
    """

    name: ClassVar[str] = "greedy"
    cites: ClassVar[str] = (
        "time-expanded matching: Won et al., TACOS, MICRO 2024; here rarest first, with "
        "reservation, on any machine"
    )

    chunks: int = 0
    seeds: int = 3
    memory: int = 8
    effort: GreedyEffort = field(default_factory=GreedyEffort)

    def __post_init__(self) -> None:
        if self.chunks < 0:
            raise UserError(f"greedy: chunks is {self.chunks}", hint="0 or more")
        if self.seeds < 1 or self.memory < 1:
            raise UserError("greedy: seeds and memory are at least 1", hint="seeds=3,memory=8")

    @classmethod
    def availability(cls) -> str | None:
        """It needs nothing."""
        return None

    def refuses(self, problem: Problem) -> str | None:
        """Sketches, sums other than allreduce, contents that differ, nothing to do, no memory."""
        collective = problem.collective
        if problem.sketch is not None:
            return "matching cannot follow a sketch"
        if len(set(collective.grains.tolist())) > 1:
            return "its chunks are of unequal sizes"
        if collective.ranks < 2:
            return "nothing has to move: every rank holds already what it wants"
        if _joint(collective):
            return None
        return refusal(collective)

    def solve(self, problem: Problem, budget: Budget, observer: Observer) -> Outcome:
        """Return the best plan of all chunk counts, seeds and rules at the objective's size.

        For the frontier: all that none beats in steps and rate.

        Raises:
            UserError: a chunk cannot reach a rank that wants it, or the memory does not suffice.
        """
        search = _PlanSearch(self, problem, budget, observer)
        search.run()
        return search.outcome()

    def require_memory(self, transfers: int) -> None:
        """Refuse before anything is allocated.

        Raises:
            UserError: it needs more than ``memory``.
        """
        needed = transfers * PER_TRANSFER
        if needed > self.memory * GIB:
            raise UserError(
                f"greedy: {transfers} transfers need {needed / GIB:.1f} GiB, {self.memory} are "
                "allowed",
                hint="fewer chunks, a larger memory, or --stream for allgather",
            )


def _joint(collective: Collective) -> bool:
    """Return True if the collective is an allreduce whose ranks may combine data on the way."""
    return collective.kind is Kind.ALLREDUCE and collective.combining


def _transfers(collective: Collective) -> int:
    if _joint(collective):
        return 2 * (collective.ranks - 1) * collective.chunks
    return len(collective.post)


def _size(problem: Problem, effort: GreedyEffort) -> int:
    if problem.bytes is not None:
        return problem.bytes
    if problem.objective is Objective.LATENCY:
        return effort.latency_bytes
    return effort.bandwidth_bytes


@dataclass(slots=True)
class _PlanSearch:
    """Tries plans, and keeps those near the best one per chunk count.

    ``worst``: of plans that were kept, the time in the worst pattern of longer latencies.
    """

    engine: Greedy
    problem: Problem
    budget: Budget
    observer: Observer
    best: dict[int, TransferPlan] = field(default_factory=dict)
    near: dict[int, list[TransferPlan]] = field(default_factory=dict)
    worst: dict[TransferPlan, float] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)
    bound: Bounds | None = None

    def run(self) -> None:
        """Try all chunk counts, seeds and rules, until the budget ends or the bound is met."""
        meter = self.budget.meter(self.observer.cancelled)
        self.bound = bounds(self.problem.topology, self.problem.collective)
        effort = self.engine.effort
        least = float(lower_bound_us(self.bound, _size(self.problem, effort)))
        for pieces in self._cuts():
            if self._slower():
                return
            transfers = _transfers(self.problem.collective) * pieces
            self.engine.require_memory(transfers)
            few = transfers <= effort.most_transfers
            goal = least * (effort.enough if few else effort.enough_of_many)
            collective = self.problem.collective.split(pieces)
            chunk = Fraction(_size(self.problem, effort), collective.message_chunks)
            machine = hop_table_of(self.problem.topology, chunk)
            demand = None if _joint(collective) else demand_of(collective)
            seeds = self.engine.seeds + effort.steady_seeds
            for turn, seed in enumerate(range(self.budget.seed, self.budget.seed + seeds)):
                if turn >= self.engine.seeds and not self._may_steady(pieces, goal, meter):
                    break
                for plan in self._plans(machine, collective, demand, seed, meter):
                    meter.spend(STEPS_PER_TRANSFER * transfers)
                    self._keep(pieces, plan)
                    if self.best[pieces].time_us <= goal and self._steadiest(pieces, meter)[1]:
                        return
                    if meter.over():
                        self.said.append("stopped before everything was tried")
                        return
            if self.best[pieces].time_us <= goal:
                return

    def _keep(self, pieces: int, plan: TransferPlan) -> None:
        """Keep a plan if it is near the best one in as many pieces."""
        best = self.best.setdefault(pieces, plan)
        if plan.time_us < best.time_us:
            best = self.best[pieces] = plan
        most = MARGIN_EFFORT.near * best.time_us
        near = sorted([*self.near.get(pieces, ()), plan], key=lambda one: one.time_us)
        kept = self.engine.effort.near_plans
        few = len(plan.hop) <= MARGIN_EFFORT.slices  # of others no pattern is run
        self.near[pieces] = [one for one in near if one.time_us <= most][: kept if few else 1]

    def _may_steady(self, pieces: int, goal: float, meter: Meter) -> bool:
        """Return True if a further seed may give a plan that is as quick, and steadier."""
        near = self.best[pieces].time_us <= MARGIN_EFFORT.near * goal
        return near and not self._steadiest(pieces, meter)[1]

    def _steadiest(self, pieces: int, meter: Meter | None = None) -> tuple[TransferPlan, bool]:
        """Return the plan of the least worst time, of those near the best, and if it is steady."""
        size = _size(self.problem, self.engine.effort)

        def worst(plan: TransferPlan) -> float:
            if plan not in self.worst:
                schedule = self._schedule(pieces, plan)
                self.worst[plan] = max(plan.time_us, worst_us(schedule, size, meter))
            return self.worst[plan]

        plan = steadiest([(one.time_us, one) for one in self.near[pieces]], worst)
        return plan, worst(plan) <= MARGIN_EFFORT.steady * plan.time_us

    def _schedule(self, pieces: int, plan: TransferPlan) -> Schedule:
        return schedule_of(plan, self.problem.topology, self.problem.collective.split(pieces))

    def _plans(
        self,
        machine: HopTable,
        collective: Collective,
        demand: ChunkDemand | None,
        seed: int,
        meter: Meter,
    ) -> Iterator[TransferPlan]:
        """Yield the plans of one seed; no ``demand``: of an allreduce."""
        effort = self.engine.effort
        if demand is None:
            for deep in effort.depths:
                trees = min(collective.chunks, effort.joint_trees)
                legs = _legs(machine, trees, seed, effort, meter, deep)
                if legs is not None:
                    jobs = _jobs(machine, legs, collective.chunks)
                    yield from plans(machine, jobs, seed, effort)
            return
        if demand.everywhere:
            for attempt in attempts(machine, demand, seed, effort.compared):
                yield attempt()
        if not demand.everywhere or len(collective.roots) == 1:
            yield from _tree_plans(machine, demand, seed, effort, meter)

    def _cuts(self) -> Iterator[int]:
        if self.engine.chunks:
            yield self.engine.chunks
            return
        single = self.problem.objective is Objective.LATENCY
        effort = self.engine.effort
        ladder = effort.joint_pieces if _joint(self.problem.collective) else effort.pieces
        for pieces in (1,) if single else ladder:
            transfers = _transfers(self.problem.collective) * pieces
            if pieces == 1 or transfers <= effort.most_transfers:
                yield pieces

    def _slower(self) -> bool:
        times = [plan.time_us for plan in self.best.values()]
        return bool(times) and times[-1] > self.engine.effort.slower * min(times)

    def outcome(self) -> Outcome:
        if not self.best:
            return Outcome(Status.NOTHING, statements=tuple(self.said))
        cuts = sorted(self.best)
        if self.problem.objective is not Objective.FRONTIER:
            cuts = [self._cut()]
        points = pareto([self._point(pieces) for pieces in cuts])
        return Outcome(Status.FEASIBLE, tuple(points), tuple(self.said))

    def _cut(self) -> int:
        """Return the fewest pieces whose steadiest plan takes little more than the least."""
        slices = SLICE_EFFORT.of(self.problem)
        cost = {pieces: plan.cost_us(slices.message_us) for pieces, plan in self.best.items()}
        most = slices.near(min(cost.values()))
        tried = []
        for pieces in self.best:
            if cost[pieces] <= most:
                plan = self._steadiest(pieces)[0]
                tried.append(
                    (plan.cost_us(slices.message_us) + self.worst[plan] - plan.time_us, pieces)
                )
        return fewest_slices(tried, lambda pieces: self.best[pieces].time_us, slices)

    def _point(self, pieces: int) -> Point:
        schedule = self._schedule(pieces, self._steadiest(pieces)[0])
        assert self.bound is not None, "run comes first"
        point = point_of(schedule, self.bound)
        self.observer.incumbent(point)
        return point


def _tree_plans(
    machine: HopTable, demand: ChunkDemand, seed: int, effort: GreedyEffort, meter: Meter
) -> Iterator[TransferPlan]:
    """Yield plans along low-load trees, for chunks that few ranks want.

    Raises:
        UserError: a rank cannot be reached.
    """
    trees = grow_trees(
        machine,
        ChunkEnds.of(demand.held, demand.held_by, demand.chunks),
        ChunkEnds.of(demand.wanted, demand.wanted_by, demand.chunks),
        seed,
        effort=effort,
        meter=meter,
    )
    if trees is None:
        raise UserError(
            "a chunk cannot reach a rank that wants it", hint="check the links: weft topo show"
        )
    if not trees.length.any():
        none = np.zeros(0, np.int64)
        yield TransferPlan(machine, none, none, none)
        return
    legs: Legs = [([], hops.tolist()) for hops in _of(trees)]
    yield from plans(machine, _jobs(machine, legs, len(legs)), seed, effort)


Legs = list[tuple[list[int], list[int]]]


def _legs(
    machine: HopTable, trees: int, seed: int, effort: GreedyEffort, meter: Meter, deep: float
) -> Legs | None:
    """For each tree the hops of the reduction, leaves first, and of the broadcast, root first."""
    # All ranks in turn, in seeded random order.
    roots = np.resize(np.random.default_rng(seed).permutation(machine.ranks), trees)
    roots, everybody = roots.astype(np.int64), np.arange(machine.ranks)
    pair = both_ways(machine)
    if pair is not None:
        wide, back = pair
        holders = ChunkEnds.of(np.arange(trees), roots, trees)
        every = np.repeat(np.arange(trees), len(everybody)), np.tile(everybody, trees)
        wanters = ChunkEnds.of(*every, trees)
        grown = grow_trees(wide, holders, wanters, seed, effort=effort, meter=meter, deep=deep)
        return None if grown is None else [(back[h[::-1]].tolist(), h.tolist()) for h in _of(grown)]
    n, h = machine.ranks, machine.hops
    holders = ChunkEnds.of(np.arange(2 * trees), np.concatenate([roots, roots + n]), 2 * trees)
    wanters = ChunkEnds.of(
        np.repeat(np.arange(2 * trees), n),
        np.concatenate([np.tile(everybody, trees), np.tile(everybody + n, trees)]),
        2 * trees,
    )
    grown = grow_trees(
        with_reversed_copy(machine), holders, wanters, seed, effort=effort, meter=meter, deep=deep
    )
    if grown is None:
        return None
    both = _of(grown)
    return [
        ((up[::-1] - h).tolist(), down.tolist())
        for down, up in zip(both[:trees], both[trees:], strict=True)
    ]


def _of(trees: Trees) -> list[Ints]:
    return [trees.hops[c, :n] for c, n in enumerate(trees.length.tolist())]


def _jobs(machine: HopTable, legs: Legs, pieces: int) -> TransferJobs:
    """The hops of all chunks: into a rank's sum before out of it, the sum before the copies."""
    src, dst = machine.src.tolist(), machine.dst.tolist()
    hop: list[int] = []
    chunk: list[int] = []
    reduce: list[bool] = []
    needs: list[tuple[int, int]] = []
    for c in range(pieces):
        up, down = legs[c % len(legs)]
        came: dict[int, list[int]] = {}
        for adds, tree in ((True, up), (False, down)):
            for h in tree:
                needs += [(before, len(hop)) for before in came.get(src[h], ())]
                came.setdefault(dst[h], []).append(len(hop))
                hop.append(h)
                chunk.append(c)
                reduce.append(adds)
    return jobs_of(machine, hop, chunk, reduce, needs)
