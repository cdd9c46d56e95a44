"""Program to algorithm: the transfers of a program, without thread blocks and order.

Before::

    rank 1, block 0 (from 0, to 2):  0: rrs i[0]             1: rcs o[0]
    rank 1, block 1 (from 2):        0: r s[0]               1: re o[1] += s[0]

After::

    rank 1 s[0] = rank 0 i[0] + i[0]    rank 2 … = rank 1 s[0]
    rank 1 o[0] = rank 0 o[0]           rank 2 … = rank 1 o[0]
    rank 1 o[1] = rank 2 … + o[1]

So a program from elsewhere gets new steps, channels and thread blocks, for any target.

The instructions are walked in a linear order that every run could follow. A message is read when it
is sent and lands when it is received; written as two moves, into a landing slot of its own and on
from there, that is right whatever happens in between. The two become one move wherever nothing does
(:func:`folded`). A scratch slot that is written anew is a new slot, so
that sharing memory puts nothing in a row; the pass ``scratch`` shares it again.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from dataclasses import replace
from typing import ClassVar

import numpy as np

from weft.dsl.base.arrays import Ints
from weft.dsl.base.errors import CheckFailed
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.algorithm import Algorithm, Moves
from weft.dsl.nouns.collective import Collective
from weft.dsl.nouns.program import OPS, Op, Program
from weft.dsl.nouns.runtime import Target
from weft.dsl.nouns.slots import INPUT, NONE, OUTPUT, SCRATCH, Aliases

from ..analyses.order import ProgramOrder, messages

UNBOUNDED = 1 << 40
"""Operations in a FIFO that never fills."""


@dataclass(frozen=True, slots=True)
class Lift:
    """Take a program apart into moves."""

    name: ClassVar[str] = "lift"

    def apply(self, program: Program, target: Target) -> Algorithm:
        """Return the algorithm of a program that is free of races.

        Raises:
            CheckFailed: the program deadlocks, or two ends of a connection do not match.
        """
        pieces = program.message_chunks // program.collective.message_chunks
        program = replace(program, collective=program.collective.split(pieces))
        lifting = _Lifting(program)
        for at in np.argsort(_levels(program), kind="stable").tolist():
            lifting.instruction(at)
        rows = folded(lifting.rows, lifting.passing)
        collective = program.collective
        scratch = _compacted(rows, collective.ranks)
        chunks = _chunks(rows, collective, lifting.aliases)
        table = [[chunk, *row, NONE, NONE, NONE] for chunk, row in zip(chunks, rows, strict=True)]
        return Algorithm(
            program.name,
            collective,
            Moves.of(table),
            scratch,
            program.in_place,
            protocol=program.protocol,
        )


def _levels(code: Program) -> Ints:
    """Return the linear order; of a program that hangs with long messages, that with short ones.

    What it moves is the same, and made anew it hangs no more.
    """
    try:
        return ProgramOrder.of(code).positions()
    except CheckFailed:
        return ProgramOrder.of(code, UNBOUNDED).positions()


class _Lifting:
    """Writes down the moves of one instruction after another."""

    def __init__(self, code: Program) -> None:
        self.ops = [OPS[i] for i in code.op.tolist()]
        self.rank: list[int] = code.rank.tolist()
        self.block: list[int] = code.block.tolist()
        self.src: list[int] = code.src.tolist()
        self.dst: list[int] = code.dst.tolist()
        self.count: list[int] = code.count.tolist()
        self.rows: list[Row] = []
        self.passing: set[tuple[int, int]] = set()  # (rank, slot) only there to be read once
        self.aliases = Aliases.of_program(code)
        self.sizes: list[int] = np.maximum(1, code.chunks[:, 2]).tolist()
        self.version: list[dict[int, int]] = [{} for _ in range(code.rank_count)]
        self.landing = [SCRATCH + (1 << 31)] * code.rank_count
        send, recv, _ = messages(code, code.protocol.fifo_operations)
        self.to: dict[int, int] = dict(zip(send.tolist(), recv.tolist(), strict=True))
        self.landed: dict[int, int] = {}  # receive -> the first of its landing slots

    def instruction(self, at: int) -> None:
        op, rank, count = self.ops[at], self.rank[at], self.count[at]
        sources = self._present(rank, self.src[at], count) if op.reads_src else []
        sent = sources
        if op.receives:
            arrived = self._run(self.landed.pop(at), count)
            adds = sources if op.reads_src else [NONE] * count
            if op is Op.RECV_REDUCE_SEND:
                sent = self._run(self._fresh(rank, count), count)
            else:
                sent = self._written(at, self._is_added_next(at), set(adds))
            self._local(rank, arrived, sent, adds)
        elif op is Op.COPY:
            self._local(rank, sources, self._written(at, False, set()), [NONE] * count)
        elif op is Op.REDUCE:
            targets = self._present(rank, self.dst[at], count)
            self._local(rank, sources, targets, targets)
        if op.sends:
            recv = self.to[at]
            peer = self.rank[recv]
            first = self.landed[recv] = self._fresh(peer, count)
            for source, slot in zip(sent, self._run(first, count), strict=True):
                self.rows.append((rank, source, peer, slot, NONE))

    def _local(
        self, rank: int, sources: list[int], targets: list[int], operands: list[int]
    ) -> None:
        for source, target, operand in zip(sources, targets, operands, strict=True):
            self.rows.append((rank, source, rank, target, operand))

    def _is_added_next(self, at: int) -> bool:
        """Test if the next instruction of the block adds the data that this one receives (rrc)."""
        after = at + 1
        return (
            self.ops[at] is Op.RECV
            and after < len(self.ops)
            and self.block[after] == self.block[at]
            and self.ops[after] is Op.REDUCE
            and (self.src[after], self.count[after]) == (self.dst[at], self.count[at])
        )

    @staticmethod
    def _run(first: int, count: int) -> list[int]:
        return list(range(first, first + count))

    def _fresh(self, rank: int, count: int) -> int:
        """Return landing slots without other uses; their contents are read once."""
        first = self.landing[rank]
        self.landing[rank] += count
        self.passing.update((rank, first + k) for k in range(count))
        return first

    # --- slots, and versions of scratch slots -------------------------------------------------

    def _slots(self, rank: int, first: int, count: int) -> list[int]:
        """Return the slots of a slice, by the output's letter where in place the two alias."""
        return [self.aliases.name(rank, slot) for slot in self._run(first, count)]

    def _named(self, rank: int, slot: int) -> int:
        """The slot's name in its present version: all of one version lie as they lay before."""
        if slot < SCRATCH:
            return slot
        return slot + self.version[rank].get(slot, 0) * self.sizes[rank]

    def _present(self, rank: int, first: int, count: int) -> list[int]:
        return [self._named(rank, slot) for slot in self._slots(rank, first, count)]

    def _written(self, at: int, passes: bool, operands: set[int]) -> list[int]:
        """Return the slots an instruction writes: new versions, unless it adds to the old ones."""
        rank, found = self.rank[at], []
        for slot in self._slots(rank, self.dst[at], self.count[at]):
            name = self._named(rank, slot)
            if slot >= SCRATCH and name not in operands:
                versions = self.version[rank]
                versions[slot] = versions.get(slot, -1) + 1
                name = self._named(rank, slot)
                if passes:
                    self.passing.add((rank, name))
            found.append(name)
        return found


def _compacted(rows: list[Row], ranks: int) -> list[int]:
    """Number the scratch slots of each rank without gaps, in place; how many there are."""
    used: list[set[int]] = [set() for _ in range(ranks)]
    for src, source, dst, target, operand in rows:
        used[src].add(source)
        used[dst].update((target, operand))
    names = [
        {slot: SCRATCH + i for i, slot in enumerate(sorted(s for s in one if s >= SCRATCH))}
        for one in used
    ]
    for i, (src, source, dst, target, operand) in enumerate(rows):
        there = names[dst]
        rows[i] = (
            src,
            names[src].get(source, source),
            dst,
            there.get(target, target),
            there.get(operand, operand),
        )
    return [len(one) for one in names]


def _chunks(rows: list[Row], c: Collective, aliases: Aliases) -> list[int]:
    """Return the chunk that each move moves, followed from the precondition through the slots.

    Where the source is unknown, the operand decides, or the chunk of the target.
    """
    held: dict[tuple[int, int], int] = {}
    for rank, chunk, _, offset in c.pre.rows().tolist():
        held[rank, aliases.name(rank, INPUT + offset)] = chunk
    wanted = {(rank, OUTPUT + at): chunk for rank, chunk, _, at in c.post.rows().tolist()}
    found = []
    for src, source, dst, target, operand in rows:
        chunk = held.get((src, source), held.get((dst, operand), wanted.get((dst, target), 0)))
        held[dst, target] = chunk
        found.append(chunk)
    return found


Row = tuple[int, int, int, int, int]
"""A move: rank and slot of the source, rank and slot of the target, slot of the operand."""

Place = tuple[int, int]
"""A rank and a slot."""


def folded(rows: list[Row], passing: set[Place]) -> list[Row]:
    """Return the moves, those through ``passing`` places made one; such a place is written once.

    Before::

        rank 1 s[7] = rank 0 o[0]      …      rank 1 o[2] = s[7] + o[2]

    After, if nothing else reads s[7]::

        …      rank 1 o[2] = rank 0 o[0] + o[2]    (if nothing between writes rank 0's o[0])
        rank 1 o[2] = rank 0 o[0] + o[2]      …    (else, if nothing between touches rank 1's o[2])

    In the first case the first move waits, in the second the second one hurries; where neither is
    possible (two ranks exchange what both of them overwrite) the two stay.
    """
    return _Folding(rows).through(passing)


class _Folding:
    """Moves by position, and when each place is read and written."""

    def __init__(self, rows: list[Row]) -> None:
        self.rows: list[Row | None] = [*rows]
        self.reads: defaultdict[Place, list[int]] = defaultdict(list)
        self.writes: defaultdict[Place, list[int]] = defaultdict(list)
        for at, (src, source, dst, target, operand) in enumerate(rows):
            self.reads[src, source].append(at)
            if operand != NONE:
                self.reads[dst, operand].append(at)
            self.writes[dst, target].append(at)

    def through(self, passing: set[Place]) -> list[Row]:
        # In the order of the readers: what has been moved is in its place when others look.
        pairs = []
        for place in passing:
            reads, writes = self.reads.get(place, []), self.writes.get(place, [])
            if len(reads) == len(writes) == 1 and writes[0] < reads[0]:
                pairs.append((reads[0], place))
        for _, place in sorted(pairs):
            self._fold(self.writes[place][0], self.reads[place][0], place)
        return [row for row in self.rows if row is not None]

    def _fold(self, first: int, last: int, place: Place) -> None:
        """Make one move of the two at these positions, if that means the same."""
        one, other = self.rows[first], self.rows[last]
        assert one is not None
        assert other is not None
        src, source, dst, _, adds = one
        reader, read, _, target, operand = other
        if (reader, read) != place or other[2] != reader or (adds != NONE and operand != NONE):
            return  # it is the operand, it is sent on, or there would be three to add
        row = (src, source, dst, target, adds if operand == NONE else operand)
        kept = [(src, source)] + [(dst, adds)] * (adds != NONE)
        if not any(self._within(self.writes[p], first, last) for p in kept):
            for p in kept:
                self._shift(self.reads[p], first, last)
            self.rows[first], self.rows[last] = None, row
        elif not (
            self._within(self.writes[dst, target], first, last)
            or self._within(self.reads[dst, target], first, last)
            or (operand != NONE and self._within(self.writes[dst, operand], first, last))
        ):
            self._shift(self.writes[dst, target], last, first)
            if operand != NONE:
                self._shift(self.reads[dst, operand], last, first)
            self.rows[first], self.rows[last] = row, None
        else:
            return
        self.reads[place].clear()
        self.writes[place].clear()

    @staticmethod
    def _within(positions: list[int], first: int, last: int) -> bool:
        """Test if one of them lies strictly between."""
        return bisect_right(positions, first) < bisect_left(positions, last)

    @staticmethod
    def _shift(positions: list[int], old: int, new: int) -> None:
        del positions[bisect_left(positions, old)]
        insort(positions, new)
