"""Plans in which switches sum and copy, in a race: their one way to compile, and their timers.

Such a plan has one or more thread blocks of each GPU side by side; what else forms differ in is of
programs.
"""

from __future__ import annotations

from collections.abc import Iterable

from weft.dsl.base.errors import UserError
from weft.dsl.base.kept import kept
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.schedule import Schedule
from weft.dsl.nouns.topology import Topology

from ..formats.mscclpp.casts.emit import cast_plan
from ..formats.mscclpp.lower.emit import ALIGNMENT, largest_message
from .cast_clock import CastClock, cast_clock
from .variants import Variant


def form_of(schedule: Schedule, form: Variant) -> Variant:
    """Return what a form says about a schedule: with casts nothing but copies side by side."""
    return Variant(instances=form.instances) if len(schedule.casts) else form


def nodes_of(topology: Topology) -> list[int] | None:
    """Return the host of each rank; None: one for all."""
    hosts = [host for host in topology.host_of if host is not None]
    return hosts if len(hosts) == topology.ranks else None


@dataclass(frozen=True, slots=True)
class CastTimer:
    """The clock of a plan with casts, and the messages in bytes that the plan takes."""

    clock: CastClock
    least: int
    most: int


@kept(most=64)
def cast_timer(schedule: Schedule, model: tuple[str, str], lanes: int) -> CastTimer | None:
    """Return the timer of the plan of a schedule; None where there is no such plan.

    ``model``: a runtime, and the name of the model that times it.
    """
    nodes = nodes_of(schedule.topology)
    try:
        plan = cast_plan(schedule, "timed", nodes, in_place=False, lanes=lanes)
        clock = cast_clock(schedule, nodes, *model, lanes)
    except UserError:
        return None
    if clock is None:
        return None
    chunks = schedule.collective.in_grains().message_chunks * lanes
    _, most = largest_message(chunks, plan.gpus, packets=False)
    return CastTimer(clock, ALIGNMENT * chunks, most)


def unsaid(schedules: Iterable[Schedule]) -> str | None:
    """Return why no plan says any of the schedules with casts; None: one is said, or none has
    any."""
    why: str | None = None
    for one in (s for s in schedules if len(s.casts)):
        try:
            cast_plan(one, "tried", nodes_of(one.topology), in_place=False)
        except UserError as error:
            why = why or error.message
        else:
            return None
    return why


def fits_in_place(schedule: Schedule, form: Variant) -> bool:
    """Return True if there is a plan for a buffer that is input and output."""
    nodes = nodes_of(schedule.topology)
    try:
        cast_plan(schedule, "timed", nodes, in_place=True, lanes=form.instances)
    except UserError:
        return False
    return True
