"""Join the schedules of groups, phase by phase, into one schedule of the whole machine."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from weft.dsl.base.arrays import Ints, distinct_values
from weft.dsl.base.errors import UserError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.unique_rows import rows_of
from weft.dsl.nouns.collective import Collective, make
from weft.dsl.nouns.schedule import Schedule
from weft.dsl.nouns.topology import Topology

from .groups import GroupMachine, GroupPart


@dataclass(frozen=True, eq=False)
class GroupSchedule:
    """One group: its part, its machine, and the schedule of the part on that machine."""

    part: GroupPart
    machine: GroupMachine
    schedule: Schedule


def in_turn(
    topology: Topology,
    collective: Collective,
    placed: Sequence[GroupSchedule],
    cells: int,
    finest: int,
) -> Schedule:
    """One schedule of the plain collective, of whose units each is ``cells`` cells.

    A phase takes as many steps as its slowest group. Cells are cut wherever some group cuts them,
    in at most ``finest`` grains.

    Raises:
        UserError: the groups cut cells in shares without a common denominator.
    """
    grid = _CellCuts.of(placed, collective.chunks * cells, finest)
    parts, first = [], 0
    for number in sorted({p.part.phase for p in placed}):
        mine = [p for p in placed if p.part.phase == number]
        parts += [_columns(p, grid, first) for p in mine]
        first += max(p.schedule.steps for p in mine)
    joined = {
        name: np.concatenate([part[name] for part in parts]) for part in parts for name in part
    }
    # Groups take turns: of two that share a link neither goes before the other altogether.
    order = np.lexsort((joined.pop("turn"), joined["step"]))
    lengths = joined.pop("route_lengths")
    links = joined.pop("route_links")
    start = np.concatenate([[0], np.cumsum(lengths)])
    routes, at = rows_of(start, order)
    columns: dict[str, Any] = {name: column[order] for name, column in joined.items()}
    return Schedule.from_columns(
        topology,
        grid.cut(collective, cells),
        **columns,
        route_lengths=np.diff(routes),
        route_links=links[at],
    )


@dataclass(frozen=True, eq=False)
class _CellCuts:
    """Cuts of cells into pieces: ``ends[first[c]:first[c+1]]`` are where the pieces of cell c end,
    in parts of ``grains``."""

    grains: int
    first: Ints
    ends: Ints

    @staticmethod
    def of(placed: Sequence[GroupSchedule], cells: int, finest: int) -> _CellCuts:
        grains = math.lcm(*(p.schedule.collective.factor for p in placed))
        if grains > finest:
            raise UserError("the groups cut their data in shares without a common denominator")
        marks = [np.full(cells, grains)]
        owners = [np.arange(cells)]
        for p in placed:
            unit, _, end = _shares(p.schedule.collective, grains)
            cell = p.part.cells[unit]
            owners.append(cell.ravel())
            marks.append(np.repeat(end, cell.shape[1]))
        key = distinct_values(np.concatenate(owners) * (grains + 1) + np.concatenate(marks))
        owner, ends = np.divmod(key, grains + 1)
        return _CellCuts(grains, np.searchsorted(owner, np.arange(cells + 1)), ends)

    @property
    def sizes(self) -> Ints:
        """Grains of every piece."""
        before = np.concatenate([[0], self.ends[:-1]])
        before[self.first[:-1]] = 0
        found: Ints = self.ends - before
        return found

    def cut(self, collective: Collective, cells: int) -> Collective:
        """The plain collective in these pieces."""
        sizes = self.sizes
        if (sizes == sizes[0]).all():
            return collective.split(len(sizes) // collective.chunks)
        count = np.diff(self.first[::cells])
        return collective.cut_in(sizes // np.gcd.reduce(sizes), count)

    def pieces(self, cell: Ints, begin: Ints, end: Ints) -> tuple[Ints, Ints]:
        """The pieces of shares of cells: (which share, piece)."""
        whole = self._key(self.ends)
        first = np.searchsorted(whole, cell * (self.grains + 1) + begin, side="right")
        last = np.searchsorted(whole, cell * (self.grains + 1) + end, side="right")
        count = last - first
        share = np.repeat(np.arange(len(cell)), count)
        inside = np.arange(len(share)) - np.repeat(np.cumsum(count) - count, count)
        return share, first[share] + inside

    def _key(self, ends: Ints) -> Ints:
        owner = np.repeat(np.arange(len(self.first) - 1), np.diff(self.first))
        return owner * (self.grains + 1) + ends


def _shares(collective: Collective, grains: int) -> tuple[Ints, Ints, Ints]:
    """Of every chunk: its unit, and the grains of the unit between which it lies."""
    scale = grains // collective.factor
    opens = np.cumsum(collective.grains) - collective.grains
    unit, inside = np.divmod(opens, collective.factor)
    return unit, inside * scale, (inside + collective.grains) * scale


def _columns(p: GroupSchedule, grid: _CellCuts, first_step: int) -> dict[str, Ints]:
    """The transfers of one group, for every piece of every cell, in the whole machine."""
    s = p.schedule
    unit, begin, end = _shares(s.collective, grid.grains)
    copies = p.part.cells.shape[1]
    share, piece = grid.pieces(
        p.part.cells[unit].ravel(), np.repeat(begin, copies), np.repeat(end, copies)
    )
    edges = np.searchsorted(share // copies, np.arange(s.collective.chunks + 1))
    starts, at = rows_of(edges, s.chunk.astype(np.int64))
    row = np.repeat(np.arange(len(s)), np.diff(starts))
    route_starts, links = rows_of(s.route_start, row)
    where = np.array(p.machine.nodes, np.int64)
    return {
        "chunk": piece[at],
        "src": where[s.src[row]],
        "dst": where[s.dst[row]],
        "step": s.step[row].astype(np.int64) + first_step,
        "reduce": s.reduce[row].astype(np.int64),
        "route_lengths": np.diff(route_starts),
        "route_links": p.machine.links[s.route_links[links]],
        "turn": _turns(s)[row],
    }


def _turns(s: Schedule) -> Ints:
    """Position of each transfer in the planned order, else in the order of the schedule."""
    if s.priority is None:
        return np.arange(len(s))
    found = np.empty(len(s), np.int64)
    found[np.argsort(s.priority, kind="stable")] = np.arange(len(s))
    return found


def whole_sums(schedule: Schedule) -> Schedule | None:
    """Return an allreduce without local sums at the end: as it is; or, if every contribution comes
    straight from its owner in one step, the same transfers as reductions; else None."""
    c = schedule.collective
    if not c.local_reduce:
        return schedule
    owner = np.empty(c.chunks, np.int64)
    owner[c.pre.chunks] = c.pre.ranks
    if schedule.steps > 1 or (owner[schedule.chunk] != schedule.src).any():
        return None
    place = np.empty(c.chunks, np.int64)
    for group in c.local_reduce:
        place[list(group)] = group[0]
    plain = make(c.kind, c.ranks, chunks=c.factor)
    columns = schedule.columns()
    columns["chunk"] = place[schedule.chunk]
    columns["reduce"] = np.ones(len(schedule), bool)
    return Schedule.from_columns(
        schedule.topology, plain, **columns, provenance=schedule.provenance
    )


def planned(schedule: Schedule, slices: int) -> Iterator[Schedule]:
    """Yield the schedule in slices: first come first served; and with the transfers of every slice
    in the order of the schedule, before those of the next slice."""
    yield replace(schedule, segments=slices)
    if slices > 1:
        order = np.arange(len(schedule), dtype=np.int32)
        yield replace(schedule, segments=slices, priority=order, stride=0)
