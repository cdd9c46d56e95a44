"""Schedules, algorithms and programs to scripts: passes up to the flow, then rounds.

The messages of a step become one round, the work between steps follows them.

Before (a flow of single chunks)::

    step 3: 0 -> 1 from o[4] into s[9]; rank 1 adds s[9] to o[4]

After::

    rank 0, round 3: o[4] > 1             rank 1, round 3: s[0] < 0; o[4] = o[4] + s[0]

Transfers of a step read what held before it, and so do the sends of a round; only what is received
where something is sent in the same round has to wait in scratch memory first (runtimes exchange in
place wrongly, without a word).
"""

from __future__ import annotations

from bisect import insort
from collections import defaultdict
from dataclasses import replace

import numpy as np

from weft.dsl.base.arrays import Ints, distinct_values
from weft.dsl.base.errors import UserError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.unique_rows import numbered
from weft.dsl.nouns.algorithm import Algorithm
from weft.dsl.nouns.collective import Collective, Kind, make
from weft.dsl.nouns.program import Program
from weft.dsl.nouns.runtime import P2P, Target
from weft.dsl.nouns.schedule import Schedule
from weft.dsl.nouns.slots import NONE, SCRATCH, WIDE, slice_of

from ...compile.analyses.flow import Flow
from ...compile.analyses.landing import Slots
from ...compile.analyses.unroll import unrolled
from ...compile.passes.lift import Lift
from ...compile.passes.lower import Lower
from ...compile.passes.trace import Trace
from .model import LIMITS, ChunkRange, LocalOperation, Message, Round, Script

Noun = Schedule | Algorithm | Program
"""Nouns that can be compiled to a script."""


def compile_script(
    noun: Noun, name: str = "", *, in_place: bool = False, segments: int = 1
) -> Script:
    """Return the script of a schedule, an algorithm or a program, by its own name if it gets none.

    ``in_place`` and ``segments`` (pieces of every chunk, which follow each other like a pipeline)
    are for schedules: all others are written in one way or the other.

    Raises:
        UserError: it is too long.
        CheckFailed: the schedule or the program is wrong.
    """
    script = script_of(_flow(noun, in_place, segments), name or _name(noun))
    return replace(script, collective=standard(script.collective))


def standard(collective: Collective) -> Collective:
    """Return the standard collective of that kind, which is all that the caller sees.

    One-shot allreduce, for instance, is written as an allgather with sums of its own.
    """
    if collective.kind is Kind.CUSTOM:
        return collective
    plain = make(collective.kind, collective.ranks, roots=collective.roots).split(collective.factor)
    same = (plain.input_chunks, plain.output_chunks) == (
        collective.input_chunks,
        collective.output_chunks,
    )
    return plain if same else collective


def _name(noun: Noun) -> str:
    if isinstance(noun, Schedule):
        return f"{noun.topology.name} {noun.collective.name or noun.collective.kind}"
    return noun.name


def _flow(noun: Noun, in_place: bool, segments: int) -> Flow:
    if isinstance(noun, Schedule):
        return Lower(in_place).apply(unrolled(noun, segments), TARGET)
    algorithm = Lift().apply(noun, TARGET) if isinstance(noun, Program) else noun
    return Trace().apply(algorithm, TARGET)


# --- flow to rounds -------------------------------------------------------------------------------

TARGET: Target = P2P
"""Target that the flow is compiled for."""


@dataclass(frozen=True, eq=False)
class _Talk:
    """Messages as columns, in the order in which both ends post them."""

    round: Ints
    src: Ints
    dst: Ints
    send: Ints
    recv: Ints
    count: Ints


@dataclass(frozen=True, eq=False)
class _LocalWork:
    """Local work as columns, in order; ``second`` is NONE for a copy."""

    round: Ints
    rank: Ints
    into: Ints
    first: Ints
    second: Ints
    count: Ints


def script_of(flow: Flow, name: str) -> Script:
    """Return the script of a flow of single chunks that was made for :data:`TARGET`.

    Raises:
        UserError: it is too long for a file.
    """
    m, local = flow.messages, flow.local
    steps = distinct_values(m.step)
    scratch = Slots(flow.scratch)
    order = np.lexsort((m.recv, m.send, m.turn, m.dst, m.src, m.step))
    number = np.searchsorted(steps, m.step) + 1
    landing = _staged(flow, number, scratch)
    one = np.ones(len(m), np.int64)
    talk = _merged_talk(_Talk(*(x[order] for x in (number, m.src, m.dst, m.send, landing, one))))
    # Work before the first message is a round of its own, without messages: round 0.
    after = np.searchsorted(steps, local.step, side="right")
    work = _merged_work(_all_work(flow, number, landing, after))
    if len(talk.round) + len(work.round) > LIMITS.written_lines:
        raise UserError(
            f"the script has {len(talk.round) + len(work.round)} messages and sums; a file takes "
            f"{LIMITS.written_lines}",
            hint="fewer segments, or fewer chunks",
        )
    talk, work, room = _with_room(talk, work, flow.collective.ranks)
    return Script(
        name,
        flow.collective,
        flow.in_place,
        room,
        _written(talk, work, flow.collective.ranks, len(steps) + 1),
    )


def _staged(flow: Flow, number: Ints, scratch: Slots) -> Ints:
    """Return the landing slots of messages, none of which its receiver sends in that round."""
    m = flow.messages
    places = np.concatenate([m.src, m.dst]) * WIDE + np.concatenate([m.send, m.recv])
    ids = numbered(places, np.concatenate([number, number]))
    late = np.isin(ids[len(m) :], ids[: len(m)])
    landing = m.recv.copy()
    rows = np.flatnonzero(late)
    rows = rows[np.lexsort((m.recv[rows], m.src[rows], number[rows], m.dst[rows]))]
    landing[rows] = scratch.take(m.dst[rows])
    return landing


def _all_work(flow: Flow, number: Ints, landing: Ints, after: Ints) -> _LocalWork:
    """Copies out of scratch, sums of received data, and the flow's local work, in that order."""
    m, local = flow.messages, flow.local
    late = np.flatnonzero(landing != m.recv)
    adds = np.flatnonzero(m.add_to != NONE)
    none = np.full(len(late), NONE)
    sizes = (len(late), len(adds), len(local))
    kind = np.repeat(np.arange(3), sizes)
    columns = (
        np.concatenate([number[late], number[adds], after]),
        np.concatenate([m.dst[late], m.dst[adds], local.rank]),
        np.concatenate([m.recv[late], m.add_to[adds], local.target]),
        np.concatenate(
            [landing[late], m.add_to[adds], np.where(local.reduce > 0, local.target, local.source)]
        ),
        np.concatenate([none, m.add_from[adds], np.where(local.reduce > 0, local.source, NONE)]),
    )
    # Of messages: by their turn at a slot, neighbours side by side; local work keeps its order.
    turn = np.concatenate([m.turn[late], m.turn[adds], local.step])
    place = np.concatenate([m.recv[late], m.add_to[adds], np.arange(len(local))])
    order = np.lexsort(
        (place, _copies_first(kind, local.reduce), turn, kind, columns[1], columns[0])
    )
    return _LocalWork(*(x[order] for x in (*columns, np.ones(len(order), np.int64))))


def _copies_first(kind: Ints, reduce: Ints) -> Ints:
    """Copies of a step come before its reductions; received data are not ordered so."""
    result = np.zeros(len(kind), np.int64)
    result[kind == 2] = reduce
    return result


def _merged_talk(t: _Talk) -> _Talk:
    """Neighbouring chunks of one round and pair of ranks in one message."""
    joins = _same(t.round, t.src, t.dst) & _next(t.send) & _next(t.recv)
    rows = np.flatnonzero(~joins)
    counts = np.diff(rows, append=len(joins))
    return _Talk(t.round[rows], t.src[rows], t.dst[rows], t.send[rows], t.recv[rows], counts)


def _merged_work(w: _LocalWork) -> _LocalWork:
    """Neighbouring chunks of one rank's work in one operation, unless it would read its result."""
    joins = _same(w.round, w.rank) & _next(w.into) & _next(w.first)
    copies = w.second == NONE
    joins &= _next(w.second) | copies
    joins[1:] &= copies[1:] == copies[:-1]
    rows = np.flatnonzero(~joins)
    counts = np.diff(rows, append=len(joins))
    terms = np.stack([w.first, np.where(copies, w.into, w.second)])
    shifts = np.abs(terms - w.into)[:, rows]
    overlap = ((shifts > 0) & (shifts < counts)).any(axis=0)
    joins &= ~np.repeat(overlap, counts)  # one chunk after another, in order
    rows = np.flatnonzero(~joins)
    counts = np.diff(rows, append=len(joins))
    return _LocalWork(
        w.round[rows], w.rank[rows], w.into[rows], w.first[rows], w.second[rows], counts
    )


def _same(*columns: Ints) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    result = np.zeros(len(columns[0]), bool)
    result[1:] = True
    for column in columns:
        result[1:] &= column[1:] == column[:-1]
    return result


def _next(slots: Ints) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    result = np.zeros(len(slots), bool)
    result[1:] = slots[1:] == slots[:-1] + 1
    return result


def _with_room(
    talk: _Talk, work: _LocalWork, ranks: int
) -> tuple[_Talk, _LocalWork, tuple[int, ...]]:
    """Scratch slots renumbered so that memory is used again; and how much each rank needs."""
    uses = (  # rank, slot, count, time: messages of a round come before its work
        (talk.src, talk.send, talk.count, talk.round * 2),
        (talk.dst, talk.recv, talk.count, talk.round * 2),
        (work.rank, work.into, work.count, work.round * 2 + 1),
        (work.rank, work.first, work.count, work.round * 2 + 1),
        (work.rank, work.second, work.count, work.round * 2 + 1),
    )
    rank, slot, count, time = (np.concatenate(x) for x in zip(*uses, strict=True))
    room = [0] * ranks
    moved = slot.copy()
    inside = np.flatnonzero(slot >= SCRATCH)
    inside = inside[np.argsort(rank[inside], kind="stable")]
    for rows in np.split(inside, np.flatnonzero(np.diff(rank[inside])) + 1):
        if len(rows):
            at, size = packed(slot[rows] - SCRATCH, count[rows], time[rows])
            moved[rows] = SCRATCH + at
            room[int(rank[rows[0]])] = size
    send, recv, into, first, second = np.split(
        moved, np.cumsum([len(talk.src)] * 2 + [len(work.rank)] * 2)
    )
    return (
        replace(talk, send=send, recv=recv),
        replace(work, into=into, first=first, second=second),
        tuple(room),
    )


def _written(
    talk: _Talk, work: _LocalWork, ranks: int, rounds: int
) -> tuple[tuple[Round, ...], ...]:
    """Return the rounds of all ranks as values, without an empty first round."""
    sends, recvs, local = (defaultdict(list) for _ in range(3))
    for number, src, dst, send, recv, count in zip(
        *(x.tolist() for x in (talk.round, talk.src, talk.dst, talk.send, talk.recv, talk.count)),
        strict=True,
    ):
        sends[src, number].append(Message(_part(send, count), dst))
        recvs[dst, number].append(Message(_part(recv, count), src))
    for number, rank, into, first, second, count in zip(
        *(
            x.tolist()
            for x in (work.round, work.rank, work.into, work.first, work.second, work.count)
        ),
        strict=True,
    ):
        terms = (first,) if second == NONE else (first, second)
        local[rank, number].append(
            LocalOperation(_part(into, count), tuple(_part(term, count) for term in terms))
        )
    for (rank, _), own in (*sends.items(), *recvs.items()):
        # Nearest peers come first: all ranks alike, and no two begin with the same peer.
        own.sort(key=lambda m: (m.peer - rank) % ranks)
    every = [
        tuple(
            Round(tuple(sends[r, n]), tuple(recvs[r, n]), tuple(local[r, n])) for n in range(rounds)
        )
        for r in range(ranks)
    ]
    begin = 0 if any(own[0] for own in every) else 1
    return tuple(own[begin:] for own in every)


def _part(slot: int, count: int) -> ChunkRange:
    where = slice_of(slot)
    return ChunkRange(where.buffer, where.offset, count)


# Scratch memory used again: parts that are not needed at the same time get the same place.
#
# Before::
#
#     round 0: s[0] < 7          round 1: s[1] < 7          round 2: s[2] < 7
#
# After (each is added to something in its round, and then done with)::
#
#     round 0: s[0] < 7          round 1: s[0] < 7          round 2: s[0] < 7
#
# Slots that some message or sum names together stay together. Such blocks are placed in the order
# of their first use, each as low as it fits among those still in use (first fit, as register
# allocation by linear scan does: Poletto and Sarkar, TOPLAS 1999).


def packed(first: Ints, count: Ints, time: Ints) -> tuple[Ints, int]:
    """New places of the uses of one rank's scratch memory, and its new size.

    Each use is of slots ``first … first + count - 1`` at a time; uses of one time are at once.
    """
    if not len(first):
        return first, 0
    block, base = _blocks(first, count)
    blocks = len(base)
    size = np.zeros(blocks, np.int64)
    np.maximum.at(size, block, first + count - base[block])
    born, dead = np.full(blocks, np.iinfo(np.int64).max), np.full(blocks, -1)
    np.minimum.at(born, block, time)
    np.maximum.at(dead, block, time)
    place = _first_fit(size.tolist(), born.tolist(), dead.tolist())
    moved = np.array(place, np.int64)
    return moved[block] + first - base[block], int((moved + size).max())


def _blocks(first: Ints, count: Ints) -> tuple[Ints, Ints]:
    """The block of each use, and where each block starts: uses that overlap are of one block."""
    order = np.argsort(first, kind="stable")
    reach = np.maximum.accumulate((first + count)[order])
    opens = np.ones(len(order), bool)
    opens[1:] = first[order][1:] >= reach[:-1]
    block = np.empty(len(order), np.int64)
    block[order] = np.cumsum(opens) - 1
    return block, first[order][opens]


def _first_fit(size: list[int], born: list[int], dead: list[int]) -> list[int]:
    place = [0] * len(size)
    used: list[tuple[int, int, int]] = []  # (place, end, last time)
    for block in sorted(range(len(size)), key=lambda b: (born[b], -size[b], b)):
        used = [entry for entry in used if entry[2] >= born[block]]
        at = 0
        for low, high, _ in used:
            if at + size[block] <= low:
                break
            at = max(at, high)
        place[block] = at
        insort(used, (at, at + size[block], dead[block]))
    return place
