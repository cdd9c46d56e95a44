"""The event loop of :mod:`weft.synth.time.serve`, compiled, on arrays of 64-bit ticks.

The same rule and the same result, for millions of jobs. What differs is how little happens per
job: a row has an event only if somebody waits for it, an arrival only if somebody reads it, and
a job waits for that one of its rows which is free last. Jobs are numbered slice by slice; what a
job needs follows from its transfer, so that only a few words per job are kept. Those who wait for
a row are a pairing heap (Fredman, Sedgewick, Sleator, Tarjan 1986) linked through two of them.

Tables have one row per thing and a named column per number: what belongs together is read
together, and functions get few arrays. Loaded lazily by :mod:`.prepare`, since numba takes its
time to load.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from weft.dsl.base.jit import Array, compiled

# Columns of the table of transfers. Legs are passed one after the other; NEEDS: how many of the
# arrivals at the source, in their order, are waited for; SLOT: the number among those at the
# target, -1 if nobody waits for it; STARTED and LEFT_AT: slices started, and when the last left.
FIRST_LEG, LAST_LEG, SOURCE, TARGET, NEEDS, SLOT, STEP, PRIORITY = range(8)
STARTED, LEFT_AT, START, END = range(8, 12)
TRANSFER_COLUMNS = 12
# Of legs: their part of the table of holds, and until a message has left and arrived.
HOLD_BEGIN, HOLD_END, LEAVES, ARRIVES = range(4)
ROW, TICKS = range(2)  # of holds
FREE_AT, QUEUE, BUSY = range(3)  # of rows: when it is free, who waits first (-1), ticks held
SLOT_BEGIN, READER_BEGIN = range(2)  # of places: where their slots and readers begin
KNOWN, WOKEN = range(2)  # of places in a slice: arrivals of the prefix, readers told
CHILD, SIBLING = range(2)  # of jobs
TIME, CODE = range(2)  # of events
# What is counted: events, who is looked at now, messages on their way that somebody waits for,
# steps that may start (with barriers); then what is given.
EVENTS, HEADS, FLYING, OPEN = range(4)
TRANSFERS, SLICES, ROWS, PLANNED, STRIDE, PLACES, SLOTS, STEPS, SEVERAL = range(4, 13)

LATEST = 1 << 62
"""No tick is later; a run that gets there is given up."""


class Work(NamedTuple):
    """What is to be done.

    Attributes:
        slices: how often the transfers are repeated.
        transfers, legs, holds: tables, as above.
        rows: how many there are.
        places: table of places, and one row more for the ends.
        readers: the transfers that read a place, by what they need.
        step_start: where each step begins among the transfers; empty without barriers.
        planned, stride: whether priorities count, and what each slice adds to them.
    """

    slices: int
    transfers: Array
    legs: Array
    holds: Array
    rows: int
    places: Array
    readers: Array
    step_start: Array
    planned: bool
    stride: int


def run(work: Work) -> tuple[Array, Array] | None:
    """Run all jobs to the end: the tables of transfers and of rows, filled; None if that would be
    later than ``LATEST``."""
    n, k = len(work.transfers), work.slices
    most = int((work.transfers[:, LAST_LEG] - work.transfers[:, FIRST_LEG]).max(initial=1))
    places, slots = len(work.places) - 1, int(work.places[-1, SLOT_BEGIN])
    count = np.zeros(13, np.int64)
    count[4:] = (
        n,
        k,
        work.rows,
        work.planned,
        work.stride,
        places,
        slots,
        len(work.step_start) - 1,
        most > 1,
    )
    rows = np.zeros((work.rows, 3), np.int64)
    rows[:, QUEUE] = -1
    # At one time a transfer gets ready at most once on each of its legs.
    heads = np.empty((n * most + work.rows + 1, 3), np.int64)
    ended = _run(
        work.transfers,
        work.legs,
        work.holds,
        rows,
        work.places,
        work.readers,
        work.step_start,
        np.diff(work.step_start) * k,
        np.zeros(n * k, np.int64),
        np.full((n * k, 2), -1, np.int32),
        np.zeros(n * k, np.uint8),
        np.zeros(n * k if most > 1 else 1, np.int16),
        np.zeros((places * k, 2), np.int32),
        np.zeros(slots * k, np.uint8),
        heads,
        count,
    )
    return (work.transfers, rows) if ended else None


@compiled
def _run(
    transfers: Array,
    legs: Array,
    holds: Array,
    rows: Array,
    places: Array,
    readers: Array,
    step_start: Array,
    left: Array,
    key: Array,
    link: Array,
    there: Array,
    leg: Array,
    progress: Array,
    arrived: Array,
    heads: Array,
    count: Array,
) -> bool:
    # Beside messages on their way there is one event per row and one per transfer at a time.
    beside = len(transfers) + len(rows) + 2
    events = np.empty((beside + 1024, 2), np.int64)
    jobs = count[TRANSFERS] * count[SLICES]
    now: Any = np.int64(0)
    if count[STEPS] > 0:
        _open(transfers, step_start, left, key, there, events, heads, count, now)
    for at in range(len(progress)):
        _wake(transfers, places, readers, progress, key, there, events, heads, count, at, now)
    while True:
        while count[HEADS]:
            if count[FLYING] + beside + 1 > len(events):
                events = _grown(events)
            row, job = heads[0, 2], heads[0, 1]
            _drop_head(heads, count)
            if row >= 0:
                if rows[row, FREE_AT] > now:
                    continue
                rows[row, QUEUE] = _without_first(key, link, job)
            _try(transfers, legs, holds, rows, key, link, there, leg, events, count, job, now)
            if row >= 0 and rows[row, QUEUE] >= 0 and rows[row, FREE_AT] <= now:
                following = rows[row, QUEUE]
                _look_at(heads, count, key[following], following, row)
        if not count[EVENTS]:
            return True
        now = events[0, TIME]
        if now >= LATEST:
            return False
        while count[EVENTS] and events[0, TIME] == now:
            code = _pop(events, count)
            # A row is freed (its number), then jobs that get ready, then those that arrive.
            if code < count[ROWS]:
                job = rows[code, QUEUE]
                _look_at(heads, count, key[job], job, code)
            elif code < count[ROWS] + jobs:
                _ready(transfers, key, heads, count, code - count[ROWS], now)
            else:
                job = code - count[ROWS] - jobs
                count[FLYING] -= 1
                if _goes_on(transfers, leg, count, job):
                    _ready(transfers, key, heads, count, job, now)
                elif count[STEPS] > 0:
                    left[transfers[job % count[TRANSFERS], STEP]] -= 1
                    _open(transfers, step_start, left, key, there, events, heads, count, now)
                else:
                    at = _noted(transfers, places, progress, arrived, count, job)
                    if at >= 0:
                        _wake(
                            transfers,
                            places,
                            readers,
                            progress,
                            key,
                            there,
                            events,
                            heads,
                            count,
                            at,
                            now,
                        )


@compiled
def _grown(table: Array) -> Any:
    larger = np.empty((2 * len(table), 2), np.int64)
    larger[: len(table)] = table
    return larger


# --- data ---


@compiled
def _goes_on(transfers: Array, leg: Array, count: Array, job: int) -> bool:
    """Whether a message that has passed a leg has more of them before it."""
    if not count[SEVERAL]:
        return False
    i = job % count[TRANSFERS]
    leg[job] += 1
    return bool(transfers[i, FIRST_LEG] + leg[job] < transfers[i, LAST_LEG])


@compiled
def _noted(
    transfers: Array, places: Array, progress: Array, arrived: Array, count: Array, job: int
) -> Any:
    """Note an arrival; the place (of a slice) whose prefix of arrivals is longer now, or -1."""
    turn, i = job // count[TRANSFERS], job % count[TRANSFERS]
    slot = transfers[i, SLOT]
    if slot < 0:
        return -1
    place = transfers[i, TARGET]
    begin = places[place, SLOT_BEGIN]
    length = places[place + 1, SLOT_BEGIN] - begin
    base = turn * count[SLOTS] + begin
    arrived[base + slot] = 1
    at = turn * count[PLACES] + place
    if progress[at, KNOWN] != slot:
        return -1
    while slot < length and arrived[base + slot]:
        slot += 1
    progress[at, KNOWN] = slot
    return at


@compiled
def _wake(
    transfers: Array,
    places: Array,
    readers: Array,
    progress: Array,
    key: Array,
    there: Array,
    events: Array,
    heads: Array,
    count: Array,
    at: int,
    now: int,
) -> None:
    """Tell the readers of a place (of a slice) whose data is there now."""
    turn, place = at // count[PLACES], at % count[PLACES]
    begin, end = places[place, READER_BEGIN], places[place + 1, READER_BEGIN]
    reader, known = begin + progress[at, WOKEN], progress[at, KNOWN]
    while reader < end and transfers[readers[reader], NEEDS] <= known:
        _tell(transfers, key, there, events, heads, count, turn, readers[reader], now)
        reader += 1
    progress[at, WOKEN] = reader - begin


@compiled
def _open(
    transfers: Array,
    step_start: Array,
    left: Array,
    key: Array,
    there: Array,
    events: Array,
    heads: Array,
    count: Array,
    now: int,
) -> None:
    """With barriers: the next steps, while all that came before has arrived."""
    while count[OPEN] < count[STEPS] and (not count[OPEN] or not left[count[OPEN] - 1]):
        step = count[OPEN]
        count[OPEN] += 1
        for turn in range(count[SLICES]):
            for i in range(step_start[step], step_start[step + 1]):
                _tell(transfers, key, there, events, heads, count, turn, i, now)


@compiled
def _tell(
    transfers: Array,
    key: Array,
    there: Array,
    events: Array,
    heads: Array,
    count: Array,
    turn: int,
    i: int,
    now: int,
) -> None:
    """The data of a slice is there: it may go as soon as the slice before has left."""
    job = turn * count[TRANSFERS] + i
    there[job] = 1
    if transfers[i, STARTED] != turn:
        return
    if transfers[i, LEFT_AT] <= now:
        _ready(transfers, key, heads, count, job, now)
    else:
        _push(events, count, transfers[i, LEFT_AT], count[ROWS] + job)


@compiled
def _ready(transfers: Array, key: Array, heads: Array, count: Array, job: int, now: int) -> None:
    if count[PLANNED]:
        turn, i = job // count[TRANSFERS], job % count[TRANSFERS]
        key[job] = transfers[i, PRIORITY] + turn * count[STRIDE]
    else:
        key[job] = now
    _look_at(heads, count, key[job], job, -1)


# --- rows ---


@compiled
def _try(
    transfers: Array,
    legs: Array,
    holds: Array,
    rows: Array,
    key: Array,
    link: Array,
    there: Array,
    leg: Array,
    events: Array,
    count: Array,
    job: int,
    now: int,
) -> None:
    """Start a job if all its rows are free, else let it wait for the one that is free last."""
    turn, i = job // count[TRANSFERS], job % count[TRANSFERS]
    mine = transfers[i, FIRST_LEG]
    if count[SEVERAL]:
        mine += leg[job]
    begin, end = legs[mine, HOLD_BEGIN], legs[mine, HOLD_END]
    latest, blocked = now, -1
    for at in range(begin, end):
        free = rows[holds[at, ROW], FREE_AT]
        if free > latest:
            latest, blocked = free, holds[at, ROW]
    if blocked >= 0:
        first = rows[blocked, QUEUE]
        if first < 0:
            _push(events, count, latest, blocked)
            rows[blocked, QUEUE] = job
        else:
            rows[blocked, QUEUE] = _meld(key, link, first, job)
        return
    for at in range(begin, end):
        row = holds[at, ROW]
        free = now + holds[at, TICKS]
        rows[row, BUSY] += holds[at, TICKS]
        rows[row, FREE_AT] = free
        if rows[row, QUEUE] >= 0:
            _push(events, count, free, row)
    if mine == transfers[i, FIRST_LEG]:
        _leave(transfers, there, events, count, job, turn, i, now, now + legs[mine, LEAVES])
    arrival = now + legs[mine, ARRIVES]
    last = mine + 1 == transfers[i, LAST_LEG]
    if last and arrival > transfers[i, END]:
        transfers[i, END] = arrival
    if not last or transfers[i, SLOT] >= 0 or count[STEPS] > 0:
        count[FLYING] += 1
        jobs = count[TRANSFERS] * count[SLICES]
        _push(events, count, arrival, count[ROWS] + jobs + job)


@compiled
def _leave(
    transfers: Array,
    there: Array,
    events: Array,
    count: Array,
    job: int,
    turn: int,
    i: int,
    now: int,
    leaves: int,
) -> None:
    """A slice starts; the next one may follow when this one has left."""
    if not turn:
        transfers[i, START] = now
    transfers[i, STARTED] = turn + 1
    transfers[i, LEFT_AT] = leaves
    following = job + count[TRANSFERS]
    if turn + 1 < count[SLICES] and there[following]:
        _push(events, count, leaves, count[ROWS] + following)


# --- heaps ---


@compiled
def _push(events: Array, count: Array, time: int, code: int) -> None:
    """An event into the binary heap."""
    at = count[EVENTS]
    count[EVENTS] = at + 1
    while at > 0:
        above = (at - 1) >> 1
        if events[above, TIME] <= time:
            break
        events[at, TIME], events[at, CODE] = events[above, TIME], events[above, CODE]
        at = above
    events[at, TIME], events[at, CODE] = time, code


@compiled
def _pop(events: Array, count: Array) -> Any:
    """The code of the earliest event, which is taken out."""
    first = events[0, CODE]
    size = count[EVENTS] - 1
    count[EVENTS] = size
    time, code = events[size, TIME], events[size, CODE]
    at = 0
    while True:
        below = 2 * at + 1
        if below >= size:
            break
        if below + 1 < size and events[below + 1, TIME] < events[below, TIME]:
            below += 1
        if events[below, TIME] >= time:
            break
        events[at, TIME], events[at, CODE] = events[below, TIME], events[below, CODE]
        at = below
    events[at, TIME], events[at, CODE] = time, code
    return first


@compiled
def _look_at(heads: Array, count: Array, key: int, job: int, row: int) -> None:
    """Put a job among those that are looked at now: for a freed row, or (-1) as it got ready."""
    at = count[HEADS]
    count[HEADS] = at + 1
    while at > 0:
        above = (at - 1) >> 1
        if heads[above, 0] < key or (heads[above, 0] == key and heads[above, 1] < job):
            break
        heads[at, 0], heads[at, 1], heads[at, 2] = heads[above, 0], heads[above, 1], heads[above, 2]
        at = above
    heads[at, 0], heads[at, 1], heads[at, 2] = key, job, row


@compiled
def _drop_head(heads: Array, count: Array) -> None:
    size = count[HEADS] - 1
    count[HEADS] = size
    key, job, row = heads[size, 0], heads[size, 1], heads[size, 2]
    at = 0
    while True:
        below = 2 * at + 1
        if below >= size:
            break
        if below + 1 < size and _before(heads, below + 1, heads[below, 0], heads[below, 1]):
            below += 1
        if not _before(heads, below, key, job):
            break
        heads[at, 0], heads[at, 1], heads[at, 2] = heads[below, 0], heads[below, 1], heads[below, 2]
        at = below
    heads[at, 0], heads[at, 1], heads[at, 2] = key, job, row


@compiled
def _before(heads: Array, at: int, key: int, job: int) -> bool:
    return bool(heads[at, 0] < key or (heads[at, 0] == key and heads[at, 1] < job))


@compiled
def _meld(key: Array, link: Array, one: Any, other: Any) -> Any:
    """Two pairing heaps, made one."""
    if key[other] < key[one] or (key[other] == key[one] and other < one):
        one, other = other, one
    link[other, SIBLING] = link[one, CHILD]
    link[one, CHILD] = other
    return one


@compiled
def _without_first(key: Array, link: Array, first: Any) -> Any:
    """A pairing heap without its first: the children melded in pairs, then from the last one."""
    one = np.int64(link[first, CHILD])
    link[first, CHILD] = -1
    pairs = np.int64(-1)
    while one >= 0:
        other, following = np.int64(link[one, SIBLING]), np.int64(-1)
        link[one, SIBLING] = -1
        if other >= 0:
            following = np.int64(link[other, SIBLING])
            link[other, SIBLING] = -1
            one = _meld(key, link, one, other)
        link[one, SIBLING] = pairs
        pairs, one = one, following
    merged = np.int64(-1)
    while pairs >= 0:
        following = np.int64(link[pairs, SIBLING])
        link[pairs, SIBLING] = -1
        merged = pairs if merged < 0 else _meld(key, link, merged, pairs)
        pairs = following
    return merged
