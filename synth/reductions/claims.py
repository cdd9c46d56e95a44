"""Claims of other packages' engines: their schedules are judged, their proofs are replaced by ours.

A bound or a proof of infeasibility is an argument, which nobody here can check; a schedule can be
checked. So an answer of another package is stated with weft's own bounds.
"""

from __future__ import annotations

from dataclasses import replace

from weft.dsl.base.plugins import expect, fault, plugin_of
from weft.dsl.nouns.problem import Objective, Problem

from ..base.engine import Engine, Outcome, Point, Status
from ..bounds import bounds


def with_our_bounds(point: Point, problem: Problem) -> Point:
    """Return a point with weft's bound, its certificate, and what follows from them."""
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
    statement of who says so.

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
    """Return True if our bounds prove that no schedule is better by the problem's objective."""
    match problem.objective:
        case Objective.LATENCY:
            return point.step_optimal and point.optimal
        case Objective.BANDWIDTH:
            return point.bandwidth_optimal
        case Objective.FRONTIER:
            return point.step_optimal and point.bandwidth_optimal
        case _:  # a time is proved by the race, which compares it with the bound
            return False
