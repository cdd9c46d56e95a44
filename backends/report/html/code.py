"""Chunks that each instruction of a program moves: values are followed through memory.

A slot holds a (partial) sum of one chunk, so one number says what it is. Instructions are walked in
an order that every run could follow; the k-th message of a connection is what its k-th receive
takes.
"""

from __future__ import annotations

from collections import defaultdict, deque

import numpy as np

from weft.dsl.base.kept import kept
from weft.dsl.nouns.program import Buffer, Program, Slice

from ...compile.analyses.order import ProgramOrder

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
            got = _either(got, memory.read(rank, one.src, one.count))
        if one.op.writes_dst:
            memory.write(rank, one.dst, got)
        if one.op.sends and block.send is not None:
            ways[rank, block.send, block.channel].append(got)
        moved[i] = tuple(sorted({x // pieces for x in got if x != NOTHING}))
    return moved


def _either(one: Labels, other: Labels) -> Labels:
    """Return the chunks of a sum of two: the same chunk, where one of them is known."""
    if not one:
        return other
    return tuple(a if a != NOTHING else b for a, b in zip(one, other, strict=False))


class _SlotContents:
    """Contents of each slot of each rank."""

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
