"""Timeline of a schedule: every slice of every transfer in a run, and its cause, in columns.

:func:`~.schedule_time.simulate` gives first starts and last arrivals of transfers; pictures
and traces need all of them, what each one held and until when, and whose arrival it waited for.
The rule is the one documented in :mod:`.schedule_time`.

>>> from weft.dsl.nouns.collective import make
>>> from weft.dsl.nouns.schedule import Schedule, Transfer
>>> from weft.dsl.nouns.topology import Topology, both_ways, gpu
>>> pair = Topology("pair", (gpu(0), gpu(1)), both_ways(0, 1, 25, "0.7"))
>>> both = [Transfer(r, r, 1 - r, (r,)) for r in range(2)]
>>> run = timeline(Schedule.of(pair, make("allgather", 2), both), 1_000_000)
>>> run.end_us.tolist(), run.held_row.tolist(), run.held_until_us.tolist()
([20.7, 20.7], [0, 1], [20.0, 20.0])
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from weft.dsl.base.arrays import Floats, Ints
from weft.dsl.base.errors import UserError
from weft.dsl.base.kept import kept
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.unique_rows import rows_of
from weft.dsl.nouns.schedule import Schedule

from . import queue_kernel as q
from . import schedule_kernel as k
from .moves import Movements, QueuedRows, movements_of, moves_of
from .schedule_tables import Waits, prepare, ticks_us

MOST_PASSAGES = 200_000
"""Of more transfers times slices nothing is drawn: a picture of them could not be read."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Timeline:
    """Timeline of a schedule. A **passage** is one slice of one transfer on its whole route, or of
    one leg of a cast. Passage ``k * len(moves) + i`` is slice k of movement i.

    ``feeds`` leads from each arrival to the first passage it is needed by, and to each passage from
    its cause. Legs out of a switch start while those into it arrive: these are not listed.
    """

    schedule: Schedule
    message_bytes: int
    moves: Movements
    time_us: float  # until the last arrival
    move: Ints  # movement of each passage
    slice: Ints  # its slice
    bytes: Floats  # what it carries
    ready_us: Floats  # when its data was there (and the slice before it had left)
    start_us: Floats
    left_us: Floats  # when it had left its source
    end_us: Floats  # when it had arrived: the α of all its route later
    held_start: Ints  # (passages + 1,): of the next two columns, those of each passage
    held_row: Ints  # resources (links, then shared ones) that it held from its start
    held_until_us: Floats
    cause: Ints  # passage whose arrival it waited for last; -1: its data was there at the start
    feeds: Ints  # (n, 2): an arrival, and a later passage that needed it

    def __len__(self) -> int:
        return len(self.move)


@kept()
def timeline(schedule: Schedule, message_bytes: int) -> Timeline:
    """Run a verified schedule for a message of M bytes and keep everything. Some 20 µs a passage.

    By the default rule only. For another ``CostModel`` use ``Simulation.start_us`` and ``end_us``
    with ``movements_of(schedule).placed``.

    Raises:
        UserError: a size below one byte, or more than ``MOST_PASSAGES`` passages.
    """
    passages = schedule.moves * schedule.segments
    if message_bytes < 1:
        raise UserError(f"a message of {message_bytes} bytes cannot be simulated")
    if passages > MOST_PASSAGES:
        raise UserError(
            f"{passages:,} slices of transfers are more than the {MOST_PASSAGES:,} that a timeline "
            "holds",
            hint="`weft simulate` tells the time; a smaller schedule can be drawn",
        )
    queue, run = prepare(schedule).queue, prepare(schedule).exact(message_bytes)
    which = queue.routes.which.tolist() * schedule.segments  # cut-through: a route is one leg
    moves, count = movements_of(schedule), schedule.moves
    feeding = _feeding(moves_of(schedule)) if len(schedule.casts) else {}
    start, pace = run.column("jobs", q.KEY), run.column("transfers", k.PACE)
    leaves, arrives = run.column("legs", q.LEAVES), run.column("legs", q.ARRIVES)
    # Of each passage: from its start until it has left, unless it waits, and from then to its end.
    lasts = [max(leaves[leg], pace[i % count]) for i, leg in enumerate(which)]
    late = [arrives[leg] - leaves[leg] for leg in which]
    left = [a + b for a, b in zip(start, lasts, strict=True)]
    end = [a + b for a, b in zip(left, late, strict=True)]
    for job, before in _meetings(feeding, count, schedule.segments):
        left[job] = max(left[job], *(end[i] for i in before))  # behind those that it is made of
        end[job] = left[job] + late[job]
    cause, feeds = _causes(queue.waits, schedule.segments, start, end)
    ready = [0 if c < 0 else end[c] for c in cause]
    for job, before in _meetings(feeding, count, schedule.segments):
        ready[job] = max(start[i] + late[i] for i in before)  # the first bytes of all are there
    for job in range(count, len(ready)):
        ready[job] = max(ready[job], start[job - count] + lasts[job - count])
    if feeding:
        feeds = feeds[~np.isin(feeds[:, 1] % count, list(feeding))]
    grains = np.tile(schedule.collective.grains[moves.chunk], schedule.segments)
    per_grain = message_bytes / (schedule.collective.message_chunks * schedule.segments)
    held_start, held = rows_of(queue.routes.row_start, np.array(which, np.int64))
    owner, ticks = (
        np.repeat(np.arange(len(which)), np.diff(held_start)),
        run.column("holds", q.TICKS),
    )
    return Timeline(
        schedule=schedule,
        message_bytes=message_bytes,
        moves=moves,
        time_us=max(end, default=0) / run.unit,
        move=np.tile(np.arange(count), schedule.segments),
        slice=np.repeat(np.arange(schedule.segments), count),
        bytes=np.asarray(grains * per_grain, np.float64),
        ready_us=ticks_us(ready, run.unit),
        start_us=ticks_us(start, run.unit),
        left_us=ticks_us(left, run.unit),
        end_us=ticks_us(end, run.unit),
        held_start=held_start,
        held_row=queue.routes.rows[held],
        held_until_us=ticks_us(
            (start[job] + ticks[i] for job, i in zip(owner.tolist(), held.tolist(), strict=True)),
            run.unit,
        ),
        cause=np.array(cause, np.int64),
        feeds=feeds,
    )


def _meetings(
    feeding: dict[int, list[int]], count: int, slices: int
) -> Iterator[tuple[int, list[int]]]:
    for turn in range(slices):
        for i in sorted(feeding):
            yield turn * count + i, [turn * count + f for f in feeding[i]]


def _feeding(m: QueuedRows) -> dict[int, list[int]]:
    """Return, for each leg out of a switch, the legs that meet there."""
    into: dict[int, list[int]] = {}
    for row in np.flatnonzero(m.feeds).tolist():
        into.setdefault(int(m.target[row]), []).append(row)
    return {row: into[int(m.source[row])] for row in np.flatnonzero(m.joins).tolist()}


def _causes(waits: Waits, slices: int, start: list[int], end: list[int]) -> tuple[list[int], Ints]:
    """The latest of the arrivals that each job needs (of equals the first), and the (n, 2) needs.

    A job needs a prefix of the arrivals at its source, so one pass over them gives the latest of
    every prefix. Slices are alike: what a slice needs are arrivals of that slice.
    """
    count, slots = len(waits.source), int(waits.slot_start[-1])
    brought = np.full(slots, -1, np.int64)  # by slot the transfer; only those that are needed
    read = np.flatnonzero(waits.slot >= 0)
    brought[waits.slot_start[waits.target[read]] + waits.slot[read]] = read
    first, by_slot = waits.slot_start.tolist(), brought.tolist()
    source, needs = waits.source.tolist(), waits.needs.tolist()
    cause: list[int] = []
    for base in (turn * count for turn in range(slices)):
        latest = [base + i for i in by_slot]
        for begin, stop in pairwise(first):
            for slot in range(begin + 1, stop):
                if by_slot[slot] < 0 or end[latest[slot]] <= end[latest[slot - 1]]:
                    latest[slot] = latest[slot - 1]
        cause += [
            latest[first[place] + need - 1] if need else -1
            for place, need in zip(source, needs, strict=True)
        ]
    pairs = {(before, job) for job, before in enumerate(cause) if before >= 0}
    unread = [first[:-1] for _ in range(slices)]  # by place: the first arrival not needed yet
    for job in sorted(range(len(cause)), key=lambda job: (needs[job % count], start[job])):
        turn, i = divmod(job, count)
        place, stop = source[i], first[source[i]] + needs[i]
        pairs.update((turn * count + by_slot[s], job) for s in range(unread[turn][place], stop))
        unread[turn][place] = max(unread[turn][place], stop)
    return cause, np.array(sorted(pairs), np.int64).reshape(-1, 2)
