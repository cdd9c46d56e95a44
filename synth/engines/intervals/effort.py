"""Limits of the engine ``intervals``."""

from __future__ import annotations

from fractions import Fraction

from weft.dsl.base.lazy_dataclass import dataclass

from ...base.effort import Effort, setting, share


@dataclass(frozen=True, slots=True)
class IntervalsEffort(Effort):
    """Limits of the model of intervals, and of the search for the answer that it has to beat."""

    pieces: tuple[int, ...] = setting(
        (1, 2, 3), "cuts of every unit that are tried where nothing says how many"
    )
    ranks: int = setting(32, "ranks up to which a problem is looked at")
    intervals: int = setting(
        1000, "intervals up to which CP-SAT is asked; beyond, the local search is better"
    )
    exact_ticks: int = setting(
        1 << 40, "ticks until the time to beat up to which no duration is rounded"
    )
    ticks: int = setting(50_000, "ticks until then where durations are rounded down")
    rounded: Fraction = setting(
        Fraction(1, 1 << 19),
        "part by which bounds are lowered where ticks are rounded up: 2^-20 of a hold, and of an α",
    )
    first_share: float = share(0.2, "part of the work for the answer that the model has to beat")
    first_turns: int = setting(100, "turns without a gain that end the search for that answer")
    model_effort: float = setting(4.0, "effort for the model of one cut at one size, at most")
    again_effort: float = setting(
        0.3, "effort for another plan of the least time, where the clock runs the first one slower"
    )
    plans: int = setting(20, "such plans that are run, at most")


INTERVALS_EFFORT = IntervalsEffort()
"""Default limits."""
