"""Drop dependences that others imply.

Before::

    block 2, 0: r o[3]    waits for (0, 1) and (1, 4)        block 1, 4 waits for (0, 1)

After::

    block 2, 0: r o[3]    waits for (1, 4)

Every instruction that somebody waits for carries a clock: for each block of its rank, the latest
instruction known to be done when it is. A wait that the clock of the block, or of another wait,
covers already says nothing new. Cost: waits × blocks of the rank.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from typing import ClassVar

from weft.dsl.errors import CheckFailed
from weft.dsl.program import Block, Instr, Program, RankProgram

from ..target import Target

_Wait = tuple[int, int]
_Clock = list[int]


@dataclass(frozen=True, slots=True)
class Sync:
    """Keep the fewest waits that order the same things."""

    name: ClassVar[str] = "sync"

    def apply(self, program: Program, target: Target) -> Program:
        """The program with fewer waits.

        Raises:
            CheckFailed: the waits of a rank form a cycle.
        """
        return replace(
            program,
            ranks=tuple(_Rank(code, at).minimal() for at, code in enumerate(program.ranks)),
        )


class _Rank:
    """Walks the blocks of one rank, each as far as its waits allow."""

    def __init__(self, code: RankProgram, rank: int) -> None:
        self.code, self.rank = code, rank
        self.named = {w for block in code for instr in block.code for w in instr.waits}
        self.clocks: dict[_Wait, _Clock] = {}  # of instructions somebody waits for
        self.done: list[list[Instr]] = [[] for _ in code.blocks]
        self.sleeping: dict[_Wait, list[int]] = {}

    def minimal(self) -> RankProgram:
        own = [[-1] * len(self.code.blocks) for _ in self.code.blocks]
        ready = deque(range(len(self.code.blocks)))
        while ready:
            at = ready.popleft()
            self._advance(at, own[at], ready)
        for b, block in enumerate(self.code.blocks):
            here = len(self.done[b])
            if here < len(block.code):
                raise CheckFailed(
                    f"rank {self.rank}: block {b} waits in a circle at instruction {here}"
                )
        return replace(
            self.code,
            blocks=tuple(
                Block(b.channel, b.send, b.recv, tuple(done))
                for b, done in zip(self.code.blocks, self.done, strict=True)
            ),
        )

    def _advance(self, block: int, clock: _Clock, ready: deque[int]) -> None:
        code, done = self.code.blocks[block].code, self.done[block]
        while len(done) < len(code):
            instr, here = code[len(done)], (block, len(done))
            for wait in instr.waits:
                if len(self.done[wait[0]]) <= wait[1]:
                    self.sleeping.setdefault(wait, []).append(block)
                    return
            if instr.waits:
                instr = replace(instr, waits=self._needed(instr.waits, clock))
            clock[block] = here[1]
            done.append(instr)
            if here in self.named:
                self.clocks[here] = clock.copy()
                ready.extend(self.sleeping.pop(here, ()))

    def _needed(self, waits: tuple[_Wait, ...], clock: _Clock) -> tuple[_Wait, ...]:
        new = [w for w in waits if clock[w[0]] < w[1]]
        kept = tuple(
            sorted(w for w in new if not any(self.clocks[o][w[0]] >= w[1] for o in new if o != w))
        )
        for wait in kept:
            for block, index in enumerate(self.clocks[wait]):
                if index > clock[block]:
                    clock[block] = index
        return kept
