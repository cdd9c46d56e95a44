"""A linear order of all instructions of a program that every run could follow.

Edges: the code of a block; a wait; a message from its send to its receive; credit, from the receive
of operation k to the send of operation k + depth (large messages: every chunk is one operation). A
send of more chunks than ``depth`` cannot end before its receive has begun: whatever the receive
needs, the send needs. Such a pair gets *gates*, nodes that stand for "can begin".

The order sorts instructions by the length of the longest path that leads to them. Passes use it
as a potential: a change after which all edges still go upwards cannot have made a deadlock.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from weft.dsl.errors import CheckFailed
from weft.dsl.program import Instr, Program

from .flow import Column

NOBODY = -1


@dataclass(frozen=True, eq=False)
class Code:
    """All instructions of a program in one list, block after block.

    ``first[r][b]`` is the index of the first instruction of block b of rank r; ``block[i]`` numbers
    the blocks of all ranks; ``credit_from[i]`` is the receive whose end lets send i end (or -1),
    ``credit_to[i]`` the first send that waits for the end of receive i.
    """

    instrs: list[Instr]
    first: list[list[int]]
    rank: list[int]
    block: list[int]
    waits: list[list[int]]
    edges: list[tuple[int, int]]
    gates: dict[int, int]
    credit_from: list[int]
    credit_to: list[int]

    @staticmethod
    def of(program: Program) -> Code:
        """Flatten a program.

        Raises:
            CheckFailed: a connection whose two ends do not match.
        """
        instrs: list[Instr] = []
        first: list[list[int]] = []
        rank: list[int] = []
        block: list[int] = []
        blocks = 0
        for r, rank_code in enumerate(program.ranks):
            first.append([])
            for b in rank_code:
                first[-1].append(len(instrs))
                instrs.extend(b.code)
                rank.extend([r] * len(b.code))
                block.extend([blocks] * len(b.code))
                blocks += 1
        waits = [[first[r][b] + i for b, i in x.waits] for r, x in zip(rank, instrs, strict=True)]
        code = Code(instrs, first, rank, block, waits, [], {},
                    [NOBODY] * len(instrs), [NOBODY] * len(instrs))  # fmt: skip
        code._connect(program, program.protocol.fifo_operations)
        return code

    def _connect(self, program: Program, depth: int) -> None:
        """Add the edges of messages, credit, waits and blocks."""
        messages = _messages(self, program)
        for send, recv, _ in messages:
            if self.instrs[send].count > depth:
                for one in (send, recv):
                    self.gates.setdefault(one, len(self.instrs) + len(self.gates))
        for send, recv, credit in messages:
            self.edges.append((send, recv))
            if send in self.gates:
                self.edges.append((self.gates[recv], self.gates[send]))
            if credit != NOBODY:
                self._into(credit, send)
                self.credit_from[send] = credit
                if self.credit_to[credit] == NOBODY:
                    self.credit_to[credit] = send
        self.edges.extend((gate, one) for one, gate in self.gates.items())
        for i, before in enumerate(self.waits):
            for one in before:
                self._into(one, i)
            if i and self.block[i] == self.block[i - 1]:
                self._into(i - 1, i)

    def _into(self, before: int, after: int) -> None:
        self.edges.append((before, self.gates.get(after, after)))

    def positions(self) -> Column:
        """The level of each instruction: edges lead from lower to higher levels.

        Raises:
            CheckFailed: the program deadlocks.
        """
        level = _levels(len(self.instrs) + len(self.gates), self.edges)[: len(self.instrs)]
        stuck = np.flatnonzero(level < 0)
        if len(stuck):
            i = int(stuck[0])
            raise CheckFailed(
                f"the program deadlocks: rank {self.rank[i]} never gets past "
                f"{self.instrs[i].op.value} {self.instrs[i].dst}"
            )
        return level


def _messages(code: Code, program: Program) -> list[tuple[int, int, int]]:
    """(send, receive, receive that gives it credit or -1) for every message."""
    sends: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    recvs: dict[tuple[int, int, int], list[int]] = defaultdict(list)

    def peer(rank: int | None) -> int:
        return NOBODY if rank is None else rank

    for r, rank in enumerate(program.ranks):
        for b, block in enumerate(rank):
            for i, instr in enumerate(block.code, code.first[r][b]):
                if instr.op.sends:
                    sends[r, peer(block.send), block.channel].append(i)
                if instr.op.receives:
                    recvs[peer(block.recv), r, block.channel].append(i)
    rows = []
    for key in {**sends, **recvs}:
        there, here = sends.get(key, []), recvs.get(key, [])
        counts = [[code.instrs[i].count for i in side] for side in (there, here)]
        if counts[0] != counts[1]:
            raise CheckFailed(
                f"connection {key[0]} -> {key[1]} on channel {key[2]}: "
                "sends and receives do not match"
            )
        rows += _credited(there, here, counts[0], program.protocol.fifo_operations)
    return rows


def _credited(
    sends: list[int], recvs: list[int], counts: list[int], depth: int
) -> list[tuple[int, int, int]]:
    """Pair sends with receives, and with the earlier receive whose end they need."""
    ends = list(itertools.accumulate(counts))
    rows, need = [], 0
    for k, (send, recv) in enumerate(zip(sends, recvs, strict=True)):
        last = ends[k] - 1 - depth  # the operation that must be received before our last one
        while need < k and ends[need] <= last:
            need += 1
        begins = ends[need] - counts[need]
        rows.append((send, recv, recvs[min(need, k - 1)] if k and last >= begins else NOBODY))
    return rows


def _levels(count: int, edges: list[tuple[int, int]]) -> Column:
    """Longest path to each node, layer by layer; -1 on cycles and behind them."""
    level = np.full(count, -1, np.int64)
    table = np.array(edges, np.int64).reshape(-1, 2)
    table = table[np.argsort(table[:, 0], kind="stable")]
    start = np.searchsorted(table[:, 0], np.arange(count + 1))
    missing = np.bincount(table[:, 1], minlength=count)
    layer, depth = np.flatnonzero(missing == 0), 0
    while len(layer):
        level[layer] = depth
        sizes = start[layer + 1] - start[layer]
        total = int(sizes.sum())
        rows = np.repeat(start[layer] - np.cumsum(sizes) + sizes, sizes) + np.arange(total)
        after, hits = np.unique(table[rows, 1], return_counts=True)
        missing[after] -= hits
        layer, depth = after[missing[after] == 0], depth + 1
    return level
