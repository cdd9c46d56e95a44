"""Repairs of a schedule: of whole chunks, of fractions, of fewer or smaller pieces."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from weft.dsl.base.errors import UserError
from weft.dsl.machines.failures import Degraded
from weft.dsl.nouns.schedule import Schedule

from ..fabric.occupancy import us_per_byte
from ..reductions.refine import refine
from .balanced import balanced
from .cast_trees import repair_casts
from .effort import REPAIR_EFFORT, RepairEffort
from .even import even
from .mend import repair


def repairs(
    schedule: Schedule,
    left: Degraded,
    effort: RepairEffort = REPAIR_EFFORT,
) -> Iterator[tuple[str, Schedule]]:
    """Yield repairs of the schedule, each with a word for its kind: by whole chunks; by fractions
    and by fewer equal pieces, if the schedule allows it; with every chunk cut into more and more
    equal pieces, where that reduces the load of the busiest resource.

    Raises:
        UserError, BadTopology: it cannot be repaired, see :func:`~.mend.repair`.
    """
    if len(schedule.casts):
        yield "mended", repair_casts(schedule, left)
        return
    whole = repair(schedule, left, effort)
    yield "mended", whole
    rate = us_per_byte(whole)
    shared: Fraction | None = None
    for word, mend in (("balanced", balanced), ("even", even)):
        try:
            other = mend(schedule, left, effort)
        except UserError:
            continue
        if us_per_byte(other) < effort.worth * rate:
            shared = min(shared or rate, us_per_byte(other))
            yield word, other
    # What went over a dead NIC is dealt out to the others in whole pieces: 120 chunks to 7 of them
    # are 18 to one of them, 5 % more than a seventh; of 240 halves one has 35, 2 % more.
    for pieces in (n for n in effort.cuts if n * len(schedule) <= effort.most_cut):
        if shared is None or rate <= effort.enough * shared:
            return
        finer = repair(refine(schedule, pieces), left, effort)
        if us_per_byte(finer) < effort.worth * rate:
            rate = us_per_byte(finer)
            yield f"mended in {pieces} pieces", finer
