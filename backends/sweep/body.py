"""Job of a sweep: run the search and return its result, without times of the run."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from weft.dsl.base.errors import Missing, NothingFound, UserError
from weft.dsl.base.files import parse_json
from weft.dsl.base.tables import number
from weft.dsl.nouns.problem import Objective, Problem
from weft.dsl.nouns.schedule import dumps, load
from weft.synth.base.engine import Budget
from weft.synth.bounds import bounds, lower_bound_us
from weft.synth.explain.conflicts import find_conflict
from weft.synth.judge.verify import verify
from weft.synth.time.latency import latency_us
from weft.synth.time.schedule_time import simulate

from ..report.points import PointMetrics, best, point_json, standing
from .question import problem_of

if TYPE_CHECKING:
    from weft.synth.bounds import Bounds

FUNCTION = f"{__name__}:solve"

PROVED = ("optimal", "infeasible", "refused")
"""Final statuses, which no larger budget changes."""


def solve(data: dict[str, Any]) -> dict[str, Any]:
    """Answer one question, as JSON.

    Keys: ``status``, ``why``, ``statements``, ``value``, ``bound``, ``gap`` and ``points`` as in
    ``weft synth``, and ``schedules``, the text of each file.

    ``status`` is that of the search (optimal, feasible, infeasible, nothing), or ``refused``.

    Raises:
        Missing: the engine cannot run here.
    """
    from weft.synth.api import synthesize

    problem = problem_of(data)
    budget = Budget(data["effort"], data["threads"], data["seed"], data["seconds"])
    try:
        outcome = synthesize(problem, data["engine"], budget)
    except Missing:
        raise
    except NothingFound as error:
        return _blamed(problem, without_schedules("nothing", error.message))
    except UserError as error:
        return _blamed(problem, without_schedules("refused", error.message))
    if not outcome.points:
        why = "; ".join([*outcome.statements, *outcome.conflict])
        found = without_schedules(str(outcome.status), why)
        return found if outcome.status == "infeasible" else _blamed(problem, found)
    points = outcome.points
    if problem.objective is not Objective.FRONTIER:
        points = (best(points, problem),)
    bound = bounds(problem.topology, problem.collective)
    told = [point_json(p, PointMetrics.of(p), None) for p in points]
    return {
        "status": str(outcome.status),
        "why": "",
        "statements": list(outcome.statements),
        **standing(points, problem, bound),
        "bound": _least(problem, bound),
        "points": [{key: one[key] for key in one if key != "file"} for one in told],
        "schedules": [dumps(p.schedule) for p in points],
    }


def without_schedules(status: str, why: str) -> dict[str, Any]:
    """Return an answer without schedules, and why it has none."""
    return {
        "status": status,
        "why": why,
        "statements": [],
        "value": None,
        "bound": None,
        "gap": None,
        "points": [],
        "schedules": [],
    }


def _blamed(problem: Problem, found: dict[str, Any]) -> dict[str, Any]:
    """Return the result with the conflicting rules of the sketch as the reason, if there are
    any."""
    if problem.sketch is None:
        return found
    conflict = find_conflict(problem.topology, problem.collective, problem.sketch)
    if conflict is None:
        return found
    labels = [rule.label for rule in conflict.rules]
    return without_schedules("infeasible", "; ".join([conflict.why, *labels]))


def _least(problem: Problem, bound: Bounds) -> float | None:
    """Return the bound in the unit of the value: µs (least), or GB/s (greatest)."""
    match problem.objective:
        case Objective.TIME:
            return number(lower_bound_us(bound, problem.bytes or 1))
        case Objective.LATENCY:
            return number(bound.latency_us)
        case Objective.BANDWIDTH:
            return number(bound.algbw_GBps)
        case _:
            return None


def believable(data: dict[str, Any], result: dict[str, Any]) -> bool:
    """Return True if a stored answer is valid for its question.

    Its schedules are for this machine and collective, the verifier accepts them, and their stated
    times are right.

    Nothing else of it can be checked cheaply: bounds are trusted as they were stored.
    """
    problem = problem_of(data)
    asked = problem.collective
    if len(result["points"]) != len(result["schedules"]):
        return False
    for text, point in zip(result["schedules"], result["points"], strict=True):
        schedule = load(parse_json(text, "cache"))
        done = schedule.collective
        same = (done.kind, done.ranks, done.roots) == (asked.kind, asked.ranks, asked.roots)
        mine = replace(schedule.topology, name="") == replace(problem.topology, name="")
        if not (same and mine and schedule.steps == point["steps"]):
            return False
        if not verify(schedule, problem.sketch).ok:
            return False
        if problem.objective is Objective.TIME:
            took = simulate(schedule, problem.bytes or 1).time_us
        elif problem.objective is Objective.LATENCY:
            took = latency_us(schedule)
        else:
            continue
        if number(took) != result["value"]:
            return False
    return True
