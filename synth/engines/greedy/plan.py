"""A plan: which chunk goes over which hop when; and the schedule that it is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from weft.dsl.base.arrays import Bools, Ints
from weft.dsl.base.unique_rows import rows_of
from weft.dsl.nouns.collective import Collective
from weft.dsl.nouns.schedule import Schedule
from weft.dsl.nouns.topology import Topology

from ...fabric.greedy_machine import Machine
from .block import Block


@dataclass(frozen=True, eq=False)
class Plan:
    """Transfers in order of their start: hop, chunk, start in ticks, and which are added up."""

    machine: Machine
    hop: Ints
    chunk: Ints
    start: Ints
    reduce: Bools | None = None

    @property
    def time_us(self) -> float:
        """When the last transfer has arrived."""
        if not len(self.hop):
            return 0.0
        return self.machine.us(int((self.start + self.machine.arrives[self.hop]).max()))


def plan_of(machine: Machine, blocks: Iterable[Block]) -> Plan:
    """All blocks of a stream in one plan."""
    parts = list(blocks)
    columns = [
        np.concatenate([np.zeros(0, np.int64), *(getattr(p, name) for p in parts)])
        for name in ("hop", "chunk", "start")
    ]
    return Plan(machine, *columns)


def schedule_of(plan: Plan, topology: Topology, collective: Collective) -> Schedule:
    """The schedule of a plan: steps by what depends on what, the planned order as priority.

    A transfer is in the step after the last one that brought its source something of its chunk.
    """
    from .plan_kernel import steps_of

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
