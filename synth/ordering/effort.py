"""Limits of ordering in time and of shifts, and tolerances."""

from __future__ import annotations

from weft.dsl.base.lazy_dataclass import dataclass

from ..base.effort import Effort, setting
from ..base.meter import STEPS


@dataclass(frozen=True, slots=True)
class OrderingEffort(Effort):
    """Limits on the work, and tolerances of float64 times."""

    moves: int = setting(5000, "moves in the list of priorities; no better was seen after more")
    strengthened: int = setting(600, "tasks up to which busy resources on the way are counted")
    judged_pieces: int = setting(4000, "intervals of a model of CP-SAT, which ends on no larger")
    judged_units: int = setting(
        1 << 20, "units of a resource; shares of no such denominator are rounded down"
    )
    shift_work: int = setting(4 * STEPS, "counted steps of a search of shifts")
    shifts_tried: int = setting(4000, "combinations of shifts up to which all are tried")
    ticks: int = setting(160_000, "ticks of a common period times jobs and resources")
    coarse_ticks: int = setting(400, "ticks of a common period whose exact grid has too many")
    least_ticks: int = setting(12, "ticks of the unit of all periods; with fewer none is searched")
    units: int = setting(1 << 16, "units of a resource that jobs share")
    iterations: int = setting(
        40, "simulated iterations of the longest job; the first half is left out of means"
    )
    parts: int = setting(1000, "parts of a µs to which the pieces of a plan are rounded")
    scale: int = setting(10**6, "ticks of a µs in the simulation of iterations")
    met: float = setting(1e-9, "relative distance from a bound that counts as none")
    close: float = setting(1e-6, "relative error of times in float64 that a judge accepts")
    digits: int = setting(6, "digits of a µs below which times are equal")


ORDER_EFFORT = OrderingEffort()
"""Default limits."""
