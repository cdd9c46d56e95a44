"""Margin of a schedule's order: how much later it ends where messages arrive a little later.

Transfers compete first come first served. Where two are ready at almost one time, rounding decides
which goes first, and a schedule that is quick in one file is slower in another. So a schedule is
run once more with latencies that are up to :data:`JITTER_US` longer, differently on every link,
which no real machine keeps more exactly: what needs ties to fall its way shows.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.schedule import Schedule

from ..base.effort import Effort, setting
from .schedule_time import simulate

JITTER_US = Fraction(7, 10_000)
"""Longest that a latency is extended by, in µs: 0.7 ns."""


@dataclass(frozen=True, slots=True)
class MarginEffort(Effort):
    """When a schedule is called fragile, and which ones are tried."""

    ratio: float = setting(1.01, "times its own time that a fragile schedule takes, at least")
    most_slices: int = setting(
        200_000, "transfers times segments of a schedule that is run once more"
    )


MARGIN_EFFORT = MarginEffort()


def fragile_us(schedule: Schedule, message_bytes: int) -> float | None:
    """Return the time in µs with latencies a little longer, if it is clearly more than without.

    None if it is not, or the schedule is too large to be run once more.
    """
    if schedule.moves * schedule.segments > MARGIN_EFFORT.most_slices:
        return None
    shaken = jittered_us(schedule, message_bytes)
    return (
        shaken if shaken > MARGIN_EFFORT.ratio * simulate(schedule, message_bytes).time_us else None
    )


def jittered_us(schedule: Schedule, message_bytes: int) -> float:
    """Return the time in µs with latencies a little longer; as :func:`.simulate` otherwise."""
    machine = schedule.topology
    links = tuple(
        replace(link, latency=link.latency + _part(number) * JITTER_US / 7)
        for number, link in enumerate(machine.links)
    )
    shaken = replace(schedule, topology=replace(machine, links=links))
    return simulate(shaken, message_bytes).time_us


def _part(number: int) -> int:
    """A value of 0 … 7 that neighbouring numbers do not share (Knuth's multiplier)."""
    return (number * 2654435761 >> 16) % 8
