"""The engine ``exact``: options, refusals, the search of a problem, why a frontier never ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import field, replace
from fractions import Fraction
from typing import ClassVar

import numpy as np

from weft.dsl.base.errors import UserError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.tables import count
from weft.dsl.nouns.hops import find_hops
from weft.dsl.nouns.problem import Objective, Problem
from weft.dsl.nouns.sketch import Rule
from weft.dsl.nouns.topology import Topology
from weft.dsl.symmetry import symmetry

from ...base.conflict import smallest_conflict
from ...base.engine import Budget, Observer, Outcome, Status
from ...base.meter import Meter
from ...bounds import bounds
from ...bounds.steps.demands import (
    demand_image,
    demands,
    find_orbits,
    reach,
)
from ...frontier.objective import meets_bound
from ...reductions.allreduce import takes_sum
from . import paper, realize
from .casts import offer_images, offers_for
from .effort import ExactEffort
from .frontier import (
    Frontier,
    FrontierSearch,
    Solver,
    any_point,
    first_at_best,
    resource_name,
    walk,
)
from .instance import (
    ExactQuestion,
    ExactRun,
    Space,
    apply_rules,
    build_space,
    fixed_factor,
    last_named_step,
    refusal,
    step_limit,
    unused_links,
    with_symmetry,
)
from .sums_search import search_sums


@dataclass(frozen=True, slots=True)
class Exact:
    """k-synchronous schedules with proofs (SCCL's problem), complete over all chunk counts.

    Options:
        solver: ``cp-sat``, or ``z3`` with the paper's own encoding (a cross-check; needs weft[z3]).
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
    effort: ExactEffort = field(default_factory=ExactEffort)

    def __post_init__(self) -> None:
        for option in ("chunks", "max_steps"):
            if getattr(self, option) < 0:
                raise UserError(f"exact: {option} is {getattr(self, option)}", hint="0 or more")
        if self.max_chunks < 1:
            raise UserError(f"exact: max_chunks is {self.max_chunks}", hint="at least 1")

    @classmethod
    def availability(cls) -> str | None:
        """OR-Tools is an ordinary dependency; z3 is looked for when it is selected."""
        return None

    def refuses(self, problem: Problem) -> str | None:
        """Combining collectives (left to the reductions), rules it cannot express, size."""
        if self.solver not in _SOLVERS:
            return f"solver {self.solver!r} is not one of {', '.join(_SOLVERS)}"
        if takes_sum(problem, self.effort.sum_ranks):
            return None
        if problem.collective.combining:
            return "exact copies only; combining collectives reach it reversed or composed"
        if problem.collective.sizes:
            return "its chunks are all of one size; unequal ones reach it cut into grains"
        if problem.sketch is not None and (why := refusal(problem.sketch, self.solver)):
            return why
        targets = sum(len(d.targets) for d in demands(problem.collective))
        if targets == 0:
            return "nothing has to move: every rank holds already what it wants"
        columns = targets * len(problem.topology.links) * 2
        most = self.effort.most_columns
        if columns > most and not problem.topology.symmetries:
            return (
                f"the flow problem would have about {columns:,} columns, more than {most:,}: "
                "exact is for machines of up to some 32 ranks (more with declared symmetries)"
            )
        return None

    def solve(self, problem: Problem, budget: Budget, observer: Observer) -> Outcome:
        """The frontier, or the part of it that the objective needs."""
        # The rest is kept for any schedule at all, should the search find none.
        whole = budget.meter(observer.cancelled)
        meter = whole.part(self.effort.search_share)
        run = ExactRun(budget.seed, observer, self.effort)
        if problem.collective.combining:
            return self._sum(problem, meter, run)
        # The paper's encoding cannot express that two sends are one decision.
        symmetric = self.symmetry and self.solver == "cp-sat"
        solver = _SOLVERS[self.solver]
        prepared = prepare(problem, solver, self.chunks, self.max_chunks, symmetric, run)
        first, last = prepared.least_steps, prepared.last_steps(self.max_steps)
        if prepared.rules:
            fitting = prepared.first_feasible(prepared.most_steps, meter)
            if fitting is None:
                return _impossible(prepared, meter)
            if self.max_steps and fitting > last:
                return Outcome(
                    Status.NOTHING,
                    statements=(f"the rules need {fitting} steps, max_steps is {last}",),
                )
            first, last = fitting, max(last, fitting)
        outcome = _answer(prepared, problem, first, last, meter)
        if outcome.points or observer.cancelled():
            return outcome
        point = any_point(prepared.search, range(first, last + 1), whole)
        if point is None:
            return outcome
        return replace(outcome, status=Status.FEASIBLE, points=(point,))

    def _sum(self, problem: Problem, meter: Meter, run: ExactRun) -> Outcome:
        """One sum for all ranks, on a machine whose switches copy and sum."""
        if self.solver != "cp-sat":
            return Outcome(Status.NOTHING, statements=("the paper's encoding lacks casts",))
        limits = self.max_chunks, self.max_steps, self.chunks or None
        return search_sums(problem, *limits, meter, run)


def _impossible(prepared: PreparedProblem, meter: Meter) -> Outcome:
    """Infeasible, with the smallest set of rules that conflict, if that is proved."""
    conflict = smallest_conflict(prepared.rules, prepared.impossible(meter))
    if not conflict:
        return Outcome(Status.NOTHING, statements=("no schedule was found that obeys the rules",))
    return Outcome(Status.INFEASIBLE, conflict=tuple(rule.label for rule in conflict))


_SOLVERS: dict[str, Solver] = {"cp-sat": realize.solve, "z3": paper.solve}


def _answer(
    prepared: PreparedProblem, problem: Problem, first: int, last: int, meter: Meter
) -> Outcome:
    """Return the part of the frontier for the objective, with the statements proved."""
    search, objective = prepared.search, problem.objective
    if objective is Objective.LATENCY:
        found = walk(search, range(first, last + 1), meter, points=1)
    elif objective is Objective.BANDWIDTH:
        goal = first_at_best(search, first, last, meter)
        found = walk(search, range(goal, goal + 1), meter)
        if not found.complete:
            again = walk(search, range(first, last + 1), meter)
            found = replace(again, points=(*again.points, *found.points))
        best = sorted(found.points, key=lambda point: (point.rounds_per_chunk, point.steps))
        found = replace(found, points=tuple(best[:1]))
    else:
        found = walk(search, range(first, last + 1), meter)
    statements = (*found.gaps, *how_it_ended(search, found))
    if not found.points:
        return Outcome(Status.NOTHING, statements=statements)
    ends = found.complete or last == step_limit(prepared.rules)
    if objective is Objective.FRONTIER or objective is Objective.TIME:
        # An infinite frontier is ended by the step limit alone.
        ends = ends or never_reached(search) is not None
    ends = ends or objective is Objective.LATENCY
    proved = ends and not found.gaps and all(p.optimal for p in found.points)
    # Steps and rounds are proved; time is their sum only for whole rounds.
    if objective is Objective.TIME:
        proved = any(meets_bound(point, problem) for point in found.points)
    return Outcome(Status.OPTIMAL if proved else Status.FEASIBLE, found.points, statements)


Images = list[tuple[tuple[int, ...], tuple[int, ...]]]


@dataclass(frozen=True)
class PreparedProblem:
    """A problem as arrays, shared by all phases of a solve."""

    problem: Problem
    plain: Space
    rules: tuple[Rule, ...]
    search: FrontierSearch

    @property
    def least_steps(self) -> int:
        """Lower bound on the steps from the machine alone, without rules."""
        return self.search.least_steps

    def last_steps(self, wished: int) -> int:
        """Return the last step count to try: the option, a rule, or four more than the least."""
        last = max(wished or self.least_steps + 4, last_named_step(self.rules))
        limit = step_limit(self.rules)
        return last if limit is None else min(last, limit)

    @property
    def most_steps(self) -> int:
        """No rule can need more steps than this: a simple path has fewer hops than there are
        ranks, before and after the last step that a rule names; or the most that a rule allows."""
        simple = self.problem.topology.ranks - 1
        most = max(simple, last_named_step(self.rules) + simple)
        limit = step_limit(self.rules)
        return most if limit is None else min(most, limit)

    def feasible(self, subset: Sequence[Rule], steps: int, meter: Meter) -> realize.SolverVerdict:
        """Decide if some schedule of S steps (any number of rounds) obeys a subset of the rules."""
        space = apply_rules(self.plain, subset)
        question = ExactQuestion(fixed_factor(subset) or 1, steps, None)
        verdict = realize.solve(space, question, meter.part(0.3), self.search.run).verdict
        if verdict is realize.SolverVerdict.NO and not space.conclusive:
            return realize.SolverVerdict.UNKNOWN
        return verdict

    def first_feasible(self, last: int, meter: Meter) -> int | None:
        """The least number of steps, up to ``last``, with which all rules can be obeyed.

        Where that cannot be decided with the effort, the first number that was not excluded.
        """
        for steps in range(self.least_steps, last + 1):
            self.search.run.observer.stage(f"{steps} steps: can the rules be obeyed?")
            if meter.over():
                return steps
            if self.feasible(self.rules, steps, meter) is not realize.SolverVerdict.NO:
                return steps
        return None

    def impossible(self, meter: Meter) -> Callable[[Sequence[Rule]], bool]:
        """Return a test that is True for rules proved to exclude every schedule."""
        free = self.problem.topology.ranks - 1 + last_named_step(self.rules)

        def proved(subset: Sequence[Rule]) -> bool:
            limit = step_limit(subset)
            steps = free if limit is None else min(free, limit)
            return self.feasible(subset, steps, meter) is realize.SolverVerdict.NO

        return proved


def prepare(
    problem: Problem,
    solver: Solver,
    chunks: int,
    max_chunks: int,
    symmetric: bool,
    run: ExactRun,
) -> PreparedProblem:
    """Arrays, bounds and spaces of a problem; ``symmetric``: use the machine's symmetries."""
    topology, collective = problem.topology, problem.collective
    wanted = demands(collective)
    near = reach(topology)
    hops = find_hops(topology)
    plain = build_space(topology, hops, wanted, near, collective.factor)
    ruled = problem.sketch.rules if problem.sketch else ()
    # Verified symmetries of the machine that map the demands to themselves.
    images = [
        (image, symmetry.link_image(topology, image))
        for image in (symmetry.verified(topology) if symmetric and not ruled else ())
        if demand_image(wanted, image) is not None
    ]
    spaces = (apply_rules(plain, ruled),) if ruled else (*_invariant(plain, images), plain)
    forwarding: tuple[Space, ...] = ()
    # The paper's encoding cannot express casts, nor sketches rules about them.
    offers = offers_for(topology, collective) if solver is realize.solve and not ruled else ()
    if offers:
        casting = build_space(topology, hops, wanted, near, collective.factor, offers)
        kept = [image for image in images if offer_images(offers, *image) is not None]
        forwarding, spaces = spaces, (*_invariant(casting, kept), casting)
    # The flow LP sees the links that the rules leave; symmetry and prices are of that machine.
    left = topology.without_links(unused_links(spaces[-1])) if ruled else topology
    nodes, links = [n for n, _ in images], [x for _, x in images]
    orbits = find_orbits(left, wanted, nodes, links, topology.round_units())
    factor = fixed_factor(ruled) or chunks
    if factor % collective.factor:
        raise UserError(
            f"{factor} chunks per unit are asked for, but the collective is cut in "
            f"{collective.factor}"
        )
    static = bounds(topology, collective)
    close = reach(left)
    least = max(int(close.after[list(d.sources), t].min()) for d in wanted for t in d.targets)
    search = FrontierSearch(
        topology,
        collective,
        wanted,
        left,
        close,
        orbits,
        spaces,
        solver,
        static.rounds_per_chunk * collective.factor,
        static.certificate,
        factor // collective.factor if factor else None,
        max(1, max_chunks // collective.factor),
        least,
        run,
        forwarding,
    )
    return PreparedProblem(problem, plain, tuple(ruled), search)


def _invariant(plain: Space, images: Images) -> Iterator[Space]:
    """Spaces of invariant schedules: under the whole group, then under each generator alone."""
    groups = [images] if len(images) < 2 else [images, *([x] for x in images)]
    for group in groups:
        if group:
            yield with_symmetry(plain, group)


def never_reached(search: FrontierSearch) -> str | None:
    """The argument that no number of steps reaches the search's ``static`` rounds per chunk.

    Take a minimum cut between the sources and a target whose capacity is 1/static chunks per
    round. Reaching the bound means filling all its links in every round of every step. But in
    step 1, which has at least one round, a link whose tail holds nothing yet carries nothing.
    None where the argument does not apply (several demands, or no such cut).
    """
    topology, (demand, *others) = search.topology, search.wanted
    if others:
        return None
    depth = reach(topology).tail_depth(demand.sources)
    for target in demand.targets:
        value, cut = _minimum_cut(topology, demand.sources, target)
        if value == 0 or len(demand.chunks) / value != search.static:
            continue
        idle = [i for i in cut if depth[topology.links[i].src] >= 1]
        if idle:
            names = ", ".join(resource_name(topology, i) for i in idle[:4])
            return (
                f"it would need all {value} chunks per round of the cut around "
                f"{topology.nodes[target].name} in every round, but in step 1 "
                f"{names} {'has' if len(idle) == 1 else 'have'} nothing to carry"
            )
    return None


def _minimum_cut(
    topology: Topology, sources: Sequence[int], target: int
) -> tuple[Fraction, list[int]]:
    """Value in chunks per round and links of the minimum cut nearest to the target."""
    from scipy.sparse import coo_array, csr_array
    from scipy.sparse.csgraph import breadth_first_order, maximum_flow

    (grain, per_chunk), n = topology.round_units(), len(topology.nodes)
    rows = [x.src for x in topology.links] + [n] * len(sources)
    cols = [x.dst for x in topology.links] + list(sources)
    caps = [int(x.bandwidth / grain) for x in topology.links]
    caps += [sum(caps)] * len(sources)
    if max(caps) >= 1 << 31:
        return Fraction(0), []
    graph = csr_array(
        coo_array((np.array(caps, np.int32), (rows, cols)), shape=(n + 1, n + 1)).tocsr()
    )
    result = maximum_flow(graph, n, target)
    residual = (graph - result.flow).tocsr()
    residual.eliminate_zeros()
    # Nodes that still reach the target in the residual graph: the target's side.
    side = breadth_first_order(residual.T.tocsr(), target, return_predecessors=False)
    inside = np.zeros(n + 1, bool)
    inside[side] = True
    cut = [i for i, x in enumerate(topology.links) if inside[x.dst] and not inside[x.src]]
    return Fraction(int(result.flow_value), per_chunk), cut


def how_it_ended(search: FrontierSearch, found: Frontier) -> tuple[str, ...]:
    """Return the reason why the search over steps ended, as text."""
    static = search.static / search.collective.factor
    if not found.points:
        return ()
    if found.complete:
        least = count(static, "round")
        return (f"the frontier is complete: {least} per chunk is the least there is",)
    last = found.points[-1].steps
    why = never_reached(search)
    if why is None:
        return (f"searched to step {last}; at least {count(static, 'round')} per chunk",)
    # Without switches and shared resources a packing of trees attains the cut bound (Edmonds 1973),
    # and to pipeline them over more steps costs only their height.
    direct = not search.topology.resources and all(node.stores for node in search.topology.nodes)
    approach = "approached, not reached" if direct else "not reached"
    return (
        f"{count(static, 'round')} per chunk is {approach}, whatever the number of steps: {why}; "
        f"the search ended at {last} steps",
    )
