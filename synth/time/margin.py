"""Margin of a schedule's order: how much later it ends where messages arrive a little later.

Transfers compete first come first served. Where two are ready at almost one time, rounding decides
which goes first, and a schedule that is quick in one file is slower in another. So a schedule is
run once more with latencies that are up to :data:`JITTER_US` longer, differently on every link,
which no real machine keeps more exactly: what needs ties to fall its way shows.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from weft.dsl.nouns.schedule import Schedule

from .schedule_time import simulate

PARTS = 8
JITTER_US = Fraction(PARTS - 1, 10_000)
"""Longest that a latency is extended by, in µs: 0.7 ns."""


def jittered_us(schedule: Schedule, message_bytes: int) -> float:
    """Return the time in µs with latencies a little longer; as :func:`.simulate` otherwise."""
    machine = schedule.topology
    links = tuple(
        replace(link, latency=link.latency + Fraction(_part(number), 10_000))
        for number, link in enumerate(machine.links)
    )
    shaken = replace(schedule, topology=replace(machine, links=links))
    return simulate(shaken, message_bytes).time_us


def _part(number: int) -> int:
    """A value of 0 … PARTS - 1 that neighbouring numbers do not share (Knuth's multiplier)."""
    return (number * 2654435761 >> 16) % PARTS
