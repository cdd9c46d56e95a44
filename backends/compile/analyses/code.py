"""The instructions of a program as columns, and columns as a program again.

Equal instructions are one object wherever they stand, so a program of a million instructions has
some thousand objects; they are called *forms* here, and each is looked at once. What a pass changes
about an instruction is its form (a number) and what it waits for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from weft.dsl.base.arrays import Bools, Ints
from weft.dsl.base.errors import CheckFailed
from weft.dsl.base.unique_rows import distinct, pick, rows_of, same_rows
from weft.dsl.nouns.program import Block, Instr, Op, Program
from weft.dsl.nouns.slots import slot_of

OPS = tuple(Op)
OP_NUMBER = {op: i for i, op in enumerate(OPS)}
SENDS = np.array([op.sends for op in OPS])
RECEIVES = np.array([op.receives for op in OPS])
READS_SRC = np.array([op.reads_src for op in OPS])
WRITES_DST = np.array([op.writes_dst for op in OPS])


@dataclass(frozen=True, eq=False)
class Waits:
    """What each instruction waits for; ``start`` has one more entry than there are instructions.

    Those of instruction i are ``block[start[i]:start[i+1]]`` (numbered within the rank) with
    ``index`` (within the block), ascending by block.
    """

    start: Ints
    block: Ints
    index: Ints

    @staticmethod
    def latest(instructions: int, after: Ints, block: Ints, index: Ints) -> Waits:
        """From pairs in any order: ``after`` waits for the latest instruction of each block."""
        tall, wide = int(index.max(initial=0)) + 1, int(block.max(initial=0)) + 1
        key = np.sort((after * wide + block) * tall + index)
        group = key // tall
        key, group = key[_closes(group)], group[_closes(group)]
        start = np.searchsorted(group, np.arange(instructions + 1) * wide)
        return Waits(start, group % wide, key % tall)


def _closes(group: Ints) -> Bools:
    """The last entry of each run of equal entries."""
    closes = np.ones(len(group), bool)
    closes[:-1] = group[1:] != group[:-1]
    return closes


@dataclass(frozen=True, eq=False)
class Code:
    """All instructions, block after block, rank after rank.

    ``form[i]`` says which of ``forms`` instruction i is (the waits of a form mean nothing).
    ``block`` numbers the blocks of all ranks, ``block_start[b]`` is the first instruction of block
    b; ``first_block[r]`` the first block of rank r. ``wait[wait_start[i]:wait_start[i+1]]`` are the
    instructions that i waits for.
    """

    program: Program
    forms: list[Instr]
    form: Ints
    block_start: Ints
    first_block: Ints
    wait_start: Ints
    wait: Ints

    @staticmethod
    def of(program: Program) -> Code:
        """The columns of a program.

        Raises:
            CheckFailed: a wait for an instruction that does not exist.
        """
        blocks = [block for rank in program.ranks for block in rank]
        forms, form = distinct([instr for block in blocks for instr in block.code])
        block_start = _sums([len(block.code) for block in blocks])
        first_block = _sums([len(rank.blocks) for rank in program.ranks])
        start, row = rows_of(_sums([len(x.waits) for x in forms]), form)
        table = np.array([w for x in forms for w in x.waits], np.int64).reshape(-1, 2)[row]
        code = Code(program, forms, form, block_start, first_block, start, row)
        waiting = np.repeat(np.arange(len(form)), np.diff(start))
        wait = code._found(waiting, table[:, 0], table[:, 1])
        return replace(code, wait=wait)

    def _found(self, waiting: Ints, block: Ints, index: Ints) -> Ints:
        """The instruction that each wait names."""
        rank = self.rank[waiting]
        there = self.first_block[rank] + np.maximum(block, 0)
        bad = (block < 0) | (there >= self.first_block[rank + 1]) | (index < 0)
        there[bad] = 0
        bad |= index >= np.diff(self.block_start, append=len(self.form))[there]
        if bad.any():
            i = int(np.flatnonzero(bad)[0])
            raise CheckFailed(
                f"rank {rank[i]}: instruction {self.index[waiting[i]]} of a block waits for "
                f"instruction {index[i]} of block {block[i]}, which does not exist"
            )
        return self.block_start[there] + index

    def __len__(self) -> int:
        return len(self.form)

    @cached_property
    def block(self) -> Ints:
        """The block of each instruction, through all ranks."""
        return np.repeat(np.arange(len(self.block_start) - 1), np.diff(self.block_start))

    @cached_property
    def rank(self) -> Ints:
        """The rank of each instruction."""
        of_block = np.repeat(np.arange(len(self.first_block) - 1), np.diff(self.first_block))
        return of_block[self.block]

    @cached_property
    def index(self) -> Ints:
        """The place of each instruction in its block."""
        return np.arange(len(self)) - self.block_start[self.block]

    @cached_property
    def op(self) -> Ints:
        """The number in :data:`OPS` of what each instruction does."""
        return np.array([OP_NUMBER[x.op] for x in self.forms], np.int64)[self.form]

    @cached_property
    def src(self) -> Ints:
        """The slot where each source begins."""
        return np.array([slot_of(x.src) for x in self.forms], np.int64)[self.form]

    @cached_property
    def dst(self) -> Ints:
        """The slot where each destination begins."""
        return np.array([slot_of(x.dst) for x in self.forms], np.int64)[self.form]

    @cached_property
    def count(self) -> Ints:
        """The chunks of each instruction."""
        return np.array([x.count for x in self.forms], np.int64)[self.form]

    @cached_property
    def waiting(self) -> Ints:
        """Who waits, for each entry of ``wait``."""
        return np.repeat(np.arange(len(self)), np.diff(self.wait_start))

    def waits(self, keep: Bools | None = None) -> Waits:
        """What each instruction waits for, by block and index; only those of ``keep``."""
        chosen = slice(None) if keep is None else keep
        wait, waiting = self.wait[chosen], self.waiting[chosen]
        block = self.block[wait] - self.first_block[self.rank[wait]]
        return Waits.latest(len(self), waiting, block, self.index[wait])


def _sums(lengths: Sequence[int]) -> Ints:
    return np.concatenate([[0], np.cumsum(np.array(lengths, np.int64))])


def instructions(forms: Sequence[Instr], form: Ints, waits: Waits) -> list[Instr]:
    """Forms with their waits; equal ones are one object."""
    row = same_rows(waits.start, waits.block << 32 | waits.index)
    rows = int(row.max(initial=0)) + 1
    names, first, which = np.unique(form * rows + row, return_index=True, return_inverse=True)
    once = []
    for name, i in zip((names // rows).tolist(), first.tolist(), strict=True):
        here = slice(int(waits.start[i]), int(waits.start[i + 1]))
        own = tuple(zip(waits.block[here].tolist(), waits.index[here].tolist(), strict=True))
        x = forms[name]
        once.append(x if x.waits == own else Instr(x.op, x.src, x.dst, x.count, own))
    return pick(once, which.reshape(-1))


def with_code(program: Program, code: list[Instr], lengths: Sequence[int]) -> Program:
    """The program with other code in its blocks, ``lengths`` instructions in each."""
    at, blocks = 0, iter(lengths)

    def rewritten(block: Block) -> Block:
        nonlocal at
        begin, at = at, at + next(blocks)
        return Block(block.channel, block.send, block.recv, tuple(code[begin:at]))

    ranks = (replace(rank, blocks=tuple(map(rewritten, rank.blocks))) for rank in program.ranks)
    return replace(program, ranks=tuple(ranks))
