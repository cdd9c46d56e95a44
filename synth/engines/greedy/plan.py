"""A plan: start times of (chunk, hop) pairs, in one block or several; its schedule."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

import numpy as np

from weft.dsl.base.arrays import AnyArray, Bools, Ints
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.unique_rows import rows_of
from weft.dsl.nouns.collective import Collective
from weft.dsl.nouns.schedule import Schedule
from weft.dsl.nouns.topology import Topology

from ...fabric.hop_table import HopTable

BLOCK = 1 << 22
"""Approximate number of transfers in a block of a stream."""


@dataclass(frozen=True, eq=False)
class TransferBlock:
    """Transfers in order of their start: ``counts[i]`` of them begin at ``ticks[i]``.

    ``hop`` and ``chunk`` have one entry per transfer. Ticks ascend, also from block to block.
    """

    ticks: Ints
    counts: Ints
    hop: AnyArray
    chunk: AnyArray

    def __len__(self) -> int:
        return len(self.hop)

    @property
    def start(self) -> Ints:
        """The start of every transfer, in ticks."""
        return np.repeat(self.ticks, self.counts)


@dataclass(frozen=True, eq=False)
class TransferPlan:
    """Transfers in order of their start: hop, chunk, start in ticks, and which are added up."""

    machine: HopTable
    hop: Ints
    chunk: Ints
    start: Ints
    reduce: Bools | None = None

    @property
    def time_us(self) -> float:
        """Arrival of the last transfer."""
        if not len(self.hop):
            return 0.0
        return self.machine.us(int((self.start + self.machine.arrives[self.hop]).max()))

    def cost_us(self, message_us: Fraction) -> float:
        """Return the same, and the cost of the messages of the hop that has the most."""
        most = int(np.bincount(self.hop).max(initial=0))
        return self.time_us + most * float(message_us)


def plan_of(machine: HopTable, blocks: Iterable[TransferBlock]) -> TransferPlan:
    """All blocks of a stream in one plan."""
    parts = list(blocks)
    columns = [
        np.concatenate([np.zeros(0, np.int64), *(getattr(p, name) for p in parts)])
        for name in ("hop", "chunk", "start")
    ]
    return TransferPlan(machine, *columns)


def schedule_of(plan: TransferPlan, topology: Topology, collective: Collective) -> Schedule:
    """Return the schedule of a plan: steps by dependence, the planned order as priority.

    A transfer is in the step after the last one that brought its source something of its chunk.
    """
    from .kernels import steps_of

    m, hop = plan.machine, plan.hop
    places = np.zeros(m.ranks * collective.chunks, np.int32)
    steps = steps_of(m.src[hop], m.dst[hop], plan.chunk, places, collective.chunks)
    start, at = rows_of(m.route, hop)
    reduce = np.zeros(len(hop), bool) if plan.reduce is None else plan.reduce
    return Schedule.from_columns(
        topology,
        collective,
        plan.chunk,
        m.src[hop],
        m.dst[hop],
        steps,
        reduce,
        np.diff(start),
        m.links[at],
        priority=np.arange(len(hop)),
    )
