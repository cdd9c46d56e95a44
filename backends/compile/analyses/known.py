"""What an instruction knows to be done on its rank, by program order and waits, for all ranks.

Only an instruction that waits learns anything new, so only those carry a clock: for each block of
the rank, the latest instruction that is done when it begins. All ranks advance at once, layer by
layer. O(waits × blocks of a rank) in time and memory.
"""

from __future__ import annotations

from typing import Self

import numpy as np

from weft.dsl.base.arrays import Bools, Ints
from weft.dsl.nouns.program import Program


class Known:
    """Clocks of a program whose waits form no cycle."""

    def __init__(self, code: Program, before: Ints, after: Ints) -> None:
        """``after[i]`` waits for ``before[i]``."""
        self.code = code
        self.column = code.block_index
        self.waiting = np.unique(after)
        width = int(self.column.max(initial=0)) + 1
        self.table = np.full((len(self.waiting) + 1, width), -1, np.int32)  # the last knows nothing
        own = np.searchsorted(self.waiting, after)
        np.maximum.at(self.table, (own, self.column[code.block[before]]), before)
        earlier = self.last(self.waiting - 1)
        # ``waiting - 1`` may lie in the block before, which teaches nothing.
        follows = np.flatnonzero(earlier >= 0)
        blocks = code.block[self.waiting]
        follows = follows[blocks[earlier[follows]] == blocks[follows]]
        behind = self.last(before)
        taught = behind >= 0
        self._advance(
            np.concatenate([earlier[follows], behind[taught]]),
            np.concatenate([follows, own[taught]]),
        )

    @classmethod
    def of(cls, code: Program) -> Self:
        """By all waits of a program."""
        return cls(code, code.wait, code.waiting)

    def last(self, instruction: Ints) -> Ints:
        """The clock of each instruction: that of the last that waits, up to it, in its block."""
        at = np.searchsorted(self.waiting, instruction, side="right") - 1
        held = at >= 0
        block = self.code.block
        held[held] = block[self.waiting[at[held]]] == block[instruction[held]]
        return np.where(held, at, -1)

    def _advance(self, before: Ints, after: Ints) -> None:
        order = np.argsort(before, kind="stable")
        before, after = before[order], after[order]
        start = np.searchsorted(before, np.arange(len(self.waiting) + 1))
        missing = np.bincount(after, minlength=len(self.waiting))
        layer = np.flatnonzero(missing == 0)
        while len(layer):
            sizes = start[layer + 1] - start[layer]
            rows = np.repeat(start[layer] - np.cumsum(sizes) + sizes, sizes)
            rows += np.arange(len(rows))
            rows = rows[np.argsort(after[rows], kind="stable")]
            opens = np.flatnonzero(np.diff(after[rows], prepend=-1))
            if not len(opens):
                return
            reached = after[rows[opens]]
            latest = np.maximum.reduceat(self.table[before[rows]], opens, axis=0)
            self.table[reached] = np.maximum(self.table[reached], latest)
            missing[reached] -= np.diff(opens, append=len(rows))
            layer = reached[missing[reached] == 0]

    def done(self, first: Ints, second: Ints) -> Bools:
        """Whether ``first`` is done when ``second``, of another block of its rank, begins."""
        result: Bools = self.table[self.last(second), self.column[self.code.block[first]]] >= first
        return result

    def done_before(self, first: Ints, second: Ints) -> Bools:
        """The same without what ``second`` itself waits for."""
        clock = np.searchsorted(self.waiting, second) - 1
        mine = clock >= 0
        block = self.code.block
        mine[mine] = block[self.waiting[clock[mine]]] == block[second[mine]]
        row = np.where(mine, clock, -1)
        result: Bools = self.table[row, self.column[block[first]]] >= first
        return result
