"""Rounding of chunk fractions to powers of two, so that common message sizes divide evenly.

A file of MSCCL XML is for messages that divide into its chunks; another is passed over in silence.
Sizes of messages are round in binary: so a third of a chunk is better off as 341 of 1024 grains.
"""

from __future__ import annotations

from fractions import Fraction

from weft.dsl.nouns.schedule import Schedule
from weft.synth.engines.packing.trees.quantize import halved
from weft.synth.fabric.occupancy import us_per_byte

from ..compile.source import MOST_GRAINS, binary

WORTH = (Fraction(101, 100), Fraction(21, 20))
"""A schedule is rounded to a power of two of grains a chunk: to the fewest with which its time on
the busiest resource grows at most by the first factor, else by the second."""


def on_binary_grid(schedule: Schedule) -> Schedule:
    """Return the schedule rounded to a power of two of grains per chunk, if that costs little."""
    collective = schedule.collective.coarsest()
    if binary(collective.message_chunks // collective.factor, collective.message_chunks):
        return schedule
    rate = us_per_byte(schedule)
    grids = (halved(schedule, MOST_GRAINS, rate * worth) for worth in WORTH)
    return next((rounded for rounded in grids if rounded is not None), schedule)
