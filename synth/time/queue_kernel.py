"""Queues for shared resources: first come first served; a client that must wait blocks no other.

The rule of all simulations, as a kernel (:mod:`weft.dsl.base.jit`): plain Python on a list, or
compiled on an array of 64-bit integers. The modules with event loops of their own (schedules,
programs, scripts) decide when clients get ready; this one decides when they start.

Everything lies in one array *m*, the memory. Records are named by where they begin, so that
``m[row + FREE_AT]`` is when a row is free. One array because numba counts the references of every
array that a function is given, which took most of the time.

* A **row** is a resource: a link or a shared one. It has an event only if a client queues for it.
* A **client** is a message, which needs rows. One that must wait is in the queue of *one* row of
  its leg, the one that is free last, which is when it could start at the earliest. Queues are
  pairing heaps (Fredman, Sedgewick, Sleator, Tarjan, Algorithmica 1986) linked through the clients;
  a client is in one of them at most.
* A **leg** is what a client holds, all from the same start, each row for its own time.
* **Heads** are the clients that are tried now, in order of precedence: those that got ready, and
  the first of the queue of each row that was freed.

Times are whole ticks, so equal times are equal; ties go by a client's place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from weft.dsl.base.arrays import AnyArray, Ints
from weft.dsl.base.jit import Array, kernel

# The first words of the memory. NOW: the clock in ticks, which never goes back. EVENTS, HEADS: how
# many there are. EVENTS_AT, HEADS_AT: where their heaps begin; events end with the memory, so that
# it can be made longer. LOOKS: at clients, so far, as a measure of work.
NOW, EVENTS, HEADS, EVENTS_AT, HEADS_AT, LOOKS = range(6)
QUEUE_COUNTS = 6

# Of rows. FREE_AT: the tick from which it is free; not after NOW if it is. QUEUE: the first of the
# clients that queue for it, -1: none; then there is an event at FREE_AT. BUSY: ticks held, in all.
FREE_AT, QUEUE, BUSY = range(3)
ROW_COLUMNS = 3
# Of clients. KEY, PLACE: the order of service is by KEY, then by PLACE (which no two share); both
# may change only while the client is in no queue. CHILD, SIBLING: clients below and beside it in a
# pairing heap, -1: none, as in no queue. LEG: the address of the leg that it wants or holds.
KEY, PLACE, CHILD, SIBLING, LEG = range(5)
CLIENT_COLUMNS = 5
# Of legs. HOLD_BEGIN, HOLD_END: its holds, one row at most once. LEAVES: ticks until a message has
# left (the longest hold, or more); ARRIVES: until it has arrived, LEAVES at least.
HOLD_BEGIN, HOLD_END, LEAVES, ARRIVES = range(4)
LEG_COLUMNS = 4
ROW, TICKS = range(2)  # of holds: the address of a row, and for how many ticks; 1 at least
HOLD_COLUMNS = 2
# Of events, a heap by TIME. TIME: the tick, NOW at least. WHAT: what happens, for the loop to know;
# the address of a row means that it is free.
TIME, WHAT = range(2)
EVENT_COLUMNS = 2
# Of heads, a heap by (KEY, PLACE) of the client. HEAD_ROW: the row that was freed, whose first the
# client is; -1: it got ready.
HEAD_KEY, HEAD_PLACE, HEAD_CLIENT, HEAD_ROW = range(4)
HEAD_COLUMNS = 4

NAMED = (
    ("holds", ROW, "rows"),
    ("legs", HOLD_BEGIN, "holds"),
    ("legs", HOLD_END, "holds"),
)
"""Columns that name records of another table: its table, the column, the other table."""


def placed(
    counts: int, tables: Mapping[str, AnyArray], named: Iterable[tuple[str, int, str]]
) -> tuple[AnyArray, dict[str, range]]:
    """A memory of tables behind ``counts`` words, and the addresses of the records of each table.

    ``named``: columns with numbers of records of another table (-1: none), as :data:`NAMED` has
    them, which become addresses. Integers are Python's if some table's are.
    """
    words = np.concatenate([np.zeros(counts, np.int64), *(x.ravel() for x in tables.values())])
    where, at = {}, counts
    for name, table in tables.items():
        where[name] = range(at, at + table.size, table.shape[1] if table.ndim > 1 else 1)
        at += table.size
    for name, column, other in named:
        here, there = where[name], where[other]
        numbers = words[here.start + column : here.stop : here.step]
        numbers[:] = np.where(numbers < 0, -1, there.start + numbers * there.step)
    return words, where


def idle_rows(count: int) -> Ints:
    """Resources that are free, and that no client queues for; shape (rows, columns)."""
    return np.tile(np.array([0, -1, 0]), (count, 1))


def memory_of(
    rows: int, legs: tuple[AnyArray, AnyArray, AnyArray], ends: AnyArray, leg: Ints, events: int
) -> tuple[AnyArray, int]:
    """A memory of rows, legs and clients alone, and where its clients begin.

    ``legs``: (first, row, ticks), leg i holds ``row[first[i]:first[i+1]]``; ``ends``, shape
    (legs, 2): until a message has left and arrived; ``leg``: of each client, whose place is its
    number. ``events``: beside those of rows, how many there are at a time.
    """
    first, row, ticks = legs
    clients = np.full((len(leg), CLIENT_COLUMNS), -1, np.int64)
    clients[:, KEY], clients[:, PLACE], clients[:, LEG] = 0, np.arange(len(leg)), leg
    tables = {
        "rows": idle_rows(rows),
        "holds": np.stack([row, ticks], axis=1),
        "legs": np.column_stack([first[:-1], first[1:], ends]),
        "clients": clients,
        "heads": np.zeros((len(leg) + rows + 1, HEAD_COLUMNS), np.int64),
        "events": np.zeros((events + rows + 1, EVENT_COLUMNS), np.int64),
    }
    words, where = placed(QUEUE_COUNTS, tables, (*NAMED, ("clients", LEG, "legs")))
    words[[HEADS_AT, EVENTS_AT]] = where["heads"].start, where["events"].start
    return words, where["clients"].start


def longer(m: Any) -> Any:
    """The memory with twice the room for events."""
    room = len(m) - int(m[EVENTS_AT])
    return m + [0] * room if isinstance(m, list) else np.concatenate([m, np.zeros(room, m.dtype)])


@kernel
def next_started(m: Array) -> Any:
    """Let the next client start, which holds its rows from now on; -1: no other can start now."""
    now, started = m[NOW], -1
    while m[HEADS] > 0 and started < 0:
        head = m[HEADS_AT]
        client, row = m[head + HEAD_CLIENT], m[head + HEAD_ROW]
        drop_head(m)
        if row >= 0:
            if m[row + FREE_AT] > now:
                continue
            m[row + QUEUE] = without_first(m, client)
        if holds_all(m, client):
            started = client
        if row >= 0 and m[row + QUEUE] >= 0 and m[row + FREE_AT] <= now:
            add_head(m, m[row + QUEUE], row)
    return started


@kernel
def holds_all(m: Array, client: int) -> bool:
    """Take all rows of a client's leg if they are free, else queue for the one free last."""
    m[LOOKS] += 1
    now, leg = m[NOW], m[client + LEG]
    begin, end = m[leg + HOLD_BEGIN], m[leg + HOLD_END]
    latest, taken = now, -1
    for hold in range(begin, end, HOLD_COLUMNS):
        free = m[m[hold + ROW] + FREE_AT]
        if free > latest:
            latest, taken = free, m[hold + ROW]
    if taken >= 0:
        first = m[taken + QUEUE]
        if first < 0:
            push(m, latest, taken)
            m[taken + QUEUE] = client
        else:
            m[taken + QUEUE] = meld(m, first, client)
        return False
    for hold in range(begin, end, HOLD_COLUMNS):
        row, ticks = m[hold + ROW], m[hold + TICKS]
        m[row + BUSY] += ticks
        m[row + FREE_AT] = now + ticks
        if m[row + QUEUE] >= 0:
            push(m, now + ticks, row)
    return True


# --- binary heaps: events by time, heads by precedence ---


@kernel
def push(m: Array, time: int, what: int) -> None:
    """Add an event."""
    heap = m[EVENTS_AT]
    at = heap + EVENT_COLUMNS * m[EVENTS]
    m[EVENTS] += 1
    while at > heap:
        above = heap + ((((at - heap) >> 1) - 1) >> 1 << 1)
        if m[above + TIME] <= time:
            break
        m[at + TIME], m[at + WHAT] = m[above + TIME], m[above + WHAT]
        at = above
    m[at + TIME], m[at + WHAT] = time, what


@kernel
def pop(m: Array) -> Any:
    """Take the earliest event out; return its subject."""
    heap = at = m[EVENTS_AT]
    first = m[heap + WHAT]
    m[EVENTS] -= 1
    last, below = heap + EVENT_COLUMNS * m[EVENTS], heap + EVENT_COLUMNS
    time = m[last + TIME]
    while below < last:
        other, earliest = below + EVENT_COLUMNS, m[below + TIME]
        if other < last and m[other + TIME] < earliest:
            below, earliest = other, m[other + TIME]
        if earliest >= time:
            break
        m[at + TIME], m[at + WHAT] = earliest, m[below + WHAT]
        at, below = below, 2 * below - heap + EVENT_COLUMNS
    m[at + TIME], m[at + WHAT] = time, m[last + WHAT]
    return first


@kernel
def add_head(m: Array, client: int, row: int) -> None:
    """Put a client among those that are tried now: for a freed row, or (-1) as it got ready."""
    heap = m[HEADS_AT]
    at = heap + HEAD_COLUMNS * m[HEADS]
    m[HEADS] += 1
    key, place = m[client + KEY], m[client + PLACE]
    while at > heap:
        above = heap + ((((at - heap) >> 2) - 1) >> 1 << 2)
        one = m[above + HEAD_KEY]
        if one < key or (one == key and m[above + HEAD_PLACE] <= place):
            break
        m[at + HEAD_KEY], m[at + HEAD_PLACE] = one, m[above + HEAD_PLACE]
        m[at + HEAD_CLIENT], m[at + HEAD_ROW] = m[above + HEAD_CLIENT], m[above + HEAD_ROW]
        at = above
    m[at + HEAD_KEY], m[at + HEAD_PLACE] = key, place
    m[at + HEAD_CLIENT], m[at + HEAD_ROW] = client, row


@kernel
def drop_head(m: Array) -> None:
    """Take the first head out; like :func:`add_head` without helpers, for it is called most."""
    m[HEADS] -= 1
    at = m[HEADS_AT]
    last = at + HEAD_COLUMNS * m[HEADS]
    below = at + HEAD_COLUMNS
    if last == at:
        return
    key, place = m[last + HEAD_KEY], m[last + HEAD_PLACE]
    while below < last:
        other, one = below + HEAD_COLUMNS, m[below + HEAD_KEY]
        if other < last:
            two = m[other + HEAD_KEY]
            if two < one or (two == one and m[other + HEAD_PLACE] < m[below + HEAD_PLACE]):
                below, one = other, two
        if one > key or (one == key and m[below + HEAD_PLACE] > place):
            break
        m[at + HEAD_KEY], m[at + HEAD_PLACE] = one, m[below + HEAD_PLACE]
        m[at + HEAD_CLIENT], m[at + HEAD_ROW] = m[below + HEAD_CLIENT], m[below + HEAD_ROW]
        at, below = below, 2 * below - m[HEADS_AT] + HEAD_COLUMNS
    m[at + HEAD_KEY], m[at + HEAD_PLACE] = key, place
    m[at + HEAD_CLIENT], m[at + HEAD_ROW] = m[last + HEAD_CLIENT], m[last + HEAD_ROW]


# --- pairing heaps: the queues ---


@kernel
def meld(m: Array, one: Any, other: Any) -> Any:
    """One pairing heap of two, by their first clients."""
    if m[other + KEY] == m[one + KEY]:
        swap = m[other + PLACE] < m[one + PLACE]
    else:
        swap = m[other + KEY] < m[one + KEY]
    if swap:
        one, other = other, one
    m[other + SIBLING] = m[one + CHILD]
    m[one + CHILD] = other
    return one


@kernel
def without_first(m: Array, first: Any) -> Any:
    """A pairing heap without its first: the children melded in pairs, then from the last one."""
    one = m[first + CHILD]
    m[first + CHILD] = -1
    pairs = one * 0 - 1  # minus one, of the type that the compiler sees in m
    while one >= 0:
        other, following = m[one + SIBLING], one * 0 - 1
        m[one + SIBLING] = -1
        if other >= 0:
            following = m[other + SIBLING]
            m[other + SIBLING] = -1
            one = meld(m, one, other)
        m[one + SIBLING] = pairs
        pairs, one = one, following
    merged = pairs * 0 - 1
    while pairs >= 0:
        following = m[pairs + SIBLING]
        m[pairs + SIBLING] = -1
        merged = pairs if merged < 0 else meld(m, merged, pairs)
        pairs = following
    return merged
