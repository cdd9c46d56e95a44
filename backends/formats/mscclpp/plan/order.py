"""What a program orders: the happens-before relation that the plan has to keep.

An instruction has three moments: it **starts** (what it waits for is done), it has **got** its
message if it receives one, and it **ends** (what it sends has been sent). Messages order the end
of a send before the moment the receive has got it. FIFO back-pressure orders nothing: a plan has
no FIFOs.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np

from weft.dsl.base.arrays import Ints, Ints32
from weft.dsl.base.errors import CheckFailed
from weft.dsl.nouns.program import Instr, Program

START, GOT, END = 0, 1, 2
_KEPT = 8  # clocks of so many ranks are kept; callers go through the ranks one by one


@dataclass(frozen=True, slots=True)
class Message:
    """One message: the instructions that send and receive it, and its connection."""

    send: int
    recv: int
    connection: int


@dataclass(eq=False)
class Order:
    """All instructions of a program in one list, block after block, and what precedes what.

    Attributes:
        instrs, rank, block, index: of every instruction: where it is.
        first: per rank and block, its first instruction.
        connections: (source, destination, channel), sorted; ``messages`` in sending order.
        sent, received: the message that an instruction sends, receives, or -1.
    """

    instrs: list[Instr] = field(default_factory=list)
    rank: list[int] = field(default_factory=list)
    block: list[int] = field(default_factory=list)
    index: list[int] = field(default_factory=list)
    first: list[list[int]] = field(default_factory=list)
    connections: list[tuple[int, int, int]] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    sent: list[int] = field(default_factory=list)
    received: list[int] = field(default_factory=list)
    level: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    _layers: list[tuple[Ints, Ints, Ints]] = field(default_factory=list)
    _clocks: dict[int, Ints32] = field(default_factory=dict)

    @staticmethod
    def of(program: Program) -> Order:
        """Flatten a program.

        Raises:
            CheckFailed: the ends of a connection do not match, or the program deadlocks.
        """
        order = Order()
        for r, blocks in enumerate(program.ranks):
            order.first.append([])
            for b, block in enumerate(blocks):
                order.first[-1].append(len(order.instrs))
                order.instrs += block.code
                order.rank += [r] * len(block.code)
                order.block += [b] * len(block.code)
                order.index += range(len(block.code))
        order._connect(program)
        order._sort()
        return order

    def _connect(self, program: Program) -> None:
        ends: dict[tuple[int, int, int], tuple[list[int], list[int]]]
        ends = defaultdict(lambda: ([], []))
        for i, instr in enumerate(self.instrs):
            block = program.ranks[self.rank[i]].blocks[self.block[i]]
            if instr.op.sends and block.send is not None:
                ends[self.rank[i], block.send, block.channel][0].append(i)
            if instr.op.receives and block.recv is not None:
                ends[block.recv, self.rank[i], block.channel][1].append(i)
        self.sent, self.received = [-1] * len(self.instrs), [-1] * len(self.instrs)
        for key in sorted(ends):
            sends, recvs = ends[key]
            counts = [[self.instrs[i].count for i in side] for side in (sends, recvs)]
            if counts[0] != counts[1]:
                raise CheckFailed(
                    f"connection {key[0]} -> {key[1]} on channel {key[2]}: "
                    "sends and receives do not match"
                )
            for send, recv in zip(sends, recvs, strict=True):
                self.sent[send] = self.received[recv] = len(self.messages)
                self.messages.append(Message(send, recv, len(self.connections)))
            self.connections.append(key)

    def _edges(self) -> Ints:
        edges = []
        for i, instr in enumerate(self.instrs):
            edges += [(3 * i, 3 * i + 1), (3 * i + 1, 3 * i + 2)]
            if self.index[i]:
                edges.append((3 * i - 1, 3 * i))
            first = self.first[self.rank[i]]
            edges += [(3 * (first[b] + k) + END, 3 * i) for b, k in instr.waits]
        edges += [(3 * m.send + END, 3 * m.recv + GOT) for m in self.messages]
        return np.array(edges, np.int64).reshape(-1, 2)

    def _sort(self) -> None:
        """Group the edges by the level of their target, so that clocks are array operations."""
        count = 3 * len(self.instrs)
        edges = self._edges()
        edges = edges[np.argsort(edges[:, 0], kind="stable")]
        start = np.searchsorted(edges[:, 0], np.arange(count + 1))
        missing = np.bincount(edges[:, 1], minlength=count)
        level = np.full(count, -1, np.int64)
        layer, depth = np.flatnonzero(missing == 0), 0
        while len(layer):
            level[layer] = depth
            sizes = start[layer + 1] - start[layer]
            rows = np.repeat(start[layer] - np.cumsum(sizes) + sizes, sizes)
            after, hits = np.unique(edges[rows + np.arange(len(rows)), 1], return_counts=True)
            missing[after] -= hits
            layer, depth = after[missing[after] == 0], depth + 1
        if (level < 0).any():
            i = int(np.argmax(level < 0)) // 3
            raise CheckFailed(
                f"the program deadlocks: rank {self.rank[i]} block {self.block[i]} "
                f"never gets past instruction {self.index[i]}"
            )
        self.level = level
        edges = edges[np.lexsort((edges[:, 1], level[edges[:, 1]]))]
        bounds = np.searchsorted(level[edges[:, 1]], np.arange(1, depth + 1))
        for low, high in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            target = edges[low:high, 1]
            heads = np.flatnonzero(np.concatenate([[True], target[1:] != target[:-1]]))
            self._layers.append((edges[low:high, 0], heads, target[heads]))

    def clocks(self, rank: int) -> Ints32:
        """For every moment, the last instruction of each block of ``rank`` that ended before it.

        Shape (3 · instructions, blocks); -1 where none has. O(moments · blocks).
        """
        if rank not in self._clocks:
            table = np.full((3 * len(self.instrs), len(self.first[rank])), -1, np.int32)
            mine = np.flatnonzero(np.array(self.rank) == rank)
            table[3 * mine + END, np.array(self.block)[mine]] = np.array(self.index)[mine]
            for source, heads, target in self._layers:
                latest = np.maximum.reduceat(table[source], heads, axis=0)
                table[target] = np.maximum(table[target], latest)
            while len(self._clocks) >= _KEPT:
                self._clocks.pop(next(iter(self._clocks)))
            self._clocks[rank] = table
        return self._clocks[rank]

    def ended(self, instr: int, other: int, moment: int) -> bool:
        """Whether ``instr`` has always ended when ``other`` comes to that moment."""
        table = self.clocks(self.rank[instr])
        return bool(table[3 * other + moment, self.block[instr]] >= self.index[instr])

    def heard(self) -> list[int]:
        """Per rank, as a bit set, the ranks whose sends have always happened when it is done."""
        bits = np.zeros(3 * len(self.instrs), object)
        for m in self.messages:
            bits[3 * m.send + END] = 1 << self.rank[m.send]
        for source, heads, target in self._layers:
            bits[target] |= np.bitwise_or.reduceat(bits[source], heads)
        known = [0] * len(self.first)
        for i, rank in enumerate(self.rank):
            known[rank] |= int(bits[3 * i + END])
        return known
