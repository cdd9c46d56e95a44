"""Movements of a schedule, for reports: its transfers, and every leg of its casts.

One table of both in the order in which they queue (:mod:`.moves`). A leg is told by the nodes at
the ends of its link, of which one at least is a switch.
"""

from __future__ import annotations

import numpy as np

from weft.dsl.base.arrays import AnyArray, Bools, Ints, Ints32
from weft.dsl.base.kept import kept
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.schedule import Schedule

from .moves import moves_of


@dataclass(frozen=True, eq=False)
class Movements:
    """The movements of a schedule in columns.

    Attributes:
        chunk, step: of each.
        src, dst: nodes where it starts and ends.
        reduce: whether it is added to something at its end, at a rank or at a switch that sums, or
            brings what a switch has summed to the one rank that wants it.
        route_start, route_links: movement i goes over
            ``route_links[route_start[i]:route_start[i+1]]``.
        cast: the cast that it is a leg of; -1: it is a transfer.
        operation: what it belongs to: transfers are numbered first, then casts.
        row, leg: the movement of each transfer, and of each link of the casts.
    """

    chunk: Ints32
    step: Ints32
    src: Ints
    dst: Ints
    reduce: Bools
    route_start: Ints
    route_links: Ints32
    cast: Ints
    operation: Ints
    row: Ints
    leg: Ints

    def __len__(self) -> int:
        return len(self.chunk)

    def route(self, i: int) -> tuple[int, ...]:
        """Return the links of movement ``i``."""
        return tuple(self.route_links[self.route_start[i] : self.route_start[i + 1]].tolist())

    @property
    def of_link(self) -> Ints:
        """Return the movement of each entry of ``route_links``."""
        return np.repeat(np.arange(len(self)), np.diff(self.route_start))

    def placed(self, of_transfers: AnyArray, of_legs: AnyArray) -> AnyArray:
        """Return a column from that of transfers and that of legs."""
        found = np.empty(len(self), np.asarray(of_transfers).dtype)
        found[self.row], found[self.leg] = of_transfers, of_legs
        return found


@kept(most=8)
def movements_of(s: Schedule) -> Movements:
    """Return the movements of a verified schedule."""
    m, casts = moves_of(s), s.casts
    every = np.arange(len(m))
    row, leg = every[m.transfers], every[m.legs]
    ends = s.topology.link_ends()
    src = ends[m.route_links[m.route_start[:-1]], 0]
    dst = ends[m.route_links[m.route_start[1:] - 1], 1]
    reduce, cast = np.zeros(len(m), bool), np.full(len(m), -1, np.int64)
    reduce[row] = s.reduce
    if len(casts):
        cast[leg] = np.repeat(np.arange(len(casts)), np.diff(casts.link_start))
        meeting = np.bincount(m.target[leg], minlength=m.places + m.meetings) > 1
        at_rank = casts.reduce[cast[leg]] & ~m.feeds[leg]
        sums = (np.diff(casts.source_start) > 1) & (np.diff(casts.destination_start) == 1)
        reduce[leg] = (m.feeds[leg] & meeting[m.target[leg]]) | at_rank | sums[cast[leg]]
    operation = np.where(cast < 0, 0, len(s) + cast)
    operation[row] = np.arange(len(s))
    return Movements(
        m.chunk, m.step, src, dst, reduce, m.route_start, m.route_links, cast, operation, row, leg
    )
