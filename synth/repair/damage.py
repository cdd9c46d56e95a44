"""Transfers of a schedule that use failed parts of its machine, chunk by chunk."""

from __future__ import annotations

import numpy as np

from weft.dsl.base.arrays import Bools, Ints, distinct_values
from weft.dsl.base.errors import UserError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.machines.failures import Degraded
from weft.dsl.nouns.schedule import Schedule


@dataclass(frozen=True, slots=True, eq=False)
class ByChunk:
    """The transfers of each chunk, in their order."""

    order: Ints
    start: Ints

    @staticmethod
    def of(schedule: Schedule) -> ByChunk:
        """O(transfers · log)."""
        order = np.argsort(schedule.chunk, kind="stable")
        ends = np.searchsorted(schedule.chunk[order], np.arange(schedule.collective.chunks + 1))
        return ByChunk(order, ends)

    def of_chunk(self, chunk: int) -> Ints:
        """The transfers of a chunk."""
        rows: Ints = self.order[self.start[chunk] : self.start[chunk + 1]]
        return rows


@dataclass(frozen=True, slots=True, eq=False)
class Damage:
    """A schedule for ``left.whole``, seen from ``left.topology``.

    Attributes:
        schedule, left: as they are given.
        moved: the links of all routes by their numbers in ``left.topology``, -1 for failed links.
        hit: mask of the transfers that use a failed link.
        by_chunk: the transfers of each chunk.
        chunks: the broken chunks, ascending.
    """

    schedule: Schedule
    left: Degraded
    moved: Ints
    hit: Bools
    by_chunk: ByChunk
    chunks: tuple[int, ...]

    @staticmethod
    def of(schedule: Schedule, left: Degraded) -> Damage:
        """Raises:
        UserError: ranks are gone, so that it would be another collective.
        """
        if left.dead_ranks:
            raise UserError(
                "ranks are gone, so this is another collective", hint="synthesize it anew"
            )
        moved = left.link_image[schedule.route_links]
        hit = np.zeros(len(schedule), bool)
        hit[np.repeat(np.arange(len(schedule)), np.diff(schedule.route_start))[moved < 0]] = True
        broken = distinct_values(schedule.chunk[hit]).tolist()
        return Damage(schedule, left, moved, hit, ByChunk.of(schedule), tuple(broken))

    def route(self, row: int) -> tuple[int, ...]:
        """The links of a transfer as they are numbered now."""
        start = self.schedule.route_start
        return tuple(self.moved[start[row] : start[row + 1]].tolist())
