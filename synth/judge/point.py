"""The judge of an engine's answer: the schedule of a point, and the figures that go with it."""

from __future__ import annotations

from weft.dsl.base.errors import WeftError
from weft.dsl.base.plugins import blamed, fault, plugin_of
from weft.dsl.base.tables import count
from weft.dsl.nouns.problem import Problem

from ..base.engine import Engine, Point
from ..fabric.occupancy import rounds_per_chunk
from .verify import verify


def wrong_in(point: Point, problem: Problem) -> list[str]:
    """Return the errors of a point's schedule and figures as texts; empty if all is right."""
    schedule = point.schedule
    problems = list(verify(schedule, problem.sketch).problems)
    if schedule.steps != point.steps or sum(schedule.rounds) != point.rounds:
        problems.append(
            f"it has {schedule.steps} steps and {sum(schedule.rounds)} rounds, "
            f"not {point.steps} and {point.rounds}"
        )
    if point.rate is not None and rounds_per_chunk(schedule) != point.rate:
        problems.append(
            f"its busiest link needs {rounds_per_chunk(schedule)} rounds, not {point.rate}"
        )
    if schedule.collective.factor != point.factor:
        problems.append(f"it cuts into {schedule.collective.factor} chunks, not {point.factor}")
    if point.rounds_per_chunk < point.bound:
        problems.append(
            f"{count(point.rounds_per_chunk, 'round')} per chunk: below its bound {point.bound}"
        )
    return problems


def require_right(point: Point, problem: Problem, engine: Engine) -> None:
    """Refuse a wrong answer of an engine.

    Raises:
        WeftError: a bug of ours. PluginFault: a fault of the package that the engine came from.
    """
    plugin = plugin_of(engine)
    with blamed(plugin, "solve, whose answer cannot be read"):
        problems = wrong_in(point, problem)
    if not problems:
        return
    what = f"its schedule is wrong: {problems[0]}"
    if plugin is not None:
        raise fault(plugin, f"gave a wrong answer: {what}")
    raise WeftError(
        f"a bug in the engine {engine.name}: {what}",
        hint="nothing was written; please report it with the command",
    )
