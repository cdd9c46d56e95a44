"""Pairs of messages of which the second forwards the first: fusion may join them.

From these follows when each message could go at the earliest, and how much depends on it:
MSCCLang's step and priority (longest distance from the start, and to the end), on messages. They
say what the steps of a schedule do not: a schedule may let a message wait though nothing holds it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from weft.dsl.base.arrays import Bools, Ints
from weft.dsl.base.components import strong_components

from .flow import Messages


def forwarded(m: Messages) -> tuple[Ints, Ints]:
    """Pairs of messages: the second forwards the chunk that the first was the last to bring."""

    wide = np.int64(m.chunk.max(initial=0)) + 1
    steps = np.int64(m.step.max(initial=0)) + 2
    arrival = (m.dst * wide + m.chunk) * steps + m.step
    order = np.lexsort((m.turn, arrival))
    departure = (m.src * wide + m.chunk) * steps + m.step
    before = np.searchsorted(arrival[order], departure) - 1
    outgoing = np.flatnonzero(before >= 0)
    incoming = order[before[outgoing]]
    same = arrival[incoming] // steps == departure[outgoing] // steps
    return incoming[same], outgoing[same]


def places_in_step(m: Messages, connection: Ints) -> tuple[Ints, Ints]:
    """Position of each message among those of its step and connection, and how many there are."""
    order = np.lexsort((m.chunk, m.step, connection))
    key = connection * (m.step.max(initial=0) + 1) + m.step
    _, start, inverse, size = np.unique(
        key[order], return_index=True, return_inverse=True, return_counts=True
    )
    position, total = np.empty(len(m), np.int64), np.empty(len(m), np.int64)
    position[order] = np.arange(len(m)) - start[inverse]
    total[order] = size[inverse]
    return position, total


def circular(i: Ints, o: Ints, nodes: int) -> Bools:
    """Mark the edges i → o of a graph that lie on a cycle. Linear (strong components).

    Edges from the connection that brings to the one that sends on: where they lie on no cycle, no
    ring of blocks with full FIFOs can wait for itself.
    """
    part = strong_components(nodes, i, o)
    result: Bools = part[i] == part[o]
    return result


def lone(m: Messages, connection: Ints, depth: int) -> Bools:
    """Mark messages alone in their step and connection, or able to travel with all others there.

    Those others are its neighbours then, and together fewer than ``depth``: a ring of blocks that
    receive and send in one instruction, all with full FIFOs, would wait for ever (see
    :func:`circular`).
    """
    position, total = places_in_step(m, connection)
    key = connection * (m.step.max(initial=0) + 1) + m.step
    _, inverse = np.unique(key, return_inverse=True)
    base = m.chunk - position
    least = np.full(int(inverse.max(initial=-1)) + 1, np.iinfo(np.int64).max)
    most = np.full(len(least), np.iinfo(np.int64).min)
    np.minimum.at(least, inverse, base)
    np.maximum.at(most, inverse, base)
    result: Bools = (total <= max(1, depth - 1)) & (least == most)[inverse]
    return result


def urgency(m: Messages) -> Ints:
    """Return the number of hops that must still follow each message; 0: nothing depends on it."""
    after = np.zeros(len(m), np.int64)
    incoming, outgoing = forwarded(m)
    order = np.argsort(-m.step[outgoing], kind="stable")
    incoming, outgoing = incoming[order], outgoing[order]
    for rows in _runs(m.step[outgoing]):
        np.maximum.at(after, incoming[rows], after[outgoing[rows]] + 1)
    return after


def earliest(m: Messages, connection: Ints) -> tuple[Ints, Ints]:
    """Return the earliest begin and end of each message; a chunk takes a unit of time per hop.

    A message follows all that came earlier for its chunk, and the earlier steps of its connection.
    Those of one step and connection go as one, which they often do in the end.
    """
    wide = np.int64(m.chunk.max(initial=0)) + 1
    source, place = m.src * wide + m.chunk, m.dst * wide + m.chunk
    names, ids = np.unique(np.concatenate([source, place]), return_inverse=True)
    source, place = ids[: len(m)], ids[len(m) :]
    there = np.zeros(len(names), np.int64)  # when a chunk is complete on a rank
    busy = np.zeros(int(connection.max(initial=-1)) + 1, np.int64)
    begin, end = np.zeros(len(m), np.int64), np.zeros(len(m), np.int64)
    _, length = places_in_step(m, connection)
    order = np.argsort(m.step, kind="stable")
    for run in _runs(m.step[order]):
        rows = order[run]
        on = connection[rows]
        np.maximum.at(busy, on, there[source[rows]])
        begin[rows] = busy[on]
        end[rows] = begin[rows] + length[rows]
        busy[on] = end[rows]
        np.maximum.at(there, place[rows], end[rows])
    return begin, end


def held_up(
    receiving: Ints,
    sending: Ints,
    m: Messages,
    connection: Ints,
    level: Ints,
    times: tuple[Ints, Ints],
) -> Ints:
    """Bound how long two connections in one block, one each way, make each other wait.

    Shape (pairs,). The block runs in the order of steps and levels, sends first; a send should not
    come after a receive that is late for it, nor a receive after a send that is. ``times`` are the
    earliest.
    """
    order = np.lexsort((level, m.step, connection))
    moment = m.step * (int(level.max(initial=0)) + 1) + level
    size = np.bincount(connection, minlength=int(connection.max(initial=-1)) + 1)
    start = np.cumsum(size) - size
    worst = np.zeros(len(receiving), np.int64)
    events = np.cumsum(size[receiving] + size[sending])
    batch = events // BATCH
    for rows in _runs(batch):
        worst[rows] = _held(receiving[rows], sending[rows], order, start, size, moment, times)
    return worst


BATCH = 4_000_000
"""Messages that are compared at a time: bounds the memory."""


def _held(
    receiving: Ints,
    sending: Ints,
    order: Ints,
    start: Ints,
    size: Ints,
    moment: Ints,
    times: tuple[Ints, Ints],
) -> Ints:
    ends = np.concatenate([sending, receiving])
    count = size[ends]
    at = np.repeat(np.arange(len(ends)), count)
    message = order[start[ends][at] + np.arange(len(at)) - (np.cumsum(count) - count)[at]]
    pair, late = at % len(sending), at >= len(sending)
    rows = np.lexsort((late, moment[message], pair))
    pair, late, message = pair[rows], late[rows], message[rows]
    begin, end = (x[message] for x in times)
    wide = int(end.max(initial=0)) + 1

    def latest(of: Bools) -> Ints:
        """Return the latest end so far in the pair among some of its events."""
        seen: Ints = np.maximum.accumulate(pair * wide + np.where(of, end, 0))
        return seen - pair * wide

    waits = np.where(late, latest(~late) - end, latest(late) - begin)
    worst = np.zeros(len(sending), np.int64)
    np.maximum.at(worst, pair, waits)
    return worst


def _runs(column: Ints) -> Iterator[slice]:
    cuts = [0, *(np.flatnonzero(np.diff(column)) + 1).tolist(), len(column)]
    for start, end in pairwise(cuts):
        if start < end:
            yield slice(start, end)
