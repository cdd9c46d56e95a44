"""The engine ``classic``: an algorithm of the literature, mapped to the machine."""

from __future__ import annotations

from dataclasses import field, replace
from fractions import Fraction
from itertools import chain, zip_longest
from math import prod
from statistics import median
from typing import ClassVar

import numpy as np

from weft.dsl.base.components import components
from weft.dsl.base.errors import BadAlgorithm, UserError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.collective import Collective
from weft.dsl.nouns.problem import Objective, Problem
from weft.dsl.nouns.schedule import Schedule
from weft.dsl.nouns.sketch import Chunks, Phases, Sketch

from ...base.engine import Budget, Observer, Outcome, Point, Status
from ...base.meets import meets
from ...base.meter import Meter
from ...bounds import Bounds, bounds
from ...bounds.switch_gain import beyond_transfers
from ...fabric.occupancy import rounds_per_chunk
from ...frontier.objective import meets_bound, pareto
from ...judge.verify import verify
from ...time.latency import latency_us
from ...time.schedule_time import simulate, simulation_steps
from ...time.slices import SLICE_EFFORT, SliceEffort, fewest_slices
from ..packing.casts.search import CastEffort, in_slices
from .effort import ClassicEffort
from .grid import RankGrid, grid_at
from .in_network import InNetwork, SlotPool
from .model import Flat
from .place import ClassicAlgorithm, Site, find_algorithm, has_levels, names_for
from .schedule import to_schedule

STEPS_PER_MOVE = 20
"""Steps of work to write a transfer of an algorithm and to route it, each about 1 µs."""


@dataclass(frozen=True, slots=True)
class Classic:
    """Algorithms of the literature: ring, trees, doubling, Bruck, torus, hierarchical ….

    Options:
        algorithm: name of the algorithm (``weft list algorithms``), or ``auto``: the best
            of all that fit, without those in lanes (``rings``, ``rail_tree``), which need a search.
        chunks: pieces of a pipeline, or of every block; 0 tries a few.
        shape: sizes of the levels of a hierarchical algorithm, innermost first (``8+2``); by
            default those of the machine.
        slots, packet, rtt: of ``switchml``: slots of each switch, bytes of one, and µs from a
            packet to its sum (0: as the machine's α say).
    """

    name: ClassVar[str] = "classic"
    cites: ClassVar[str] = (
        "Thakur, Rabenseifner & Gropp, IJHPCA 19 (2005); Cho et al., BlueConnect, MLSys 2019; "
        "each algorithm names its own"
    )

    algorithm: str = "auto"
    chunks: int = 0
    shape: tuple[int, ...] = ()
    slots: int = 512
    packet: int = 1024
    rtt: Fraction = Fraction(0)
    effort: ClassicEffort = field(default_factory=ClassicEffort)

    def __post_init__(self) -> None:
        if self.chunks < 0:
            raise UserError(f"classic: chunks is {self.chunks}", hint="0 or more")
        if any(side < 1 for side in self.shape):
            raise UserError("classic: a level of the shape is empty", hint="shape=8+2")
        if self._pool != SlotPool() and self.algorithm != "switchml":
            raise UserError(
                "classic: slots, packet and rtt are of switchml",
                hint="classic{algorithm=switchml,slots=512,packet=1024}",
            )

    @property
    def _pool(self) -> SlotPool:
        return SlotPool(self.slots, self.packet, self.rtt)

    @classmethod
    def availability(cls) -> str | None:
        """It needs nothing."""
        return None

    def refuses(self, problem: Problem) -> str | None:
        """Return the reason to refuse: no algorithm for the collective, or nothing to do."""
        collective = problem.collective
        if collective.ranks < 2:
            return "nothing has to move: every rank holds already what it wants"
        if collective.local_reduce or not names_for(collective.kind):
            return f"classic lacks an algorithm for {collective.name or collective.kind}"
        self._require_sense(collective)
        return None

    def _require_sense(self, collective: Collective) -> None:
        shape = "x".join(map(str, self.shape))
        if self.shape and prod(self.shape) != collective.ranks:
            raise UserError(
                f"classic: levels of {shape} do not hold {collective.ranks} ranks",
                hint="their sizes multiply to the number of ranks",
            )
        if self.algorithm == "auto":
            return
        one = find_algorithm(
            self.algorithm, collective.kind
        )  # raises, and says for which ones it is
        if self.shape and not has_levels(one):
            raise UserError(
                f"classic: {one.name} is not hierarchical, so a shape of {shape} says nothing",
                hint="leave shape out, or name a hierarchical algorithm; weft list algorithms",
            )

    def solve(self, problem: Problem, budget: Budget, observer: Observer) -> Outcome:
        """Return the best algorithm by simulation; for the objective frontier, the Pareto front.

        Raises:
            UserError: the named algorithm does not fit the machine, or none does.
        """
        meter = budget.meter(observer.cancelled)
        sites = [Site(problem.topology, self.shape, None, self.effort, meter, self._pool)]
        if not self.shape and (grid := grid_of_phases(problem)) is not None:
            sites.append(Site(problem.topology, grid=grid, effort=self.effort, meter=meter))
        limit = bounds(problem.topology, problem.collective)
        judge = _Judge(problem, limit, observer, meter, self.effort)
        why: list[UserError] = []
        for site in sites:
            if judge.points:  # the machine's own levels are those of the sketch
                break
            if not self._look_around(site, problem, judge, why):
                return judge.outcome("stopped before all algorithms were tried")
        if not judge.points:
            raise self._none(problem, why)
        return judge.outcome()

    def _look_around(
        self, site: Site, problem: Problem, judge: _Judge, why: list[UserError]
    ) -> bool:
        """Offer all algorithms on a site to the judge; False if the budget ended before.

        One try of each comes first, then more pieces and slices of those that are possible.
        """
        possible: list[tuple[ClassicAlgorithm, Schedule]] = []
        for one in self._algorithms(site, problem):
            if judge.points and judge.meter.over():
                return False
            if not isinstance(one, InNetwork) and beyond_transfers(problem, judge.value):
                continue
            before = judge.meter.done
            first = self._offer(site, one, self._pieces(one, problem.objective)[0], judge, why)
            if first is None:
                continue
            possible.append((one, first))
            if isinstance(one, InNetwork):  # at once: then transfers may be of no use
                judge.look_at_orders(one.name, first)
                judge.meter.came_on_top(before)  # they get as much as without such switches
        for one, first in possible:
            for chunks in self._pieces(one, problem.objective)[1:]:
                if judge.meter.over():
                    return False
                self._offer(site, one, chunks, judge, why)
            if judge.meter.over():
                return False
            if not isinstance(one, InNetwork) and not one.pipelined:
                judge.look_at_slices(one.name, first)
        return True

    def _offer(
        self, site: Site, one: ClassicAlgorithm, chunks: int, judge: _Judge, why: list[UserError]
    ) -> Schedule | None:
        """Offer an algorithm in ``chunks`` pieces to the judge; None if it does not fit here."""
        try:
            schedule = self._schedule(site, one, chunks, judge.problem, judge.meter)
            _require_obedient(one.name, schedule, judge.problem)
        except BadAlgorithm:  # ours: it is wrong, not in the wrong place
            raise
        except UserError as error:
            why.append(error)
            return None
        judge.look_at(one.name, schedule)
        return schedule

    def _algorithms(self, site: Site, problem: Problem) -> list[ClassicAlgorithm]:
        """Return the algorithms to try: those of switches that compute, then flat ones by their
        cost formulas, and between them, one by one, those for hierarchies, which have none.

        So a small budget tries those that are likely to be best.
        """
        kind = problem.collective.kind
        if self.algorithm != "auto":
            return [find_algorithm(self.algorithm, kind)]
        size, links = self._size(problem), problem.topology.links
        alpha = float(max(x.latency for x in links))
        bandwidth = float(median(x.bandwidth for x in links))

        def formula(one: Flat) -> float:
            pieces = self._pieces(one, problem.objective)
            costs = (one.cost(problem.topology.ranks, x) for x in pieces)
            return min(cost.us(size, alpha, bandwidth) for cost in costs)

        defined = list(site.defined(kind))
        casts = [one for one in defined if isinstance(one, InNetwork)]
        flat = sorted((one for one in defined if isinstance(one, Flat)), key=formula)
        others = [one for one in defined if not isinstance(one, Flat | InNetwork)]
        mixed = [one for pair in zip_longest(flat, others) for one in pair if one is not None]
        return [*casts, *mixed]

    def _size(self, problem: Problem) -> int:
        if problem.objective is Objective.LATENCY:
            return problem.bytes or 1
        return problem.bytes or self.effort.bandwidth_bytes

    def _pieces(self, one: ClassicAlgorithm, objective: Objective) -> tuple[int, ...]:
        if self.chunks:
            return (self.chunks,)
        return self.effort.pieces(objective) if one.pipelined else (1,)

    def _schedule(
        self, site: Site, one: ClassicAlgorithm, chunks: int, problem: Problem, meter: Meter
    ) -> Schedule:
        collective = problem.collective
        root = collective.roots[0] if collective.roots else 0
        pieces = chunks * collective.factor
        size = self._size(problem)
        if isinstance(one, InNetwork):
            made = one.schedule(site.switches, pieces, root)
            meter.spend(STEPS_PER_MOVE * made.moves)
            return made
        for own_order in (False, True):
            algorithm = site.algorithm(
                one.name, collective.kind, chunks=pieces, root=root, own_order=own_order
            )
            if self.algorithm == "auto" and len(algorithm.moves) > self.effort.most_transfers:
                raise UserError(f"{one.name} has {len(algorithm.moves)} transfers")
            message = size / algorithm.collective.message_chunks
            meter.spend(STEPS_PER_MOVE * len(algorithm.moves))
            try:
                return to_schedule(algorithm, problem.topology, message, site.routes)
            except UserError:
                if own_order or not isinstance(one, Flat):
                    raise
        raise AssertionError("the loop returns or raises")

    def _none(self, problem: Problem, why: list[UserError]) -> UserError:
        what = f"{problem.collective.kind} on {problem.topology.name}"
        if self.algorithm != "auto" and why:
            return UserError(
                f"{self.algorithm} cannot do {what}: {why[0].message}", hint=why[0].hint or ""
            )
        return UserError(
            f"no classic algorithm fits {what}: {why[0].message if why else 'none is defined'}",
            hint="another engine may: -e exact",
        )


def _require_obedient(name: str, schedule: Schedule, problem: Problem) -> None:
    """Refuse an algorithm that does not do as the sketch says.

    Raises:
        UserError: it does not.
    """
    if problem.sketch is None:
        return
    verdict = verify(schedule, problem.sketch)
    if not verdict.ok:
        raise UserError(f"{name} does not obey the sketch: {verdict.problems[0]}")


@dataclass(slots=True)
class _Judge:
    problem: Problem
    bound: Bounds
    observer: Observer
    meter: Meter
    effort: ClassicEffort
    points: list[Point] = field(default_factory=list)
    value: float = float("inf")

    def look_at(self, name: str, schedule: Schedule) -> None:
        point = self._point(name, schedule)
        if self.problem.objective is Objective.FRONTIER:
            kept = pareto([*self.points, point])
            if point not in kept:
                return
            self.points = kept
        else:
            value = self._value(point.schedule)
            # Ties go to fewer steps, then to the first found.
            if self.points and (value, point.steps) >= (self.value, self.points[0].steps):
                return
            self.points, self.value = [point], value
        self.observer.incumbent(point)

    def look_at_slices(self, name: str, schedule: Schedule) -> None:
        """Try finer and finer slices of the message, while they improve the time."""
        if self.problem.objective is not Objective.TIME or _fixes_chunk_count(self.problem.sketch):
            return
        tried = [(self._value(schedule), 1)]
        for slices in self.effort.slices:
            if self.meter.over() or slices * len(schedule) > self.effort.most_sliced:
                break
            tried.append((self._value(replace(schedule, segments=slices)), slices))
            if tried[-1][0] > self.effort.better * tried[-2][0]:
                break
        size = self.problem.bytes or 1
        segments = fewest_slices(
            tried, lambda n: simulate(replace(schedule, segments=n), size).time_us, self.slices
        )
        self.look_at(name, replace(schedule, segments=segments))

    def look_at_orders(self, name: str, schedule: Schedule) -> None:
        """Try slices in planned orders: multicasts of one run beside the sums of the next."""
        if self.problem.objective is Objective.LATENCY or _fixes_chunk_count(self.problem.sketch):
            return
        effort = CastEffort(most_jobs=self.effort.most_sliced, slices=self.slices)
        size = self.problem.bytes or self.effort.bandwidth_bytes
        self.look_at(name, in_slices(schedule, size, self.meter, effort)[1])

    def _point(self, name: str, schedule: Schedule) -> Point:
        schedule, rounds = schedule.with_provenance(algorithm=name), schedule.rounds
        factor = schedule.collective.factor
        limit = self.bound.rounds_per_chunk
        sliced = schedule.segments > 1 or len(schedule.casts) > 0
        rate = rounds_per_chunk(schedule) if sliced else None
        return Point(
            schedule,
            schedule.steps,
            sum(rounds),
            factor,
            limit,
            self.bound.certificate,
            step_optimal=schedule.steps == self.bound.steps,
            bandwidth_optimal=(Fraction(sum(rounds), factor) if rate is None else rate) == limit,
            rate=rate,
        )

    def _value(self, schedule: Schedule) -> float:
        self.meter.spend(simulation_steps(schedule))
        if self.problem.objective is Objective.LATENCY:
            return latency_us(schedule)
        if self.problem.objective is Objective.BANDWIDTH:
            return simulate(schedule, self.effort.bandwidth_bytes).time_us
        return simulate(schedule, self.problem.bytes or 1, self.slices.model).time_us

    @property
    def slices(self) -> SliceEffort:
        """The cost of a message, and what it may lose."""
        return SLICE_EFFORT.of(self.problem)

    def outcome(self, *statements: str) -> Outcome:
        proved = not statements and self._is_optimal()
        names = ", ".join(str(p.schedule.provenance["algorithm"]) for p in self.points)
        status = Status.OPTIMAL if proved else Status.FEASIBLE
        return Outcome(status, tuple(self.points), (*statements, f"algorithm: {names}"))

    def _is_optimal(self) -> bool:
        first = self.points[0]
        match self.problem.objective:
            case Objective.LATENCY:
                return meets(self.value, self.bound.latency_us)
            case Objective.BANDWIDTH:
                return first.bandwidth_optimal
            case Objective.TIME:
                return meets_bound(first, self.problem)
            case _:
                return len(self.points) == 1 and first.step_optimal and first.bandwidth_optimal


def _fixes_chunk_count(sketch: Sketch | None) -> bool:
    return any(isinstance(rule, Chunks) for rule in (sketch.rules if sketch else ()))


def grid_of_phases(problem: Problem) -> RankGrid | None:
    """The grid whose lines are the groups of the sketch's phases, the first phase along axis 0.

    None without phases, or where their groups are not lines of a grid. Sums go inwards first,
    so for an allgather the last phase is the innermost. O(ranks · phases).
    """
    rules = problem.sketch.of(Phases) if problem.sketch else ()
    if not rules:
        return None
    told = [phase.groups for rule in rules if isinstance(rule, Phases) for phase in rule.phases]
    if str(problem.collective.kind) == "allgather":
        told.reverse()
    axes = list(dict.fromkeys(told))
    place = []
    for axis in axes:  # ranks that the other axes connect have the same coordinate along it
        others = chain.from_iterable(other for other in axes if other is not axis)
        pairs = np.array([(g[0], r) for g in others for r in g], np.int64).reshape(-1, 2)
        place.append(components(problem.topology.ranks, *pairs.T))
    return grid_at(np.array(place))
