"""Replay of a schedule on contribution sets, step by step, in columns.

The state of a *place* (a chunk on a rank) is the set of contributions it holds, as bits.
Transfers of one step read what held before that step. Three things can go wrong, and each is
reported for the transfer that does it:

* EMPTY: the source holds nothing of the chunk;
* DOUBLE: a reduction adds a contribution that is already in the sum;
* LOST: a plain transfer replaces what it does not contain.

A cast (:mod:`weft.dsl.nouns.casts`) is replayed as a place of its own: it holds what its sources
held before the step, together, and every destination gets that as by a transfer. EMPTY: a source
lacks its part; DOUBLE: two parts have a contribution in common.

Bits are words of ``uint64``. A chunk that starts everywhere with the same content (all copying
collectives) needs one bit, in a byte; only chunks that are summed need one bit per contributor.
Chunks do not interact, so large schedules are replayed in blocks of chunks and memory stays
bounded.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from weft.dsl.base.arrays import AnyArray, Bools, Ints, Ints32, Words, distinct_values
from weft.dsl.base.kept import kept
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.unique_rows import any_twice, rows_of
from weft.dsl.nouns.casts import NO_CASTS, Casts
from weft.dsl.nouns.collective import Collective
from weft.dsl.nouns.placement import Placement
from weft.dsl.nouns.schedule import Schedule

FINE, EMPTY, DOUBLE, LOST = range(4)
"""Fault codes of :attr:`Replay.fault`."""

_BLOCK_BYTES = 1 << 26  # of state at a time
_Bits = AnyArray
"""Sets as rows of words, or of one byte each where that suffices."""

_ONE_BIT = np.ones((1, 1), np.uint8)  # of chunks whose content is the same wherever it is
_TOLD = 64  # unmet postconditions reported in full, per block
_WORD = 64


@dataclass(frozen=True, eq=False)
class Unmet:
    """A place whose final data differs from the postcondition."""

    rank: int
    chunk: int
    holds: frozenset[int]
    wants: frozenset[int]


@dataclass(frozen=True, eq=False)
class Replay:
    """Result of a replay: a fault code per transfer, redundant transfers, unmet postconditions.

    Attributes:
        fault: one code per transfer.
        redundant: transfers that brought exactly what was there already.
        unmet: postconditions that do not hold at the end, the first of each block.
        unmet_count: how many there are in all.
        empty_at_end: places (chunk * ranks + rank) required by ``local_reduce`` groups that
            hold nothing at the end.
        meet: True if some transfers or casts of one step arrive at one place.
        cast_fault: one code per cast.
        cast_redundant: casts that brought every destination what was there already.
        arrival_redundant: the same of each destination, as in ``Casts.destinations``.
    """

    fault: npt.NDArray[np.int8]
    redundant: Bools
    unmet: tuple[Unmet, ...]
    unmet_count: int
    empty_at_end: Ints
    meet: bool
    cast_fault: npt.NDArray[np.int8]
    cast_redundant: Bools
    arrival_redundant: Bools


@dataclass(frozen=True, eq=False)
class _TransferColumns:
    """The columns of a schedule that its contents depend on: not its machine, nor its routes.

    ``cast``: of the arrivals of casts, one for each destination, the number of the cast; -1 of
    transfers. ``casts``: the casts themselves.
    """

    collective: Collective
    chunk: Ints32
    src: Ints32
    dst: Ints32
    step: Ints32
    reduce: Bools
    casts: Casts = NO_CASTS
    cast: Ints | None = None

    def __len__(self) -> int:
        return len(self.chunk)

    def anchors(self) -> tuple[object, ...]:
        own = self.collective, self.chunk, self.src, self.dst, self.step, self.reduce
        return own + self.casts.anchors()

    def with_arrivals(self) -> _TransferColumns:
        """Return the columns with a row for each destination of each cast, sorted by step."""
        c = self.casts
        if not len(c):
            return self
        which = np.repeat(np.arange(len(c)), np.diff(c.destination_start))
        step = np.concatenate((self.step, c.step[which]))
        order = np.argsort(step, kind="stable")

        def joined(own: AnyArray, of_casts: AnyArray) -> AnyArray:
            return np.concatenate((own, of_casts))[order]

        none = np.full(len(self), -1, np.int64)
        return _TransferColumns(
            self.collective,
            joined(self.chunk, c.chunk[which]),
            joined(self.src, np.zeros(len(which), np.int32)),
            joined(self.dst, c.destinations),
            step[order],
            joined(self.reduce, c.reduce[which]),
            c,
            joined(none, which),
        )


def replay(schedule: Schedule) -> Replay:
    """Run a schedule whose columns are in range and sorted by step.

    Cost: O(transfers · words) array work and a few array operations per step; of the same
    (read-only) columns the result is kept.
    """
    s = schedule
    columns = (s.collective, s.chunk, s.src, s.dst, s.step, s.reduce, s.casts)
    return _replayed(_TransferColumns(*columns))


@kept(most=8)
def _replayed(own: _TransferColumns) -> Replay:
    moves, collective = own.with_arrivals(), own.collective
    fault = np.zeros(len(moves), np.int8)
    redundant = np.zeros(len(moves), bool)
    cast_fault = np.zeros(len(own.casts), np.int8)
    order, wave = _waves(moves)
    wanted_places = _group_places(collective)
    unmet: list[Unmet] = []
    unmet_count = 0
    empty: list[Ints] = []
    parts = _chunk_parts(collective)
    number = np.zeros(collective.chunks, np.int16 if len(parts) < 1 << 15 else np.int64)
    for i, (_, chunks) in enumerate(parts):
        number[chunks] = i
    # All transfers are sorted once, so that many blocks cost no pass over all of them each.
    by_block = np.argsort(number[moves.chunk[order]], kind="stable")
    count = np.bincount(number[moves.chunk], minlength=len(parts))
    ends = np.cumsum(count)
    for block, begin, end in zip(_blocks(collective, parts), ends - count, ends, strict=True):
        mine = by_block[begin:end]
        transfers = order[mine]
        places = block.index[moves.chunk[transfers]] * collective.ranks
        state = block.initial()
        source = places + moves.src[transfers]
        meeting = _Meeting.of(moves, transfers, block, source, state)
        if meeting is not None:
            state = meeting.state
        _run(moves, transfers, places, source, wave[mine], state, fault, redundant, meeting)
        if meeting is not None:
            cast_fault[meeting.casts] = meeting.fault
        wrong = block.wrong_at_end(state)
        unmet += block.describe(wrong[:_TOLD], state)
        unmet_count += len(wrong)
        empty.append(block.empty(state, wanted_places))
    unmet.sort(key=lambda u: (u.chunk, u.rank))
    empty_at_end = np.sort(np.concatenate(empty))
    meet = bool(wave.any())
    cast_redundant = useless = np.zeros(0, bool)
    if moves.cast is not None:
        arrivals = moves.cast >= 0
        useless = redundant[arrivals]
        fault, redundant, cast_redundant = _of_casts(moves, fault, redundant, cast_fault)
    return Replay(
        fault,
        redundant,
        tuple(unmet),
        unmet_count,
        empty_at_end,
        meet,
        cast_fault,
        cast_redundant,
        useless,
    )


def _of_casts(
    moves: _TransferColumns,
    fault: npt.NDArray[np.int8],
    redundant: Bools,
    cast_fault: npt.NDArray[np.int8],
) -> tuple[npt.NDArray[np.int8], Bools, Bools]:
    """Return the columns of transfers alone and which casts are redundant; add casts' faults."""
    assert moves.cast is not None
    own = moves.cast < 0
    which, codes = moves.cast[~own], fault[~own]
    arrived = np.flatnonzero((codes != FINE) & (cast_fault[which] == FINE))[::-1]
    cast_fault[which[arrived]] = codes[arrived]  # the first one of a cast is reported
    useful = np.zeros(len(cast_fault), bool)
    useful[which[~redundant[~own]]] = True
    return fault[own], redundant[own], ~useful


def _waves(moves: _TransferColumns) -> tuple[Ints, Ints]:
    """Transfers by (step, wave, index), and their waves.

    The arrivals of one step at one place are numbered 0, 1, …: no two of a wave collide, so
    that each wave is one array operation.
    """
    n = len(moves)
    if not any_twice(moves.step, moves.chunk, moves.dst):
        return np.argsort(moves.step, kind="stable"), np.zeros(n, np.int64)
    place = moves.chunk.astype(np.int64) * moves.collective.ranks + moves.dst
    by_place = np.lexsort((place, moves.step))
    step, place = moves.step[by_place], place[by_place]
    first = np.ones(n, bool)
    first[1:] = (np.diff(step) != 0) | (np.diff(place) != 0)
    start = np.maximum.accumulate(np.where(first, np.arange(n), 0))
    wave = np.empty(n, np.int64)
    wave[by_place] = np.arange(n) - start
    order = np.lexsort((wave, moves.step))
    return order, wave[order]


@dataclass(eq=False)
class _Meeting:
    """The casts of one block, sorted by step: the union of their sources' data is a place.

    Attributes:
        state: that of the block, with a row for each of these casts behind it.
        casts: their numbers in the schedule.
        step: of each.
        sources, start: places that cast i reads, ``sources[start[i]:start[i + 1]]``.
        first: the row of the first cast.
        fault: one code for each.
        done: how many have been read.
    """

    state: _Bits
    casts: Ints
    step: Ints32
    sources: Ints
    start: Ints
    first: int
    fault: npt.NDArray[np.int8]
    done: int = 0

    @staticmethod
    def of(
        moves: _TransferColumns, transfers: Ints, block: _ChunkBlock, source: Ints, state: _Bits
    ) -> _Meeting | None:
        """Return the casts of a block, and point their arrivals in ``source`` at their rows."""
        if moves.cast is None:
            return None
        c, ranks = moves.casts, moves.collective.ranks
        casts = np.flatnonzero(block.index[c.chunk] >= 0)
        row = np.full(len(c), -1, np.int64)
        row[casts] = len(state) + np.arange(len(casts))
        mine = moves.cast[transfers]
        source[mine >= 0] = row[mine[mine >= 0]]
        start, at = rows_of(c.source_start, casts)
        chunks = np.repeat(block.index[c.chunk[casts]], np.diff(start))
        more = np.zeros((len(casts), state.shape[1]), state.dtype)
        return _Meeting(
            np.concatenate((state, more)),
            casts,
            c.step[casts],
            chunks * ranks + c.sources[at],
            start,
            len(state),
            np.zeros(len(casts), np.int8),
        )

    def read(self, step: int) -> None:
        """Bring together the data of the sources of all casts of a step."""
        end = int(np.searchsorted(self.step, step, side="right"))
        for i in range(self.done, end):
            parts = self.state[self.sources[self.start[i] : self.start[i + 1]]]
            union = np.bitwise_or.reduce(parts, axis=0)
            apart = np.bitwise_xor.reduce(parts, axis=0)
            if not parts.any(axis=1).all():
                self.fault[i] = EMPTY
            elif len(parts) > 1 and _any_common(parts, union, apart):
                self.fault[i] = DOUBLE
            else:
                self.state[self.first + i] = union
        self.done = end


def _any_common(parts: _Bits, union: _Bits, apart: _Bits) -> bool:
    """Return True if two sets have a member in common."""
    if (union != apart).any():  # a member an even number of times
        return True
    seen = np.zeros_like(union)
    for part in parts:
        if (seen & part).any():
            return True
        seen |= part
    return False


def _run(
    moves: _TransferColumns,
    transfers: Ints,
    places: Ints,
    source: Ints,
    wave: Ints,
    state: _Bits,
    fault: npt.NDArray[np.int8],
    redundant: Bools,
    meeting: _Meeting | None,
) -> None:
    """Move the bits of one block; ``places`` is chunk * ranks within it."""
    target = places + moves.dst[transfers]
    add = moves.reduce[transfers]
    step = moves.step[transfers]
    for begin, end in _runs(step):
        if meeting is not None:
            meeting.read(int(step[begin]))
        arriving = state[source[begin:end]]
        for low, high in _runs(wave[begin:end]):
            at = slice(begin + low, begin + high)
            bits, held = arriving[low:high], state[target[at]]
            sums = add[at, None]
            clash = np.where(sums, bits & held, held & ~bits).any(axis=1)
            nothing = ~bits.any(axis=1)
            code = np.where(add[at], DOUBLE, LOST).astype(np.int8)
            fault[transfers[at]] = np.where(nothing, EMPTY, np.where(clash, code, FINE))
            redundant[transfers[at]] = ~nothing & ~add[at] & (bits == held).all(axis=1)
            # After a fault the place keeps all it had, so that one mistake is reported once.
            keep = sums | (clash | nothing)[:, None]
            state[target[at]] = np.where(keep, bits | held, bits)


def _runs(column: Ints | Ints32) -> Iterator[tuple[int, int]]:
    """(begin, end) of the runs of equal values."""
    if not len(column):
        return
    cuts = np.flatnonzero(np.diff(column)) + 1
    bounds = [0, *cuts.tolist(), len(column)]
    yield from pairwise(bounds)


# --- contribution sets as bits --------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _ChunkBlock:
    """Some chunks with one encoding of sets: row i of ``bits`` is set i of the collective.

    ``index``: for each chunk of the collective its number in the block, or -1. ``members``: what
    each bit stands for.
    """

    collective: Collective
    chunks: Ints
    index: Ints
    bits: _Bits
    uniform: bool

    def _select(self, placement: Placement) -> tuple[Ints, Ints]:
        """Rows of a placement that are in the block, and their places in it."""
        local = self.index[placement.chunks]
        rows = np.flatnonzero(local >= 0)
        return rows, local[rows] * self.collective.ranks + placement.ranks[rows]

    def initial(self) -> _Bits:
        state = np.zeros(
            (len(self.chunks) * self.collective.ranks, self.bits.shape[1]), self.bits.dtype
        )
        rows, places = self._select(self.collective.pre)
        state[places] = self._encode(self.collective.pre, rows)
        return state

    def _encode(self, placement: Placement, rows: Ints) -> _Bits:
        sets = placement.sets[rows]
        if not self.uniform:
            bits: _Bits = self.bits[sets]
            return bits
        # One bit: the content the chunk starts with. Any other set can never be: no bit.
        start = np.full(len(self.chunks), -1, np.int64)
        pre_rows, _ = self._select(self.collective.pre)
        names = _canonical_sets(self.collective)
        start[self.index[self.collective.pre.chunks[pre_rows]]] = names[
            self.collective.pre.sets[pre_rows]
        ]
        same = names[sets] == start[self.index[placement.chunks[rows]]]
        bit: _Bits = same.astype(np.uint8)[:, None]
        return bit

    def wrong_at_end(self, state: _Bits) -> Ints:
        """Rows of the postcondition whose place holds something else."""
        rows, places = self._select(self.collective.post)
        want, have = self._encode(self.collective.post, rows), state[places]
        wrong: Ints = rows[(want != have).any(axis=1) | ~want.any(axis=1)]
        return wrong

    def describe(self, post_rows: Ints, state: _Bits) -> list[Unmet]:
        """Describe the errors at some rows of the postcondition."""
        c, told = self.collective, []
        for row in post_rows.tolist():
            rank, chunk = int(c.post.ranks[row]), int(c.post.chunks[row])
            held = self._decode(chunk, state[self.index[chunk] * c.ranks + rank])
            told.append(Unmet(rank, chunk, held, c.contributions[int(c.post.sets[row])]))
        return told

    def _decode(self, chunk: int, held: _Bits) -> frozenset[int]:
        if not held.any():
            return frozenset()
        sets = self.collective.contributions
        if self.uniform:
            row = int(np.flatnonzero(self.collective.pre.chunks == chunk)[0])
            return sets[int(self.collective.pre.sets[row])]
        position = _positions(self.collective)
        return frozenset(
            who for who, i in position.items() if int(held[i // _WORD]) >> (i % _WORD) & 1
        )

    def empty(self, state: _Bits, places: Ints) -> Ints:
        """Those of some places of the collective that are in the block and hold nothing."""
        ranks = self.collective.ranks
        mine = places[self.index[places // ranks] >= 0]
        local = self.index[mine // ranks] * ranks + mine % ranks
        nothing: Ints = mine[~state[local].any(axis=1)]
        return nothing


_ChunkPart = tuple[_Bits, Ints]
"""The bits of the sets of some chunks, and these chunks."""


def _chunk_parts(c: Collective) -> list[_ChunkPart]:
    """The chunks in parts whose states fit into memory; those of one bit come first."""
    uniform, parts = _uniform_chunks(c), list[_ChunkPart]()
    for same, chunks in ((True, np.flatnonzero(uniform)), (False, np.flatnonzero(~uniform))):
        if not len(chunks):
            continue
        bits = _ONE_BIT if same else _set_bits(c)
        size = max(1, _BLOCK_BYTES // (c.ranks * bits.shape[1] * bits.itemsize))
        parts += [(bits, chunks[at : at + size]) for at in range(0, len(chunks), size)]
    return parts


def _blocks(c: Collective, parts: list[_ChunkPart]) -> Iterator[_ChunkBlock]:
    for bits, chunks in parts:
        index = np.full(c.chunks, -1, np.int64)
        index[chunks] = np.arange(len(chunks))
        yield _ChunkBlock(c, chunks, index, bits, bits is _ONE_BIT)


def _canonical_sets(c: Collective) -> Ints:
    """For each set its first equal: two names of one set are one."""
    first: dict[frozenset[int], int] = {}
    return np.array([first.setdefault(s, i) for i, s in enumerate(c.contributions)], np.int64)


def _uniform_chunks(c: Collective) -> Bools:
    """Chunks that start with the same content wherever they start (or start nowhere)."""
    names = _canonical_sets(c)[c.pre.sets]
    low = np.full(c.chunks, np.iinfo(np.int64).max)
    high = np.full(c.chunks, -1, np.int64)
    np.minimum.at(low, c.pre.chunks, names)
    np.maximum.at(high, c.pre.chunks, names)
    return low >= high


def _positions(c: Collective) -> dict[int, int]:
    """The bit of each contributor."""
    return {who: i for i, who in enumerate(sorted(frozenset().union(*c.contributions)))}


def _set_bits(c: Collective) -> Words:
    position = _positions(c)
    bits = np.zeros((len(c.contributions), -(-len(position) // _WORD)), np.uint64)
    for row, members in enumerate(c.contributions):
        at = np.array([position[who] for who in members], np.int64)
        np.bitwise_or.at(bits[row], at // _WORD, np.uint64(1) << (at % _WORD).astype(np.uint64))
    return bits


def _group_places(c: Collective) -> Ints:
    """Places that ranks need in order to sum the groups required of them."""
    places: list[Ints] = []
    for group in c.local_reduce:
        chunks = np.array(group, np.int64)
        ranks = distinct_values(c.post.ranks[np.isin(c.post.chunks, chunks)])
        places.append((chunks[:, None] * c.ranks + ranks).ravel())
    return np.concatenate(places) if places else np.zeros(0, np.int64)
