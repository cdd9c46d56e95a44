"""Critical path of a schedule, and the resource that is occupied longest.

The path is followed from the last arrival back to time 0. A transfer starts when its data has
arrived or, if it had to wait, when a resource of its route is freed; the later of the two is its
predecessor on the path. So the transfers of the path follow each other without a gap, and a faster
schedule must remove or shorten one of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

import numpy as np

from weft.dsl.base.arrays import Floats, Ints
from weft.dsl.base.errors import UserError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.units import BYTES_PER_US_PER_GBPS
from weft.dsl.nouns.schedule import Schedule

from ..base.engine import Certificate
from ..bounds import Bounds, binding, bounds
from ..bounds.in_chunks import ChunkBound, own_chunk_bound
from ..fabric.fabric import fabric_of
from ..fabric.occupancy import resource_name, transfer_of_link
from ..judge.replay import replay
from ..time.schedule_time import Simulation, simulate

EQUAL = 1e-9
"""Times are exact before they are rounded; two that differ by no more parts are one."""


class WaitReason(StrEnum):
    """Reasons why a transfer did not start sooner."""

    START = "start"  #: it starts with the clock
    DATA = "data"  #: its chunk has just arrived
    RESOURCE = "resource"  #: something that it needs has just been freed


@dataclass(frozen=True, slots=True)
class ChainLink:
    """One transfer of the chain: when it starts and arrives, in µs, and the cause of its wait.

    ``resource``: the link or shared resource that was freed (−1: none); ``freed_by``: the transfer
    that held it or brought the data (−1: none).
    """

    transfer: int
    start_us: float
    end_us: float
    waits: WaitReason
    resource: int
    freed_by: int


@dataclass(frozen=True, slots=True)
class Binding:
    """The bottlenecks of a schedule at one message size."""

    schedule: Schedule
    simulation: Simulation  # the simulated run
    busiest: int  # the resource that is occupied longest; busy_us is for how long, in µs
    busy_us: float
    # bound_us, certificate: lower bound on the time of any schedule, in µs, and its proof
    bound_us: float
    certificate: Certificate
    # The critical path, from time 0; none of a schedule in slices or with casts, whose parts start
    # before those that they wait for have ended
    chain: tuple[ChainLink, ...]
    # The bound for schedules that forward the same pieces whole; None where it is not known
    in_chunks: ChunkBound | None = None

    @property
    def share(self) -> float:
        """Fraction of the time in which the busiest resource is occupied."""
        return self.busy_us / self.simulation.time_us if self.simulation.time_us else 0.0

    @property
    def name(self) -> str:
        """Name of the busiest resource."""
        return resource_name(self.schedule.topology, self.busiest)


def what_binds(schedule: Schedule, message_bytes: int, bound: Bounds | None = None) -> Binding:
    """Simulate a verified schedule by the documented rule and find the causes of its time.

    Raises:
        UserError: nothing moves in it.
    """
    if not schedule.moves:
        raise UserError("the schedule moves nothing, so nothing binds it")
    bound = bound or bounds(schedule.topology, schedule.collective)
    least, certificate = binding(bound, message_bytes)
    run = simulate(schedule, message_bytes, bound_us=float(least))
    busiest = int(run.busy_us.argmax())
    told = schedule.segments == 1 and not len(schedule.casts)
    chain = tuple(_ChainTracer(schedule, run).links()) if told else ()
    return Binding(
        schedule,
        run,
        busiest,
        float(run.busy_us[busiest]),
        float(least),
        certificate,
        chain,
        own_chunk_bound(schedule, message_bytes),
    )


class _ChainTracer:
    """Critical path of one run, from the times at which resources were freed and data arrived."""

    def __init__(self, schedule: Schedule, run: Simulation) -> None:
        self.schedule, self.run = schedule, run
        self.near = run.time_us * EQUAL
        self.owner, self.resource, hold = _occupied(schedule, run.message_bytes)
        self.free = run.start_us[self.owner] + hold
        self.brings = ~replay(schedule).redundant

    def links(self) -> Iterator[ChainLink]:
        found = []
        transfer = int(self.run.end_us.argmax())
        while transfer >= 0:
            link = self._link(transfer)
            found.append(link)
            transfer = link.freed_by
        yield from reversed(found)

    def _link(self, i: int) -> ChainLink:
        start, end = float(self.run.start_us[i]), float(self.run.end_us[i])
        if start <= self.near:
            return ChainLink(i, start, end, WaitReason.START, -1, -1)
        source = self._source(i)
        if source >= 0:
            return ChainLink(i, start, end, WaitReason.DATA, -1, source)
        resource, holder = self._holder(i)
        return ChainLink(i, start, end, WaitReason.RESOURCE, resource, holder)

    def _source(self, i: int) -> int:
        s = self.schedule
        came = (s.chunk == s.chunk[i]) & (s.dst == s.src[i]) & (s.step < s.step[i]) & self.brings
        there = np.flatnonzero(came & (np.abs(self.run.end_us - self.run.start_us[i]) <= self.near))
        return int(there[0]) if len(there) else -1

    def _holder(self, i: int) -> tuple[int, int]:
        """The resource freed just when transfer ``i`` started, and the transfer that held it."""
        mine = np.isin(self.resource, self.resource[self.owner == i])
        just = np.abs(self.free - self.run.start_us[i]) <= self.near
        there = np.flatnonzero(mine & just & (self.owner != i))
        assert len(there), "a transfer starts when its data comes or a resource is freed"
        return int(self.resource[there[0]]), int(self.owner[there[0]])


def _occupied(schedule: Schedule, message_bytes: int) -> tuple[Ints, Ints, Floats]:
    """Occupied resources of each transfer: columns (transfer, resource, µs)."""
    fabric = fabric_of(schedule.topology)
    position, resources = fabric.resources_of(schedule.route_links.astype(np.int64))
    owner = transfer_of_link(schedule)[position]
    width = fabric.resources
    keys, times = np.unique(owner * width + resources, return_counts=True)
    owner, resources = keys // width, keys % width
    speed = fabric.GBps * BYTES_PER_US_PER_GBPS
    grain = message_bytes / schedule.collective.message_chunks
    hold = times * grain * schedule.collective.grains[schedule.chunk[owner]] / speed[resources]
    return owner, resources, hold


# --- the gap in words -----------------------------------------------------------------------------


def gap_words(found: Binding) -> list[str]:
    """Explain the time beyond the bound, one sentence per reason."""
    time, least, busy = found.simulation.time_us, found.bound_us, found.busy_us
    if time <= least * (1 + EQUAL):
        return ["the time is the bound: no schedule is quicker"]
    over = time / least - 1 if least else float("inf")
    said = [f"{time - least:,.3f} µs ({over:.2%}) above the bound"]
    own = found.in_chunks
    if own is not None and float(own.us) > least * (1 + EQUAL):
        said += [f"{chunk_gap_words(own, time)}: {own.certificate.text}"]
    idle = time - busy
    if busy > least * (1 + EQUAL):
        said.append(
            f"{found.name} alone is busy for {busy - least:,.3f} µs more than the bound: other "
            "routes, or fewer bytes over it, are the way to be quicker"
        )
    elif busy >= idle:
        said.append(
            f"{found.name} is idle for {idle:,.3f} µs: to start earlier and to leave no gaps on it "
            "is the way to be quicker (finer chunks, another order)"
        )
    else:
        said.append(
            f"nothing is busy for half of the time; {_counted(found)} make it: fewer hops in a row "
            "are the way to be quicker"
        )
    return said


def chunk_gap_words(own: ChunkBound, us: float) -> str:
    """Return the distance of a time in µs from the bound in whole chunks."""
    gap = own.gap(us)
    above = f"{gap:.2%} above {float(own.us):,.3f} µs, the" if gap > EQUAL else "this is the"
    return f"{above} bound for {own.holds_for}"


def _counted(found: Binding) -> str:
    hops = sum(link.waits is not WaitReason.RESOURCE for link in found.chain)
    return f"{hops} hops one after the other" if found.chain else "hops one after the other"
