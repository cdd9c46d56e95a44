"""Solve a problem with one engine: directly where it takes the problem, else by a reduction."""

from __future__ import annotations

from dataclasses import field, replace
from typing import ClassVar

from weft.dsl.base.errors import Refusal
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.plugins import expect, fault, plugin_of
from weft.dsl.nouns.problem import Objective, Problem
from weft.dsl.nouns.sketch import CastPolicy, Sketch
from weft.dsl.nouns.topology import Topology

from ..base.effort import Effort, setting
from ..base.engine import Budget, Certificate, Engine, Forwarding, Observer, Outcome, Point, Status
from ..bounds import bounds
from ..judge.point import require_right
from .allreduce import Composed
from .phases import Phased
from .reduction import Reduction, Steps, Subproblem, Translated, run
from .reverse import Reversed


@dataclass(frozen=True, slots=True)
class Narrowed:
    """Solves on the machine whose switches do only the work that the sketch leaves to them."""

    name: ClassVar[str] = "narrowed"

    def fits(self, problem: Problem) -> bool:
        """Return True if the sketch has such rules."""
        return problem.sketch is not None and bool(problem.sketch.of(CastPolicy))

    def apply(self, problem: Problem, budget: Budget, observer: Observer, solver: str) -> Steps:
        """Yield the problem without these rules; its answers, on the machine as it is."""
        assert problem.sketch is not None

        def back(point: Point) -> Point:
            return replace(point, schedule=replace(point.schedule, topology=problem.topology))

        rest = tuple(r for r in problem.sketch.rules if not isinstance(r, CastPolicy))
        inner = replace(
            problem,
            topology=narrowed(problem.topology, problem.sketch),
            sketch=replace(problem.sketch, rules=rest) if rest else None,
        )
        outcome = yield Subproblem(inner, budget, Translated(observer, back))
        return replace(outcome, points=tuple(map(back, outcome.points)))


def narrowed(topology: Topology, sketch: Sketch) -> Topology:
    """Return the machine whose switches do only the work that a sketch's rules leave to them."""
    nodes = list(topology.nodes)
    for rule in sketch.rules:
        if not isinstance(rule, CastPolicy):
            continue
        node = nodes[rule.switch]
        if rule.allowed is not None:
            reduces = node.reduces and "reduces" in rule.allowed
            multicast = node.multicast and "multicast" in rule.allowed
            node = replace(
                node,
                reduces=reduces,
                multicast=multicast,
                turns=node.turns and reduces and multicast,
                issuer_in_group=node.issuer_in_group and (reduces or multicast),
            )
        if rule.groups is not None:
            most = rule.groups if node.limits.groups is None else node.limits.groups
            node = replace(node, limits=replace(node.limits, groups=min(most, rule.groups)))
        nodes[rule.switch] = node
    return replace(topology, nodes=tuple(nodes))  # declared symmetries are verified before use


@dataclass(frozen=True, slots=True)
class GrainsEffort(Effort):
    """Limits of the reduction to grains."""

    most: int = setting(1 << 14, "grains of a collective, at most: engines look at each")


@dataclass(frozen=True, slots=True)
class Grains:
    """Reduction of a collective with chunks of unequal sizes to one with a chunk per grain."""

    name: ClassVar[str] = "grains"

    effort: GrainsEffort = field(default_factory=GrainsEffort)

    def fits(self, problem: Problem) -> bool:
        """Sizes that are not too many grains; groups summed at home name whole chunks."""
        collective = problem.collective
        if not collective.sizes or collective.local_reduce:
            return False
        return sum(collective.coarsest().sizes) <= self.effort.most

    def apply(self, problem: Problem, budget: Budget, observer: Observer, solver: str) -> Steps:
        """Solve in grains: a solution of that solves the problem."""
        collective = problem.collective.coarsest().in_grains()
        outcome = yield Subproblem(replace(problem, collective=collective), budget, observer)
        return outcome


NARROWED = Narrowed()
"""Of rules that no engine has to know: applied before an engine runs."""

REDUCTIONS: tuple[Reduction, ...] = (Phased(), Grains(), Composed(), Reversed())
"""All reductions; of those that fit a problem the first is applied."""


def solve(problem: Problem, engine: Engine, budget: Budget, observer: Observer) -> Outcome:
    """Solve directly if the engine takes the problem, else through the reduction that fits.

    Raises:
        Refusal: the engine refuses, and no reduction leads to a problem that it takes.
        PluginFault: the engine of another package fails.
    """

    def part(of: Subproblem) -> Outcome:
        return solve(of.problem, engine, of.budget, of.observer)

    if NARROWED.fits(problem):
        return run(NARROWED.apply(problem, budget, observer, engine.name), part)
    reason = engine.refuses(problem)
    if reason is None:
        return _direct(problem, engine, budget, observer)
    for reduction in REDUCTIONS:
        if reduction.fits(problem):
            return run(reduction.apply(problem, budget, observer, engine.name), part)
    raise Refusal(engine.name, reason)


def _direct(problem: Problem, engine: Engine, budget: Budget, observer: Observer) -> Outcome:
    """Solve with the engine itself; the answers of another package's are judged at once, so that
    a wrong one takes no part in a race or in what a reduction makes of it, and stated with weft's
    own bounds."""
    if plugin_of(engine) is None:
        return engine.solve(problem, budget, observer)
    judged = _Judged(observer, problem, engine)
    outcome = expect(Outcome, engine.solve(problem, budget, judged), engine, "solve")
    for point in expect(tuple, outcome.points, engine, "solve as its points"):
        judged.require_right(point)
    return without_claims(outcome, problem, engine)


@dataclass(frozen=True, slots=True)
class _Judged(Forwarding):
    """Observer that forwards all; a wrong incumbent is the fault of the engine's package."""

    inner: Observer
    problem: Problem
    engine: Engine

    def incumbent(self, point: Point) -> None:
        self.require_right(point)
        self.inner.incumbent(with_our_bounds(point, self.problem))

    def require_right(self, point: Point) -> None:
        expect(Point, point, self.engine, "solve")
        expect(Certificate, point.certificate, self.engine, "solve")
        require_right(point, self.problem, self.engine)


# --- claims of other packages' engines ------------------------------------------------------------


def with_our_bounds(point: Point, problem: Problem) -> Point:
    """Return a point with weft's bound, its certificate, and their consequences."""
    known = bounds(problem.topology, problem.collective)
    return replace(
        point,
        bound=known.rounds_per_chunk,
        certificate=known.certificate,
        step_optimal=point.steps == known.steps,
        bandwidth_optimal=point.rounds_per_chunk == known.rounds_per_chunk,
        least_us=None,
    )


def without_claims(outcome: Outcome, problem: Problem, engine: Engine) -> Outcome:
    """Return the outcome of another package's engine as far as weft can vouch for it.

    Optimal is only what weft's own bounds prove; infeasible counts as nothing found, with a
    statement of its source.

    Raises:
        PluginFault: the status is not one, or says that there are schedules and none is there.
    """
    status = expect(Status, outcome.status, engine, "solve as its status")
    plugin = plugin_of(engine)
    if status in (Status.OPTIMAL, Status.FEASIBLE) and not outcome.points and plugin is not None:
        raise fault(plugin, f"returned {status} from solve without a schedule")
    if status is Status.INFEASIBLE:
        said = f"{plugin} states that no schedule obeys the rules; weft has no proof of it"
        return replace(outcome, status=Status.NOTHING, statements=(*outcome.statements, said))
    points = tuple(with_our_bounds(point, problem) for point in outcome.points)
    if status is Status.OPTIMAL and not all(_best(point, problem) for point in points):
        status = Status.FEASIBLE
    return replace(outcome, status=status, points=points)


def _best(point: Point, problem: Problem) -> bool:
    match problem.objective:
        case Objective.LATENCY:
            return point.step_optimal and point.optimal
        case Objective.BANDWIDTH:
            return point.bandwidth_optimal
        case Objective.FRONTIER:
            return point.step_optimal and point.bandwidth_optimal
        case _:  # a time is proved by the race, which compares it with the bound
            return False
