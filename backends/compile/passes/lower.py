"""Schedule to flow: every chunk on every rank gets the slots where it lives.

Before::

    step 0: chunk 0: 0 -> 1        step 0: chunk 1: 1 -> 0        (allgather on two ranks)

After::

    0 -> 1 from i[0] into o[0]     1 -> 0 from i[0] into o[1]
    rank 0 copies i[0] to o[0]     rank 1 copies i[0] to o[1]

A **place** is a chunk on a rank. It starts in the input, if the collective puts it there, and moves
once, with its first arrival, to its *home*: the output where the collective wants it there,
scratch otherwise. The first partial sum is formed on the way (destination ≠ operand), so the input
is never written. In place, an input slot is called by the letter of the output that aliases it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np

from weft.dsl.base.arrays import Bools, Ints, distinct_values
from weft.dsl.base.errors import CheckFailed, UserError
from weft.dsl.base.kept import kept
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.collective import Collective
from weft.dsl.nouns.placement import Placement
from weft.dsl.nouns.runtime import Target
from weft.dsl.nouns.schedule import Schedule
from weft.dsl.nouns.slots import WIDE, Aliases

from ..analyses.flow import INPUT, NONE, OUTPUT, Flow, LocalOps, Messages
from ..analyses.landing import Slots, contended, same_as_before, unfused
from ..analyses.planned import Order, planned
from ..analyses.unroll import schedule_in_grains, unrolled

NEVER = np.int64(1) << 40
BEFORE = -1
"""The step of operations before the first message."""


@dataclass(frozen=True, slots=True)
class Lower:
    """Give every chunk its slots, in an order of the transfers.

    ``order``: by the priorities of the schedule as if all connections were alike, with the
    bandwidths of their links, or by its steps (:class:`.Order`). ``in_place``: input and output are
    one buffer. ``parts``: into which every chunk is cut that travel together, so that several
    thread blocks can sum what arrives, where sums are instructions of their own (:mod:`.weave`).

    >>> from weft.dsl.nouns.topology import Topology, both_ways, gpu
    >>> from weft.dsl.nouns.collective import make
    >>> from weft.dsl.nouns.schedule import Schedule, Transfer
    >>> from weft.dsl.nouns.runtime import MSCCL
    >>> pair = Topology("pair", (gpu(0), gpu(1)), both_ways(0, 1, 25))
    >>> exchange = [Transfer(0, 0, 1, (0,)), Transfer(1, 1, 0, (1,))]
    >>> s = Schedule.of(pair, make("allgather", 2), exchange)
    >>> flow = Lower().apply(s, MSCCL)
    >>> [hex(x) for x in flow.messages.recv.tolist()], len(flow.local)
    (['0x100000001', '0x100000000'], 2)
    """

    name: ClassVar[str] = "lower"
    in_place: bool = False
    order: Order = Order.PRIORITY
    parts: int = 1

    def apply(self, schedule: Schedule, target: Target) -> Flow:
        """Return the flow of a schedule; of chunks of several grains, grain by grain.

        The pattern is written once, for all slices of the schedule alike: a runtime that slices
        chunks runs every block's whole code for each.

        Raises:
            UserError: more grains than can be looked at, or less than one part.
            CheckFailed: a rank sends a chunk that it does not hold, or lacks one at the end.
        """
        if self.parts < 1:
            raise UserError(
                f"a chunk cannot be cut into {self.parts} parts", hint="lower{parts=1}: whole"
            )
        room = target.max_nodes - target.max_blocks
        ordered = _ordered(schedule, self.order, room)
        flow = _lowered(unrolled(ordered, self.parts, together=True), self.in_place, target.fuses)
        return replace(flow, parts=self.parts)


@kept(most=8)
def _ordered(schedule: Schedule, order: Order, room: int) -> Schedule:
    """The schedule in its planned order if ``room`` elements of a rank suffice for its transfers
    one by one; else the schedule as it is.

    Transfers left in the steps of the schedule travel together with their neighbours.
    """
    ends = np.concatenate([schedule.src, schedule.dst])
    most = int(np.bincount(ends, minlength=1).max())
    fits = most + schedule.topology.ranks < room
    return planned(schedule, order) if fits else schedule


@kept(most=8)
def _lowered(schedule: Schedule, in_place: bool, fuses: bool) -> Flow:
    schedule = schedule_in_grains(schedule)
    arrivals = _Arrivals.of(schedule)
    places = _Places.of(schedule, arrivals, in_place)
    scratch = Slots(np.zeros(schedule.collective.ranks))
    local = _LocalRows()
    _save_endangered_input(places, scratch, local, in_place)
    home = _homes(places, scratch)
    messages = _messages(schedule, arrivals, places, home, scratch, fuses)
    _final_copies(places, local)
    _group_sums(schedule.collective, places, home, messages, local)
    return Flow(schedule.collective, in_place, messages, local.columns(), scratch.sizes)


class _Arrivals:
    """The transfers, sorted by (destination place, step, source), doubles dropped."""

    def __init__(self, rows: Ints, place: Ints) -> None:
        self.rows = rows  #: indices of transfers
        self.place = place  #: rank * chunks + chunk of the destination, ascending

    @staticmethod
    def of(schedule: Schedule) -> _Arrivals:
        place = schedule.dst.astype(np.int64) * schedule.collective.chunks + schedule.chunk
        rows = np.lexsort((schedule.src, schedule.step, place))
        if len(rows):
            same = same_as_before(place[rows], schedule.step[rows], schedule.src[rows])
            _refuse_double_sums(schedule, rows, same)
            rows = rows[~same]
        return _Arrivals(rows, place[rows])


def _refuse_double_sums(schedule: Schedule, rows: Ints, same: Bools) -> None:
    step, place = schedule.step[rows], (schedule.dst[rows], schedule.chunk[rows])
    mixed = same_as_before(*place, step) & (np.diff(schedule.reduce[rows], prepend=False) != 0)
    mixed[0] = False
    for bad, what in (
        (same & schedule.reduce[rows], "adds the same transfer twice"),
        (mixed, "both stores and adds what arrives"),
    ):
        if bad.any():
            t = schedule[int(rows[np.flatnonzero(bad)[0]])]
            raise CheckFailed(f"step {t.step}: rank {t.dst} {what} for chunk {t.chunk}")


class _Places:
    """Chunks on ranks: where they start, where they must end, when they first arrive."""

    def __init__(self, collective: Collective, keys: Ints) -> None:
        self.collective = collective
        self.keys = keys
        self.rank = keys // collective.chunks
        self.chunk = keys % collective.chunks
        self.initial = np.full(len(keys), NONE, np.int64)
        self.final = np.full(len(keys), NONE, np.int64)
        self.grouped = np.zeros(len(keys), bool)
        self.first = np.full(len(keys), NEVER, np.int64)

    @staticmethod
    def of(schedule: Schedule, arrivals: _Arrivals, in_place: bool) -> _Places:
        c = schedule.collective
        pre, post = _keys(c, c.pre), _keys(c, c.post)
        src = schedule.src.astype(np.int64) * c.chunks + schedule.chunk
        places = _Places(c, distinct_values(np.concatenate([pre, post, src, arrivals.place])))
        offsets = INPUT + c.pre.offsets.astype(np.int64)
        initial = Aliases.of(c, in_place).names(c.pre.ranks.astype(np.int64), offsets)
        places.initial[places.index(pre)] = initial
        places.final[places.index(post)] = OUTPUT + c.post.offsets.astype(np.int64)
        in_group = np.zeros(c.chunks, bool)
        in_group[[chunk for group in c.local_reduce for chunk in group]] = True
        places.grouped = in_group[places.chunk] & (places.final != NONE)
        np.minimum.at(places.first, places.index(arrivals.place), schedule.step[arrivals.rows])
        return places

    def index(self, keys: Ints) -> Ints:
        """Return the position of each key (all are there)."""
        return np.searchsorted(self.keys, keys)


def _keys(c: Collective, placement: Placement) -> Ints:
    return placement.ranks.astype(np.int64) * c.chunks + placement.chunks


class _LocalRows:
    """Collects local operations: (rank, step, reduce, source, target) columns."""

    def __init__(self) -> None:
        self.parts: list[Ints] = []

    def add(self, rank: Ints, step: Ints, reduce: bool, source: Ints, to: Ints) -> None:
        self.parts.append(
            np.stack([rank, step, np.full(len(rank), int(reduce)), source, to]).astype(np.int64)
        )

    def columns(self) -> LocalOps:
        table = np.concatenate(self.parts, axis=1) if self.parts else np.zeros((5, 0), np.int64)
        table = table[:, np.lexsort((table[4], table[3], table[2], table[1], table[0]))]
        zeros = np.zeros(table.shape[1], np.int64)
        rank, step, reduce, source, to = table
        return LocalOps(rank, step, reduce, source, to, zeros, zeros + 1)


def _save_endangered_input(
    places: _Places, scratch: Slots, local: _LocalRows, in_place: bool
) -> None:
    """In place, another chunk may end where one starts: that one moves to scratch first."""
    if not in_place:
        return
    wanted = np.flatnonzero(places.final != NONE)
    ends = places.rank[wanted] * WIDE + places.final[wanted]
    order = np.argsort(ends, kind="stable")
    starts = np.flatnonzero((places.initial >= OUTPUT) & (places.initial != places.final))
    key = places.rank[starts] * WIDE + places.initial[starts]
    endangered = starts[np.isin(key, ends[order])]
    saved = scratch.take(places.rank[endangered])
    step = np.full(len(endangered), BEFORE - 1)  # before anything is written over it
    local.add(places.rank[endangered], step, False, places.initial[endangered], saved)
    places.initial[endangered] = saved


def _homes(places: _Places, scratch: Slots) -> Ints:
    moves = places.first != NEVER
    home = np.where((places.final != NONE) & ~places.grouped, places.final, places.initial)
    rest = moves & ((places.final == NONE) | places.grouped)
    home[rest] = scratch.take(places.rank[rest])
    return home


def _messages(
    schedule: Schedule,
    arrivals: _Arrivals,
    places: _Places,
    home: Ints,
    scratch: Slots,
    fuses: bool,
) -> Messages:
    rows = arrivals.rows
    chunk, src, dst, step = (
        x[rows].astype(np.int64)
        for x in (schedule.chunk, schedule.src, schedule.dst, schedule.step)
    )
    source = places.index(src * places.collective.chunks + chunk)
    there = places.index(arrivals.place)
    send = np.where(step > places.first[source], home[source], places.initial[source])
    unheld = np.flatnonzero(send == NONE)
    if len(unheld):
        i = int(unheld[np.argmin(step[unheld])])
        raise CheckFailed(
            f"step {step[i]}: rank {src[i]} sends chunk {chunk[i]} before it holds it",
            hint="weft check SCHEDULE says what is wrong with it",
        )
    opens = ~same_as_before(there)
    before = np.where(opens, places.initial[there], home[there])
    operand = np.where(schedule.reduce[rows], before, NONE)
    recv, add_from, add_to = home[there], np.full(len(rows), NONE), np.full(len(rows), NONE)
    if not fuses:
        recv, add_from, add_to = unfused(dst, recv, operand, (src, chunk), scratch)
        operand = np.full(len(rows), NONE)
    zeros, free = np.zeros(len(rows), np.int64), np.full(len(rows), NONE)
    return Messages(
        chunk,
        src,
        dst,
        step,
        _turns(there, step),
        send,
        recv,
        operand,
        add_from,
        add_to,
        contended(src, dst, step, send, recv, add_to),
        zeros,
        free,
        free,
        free,
        zeros + 1,
        zeros,
    )


def _turns(there: Ints, step: Ints) -> Ints:
    """Position among the arrivals of one step at one place."""
    group = np.cumsum(~same_as_before(there, step))
    start = np.searchsorted(group, group)
    return (np.arange(len(there)) - start).astype(np.int64)


def _final_copies(places: _Places, local: _LocalRows) -> None:
    """Copy into the output the chunks that must be there and never arrive."""
    never = (places.final != NONE) & (places.first == NEVER)
    missing = np.flatnonzero(never & (places.initial == NONE))
    if len(missing):
        i = missing[0]
        raise CheckFailed(
            f"rank {places.rank[i]} never gets chunk {places.chunk[i]}, which it must end with",
            hint="weft check SCHEDULE says what is wrong with it",
        )
    copies = np.flatnonzero(never & ~places.grouped & (places.initial != places.final))
    step = np.full(len(copies), BEFORE)
    local.add(places.rank[copies], step, False, places.initial[copies], places.final[copies])


def _group_sums(
    c: Collective, places: _Places, home: Ints, messages: Messages, local: _LocalRows
) -> None:
    """Sum the members of a group that a rank holds into the output, in order of arrival.

    The first member is the one that lies in the output already, or starts in the input.
    """
    rows = np.flatnonzero(places.grouped)
    if not len(rows):
        return
    group_of = np.full(c.chunks, NONE, np.int64)
    for index, members in enumerate(c.local_reduce):
        group_of[list(members)] = index
    moved = places.first[rows] != NEVER
    value = np.where(moved, home[rows], places.initial[rows])
    arrived = _last_steps(places, messages)[rows]
    group = group_of[places.chunk[rows]]
    away = value != places.final[rows]
    order = np.lexsort((arrived, away, group, places.rank[rows]))
    rank, to = places.rank[rows][order], places.final[rows][order]
    group, value, arrived = group[order], value[order], arrived[order]
    opens = ~same_as_before(rank, group)
    # A sum that overwrites its own input waits until the last message has read it.
    step = np.maximum(_last_reads(rank, to, messages), _running_max(arrived, opens))
    copies = opens & (value != to)
    local.add(rank[copies], step[copies], False, value[copies], to[copies])
    local.add(rank[~opens], step[~opens], True, value[~opens], to[~opens])


def _last_steps(places: _Places, messages: Messages) -> Ints:
    """Return the last step in which each place gets something; BEFORE for none."""
    last = np.full(len(places.keys), BEFORE, np.int64)
    there = places.index(messages.dst * places.collective.chunks + messages.chunk)
    np.maximum.at(last, there, messages.step)
    return last


def _last_reads(rank: Ints, slot: Ints, messages: Messages) -> Ints:
    """Return the last step in which a message reads each (rank, slot); BEFORE for none."""
    key, sent = rank * WIDE + slot, messages.src * WIDE + messages.send
    names, inverse = np.unique(np.concatenate([key, sent]), return_inverse=True)
    last = np.full(len(names), BEFORE, np.int64)
    np.maximum.at(last, inverse[len(key) :], messages.step)
    return last[inverse[: len(key)]]


def _running_max(values: Ints, opens: Bools) -> Ints:
    """Return the running maximum within groups; ``opens`` marks the first entry of each."""
    group = np.cumsum(opens)
    span = np.int64(values.max(initial=0)) + 2
    raised: Ints = np.maximum.accumulate(values + group * span)
    return raised - group * span
