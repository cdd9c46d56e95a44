"""Prove a script correct from its rounds alone: addresses, pairs, memory sizes, result.

It knows nothing of how scripts are made. Every rank's messages and work become columns; chunks are
rows of one memory. Because ranks wait for nothing but the messages of a round, a script whose
messages pair up cannot hang; because nothing that a round receives may be anything else that it
sends or receives, its result does not depend on any order. So one replay, round after round, on
sets of contributions is a proof of the result.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

import numpy as np

from weft.dsl.base.arrays import Ints
from weft.dsl.base.layers import ranges
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.program import BUFFERS, Buffer

from ...check.findings import LIMITS, Finding, Severity
from ...execute.layout import BufferLayout, layout
from ...judge.values import Values, WantedValues, wanted_of
from .model import ChunkRange, Round, Script

_NONE = -1


@dataclass(frozen=True, eq=False)
class _Parts:
    """Parts of all ranks as columns: where, of which rank and round, the first row, the count."""

    round: Ints
    rank: Ints
    peer: Ints
    row: Ints
    count: Ints

    def cells(self) -> tuple[Ints, Ints]:
        """Every row of every part, and which part it is of."""
        owner = np.repeat(np.arange(len(self.row)), self.count)
        return ranges(self.row, self.count), owner


def check_script(script: Script) -> list[Finding]:
    """Everything wrong with a script; nothing means that it is proved right."""
    found = _form(script)
    if found:
        return found
    memory = layout(script.collective, script.scratch, in_place=script.in_place)
    sends, recvs = (_messages(script, memory, which) for which in ("sends", "recvs"))
    work = _WorkRows.of(script, memory)
    found = _pairs(sends, recvs) or _exclusive(sends, recvs, memory) + _overlaps(work, memory)
    return found or _result(script, memory, sends, recvs, work)


def _error(check: str, text: str, rank: int | None = None, number: int | None = None) -> Finding:
    # Rounds count from 1 where people see them: the file's lines, and errors of a run.
    return Finding(check, Severity.ERROR, text, rank, step=None if number is None else number + 1)


def _form(script: Script) -> list[Finding]:
    """Numbers that make sense: ranks, rounds, peers, addresses."""
    c, ranks = script.collective, len(script.ranks)
    if ranks != c.ranks or len(script.scratch) != ranks:
        return [_error("form", f"{ranks} ranks, but the collective has {c.ranks}")]
    if len({len(own) for own in script.ranks}) > 1 or min(script.scratch, default=0) < 0:
        return [_error("form", "ranks have different numbers of rounds, or less than no scratch")]
    found: list[Finding] = []
    for rank, number, one in _rounds(script):
        size = {
            Buffer.INPUT: c.input_chunks,
            Buffer.OUTPUT: c.output_chunks,
            Buffer.SCRATCH: script.scratch[rank],
        }
        for message in (*one.sends, *one.recvs):
            if not 0 <= message.peer < ranks or message.peer == rank:
                text = f"a message to or from {message.peer}; peers are the others of {ranks}"
                found.append(_error("form", text, rank, number))
        for part in _all_parts(one):
            if part.first < 0 or part.count < 1 or part.first + part.count > size[part.buffer]:
                text = (
                    f"{part.buffer}[{part.first}:{part.first + part.count}] is not inside its "
                    f"{size[part.buffer]} chunks"
                )
                found.append(_error("bounds", text, rank, number))
        for work in one.work:
            if any(term.count != work.into.count for term in work.terms):
                found.append(_error("form", "terms of different lengths", rank, number))
        if len(found) >= LIMITS.findings:
            break
    return found


def _rounds(script: Script) -> Iterator[tuple[int, int, Round]]:
    for rank, own in enumerate(script.ranks):
        for number, one in enumerate(own):
            yield rank, number, one


def _all_parts(one: Round) -> Iterable[ChunkRange]:
    yield from (m.part for m in (*one.sends, *one.recvs))
    for work in one.work:
        yield work.into
        yield from work.terms


def _messages(script: Script, memory: BufferLayout, which: str) -> _Parts:
    rows = [
        (number, rank, m.peer, _row(memory, rank, m.part), m.part.count)
        for rank, number, one in _rounds(script)
        for m in getattr(one, which)
    ]
    table = np.array(rows, np.int64).reshape(-1, 5)
    return _Parts(*(np.ascontiguousarray(table[:, i]) for i in range(5)))


def _row(memory: BufferLayout, rank: int, part: ChunkRange) -> int:
    return int(memory.base[rank, BUFFERS.index(part.buffer)]) + part.first


def _pairs(sends: _Parts, recvs: _Parts) -> list[Finding]:
    """The k-th message of a rank to another in a round meets the other's k-th receive from it."""
    there = np.stack([sends.round, sends.rank, sends.peer, sends.count])
    here = np.stack([recvs.round, recvs.peer, recvs.rank, recvs.count])
    there, here = (x[:, np.lexsort(x[2::-1])] for x in (there, here))
    if there.shape == here.shape and (there == here).all():
        return []
    length = min(there.shape[1], here.shape[1])
    differ = np.flatnonzero((there[:, :length] != here[:, :length]).any(axis=0))
    at = int(differ[0]) if len(differ) else length
    found = []
    for table, word in ((there, "sends {} to"), (here, "expects {} from")):
        if at < table.shape[1]:
            number, source, target, chunks = (int(x) for x in table[:, at])
            a, b = (source, target) if table is there else (target, source)
            text = f"it {word.format(f'{chunks} chunks')} rank {b}, which does not match"
            found.append(_error("pairs", text, a, number))
    return found


def _exclusive(sends: _Parts, recvs: _Parts, memory: BufferLayout) -> list[Finding]:
    """Return a finding for each part received that the rank's round also sends or receives."""
    read, reader = sends.cells()
    write, writer = recvs.cells()
    wide = np.int64(memory.rows)
    written = recvs.round[writer] * wide + write
    keys, times = np.unique(written, return_counts=True)
    clash = np.union1d(keys[times > 1], keys[np.isin(keys, sends.round[reader] * wide + read)])
    return [
        _error(
            "room",
            f"{memory.name(int(key % wide))} is received while it is sent, or twice",
            number=int(key // wide),
        )
        for key in clash[: LIMITS.findings]
    ]


@dataclass(frozen=True, eq=False)
class _WorkRows:
    """Work as columns; ``place`` counts the work of a rank in a round."""

    round: Ints
    place: Ints
    into: Ints
    first: Ints
    second: Ints
    count: Ints

    @staticmethod
    def of(script: Script, memory: BufferLayout) -> _WorkRows:
        rows = [
            (
                number,
                place,
                _row(memory, rank, w.into),
                _row(memory, rank, w.terms[0]),
                _row(memory, rank, w.terms[1]) if len(w.terms) > 1 else _NONE,
                w.into.count,
            )
            for rank, number, one in _rounds(script)
            for place, w in enumerate(one.work)
        ]
        table = np.array(rows, np.int64).reshape(-1, 6)
        table = table[np.lexsort((table[:, 1], table[:, 0]))]
        return _WorkRows(*(np.ascontiguousarray(table[:, i]) for i in range(6)))


def _overlaps(work: _WorkRows, memory: BufferLayout) -> list[Finding]:
    """Work whose source and destination overlap, shifted: libraries differ in its result."""
    found = []
    for term in (work.first, work.second):
        apart = np.abs(term - work.into)
        for k in np.flatnonzero((term != _NONE) & (apart > 0) & (apart < work.count))[
            : LIMITS.findings
        ]:
            text = f"the work on {memory.name(int(work.into[k]))} overlaps what it reads"
            found.append(_error("room", text, number=int(work.round[k])))
    return found


def _result(
    script: Script, memory: BufferLayout, sends: _Parts, recvs: _Parts, work: _WorkRows
) -> list[Finding]:
    """Replay on contributions, and compare with the postcondition."""
    wanted = wanted_of(script.collective)
    held = Values.unwritten(memory.rows, wanted.values.words)
    held.put(memory.base[wanted.pre_rank, 0] + wanted.pre_offset, wanted.before)
    first = held.take(np.arange(memory.rows))
    read, write = _moved(sends, recvs)
    for number in range(script.rounds):
        some = slice(*np.searchsorted(read[0], [number, number + 1]))
        held.put(write[1][some], held.take(read[1][some]))
        _do(work, number, held)
    return _wrong(wanted, held, memory) + _overwritten(script, first, held, memory)


def _moved(sends: _Parts, recvs: _Parts) -> tuple[tuple[Ints, Ints], tuple[Ints, Ints]]:
    """(round, row) of every chunk that is read, and of where it is written, in one order."""

    def sorted_cells(p: _Parts, source: Ints, target: Ints) -> tuple[Ints, Ints]:
        order = np.lexsort((target, source, p.round))
        p = _Parts(p.round[order], p.rank[order], p.peer[order], p.row[order], p.count[order])
        rows, owner = p.cells()
        return p.round[owner], rows

    return (
        sorted_cells(sends, sends.rank, sends.peer),
        sorted_cells(recvs, recvs.peer, recvs.rank),
    )


def _do(work: _WorkRows, number: int, held: Values) -> None:
    """The work of a round, the k-th of all ranks at once."""
    begin, end = np.searchsorted(work.round, [number, number + 1])
    for some in _runs(work.place, int(begin), int(end)):
        count = work.count[some]
        owner = np.repeat(np.arange(some.start, some.stop), count)
        inside = ranges(np.zeros_like(count), count)
        first, second = work.first[owner] + inside, work.second[owner] + inside
        adds = work.second[owner] != _NONE
        terms = np.stack([first, second], axis=1)[np.stack([np.ones_like(adds), adds], axis=1)]
        held.put(work.into[owner] + inside, held.sums(terms, 1 + adds.astype(np.int64)))


def _runs(column: Ints, begin: int, end: int) -> list[slice]:
    cuts = begin + 1 + np.flatnonzero(np.diff(column[begin:end]))
    edges = [begin, *cuts.tolist(), end]
    return [slice(a, b) for a, b in pairwise(edges) if a < b]


def _wrong(wanted: WantedValues, held: Values, memory: BufferLayout) -> list[Finding]:
    rows = memory.base[wanted.rank, 1] + wanted.offset
    bad = np.flatnonzero(~held.take(rows).same(wanted.values))
    return [
        _error("result", f"{memory.name(int(rows[k]))} does not end with what the collective wants")
        for k in bad[: LIMITS.findings]
    ]


def _overwritten(script: Script, first: Values, held: Values, place: BufferLayout) -> list[Finding]:
    """Out of place, the input must stay unchanged."""
    if script.in_place or not script.collective.input_chunks:
        return []
    rows = (place.base[:, :1] + np.arange(script.collective.input_chunks)).ravel()
    before, after = first.take(rows), held.take(rows)
    kept = (before.group == after.group) & (before.bits == after.bits).all(axis=1)
    return [
        _error("result", f"{place.name(int(rows[k]))} is overwritten: the input must not change")
        for k in np.flatnonzero(~kept)[: LIMITS.findings]
    ]
