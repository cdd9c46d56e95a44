"""Code and chunks on pages: listings by rank, and the chunks that each instruction moves.

For these values are followed through memory. A slot holds a (partial) sum of one chunk, so one
number says what it is. Instructions are walked in an order that every run could follow; the k-th
message of a connection is what its k-th receive takes.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from weft.dsl.base.kept import kept
from weft.dsl.nouns.collective import Collective
from weft.dsl.nouns.program import Block, Buffer, Program, RankProgram, Slice

from ...compile.analyses.order import ProgramOrder
from ...formats.listings import rank_lines
from ..sizes import LIMITS
from ..text import holders
from ..text import runs as joined_runs

NOTHING = -1

Labels = tuple[int, ...]


@kept()
def chunks_moved(program: Program) -> list[Labels]:
    """Return, for each instruction in order of ranks and blocks, the chunks of the collective it
    moves.

    Chunks are those of the program's collective, whole: pieces of one are that one.

    Raises:
        CheckFailed: it deadlocks, or two ends of a connection do not match.
    """
    pieces = max(1, program.message_chunks // max(1, program.collective.message_chunks))
    memory = _SlotContents(program, pieces)
    order = np.argsort(ProgramOrder.of(program).positions(), kind="stable")
    blocks = [(rank, block) for rank, r in enumerate(program.ranks) for block in r]
    ways: dict[tuple[int, int, int], deque[Labels]] = defaultdict(deque)
    moved: list[Labels] = [()] * program.instructions
    for i in order.tolist():
        rank, block = blocks[int(program.block[i])]
        one = program.instrs[i]
        got: Labels = ()
        if one.op.receives:
            way = ways[block.recv if block.recv is not None else -1, rank, block.channel]
            got = way.popleft() if way else ()
        if one.op.reads_src:
            read = memory.read(rank, one.src, one.count)  # of a sum, the chunk of either part
            got = tuple(a if a != NOTHING else b for a, b in zip(got, read, strict=False)) or read
        if one.op.writes_dst:
            memory.write(rank, one.dst, got)
        if one.op.sends and block.send is not None:
            ways[rank, block.send, block.channel].append(got)
        moved[i] = tuple(sorted({x // pieces for x in got if x != NOTHING}))
    return moved


class _SlotContents:
    def __init__(self, program: Program, pieces: int) -> None:
        c = program.collective.split(pieces)
        self.shift = [
            c.in_place_shift(rank) if program.in_place else None for rank in range(c.ranks)
        ]
        self.slots: dict[tuple[int, Buffer, int], int] = {}
        grains = c.grains
        pre = c.pre
        for rank, chunk, offset in zip(
            pre.ranks.tolist(), pre.chunks.tolist(), pre.offsets.tolist(), strict=True
        ):
            for k in range(int(grains[chunk])):
                self.slots[self._key(rank, Buffer.INPUT, offset + k)] = chunk

    def _key(self, rank: int, buffer: Buffer, offset: int) -> tuple[int, Buffer, int]:
        shift = self.shift[rank]
        if buffer is Buffer.INPUT and shift is not None:
            return rank, Buffer.OUTPUT, offset + shift
        return rank, buffer, offset

    def read(self, rank: int, place: Slice, count: int) -> Labels:
        return tuple(
            self.slots.get(self._key(rank, place.buffer, place.offset + k), NOTHING)
            for k in range(count)
        )

    def write(self, rank: int, place: Slice, labels: Labels) -> None:
        for k, label in enumerate(labels):
            self.slots[self._key(rank, place.buffer, place.offset + k)] = label


def chunk_names(collective: Collective, most: int = LIMITS.named_chunks) -> list[list[str]]:
    """Return for each chunk the ranks on which it starts and on which it must end, in words."""
    start, end = holders(collective.pre), holders(collective.post)
    everybody = collective.ranks
    return [
        [_words(start.get(k, set()), everybody), _words(end.get(k, set()), everybody)]
        for k in range(min(most, collective.chunks))
    ]


def runs(numbers: Iterable[int]) -> str:
    """Return sorted numbers with runs joined: ``0–3, 7``."""
    return joined_runs(numbers, "–", ", ")


def _words(ranks: set[int], everybody: int) -> str:
    if not ranks:
        return "nowhere"
    if len(ranks) == everybody and everybody > 1:
        return "all ranks"
    return f"rank{'s' if len(ranks) > 1 else ''} {runs(ranks)}"


def listing(program: Program, most: int = LIMITS.characters) -> dict[str, Any]:
    """Return the facts of the section: parts with title and text, and notes on omissions."""
    groups = same_ranks(program)
    parts, used, left = [], 0, []
    for first, members in groups:
        text = "\n".join(rank_lines(program.ranks[first])) or "  nothing"
        if used + len(text) > most:
            left += members
            continue
        used += len(text)
        parts.append({"title": _title(first, members, program), "text": text})
    notes = []
    if left:
        notes.append(
            f"the code of ranks {runs(left)} is left out, as the page would be too large; "
            "weft show prints all of it"
        )
    return {"parts": parts, "notes": notes}


def _title(first: int, members: list[int], program: Program) -> str:
    rank = program.ranks[first]
    size = f"{len(rank.blocks)} thread blocks, {sum(len(b.code) for b in rank)} instructions"
    others = [r for r in members if r != first]
    if not others:
        return f"rank {first}: {size}"
    what = "with peers and chunk offsets shifted round by as many ranks"
    ranks = f"rank{'s' if len(others) > 1 else ''} {runs(others)}"
    return f"rank {first}: {size}; {ranks} the same, {what}"


def same_ranks(program: Program) -> list[tuple[int, list[int]]]:
    """Return groups of ranks whose code is the same when all rank numbers are shifted.

    Each is (first rank, all ranks).
    """
    groups: dict[RankProgram, list[int]] = {}
    count = len(program.ranks)
    for r, rank in enumerate(program.ranks):
        groups.setdefault(_shifted(rank, r, count), []).append(r)
    return [(ranks[0], ranks) for ranks in groups.values()]


def _shifted(rank: RankProgram, r: int, count: int) -> RankProgram:
    """Return the code with ranks shifted as if it were rank 0's."""
    size = {Buffer.INPUT: rank.input_chunks, Buffer.OUTPUT: rank.output_chunks}

    def peer(other: int | None) -> int | None:
        return None if other is None else (other - r) % count

    def place(one: Slice) -> Slice:
        whole = size.get(one.buffer, 0)
        if whole % count or not whole:
            return one
        return Slice(one.buffer, (one.offset - r * (whole // count)) % whole)

    blocks = tuple(
        Block(
            b.channel,
            peer(b.send),
            peer(b.recv),
            tuple(replace(x, src=place(x.src), dst=place(x.dst)) for x in b.code),
        )
        for b in rank.blocks
    )
    return replace(rank, blocks=blocks)
