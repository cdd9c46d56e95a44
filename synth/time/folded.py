"""Schedules that the symmetries of their machine map to themselves, folded to one part of many.

A packing of a symmetric machine is the images of a few transfers under a group, and all images of
one do the same at the same time. So one part of the schedule, all transfers of one chunk of every
orbit, has the times of the whole, if (1) the images of a transfer stand next to each other, in the
order of the group's elements, so that two transfers that compete are in the same order in every
part; (2) chunks are mapped, so that a part waits for nothing outside it; (3) no two images of a
transfer use the same resource, so that of each orbit of resources one is enough. All this is
checked here, from the schedule alone: its maker is not trusted.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from weft.dsl.base.arrays import AnyArray, Bools, Floats, Ints, Ints32, distinct_values
from weft.dsl.base.kept import kept
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.unique_rows import packed, rows_of
from weft.dsl.nouns.schedule import Schedule
from weft.dsl.symmetry.orbits import Orbits, orbits_of

from ..judge.replay import replay
from .legs import rows_held

MANY = 100_000
"""Of fewer transfers times slices the whole is run: a search for symmetries takes as long."""

_BLOCK = 1 << 22  # numbers that are compared at a time, for the sake of memory


@dataclass(frozen=True, eq=False)
class FoldedSchedule:
    """One part of a schedule, that stands for all copies of it."""

    part: Schedule  # its transfers, as a schedule of the same machine
    copies: int  # images of transfer i of the part are i * copies and following of the whole
    redundant: Bools  # of the part's transfers, as weft.synth.judge.replay.Replay says
    first_row: Ints  # for each resource the least of its orbit

    def of_all(self, column: AnyArray) -> AnyArray:
        """Return a column of the whole schedule's transfers from that of the part's."""
        return np.repeat(column, self.copies)

    def of_resources(self, busy: Floats) -> Floats:
        """Return a column of all resources from that in which one stands for its orbit."""
        return busy[self.first_row]


@kept(most=8)
def folded(schedule: Schedule) -> FoldedSchedule | None:
    """Return the part of a verified schedule whose times are those of the whole, if there is one.

    None for schedules of fewer than :data:`MANY` jobs, too. O(links of all routes), in arrays.
    """
    machine = schedule.topology
    if len(schedule.casts):
        return None
    if len(schedule) * schedule.segments < MANY or machine.ranks > len(schedule):
        return None
    group = orbits_of(machine)
    if group.order < 2 or len(schedule) % group.order:
        return None
    first = np.arange(0, len(schedule), group.order)
    if not (_moved(schedule, group, first) and _chunks_apart(schedule, group.order)):
        return None
    part = taken(schedule, first)
    least = np.unique(group.row_orbit, return_index=True)[1][group.row_orbit]
    redundant = replay(schedule).redundant
    if not (_constant(redundant, group.order) and _meet_nowhere(part, group, least)):
        return None
    return FoldedSchedule(part, group.order, redundant[first], least)


def _moved(s: Schedule, group: Orbits, first: Ints) -> bool:
    """Return True if every block of transfers is the images of its first one."""
    columns: list[AnyArray] = [s.step, s.reduce, np.diff(s.route_start)]
    if s.priority is not None:
        columns.append(s.priority)
    if not all(_constant(column, group.order) for column in columns):
        return False
    start, at = rows_of(s.route_start, first)
    links = s.route_links[at].astype(np.int64)
    length = np.diff(start)
    # Link j of the route of image g, where the block's routes lie one after the other.
    begin = np.repeat(s.route_start[first] - group.order * start[:-1], length)
    inside = np.arange(len(links)) - np.repeat(start[:-1], length)
    step = np.repeat(length, length)
    place = begin + group.order * np.repeat(start[:-1], length) + inside
    for g in range(group.order):
        image = group.images[g]
        if not (image[s.src[first]] == s.src[first + g]).all():
            return False
        if not (image[s.dst[first]] == s.dst[first + g]).all():
            return False
        if not (group.link_images[g][links] == s.route_links[place + g * step]).all():
            return False
    return True


def _constant(column: AnyArray, block: int) -> bool:
    """Return True if a column is constant within every ``block`` rows."""
    rows = column.reshape(-1, block)
    size = max(1, _BLOCK // block)
    return all(
        bool((rows[i : i + size] == rows[i : i + size, :1]).all())
        for i in range(0, len(rows), size)
    )


def _chunks_apart(s: Schedule, block: int) -> bool:
    """Return True if the group maps chunks to other ones of as many grains, one for each element:
    then the transfers of the first elements' chunks wait only for each other."""
    images: Ints32 = s.chunk.reshape(-1, block)
    chunks, first = np.unique(images[:, 0], return_index=True)
    table = images[first]
    if len(distinct_values(table)) < table.size:
        return False
    grains = s.collective.grains
    if len(grains) and not _constant(grains[table.ravel()], block):
        return False
    which = np.searchsorted(chunks, images[:, 0])
    size = max(1, _BLOCK // block)
    return all(
        bool((images[i : i + size] == table[which[i : i + size]]).all())
        for i in range(0, len(images), size)
    )


def taken(schedule: Schedule, order: Ints) -> Schedule:
    """Return a schedule of some transfers, in an order that must be one of steps; without times."""
    start, at = rows_of(schedule.route_start, order)
    moved = Schedule.from_columns(
        schedule.topology,
        schedule.collective,
        schedule.chunk[order],
        schedule.src[order],
        schedule.dst[order],
        schedule.step[order],
        schedule.reduce[order],
        np.diff(start),
        schedule.route_links[at],
        rounds=schedule.rounds,
        provenance=schedule.provenance,
        stride=schedule.stride,
        priority=None if schedule.priority is None else schedule.priority[order],
        casts=schedule.casts,
    )
    # Times belong to the old order.
    return replace(moved, bytes=schedule.bytes, segments=schedule.segments)


def _meet_nowhere(part: Schedule, group: Orbits, least: Ints) -> bool:
    """Return True if no image of a transfer uses a resource that another one uses: its resources
    are of different orbits, and each orbit has one for every element."""
    begin, rows, _ = rows_held(part.topology, part.route_start, part.route_links.astype(np.int64))
    size = np.bincount(group.row_orbit)
    if not (size[group.row_orbit[rows]] == group.order).all():
        return False
    transfer = np.repeat(np.arange(len(part)), np.diff(begin))
    return len(distinct_values(packed(transfer, least[rows]))) == len(rows)
