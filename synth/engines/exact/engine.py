"""The engine: its options, what it refuses, how a problem becomes a search."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar

from weft.dsl import symmetry
from weft.dsl.collective import Collective
from weft.dsl.errors import UserError
from weft.dsl.hops import find_hops
from weft.dsl.problem import Objective, Problem
from weft.dsl.sketch import Rule
from weft.dsl.topology import Topology

from ...bounds import bounds
from ...engine import Budget, Observer, Outcome, Point, Status
from . import paper, realize, rules
from .conflict import smallest_conflict
from .demands import Demand, Reach, demands, reach
from .ending import never_reached, pipelining_approaches
from .frontier import Clock, Search, Solver, point_at
from .instance import Space, build_space, with_symmetry
from .orbits import demand_image, find_orbits

COLUMNS = 1_500_000
"""Flow LPs larger than this are not attempted."""

Images = list[tuple[tuple[int, ...], tuple[int, ...]]]


@dataclass(frozen=True, slots=True)
class Exact:
    """k-synchronous schedules with proofs (SCCL's problem), complete over all chunk counts.

    Options:
        solver: ``cp-sat``, or ``z3`` with the paper's own encoding (for cross-checks).
        chunks: exactly this many chunks per unit; 0 lets the flow LP name the number.
        max_chunks: the largest number of chunks per unit that is tried.
        max_steps: where the search over steps ends; 0 means four more than the least.
        symmetry: look for schedules invariant under the machine's declared symmetries first.
    """

    name: ClassVar[str] = "exact"
    cites: ClassVar[str] = (
        "Cai et al., Synthesizing Optimal Collective Algorithms, PPoPP 2021, arXiv:2008.08708"
    )

    solver: str = "cp-sat"
    chunks: int = 0
    max_chunks: int = 64
    max_steps: int = 0
    symmetry: bool = True

    @classmethod
    def availability(cls) -> str | None:
        """OR-Tools and z3 are ordinary dependencies."""
        return None

    def refuses(self, problem: Problem) -> str | None:
        """Combining collectives (left to the reductions), rules it has no words for, size."""
        if self.solver not in _SOLVERS:
            return f"solver {self.solver!r} is not one of {', '.join(_SOLVERS)}"
        if problem.collective.combining:
            return "exact copies only; combining collectives reach it reversed or composed"
        if problem.sketch is not None and (why := rules.refusal(problem.sketch)):
            return why
        targets = sum(len(d.targets) for d in demands(problem.collective))
        columns = targets * len(problem.topology.links) * 2
        if columns > COLUMNS and not problem.topology.symmetries:
            return (
                f"the flow problem would have about {columns:,} columns, more than {COLUMNS:,}: "
                "exact is for machines of up to some 32 ranks (more with declared symmetries)"
            )
        return None

    def solve(self, problem: Problem, budget: Budget, observer: Observer) -> Outcome:
        """The frontier, or the part of it that the objective asks for."""
        clock = Clock.start(budget)
        prepared = _prepare(self, problem)
        first, last = prepared.least_steps, prepared.last_steps(self.max_steps)
        if prepared.rules:
            fitting = prepared.first_feasible(first, last, clock, observer)
            if fitting is None:
                conflict = smallest_conflict(
                    prepared.rules, prepared.impossible(last, clock, observer)
                )
                return Outcome(Status.INFEASIBLE, conflict=tuple(r.label for r in conflict))
            first = fitting
        return _frontier(prepared, problem.objective, first, last, clock, observer)


_SOLVERS: dict[str, Solver] = {"cp-sat": realize.solve, "z3": paper.solve}


@dataclass(frozen=True)
class _Prepared:
    """A problem turned into arrays, once: everything the phases of a solve share."""

    problem: Problem
    wanted: tuple[Demand, ...]
    near: Reach
    plain: Space
    rules: tuple[Rule, ...]
    search: Search
    least_steps: int

    def last_steps(self, wished: int) -> int:
        """Where the search over steps ends: the option, a rule, or four more than the least."""
        last = max(wished or self.least_steps + 4, rules.last_named_step(self.rules))
        limit = rules.step_limit(self.rules)
        return last if limit is None else min(last, limit)

    def feasible(
        self, subset: Sequence[Rule], steps: int, clock: Clock, observer: Observer
    ) -> realize.Verdict:
        """Whether some schedule of S steps obeys a subset of the rules, rounds being no matter."""
        limit = rules.step_limit(subset)
        steps = steps if limit is None else min(steps, limit)
        if steps < self.least_steps:
            return realize.Verdict.NO
        space = rules.apply_rules(self.plain, subset)
        question = realize.Question(rules.fixed_factor(subset) or 1, steps, None)
        return realize.solve(space, question, clock.share(0.3), observer).verdict

    def first_feasible(self, first: int, last: int, clock: Clock, observer: Observer) -> int | None:
        """The least number of steps with which all rules can be obeyed."""
        for steps in range(first, last + 1):
            observer.stage(f"{steps} steps: can the rules be obeyed?")
            if self.feasible(self.rules, steps, clock, observer) is not realize.Verdict.NO:
                return steps
        return None

    def impossible(
        self, last: int, clock: Clock, observer: Observer
    ) -> Callable[[Sequence[Rule]], bool]:
        """Whether a subset of the rules excludes every schedule (proved, not guessed)."""
        # Without a limit on steps a simple path has fewer hops than there are ranks.
        most = max(last, self.problem.topology.ranks - 1)
        return lambda subset: self.feasible(subset, most, clock, observer) is realize.Verdict.NO


def _prepare(engine: Exact, problem: Problem) -> _Prepared:
    topology, collective = problem.topology, problem.collective
    wanted = demands(collective)
    near = reach(topology)
    plain = build_space(topology, find_hops(topology), wanted, near)
    ruled = problem.sketch.rules if problem.sketch else ()
    images = _usable_images(topology, wanted, ruled) if engine.symmetry else []
    orbits = find_orbits(topology, wanted, [n for n, _ in images], [x for _, x in images])
    static = bounds(topology, collective)
    spaces = (rules.apply_rules(plain, ruled),) if ruled else (*_invariant(plain, images), plain)
    least = max(int(near.after[list(d.sources), t].min()) for d in wanted for t in d.targets)
    search = Search(
        topology, collective, wanted, left, reach(left), orbits, spaces, _SOLVERS[engine.solver],
        static.rounds_per_chunk * collective.factor, static.certificate,
        _fixed(rules.fixed_factor(ruled) or engine.chunks or None, collective),
        max(1, engine.max_chunks // collective.factor),
    )  # fmt: skip
    return _Prepared(problem, wanted, near, plain, tuple(ruled), search, least)


def _fixed(factor: int | None, collective: Collective) -> int | None:
    """Into how many pieces the collective as given is cut further, where the number is demanded."""
    if factor is None or factor % collective.factor == 0:
        return None if factor is None else factor // collective.factor
    raise UserError(
        f"{factor} chunks per unit are asked for, but the collective is cut in {collective.factor}"
    )


def _usable_images(topology: Topology, wanted: Sequence[Demand], ruled: Sequence[Rule]) -> Images:
    """Verified symmetries of the machine that map the demands to themselves."""
    if ruled:
        return []
    return [
        (image, symmetry.link_image(topology, image))
        for image in symmetry.verified(topology)
        if demand_image(wanted, image) is not None
    ]


def _invariant(plain: Space, images: Images) -> Iterator[Space]:
    """Spaces of invariant schedules: under the whole group, then under each generator alone."""
    groups = [images] if len(images) < 2 else [images, *([x] for x in images)]
    for group in groups:
        if group:
            yield with_symmetry(plain, group)


def _frontier(
    prepared: _Prepared,
    objective: Objective,
    first: int,
    last: int,
    clock: Clock,
    observer: Observer,
) -> Outcome:
    search = prepared.search
    if objective is Objective.BANDWIDTH:
        first = _first_at_best(search, first, last)
    given = search.collective.factor
    points: list[Point] = []
    gaps: list[str] = []
    worst: Fraction | None = None
    ended = False
    for steps in range(first, last + 1):
        if clock.left() <= 0 or observer.cancelled():
            gaps.append(f"stopped before {steps} steps were searched")
            break
        point, lower = point_at(search, steps, worst, clock, observer)
        if point is not None:
            points.append(replace(point, step_optimal=steps == prepared.least_steps))
            worst = point.rounds_per_chunk * search.collective.factor
        if lower is not None and (worst is None or worst > lower):
            found = "nothing found" if worst is None else f"best found {worst / given}"
            gaps.append(f"{steps} steps: {found}, proved at least {lower / given} rounds per chunk")
        ended = worst == search.static
        if ended or (
            points and objective is not Objective.FRONTIER and objective is not Objective.TIME
        ):
            break
    statements = [*gaps, *_ending(prepared, points, ended)]
    if not points:
        return Outcome(Status.NOTHING, statements=tuple(statements))
    proved = not gaps and all(p.optimal for p in points)
    return Outcome(Status.OPTIMAL if proved else Status.FEASIBLE, tuple(points), tuple(statements))


def _first_at_best(search: Search, first: int, last: int) -> int:
    """The least number of steps whose flow LP reaches the bound for any number of steps."""
    for steps in range(first, last):
        flow = search.bound(steps)
        if flow is not None and flow.rounds_per_chunk <= search.static:
            return steps
    return last


def _ending(prepared: _Prepared, points: Sequence[Point], ended: bool) -> list[str]:
    """Why the search over steps ended where it did."""
    search = prepared.search
    static = search.static / search.collective.factor
    if not points:
        return []
    if ended:
        return [f"the frontier is complete: {static} rounds per chunk is the least there is"]
    last = points[-1].steps
    why = never_reached(search.topology, search.wanted, prepared.near, search.static)
    if why is None:
        return [f"the search over steps ended at {last}; the bound is {static}"]
    approach = (
        "approached, not reached" if pipelining_approaches(search.topology) else "not reached"
    )
    return [
        f"{static} rounds per chunk is {approach}, whatever the number of steps: {why}; "
        f"the search ended at {last} steps"
    ]
