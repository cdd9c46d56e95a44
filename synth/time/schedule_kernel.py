"""The event loop of schedules: transfers that wait for data, then for all that they occupy.

A kernel over one memory (:mod:`.queue_kernel`). A **job** is a slice of a transfer, and a client of
the queues; jobs are numbered slice by slice. It gets ready when its source holds that slice and
the slice before it has left. A **place** is a chunk on a rank: a job waits for a prefix of the
arrivals at its source, in their order by step. A leg of a cast is a transfer here, and a switch
within a cast a place: what a leg brings there counts as soon as its first byte is there, and what
leaves has arrived when the last byte of all of them has. The little work per job makes this fast:
an arrival has an event only if a job reads it.

Events are about a resource (it is free), a job (it gets ready), or ``-job`` (it has passed a leg).
"""

from __future__ import annotations

from typing import Any

from weft.dsl.base.jit import Array, kernel

from .queue_kernel import (
    ARRIVES,
    CLIENT_COLUMNS,
    EVENTS,
    EVENTS_AT,
    HEADS,
    HEADS_AT,
    KEY,
    LEAVES,
    LEG,
    LEG_COLUMNS,
    NOW,
    PLACE,
    QUEUE,
    QUEUE_COUNTS,
    TIME,
    add_head,
    next_started,
    pop,
    push,
)

# Words after those of the queues. TRANSFERS, SLICES, PLACES, SLOTS, STEPS: numbers of things; of
# SLOTS in one slice, of STEPS (with barriers) at most 0 without. PLANNED: 1 if priorities count;
# STRIDE: what each slice adds to them. FLYING: messages on their way that have events. OPEN: steps
# that may start. BESIDE: most events at a time beside those. LIMIT: the tick at which a run is
# given up, -1: never.
TRANSFERS, SLICES, PLACES, SLOTS, STEPS, PLANNED, STRIDE = range(QUEUE_COUNTS, QUEUE_COUNTS + 7)
FLYING, OPEN, BESIDE, LIMIT = range(QUEUE_COUNTS + 7, QUEUE_COUNTS + 11)
# Where tables begin. SLOTS_AT: a word for each slot of each slice, 1: arrived. PROGRESS_AT: records
# of the places of each slice. JOBS_AT: records of jobs, slice by slice.
TRANSFERS_AT, PLACES_AT, READERS_AT, STEPS_AT = range(QUEUE_COUNTS + 11, QUEUE_COUNTS + 15)
SLOTS_AT, PROGRESS_AT, JOBS_AT = range(QUEUE_COUNTS + 15, QUEUE_COUNTS + 18)
# Of casts. MEETINGS: switches within them; FIRST_MEETING: the first place that is one, all later
# ones are. MEETINGS_AT: a word for each slice and switch, the tick at which the last byte of all
# legs so far is there.
MEETINGS, FIRST_MEETING, MEETINGS_AT = range(QUEUE_COUNTS + 18, QUEUE_COUNTS + 21)
COUNTS = QUEUE_COUNTS + 21

# Of transfers. FIRST_LEG, END_LEG: addresses of its legs, which are passed one after the other.
# SOURCE, TARGET: places. NEEDS: how many of the arrivals at the source are waited for, by their
# slots. SLOT: the number among those at the target, -1: no transfer waits for it. STEP: with
# barriers. PRIORITY: the planned turn of slice 0.
FIRST_LEG, END_LEG, SOURCE, TARGET, NEEDS, SLOT, STEP, PRIORITY = range(8)
# STARTED: slices that have started, in their order. LEFT_AT: the tick at which the last of these
# has left its first leg. START: of the first slice; END: the last arrival of all, 0 before.
STARTED, LEFT_AT, START, END = range(8, 12)
# Of legs of casts. JOINS: 1 if it starts at a switch. GOES_ON: ticks from its start until what it
# brings to a switch may go on; WHOLE, not before all of it is there; ARRIVED, of what ends at a
# rank. PACE: ticks until it has left at least, though what it holds may be free before.
JOINS, GOES_ON, PACE = range(12, 15)
TRANSFER_COLUMNS = 15
WHOLE, ARRIVED = range(-2, 0)
# Of places: where their slots and their readers (numbers of transfers, ascending by NEEDS) begin;
# one record more ends the last ones.
SLOT_BEGIN, READER_BEGIN = range(2)
PLACE_COLUMNS = 2
# Of places in a slice. KNOWN: arrivals without a gap, from slot 0; WOKEN: readers that have them.
KNOWN, WOKEN = range(2)
PROGRESS_COLUMNS = 2
FIRST, LEFT = range(2)  # of steps (with barriers): the first transfer; jobs not yet arrived
STEP_COLUMNS = 2

NAMED = (("transfers", FIRST_LEG, "legs"), ("transfers", END_LEG, "legs"))
"""Columns that name records of another table (:func:`.queue_kernel.placed`)."""

BEGINS = {
    TRANSFERS_AT: "transfers",
    PLACES_AT: "places",
    READERS_AT: "readers",
    STEPS_AT: "steps",
    SLOTS_AT: "slots",
    PROGRESS_AT: "progress",
    MEETINGS_AT: "meetings",
    JOBS_AT: "jobs",
    HEADS_AT: "heads",
    EVENTS_AT: "events",
}
"""Words that say where a table begins; the first one is of rows, behind all such words."""

# A job is a client whose LEG is 0 until its data is there. KEY: when it got ready (or its planned
# turn), and once it has started, when.

ENDED, LATE, FULL = range(3)
"""Why the loop came back: all is done; it would end after LIMIT; more room for events is needed."""


@kernel
def begin(m: Array) -> None:
    """Make ready all jobs that are ready at time 0."""
    if m[STEPS] > 0:
        open_steps(m)
    else:
        for at in range(m[PLACES] * m[SLICES]):
            wake(m, at)


@kernel
def run(m: Array) -> int:
    """Go on until all jobs have arrived; call again with more room, if room is missing."""
    heap = m[EVENTS_AT]
    while True:
        while m[HEADS] > 0:
            if heap + 2 * (m[FLYING] + m[BESIDE] + 1) > len(m):
                return FULL
            job = next_started(m)
            if job >= 0:
                start(m, job)
        if m[EVENTS] == 0:
            return ENDED
        now = m[heap + TIME]
        m[NOW] = now
        if m[LIMIT] >= 0 and now >= m[LIMIT]:
            return LATE
        while m[EVENTS] > 0 and m[heap + TIME] == now:
            what = pop(m)
            if what < 0:
                arrive(m, -what)
            elif what < m[JOBS_AT]:
                add_head(m, m[what + QUEUE], what)
            else:
                get_ready(m, what)


# --- data ---


@kernel
def transfer_of(m: Array, job: int) -> Any:
    """The transfer that a job is a slice of."""
    number = (job - m[JOBS_AT]) // CLIENT_COLUMNS % m[TRANSFERS]
    return m[TRANSFERS_AT] + number * TRANSFER_COLUMNS


@kernel
def slice_of(m: Array, job: int) -> Any:
    """The number of a job's slice."""
    return (job - m[JOBS_AT]) // CLIENT_COLUMNS // m[TRANSFERS]


@kernel
def arrive(m: Array, job: int) -> None:
    """A message has passed a leg: it goes on, or its data is at the target."""
    m[FLYING] -= 1
    transfer = transfer_of(m, job)
    if m[job + LEG] + LEG_COLUMNS < m[transfer + END_LEG]:
        m[job + LEG] += LEG_COLUMNS
        get_ready(m, job)
    elif m[STEPS] > 0:
        m[m[STEPS_AT] + STEP_COLUMNS * m[transfer + STEP] + LEFT] -= 1
        open_steps(m)
    elif m[transfer + SLOT] >= 0:
        note(m, transfer, slice_of(m, job))


@kernel
def note(m: Array, transfer: int, turn: int) -> None:
    """Note an arrival, and wake readers if more of them have come without a gap."""
    slot = m[transfer + SLOT]
    place = m[PLACES_AT] + PLACE_COLUMNS * m[transfer + TARGET]
    first = m[place + SLOT_BEGIN]
    length = m[place + PLACE_COLUMNS + SLOT_BEGIN] - first
    slots = m[SLOTS_AT] + turn * m[SLOTS] + first
    m[slots + slot] = 1
    at = turn * m[PLACES] + m[transfer + TARGET]
    progress = m[PROGRESS_AT] + PROGRESS_COLUMNS * at
    if m[progress + KNOWN] == slot:
        while slot < length and m[slots + slot] == 1:
            slot += 1
        m[progress + KNOWN] = slot
        wake(m, at)


@kernel
def wake(m: Array, at: int) -> None:
    """The readers of a place (of a slice) whose data is there now have it."""
    turn, place = at // m[PLACES], m[PLACES_AT] + PLACE_COLUMNS * (at % m[PLACES])
    progress = m[PROGRESS_AT] + PROGRESS_COLUMNS * at
    first, end = m[place + READER_BEGIN], m[place + PLACE_COLUMNS + READER_BEGIN]
    reader, known = first + m[progress + WOKEN], m[progress + KNOWN]
    while reader < end:
        number = m[m[READERS_AT] + reader]
        transfer = m[TRANSFERS_AT] + number * TRANSFER_COLUMNS
        if m[transfer + NEEDS] > known:
            break
        has_data(m, transfer, number, turn)
        reader += 1
    m[progress + WOKEN] = reader - first


@kernel
def open_steps(m: Array) -> None:
    """With barriers: the next steps have their data, while all that came before has arrived."""
    step = m[STEPS_AT] + STEP_COLUMNS * m[OPEN]
    while m[OPEN] < m[STEPS] and (m[OPEN] == 0 or m[step - STEP_COLUMNS + LEFT] == 0):
        m[OPEN] += 1
        for turn in range(m[SLICES]):
            for number in range(m[step + FIRST], m[step + STEP_COLUMNS + FIRST]):
                has_data(m, m[TRANSFERS_AT] + number * TRANSFER_COLUMNS, number, turn)
        step += STEP_COLUMNS


@kernel
def has_data(m: Array, transfer: int, number: int, turn: int) -> None:
    """The data of a slice is there: it is ready as soon as the slice before has left."""
    job = m[JOBS_AT] + CLIENT_COLUMNS * (turn * m[TRANSFERS] + number)
    m[job + LEG] = m[transfer + FIRST_LEG]
    if m[transfer + STARTED] != turn:
        return
    if m[transfer + LEFT_AT] <= m[NOW]:
        get_ready(m, job)
    else:
        push(m, m[transfer + LEFT_AT], job)


@kernel
def get_ready(m: Array, job: int) -> None:
    """A job may start as soon as its resources are free."""
    m[job + KEY] = m[NOW]
    if m[PLANNED] > 0:
        m[job + KEY] = m[transfer_of(m, job) + PRIORITY] + slice_of(m, job) * m[STRIDE]
    m[job + PLACE] = job
    add_head(m, job, -1)


# --- messages ---


@kernel
def start(m: Array, job: int) -> None:
    """A job starts on a leg: push the events of its leaving and arriving, if any job needs them."""
    now, leg, transfer = m[NOW], m[job + LEG], transfer_of(m, job)
    m[job + KEY] = now
    slower = max(m[transfer + PACE] - m[leg + LEAVES], 0)
    if leg == m[transfer + FIRST_LEG]:
        leave(m, job, transfer, now + m[leg + LEAVES] + slower)
    arrival = now + m[leg + ARRIVES] + slower
    if m[transfer + JOINS] > 0:
        # Of unequal rates the slowest leg's: α after its last byte has come to the switch.
        last_byte = m[meeting(m, job, m[transfer + SOURCE])]
        arrival = max(arrival, last_byte + m[leg + ARRIVES] - m[leg + LEAVES])
    last = leg + LEG_COLUMNS == m[transfer + END_LEG]
    if last and arrival > m[transfer + END]:
        m[transfer + END] = arrival
    if m[transfer + GOES_ON] != ARRIVED:
        there = meeting(m, job, m[transfer + TARGET])
        m[there] = max(m[there], arrival)
        if m[transfer + GOES_ON] != WHOLE:
            arrival = now + m[transfer + GOES_ON]
    if not last or m[transfer + SLOT] >= 0 or m[STEPS] > 0:
        m[FLYING] += 1
        push(m, arrival, -job)


@kernel
def meeting(m: Array, job: int, place: int) -> Any:
    """The word of a switch within a cast, for the slice of a job."""
    turn = slice_of(m, job)
    return m[MEETINGS_AT] + turn * m[MEETINGS] + place - m[FIRST_MEETING]


@kernel
def leave(m: Array, job: int, transfer: int, leaves: int) -> None:
    """A slice starts; the next one may follow when this one has left."""
    turn = slice_of(m, job)
    if turn == 0:
        m[transfer + START] = m[NOW]
    m[transfer + STARTED] = turn + 1
    m[transfer + LEFT_AT] = leaves
    following = job + CLIENT_COLUMNS * m[TRANSFERS]
    if turn + 1 < m[SLICES] and m[following + LEG] > 0:
        push(m, leaves, following)
