"""The buffers of all GPUs, and writes that are on their way.

The callers' buffers are one array (:mod:`weft.backends.execute.layout` says where everything
lies); scratch is one array per GPU beside another of **marks**. A packet of a chunk takes two
cells of scratch: the value, and the mark that says in which launch it was written. A plain write
leaves mark 0. Under LL scratch therefore has twice the cells, and with double scratch two halves
that alternate by launch.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.dsl.base.arrays import AnyArray
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.program import Buffer

from ....execute.layout import BufferLayout
from ..plan.model import ExecutionPlan


@dataclass(frozen=True, slots=True)
class MemoryPlace:
    """Elements ``start … stop`` of a buffer of a GPU.

    ``packets``: of packets in scratch. ``first``: in the first half of scratch, whatever the
    launch (how plain accesses to a peer's scratch are executed).
    """

    rank: int
    buffer: Buffer
    start: int
    stop: int
    packets: bool = False
    first: bool = False


@dataclass(slots=True, eq=False)
class Write:
    """Values in transit to the memory of a rank; ``marks`` are set with them."""

    rank: int
    target: AnyArray
    values: AnyArray
    marks: AnyArray | None
    mark: int | AnyArray
    packets: bool
    done: bool = False

    def deliver(self) -> None:
        """They arrive."""
        self.target[...] = self.values
        if self.marks is not None:
            self.marks[...] = self.mark
        self.done = True


class PlanMemory:
    """All buffers in one data type. Scratch keeps what it has from launch to launch."""

    def __init__(
        self, plan: ExecutionPlan, place: BufferLayout, elements: int, dtype: np.dtype[Any]
    ) -> None:
        self.layout, self.elements = place, elements
        self.user: AnyArray = np.zeros(place.rows * elements, dtype)
        self.halves = 2 if plan.double_scratch else 1
        each = 2 if plan.packets else 1
        self.half = [gpu.scratch_chunks * elements * each for gpu in plan.gpus]
        self.scratch = [np.full(size * self.halves, 99, dtype) for size in self.half]
        self.marks = [np.zeros(size * self.halves, np.int64) for size in self.half]

    def reset(self) -> None:
        """Before a run: what an earlier run left in scratch counts for nothing."""
        for values, marks in zip(self.scratch, self.marks, strict=True):
            values.fill(99)
            marks.fill(0)

    def views(self, place: MemoryPlace, launch: int) -> tuple[AnyArray, AnyArray | None]:
        """Return the values of a place and the marks that go with them, in a launch."""
        if place.buffer is not Buffer.SCRATCH:
            column = 0 if place.buffer is Buffer.INPUT else 1
            base = int(self.layout.base[place.rank, column]) * self.elements
            return self.user[base + place.start : base + place.stop], None
        half = 0 if place.first else launch % self.halves
        begin = half * self.half[place.rank]
        values, marks = self.scratch[place.rank], self.marks[place.rank]
        if place.packets:
            low, high = begin + 2 * place.start, begin + 2 * place.stop
            return values[low:high:2], marks[low + 1 : high + 1 : 2]
        low, high = begin + place.start, begin + place.stop
        return values[low:high], marks[low:high]
