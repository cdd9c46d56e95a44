"""Happens-before relation of a program, which its plan has to keep.

An instruction has three moments: it **starts** (what it waits for is done), it has **got** its
message if it receives one, and it **ends** (what it sends has been sent). Messages order the end
of a send before the moment the receive has got it. Plans lack FIFOs, so that
back-pressure does not order anything.
"""

from __future__ import annotations

from dataclasses import field
from functools import cached_property

import numpy as np

from weft.dsl.base.arrays import Ints, Ints32
from weft.dsl.base.errors import CheckFailed
from weft.dsl.base.layers import EdgeLevels
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.program import ABSENT, RECEIVES, SENDS, Instr, Program

from .model import LIMITS

START, GOT, END = range(3)


@dataclass(frozen=True, slots=True)
class PlanMessage:
    """One message: the instructions that send and receive it, and its connection."""

    send: int
    recv: int
    connection: int


@dataclass(eq=False)
class HappensBefore:
    """Messages between the instructions of a program, and their partial order.

    Instructions are numbered as in the columns of the program.

    Attributes:
        connections: (source, destination, channel), sorted; ``messages`` in sending order.
        sent, received: the message that an instruction sends, receives, or -1.
    """

    program: Program
    connections: list[tuple[int, int, int]] = field(default_factory=list)
    messages: list[PlanMessage] = field(default_factory=list)
    sent: list[int] = field(default_factory=list)
    received: list[int] = field(default_factory=list)
    level: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    _levels: EdgeLevels = field(init=False)
    _clocks: dict[int, Ints32] = field(default_factory=dict)

    @staticmethod
    def of(program: Program) -> HappensBefore:
        """Find the messages, and sort the instructions by them and by the waits.

        Raises:
            CheckFailed: the ends of a connection do not match, or the program deadlocks.
        """
        order = HappensBefore(program)
        order._connect()
        order._sort()
        return order

    @property
    def instrs(self) -> list[Instr]:
        """Views of all instructions."""
        return self.program.instrs

    @cached_property
    def rank(self) -> list[int]:
        """The rank of each instruction."""
        ranks: list[int] = self.program.rank.tolist()
        return ranks

    @cached_property
    def block(self) -> list[int]:
        """The block of each instruction, numbered within its rank."""
        blocks: list[int] = self.program.block_index[self.program.block].tolist()
        return blocks

    def _connect(self) -> None:
        p, ends = self.program, []
        for does, source, target in (
            (SENDS, p.block_rank, p.block_send),
            (RECEIVES, p.block_recv, p.block_rank),
        ):
            linked = (source != ABSENT) & (target != ABSENT)
            rows = np.flatnonzero(does[p.op] & linked[p.block])
            columns = (source, target, p.block_channel)
            names = np.stack([column[p.block[rows]] for column in columns], axis=1)
            order = np.lexsort((rows, *names.T[::-1]))
            ends.append((rows[order], names[order]))
        (send, sent), (recv, received) = ends
        names, which = np.unique(np.concatenate([sent, received]), axis=0, return_inverse=True)
        which = which.reshape(-1)
        sides = (which[: len(send)], p.count[send]), (which[len(send) :], p.count[recv])
        self.connections = [(a, b, c) for a, b, c in names.tolist()]
        if any(not np.array_equal(a, b) for a, b in zip(*sides, strict=True)):
            self._refuse_unmatched(*sides)
        connection = which[: len(send)].tolist()
        self.messages = list(map(PlanMessage, send.tolist(), recv.tolist(), connection))
        for column, rows in ((self.sent, send), (self.received, recv)):
            column += [-1] * p.instructions
            for number, i in enumerate(rows.tolist()):
                column[i] = number

    def _refuse_unmatched(self, sent: tuple[Ints, Ints], received: tuple[Ints, Ints]) -> None:
        for number, (source, target, channel) in enumerate(self.connections):
            sends, receives = (count[which == number] for which, count in (sent, received))
            if not np.array_equal(sends, receives):
                raise CheckFailed(
                    f"connection {source} -> {target} on channel {channel}: "
                    "sends and receives do not match"
                )

    def _edges(self) -> tuple[Ints, Ints]:
        p, at = self.program, 3 * np.arange(len(self.instrs))
        follows = at[p.index > 0]
        send, recv = np.array([(m.send, m.recv) for m in self.messages], np.int64).reshape(-1, 2).T
        edges = (
            (at, at + GOT),
            (at + GOT, at + END),
            (follows - 3 + END, follows),
            (3 * p.wait + END, at[p.waiting]),
            (3 * send + END, 3 * recv + GOT),
        )
        source, target = (np.concatenate(side) for side in zip(*edges, strict=True))
        return source, target

    def _sort(self) -> None:
        """Group the edges by the level of their target, so that clocks are array operations."""
        self._levels = EdgeLevels.of(3 * len(self.instrs), *self._edges())
        self.level = self._levels.level
        if (self.level < 0).any():
            i = int(np.argmax(self.level < 0)) // 3
            raise CheckFailed(
                f"the program deadlocks: rank {self.rank[i]} block {self.block[i]} "
                f"never gets past instruction {self.program.index[i]}"
            )

    def clocks(self, rank: int) -> Ints32:
        """For every moment, the last instruction of each block of ``rank`` that ended before it.

        Shape (3 · instructions, blocks); -1 where none has. O(moments · blocks).
        """
        if rank not in self._clocks:
            p = self.program
            first, end = p.first_block[rank : rank + 2].tolist()
            table = np.full((3 * p.instructions, end - first), -1, np.int32)
            mine = np.arange(p.block_start[first], p.block_start[end])
            table[3 * mine + END, p.block[mine] - first] = p.index[mine]
            self._levels.advance(table)
            while len(self._clocks) >= LIMITS.clock_ranks:
                self._clocks.pop(next(iter(self._clocks)))
            self._clocks[rank] = table
        return self._clocks[rank]

    def ended(self, instr: int, other: int, moment: int) -> bool:
        """Test if ``instr`` has always ended when ``other`` comes to that moment."""
        table = self.clocks(self.rank[instr])
        return bool(table[3 * other + moment, self.block[instr]] >= self.program.index[instr])

    def heard(self) -> list[int]:
        """Per rank, as a bit set, the ranks whose sends have always happened when it is done."""
        bits = np.zeros(3 * len(self.instrs), object)
        for m in self.messages:
            bits[3 * m.send + END] = 1 << self.rank[m.send]
        for source, heads, target in self._levels.steps():
            bits[target] |= np.bitwise_or.reduceat(bits[source], heads)
        known = [0] * self.program.rank_count
        for i, rank in enumerate(self.rank):
            known[rank] |= int(bits[3 * i + END])
        return known
