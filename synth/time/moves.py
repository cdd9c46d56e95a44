"""Rows that queue for links in a schedule: its transfers, and every leg of its casts.

Each is a *row* with a source and a target place, the links it holds, and a step. A place is a chunk
on a rank (``chunk * ranks + rank``) or, numbered behind those, a *meeting*: a switch within a cast,
where legs end and others start. Rows are sorted by step, in a step transfers go before legs.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from weft.dsl.base.arrays import AnyArray, Bools, Ints, Ints32, distinct_values
from weft.dsl.base.kept import kept
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.unique_rows import rows_of
from weft.dsl.base.units import BYTES_PER_US_PER_GBPS
from weft.dsl.nouns.schedule import Schedule

from ..judge.replay import replay


@dataclass(frozen=True, eq=False)
class QueuedRows:
    """The rows of a schedule in columns; see the module's text."""

    chunk: Ints32
    step: Ints32  # ascends
    source: Ints  # place
    target: Ints  # place
    places: int  # of chunks on ranks; meetings are numbered from here
    meetings: int  # how many there are
    route_start: Ints  # (rows + 1,): of route_links, the links that each row holds
    route_links: Ints32
    priority: Ints32 | None  # of the planned order, if there is one
    redundant: Bools  # it brings what is there already
    transfers: Ints | slice  # row of each transfer
    legs: Ints | slice  # row of each link of the casts, in their order
    pace: tuple[Fraction, ...] = ()  # least µs of each row a byte of a grain; empty: 0 for all

    def __len__(self) -> int:
        return len(self.chunk)

    @property
    def joins(self) -> Bools:
        """Return the rows that start at a meeting."""
        return self.source >= self.places

    @property
    def feeds(self) -> Bools:
        """Return the rows that end at a meeting."""
        return self.target >= self.places


@kept(most=8)
def moves_of(s: Schedule) -> QueuedRows:
    """Return the rows of a verified schedule. O(links of all routes), in arrays."""
    return moves_with(s, replay(s).redundant)


def moves_with(s: Schedule, redundant: Bools) -> QueuedRows:
    """Return the rows of a schedule some of whose transfers are known to bring nothing new."""
    ranks = s.topology.ranks
    place = s.chunk.astype(np.int64) * ranks
    places = s.collective.chunks * ranks
    if not len(s.casts):
        return QueuedRows(
            s.chunk,
            s.step,
            place + s.src,
            place + s.dst,
            places,
            0,
            s.route_start,
            s.route_links,
            s.priority,
            redundant,
            slice(None),
            slice(0, 0),
        )
    legs = _legs(s, places)
    step = np.concatenate([s.step, s.casts.step[legs.cast]])
    order = np.argsort(step, kind="stable")
    row = np.empty(len(order), np.int64)
    row[order] = np.arange(len(order))

    def joined(own: AnyArray, of_legs: AnyArray) -> AnyArray:
        return np.concatenate([own, of_legs])[order]

    length = np.concatenate([np.diff(s.route_start), np.ones(len(legs.cast), np.int64)])
    start = np.concatenate([[0], np.cumsum(length)])
    route_start, which = rows_of(start, order)
    return QueuedRows(
        joined(s.chunk, s.casts.chunk[legs.cast]),
        step[order],
        joined(place + s.src, legs.source),
        joined(place + s.dst, legs.target),
        places,
        legs.meetings,
        route_start,
        np.concatenate([s.route_links, s.casts.links])[which],
        _priority(s, legs.cast, order),
        joined(redundant, _brings_nothing(s, legs.cast, legs.head)),
        row[: len(s)],
        row[len(s) :],
        _pace(s, legs.cast, order),
    )


@dataclass(frozen=True, eq=False)
class _Legs:
    """The links of all casts: the cast and the node at the end of each, the places it joins, and
    the number of meetings among these."""

    cast: Ints
    head: Ints
    source: Ints
    target: Ints
    meetings: int


def _legs(s: Schedule, places: int) -> _Legs:
    """Return the legs of a schedule's casts; places of meetings are numbered from ``places``."""
    c, nodes, ranks = s.casts, len(s.topology.nodes), s.topology.ranks
    cast = np.repeat(np.arange(len(c)), np.diff(c.link_start))
    tail, head = s.topology.link_ends()[c.links].T
    here = c.chunk[cast].astype(np.int64) * ranks
    # A meeting is a pass of one cast through a switch; of one that only passes on, each copy.
    copies = nodes * (1 + int(np.diff(c.link_start).max()))
    plain = np.array([not node.computes for node in s.topology.nodes])
    named = [
        cast * copies + node + nodes * np.where(plain[node], _turn(cast, node), passing)
        for node, passing in zip((tail, head), _passes(cast, tail, head), strict=True)
    ]
    inner = distinct_values(np.concatenate(named)[np.concatenate([tail, head]) >= ranks])
    source, target = (
        np.where(node < ranks, here + node, places + np.searchsorted(inner, name))
        for node, name in zip((tail, head), named, strict=True)
    )
    return _Legs(cast, head, source, target, len(inner))


def _turn(cast: Ints, node: Ints) -> Ints:
    """Number the links of each cast at each node, in their order."""
    order = np.lexsort((node, cast))
    first = (np.diff(cast[order], prepend=-1) != 0) | (np.diff(node[order], prepend=-1) != 0)
    start = np.maximum.accumulate(np.where(first, np.arange(len(order)), 0))
    found = np.empty(len(order), np.int64)
    found[order] = np.arange(len(order)) - start
    return found


def _passes(cast: Ints, tail: Ints, head: Ints) -> tuple[Ints, Ints]:
    """Number the passes of each cast through each node: of its links' tails, and of their heads.

    A link that enters a node behind one that leaves it begins a pass.
    """
    count = len(cast)
    at = np.arange(2 * count)
    of, node = np.concatenate([cast, cast]), np.concatenate([tail, head])
    order = np.lexsort((np.where(at < count, 2 * at, 2 * (at - count) + 1), node, of))
    enters, of, node = order >= count, of[order], node[order]
    first = (np.diff(of, prepend=-1) != 0) | (np.diff(node, prepend=-1) != 0)
    begins = np.cumsum(enters & ~np.concatenate([[True], enters[:-1]]) & ~first)
    start = np.maximum.accumulate(np.where(first, np.arange(2 * count), 0))
    found = np.empty(2 * count, np.int64)
    found[order] = begins - begins[start]
    return found[:count], found[count:]


def _priority(s: Schedule, cast: Ints, order: Ints) -> Ints32 | None:
    if not s.planned:
        return None
    own = s.priority if s.priority is not None else np.zeros(len(s), np.int32)
    of_casts = s.casts.priority
    legs = np.zeros(len(cast), np.int32) if of_casts is None else of_casts[cast]
    return np.concatenate([own, legs])[order]


def _pace(s: Schedule, cast: Ints, order: Ints) -> tuple[Fraction, ...]:
    """Return the least µs of each row for a byte of a grain, where switches limit casts."""
    c = s.casts
    if not c.GBps:
        return ()
    grains = s.collective.grains
    each = [
        Fraction(0) if x is None else int(grains[chunk]) / (x * BYTES_PER_US_PER_GBPS)
        for chunk, x in zip(c.chunk.tolist(), c.GBps, strict=True)
    ]
    column = [Fraction(0)] * len(s) + [each[i] for i in cast.tolist()]
    return tuple(column[i] for i in order.tolist())


def _brings_nothing(s: Schedule, cast: Ints, head: Ints) -> Bools:
    """Return the legs that end at a rank which already has their data."""
    c = s.casts
    owner = np.repeat(np.arange(len(c)), np.diff(c.destination_start))
    useless = replay(s).arrival_redundant
    nodes = len(s.topology.nodes)
    known = (owner * nodes + c.destinations)[useless]
    return np.isin(cast * nodes + head, known)


# --- movements, for reports -----------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Movements:
    """The movements of a schedule in columns.

    A movement reduces if it is added to something at its end, at a rank or at a switch that sums,
    or brings what a switch has summed to the one rank that wants it.
    """

    chunk: Ints32
    step: Ints32
    src: Ints  # node where it starts
    dst: Ints  # node where it ends
    reduce: Bools
    route_start: Ints  # (movements + 1,): of route_links, the route of each
    route_links: Ints32
    cast: Ints  # the cast that it is a leg of; -1: it is a transfer
    operation: Ints  # what it belongs to: transfers are numbered first, then casts
    row: Ints  # movement of each transfer
    leg: Ints  # movement of each link of the casts

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
