"""Simulated time of a schedule: α–β time over links and shared resources, by one rule.

A transfer **occupies** every link and shared resource of its route from its start, each for
bytes ÷ that resource's own bandwidth (cut-through: all from the same start), and **arrives** when
the slowest of them is done plus the route's α (the sum over its links). α occupies nothing. Its
bytes are those of its chunk: M ÷ (grains of the message) × (grains of the chunk).

* *Ready*: a transfer is ready when its source holds what it sends: when everything that came to
  the source for this chunk in earlier steps has arrived (copies of what was there already do not
  count). Steps order the data, not the clock: nothing waits for a step to end.
* *Served*: first come first served by (ready time, slice, step, position in the schedule); where
  the schedule plans its order, by (priority + slice · stride, slice, position). Whenever something
  is freed or gets ready, waiting transfers are looked at in that order, and each one all of whose
  resources are free starts. A transfer that must wait holds nothing and keeps no other from
  starting: those behind it may pass. So no resource idles that could be used; ties are decided by
  the schedule's own order.
* *Slices*: with ``segments`` > 1 the pattern is repeated on equal slices of every chunk. Slice k
  of a transfer is ready when its source holds that slice and slice k-1 of the same transfer has
  left; so the slices follow each other through the whole pattern, pipelined.

A **cast** (:mod:`weft.dsl.nouns.casts`) goes by the rule *legs*: each of its links is a leg that
waits for its own resources alone, and holds them for bytes ÷ bandwidth. A leg out of a rank is
ready as a transfer is. A leg out of a switch is ready when the first byte of every leg that leads
to it is there, α after that leg's start; its own last byte passes no earlier than α after the last
byte of each of those, so a sum goes on at the pace of the slowest. What ends at a rank has arrived
α after its last byte. No leg holds anything while it waits for another, so a sum on its way up and
copies on their way down share a switch.

Sums at the destination and local reductions cost nothing, and an arrival never waits for the
destination (it is buffered, as in the runtimes' FIFOs). Several chunks on one hop in one step are
separate transfers: they queue for the link, their α overlap.

Arithmetic is exact: durations are rationals, brought to one unit, so equal times are equal and the
result does not depend on rounding. Large runs count 64-bit ticks of that unit, or of a coarser one
where the whole run does not fit.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cached_property
from typing import ClassVar

from weft.dsl.base.arrays import Floats
from weft.dsl.base.errors import UserError
from weft.dsl.base.kept import kept
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.units import BYTES_PER_US_PER_GBPS, format_bytes
from weft.dsl.base.views import Tabled
from weft.dsl.nouns.collective import Collective, Kind
from weft.dsl.nouns.schedule import Schedule

from .folded import FoldedSchedule, folded
from .schedule_tables import CostModel, Served, prepare, prepare_folded

LARGE = 5_000
"""Of more transfers times slices ticks have 64 bits, even if a coarser unit must be taken."""


@dataclass(frozen=True, eq=False, kw_only=True)
class SimulatedTime(Tabled):
    """Simulated time of a message, and the figures that follow."""

    _frame: ClassVar = "simulation"

    message_bytes: int  # the message size M
    time_us: float  # until the end
    bus_factor: float  # busbw ÷ algbw, as nccl-tests define it
    bound_us: float | None = None  # a lower bound on the time, if one was given
    # True if the rule was followed to the end; false where later parts are taken to cost what
    # earlier ones did on average
    exact: bool = True

    def __repr__(self) -> str:
        of_bound = "" if self.of_bound is None else f", {100 * self.of_bound:.1f} % of bound"
        return (
            f"<{type(self).__name__} {format_bytes(self.message_bytes)}: {self.time_us:.4g} µs, "
            f"algbw {self.algbw_GBps:.4g} GB/s, busbw {self.busbw_GBps:.4g} GB/s{of_bound}>"
        )

    @property
    def algbw_GBps(self) -> float:
        """M / T in GB/s; infinite where nothing moves."""
        if self.time_us == 0:
            return math.inf
        return self.message_bytes / self.time_us / BYTES_PER_US_PER_GBPS

    @property
    def busbw_GBps(self) -> float:
        """Bus bandwidth as nccl-tests define it: comparable with a link's, for any rank count."""
        return self.algbw_GBps * self.bus_factor

    @property
    def of_bound(self) -> float | None:
        """Bound ÷ time: 1 is perfect. None without a bound."""
        if self.bound_us is None:
            return None
        return self.bound_us / self.time_us if self.time_us else 1.0


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Simulation(SimulatedTime):
    """Result of a simulation: ``time_us`` is when the last transfer has arrived."""

    run: Served  # of the schedule, or of the part that stands for it
    # That part, of large schedules that are symmetric (folded)
    folded: FoldedSchedule | None = None

    @cached_property
    def start_us(self) -> Floats:
        """Return the start of the first slice of every transfer."""
        return self._of_all(self.run.start_us)

    @cached_property
    def end_us(self) -> Floats:
        """Return the arrival of the last slice of every transfer."""
        return self._of_all(self.run.end_us)

    @property
    def leg_start_us(self) -> Floats:
        """Return the start of the first slice of every leg of casts, as in ``Casts.links``."""
        return self.run.leg_start_us

    @property
    def leg_end_us(self) -> Floats:
        """Return when the last slice of every leg of casts is at its end."""
        return self.run.leg_end_us

    @cached_property
    def busy_us(self) -> Floats:
        """Return how long each resource was occupied: links, then shared ones."""
        busy = self.run.busy_us
        return _read_only(busy if self.folded is None else self.folded.of_resources(busy))

    def _of_all(self, column: Floats) -> Floats:
        return _read_only(column if self.folded is None else self.folded.of_all(column))


def _read_only(column: Floats) -> Floats:
    column.setflags(write=False)
    return column


def simulate(
    schedule: Schedule,
    message_bytes: int,
    model: CostModel | None = None,
    *,
    bound_us: float | None = None,
) -> Simulation:
    """Run a verified schedule for a message of M bytes (see :attr:`Collective.message_chunks`).

    Cost: O(transfers · segments · log), a few µs each; of a large symmetric schedule only one part
    is run (:mod:`.folded`). To time one schedule with many sizes,
    slices or orders, :func:`~.schedule_tables.prepare` it once.

    Raises:
        UserError: a size below one byte, or an overhead that is negative or not finite.
    """
    model = model or CostModel()
    if message_bytes < 1:
        raise UserError(f"a message of {message_bytes} bytes cannot be simulated")
    if not 0 <= model.overhead_us < math.inf:
        raise UserError(f"an overhead of {model.overhead_us} µs makes no sense")
    found = _simulated(schedule, message_bytes, model)
    return found if bound_us is None else replace(found, bound_us=bound_us)


def simulation_steps(schedule: Schedule, runs: int = 1) -> int:
    """Return the work of simulating a schedule, in steps (:mod:`weft.synth.base.meter`).

    A slice of a transfer takes about two µs; in small runs, whose tables weigh more, it counts as
    ten.
    """
    part = folded(schedule)
    jobs = (schedule if part is None else part.part).moves * schedule.segments
    return FIXED_STEPS + 2 * schedule.moves + runs * (2 if jobs > LARGE else 10) * jobs


FIXED_STEPS = 200
"""Steps of a simulation of anything."""


@kept(most=64)
def _simulated(schedule: Schedule, message_bytes: int, model: CostModel) -> Simulation:
    part = folded(schedule)
    if part is not None:
        run = prepare_folded(part, model).run(message_bytes)
    elif schedule.moves * schedule.segments > LARGE:
        run = prepare(schedule, model).run(message_bytes)
    else:
        run = prepare(schedule, model).exact(message_bytes).in_us()
    return Simulation(
        message_bytes=message_bytes,
        time_us=run.time_us,
        run=run,
        folded=part,
        bus_factor=bus_factor(schedule.collective),
    )


def bus_factor(collective: Collective) -> float:
    """busbw ÷ algbw (nccl-tests' PERFORMANCE.md): 2(n-1)/n for allreduce, (n-1)/n, or 1."""
    share = (collective.ranks - 1) / collective.ranks
    if collective.kind is Kind.ALLREDUCE:
        return 2 * share
    shared = (Kind.ALLGATHER, Kind.REDUCE_SCATTER, Kind.ALLTOALL, Kind.GATHER, Kind.SCATTER)
    return share if collective.kind in shared else 1.0
