"""Receive and send on in one instruction, by a table of patterns.

Before::

    block 0 (from 0, to 2):   0: r o[0]      1: s o[0]

After::

    block 0 (from 0, to 2):   0: rcs o[0]

A pair fuses when the send reads exactly what the receive wrote, nobody wrote there in between, and
the fused instruction can stand in the place of one of the two: of the send, if they are neighbours
and all that waits for the receive comes after the send in the linear order of ``order.py``; or of
the receive, if the block sends nothing in between and all that the send waits for comes before the
receive. Either way every edge still goes upwards, so no deadlock is made.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from weft.dsl.program import Block, Instr, Op, Program

from ..target import Target
from .access import last_writers
from .flow import Column
from .order import NOBODY, Code

PATTERNS: dict[tuple[Op, Op], Op] = {
    (Op.RECV, Op.SEND): Op.RECV_COPY_SEND,
    (Op.RECV_REDUCE_COPY, Op.SEND): Op.RECV_REDUCE_COPY_SEND,
}
"""(what wrote the slot, what sends it) -> the fused operation."""

REACH = 64
"""How many instructions may lie between the two; keeps the pass linear."""


@dataclass(frozen=True, slots=True)
class Fuse:
    """Fuse wherever the target executes the result."""

    name: ClassVar[str] = "fuse"

    def apply(self, program: Program, target: Target) -> Program:
        """The program with fused instructions.

        Raises:
            CheckFailed: the program deadlocks already.
        """
        if not any(op in target.ops for op in PATTERNS.values()):
            return program
        code = Code.of(program)
        level = code.positions()
        source = last_writers(program, code, level)
        candidates = [
            (recv, send)
            for send, recv in enumerate(source)
            if recv != NOBODY and _fits(code, recv, send, target, program.protocol.fifo_operations)
        ]
        if not candidates:
            return program
        fusion = _Fusion(code, _linear(level, candidates))
        for recv, send in sorted(candidates, key=lambda pair: fusion.position[pair[0]]):
            fusion.attempt(recv, send)
        return fusion.rewritten(program)


def _fits(code: Code, recv: int, send: int, target: Target, depth: int) -> bool:
    """Whether the two match a pattern: same block, slice and count."""
    first, second = code.instrs[recv], code.instrs[send]
    return (
        code.block[recv] == code.block[send]
        and recv < send
        and PATTERNS.get((first.op, second.op)) in target.ops
        and first.dst == second.src
        and first.count == second.count <= depth
    )


def _linear(level: Column, candidates: list[tuple[int, int]]) -> list[int]:
    """Positions without ties: by level, sends that may fuse before others."""
    late = np.ones(len(level), np.int8)
    late[[send for _, send in candidates]] = 0
    position = np.empty(len(level), np.int64)
    position[np.lexsort((late, level))] = np.arange(len(level))
    result: list[int] = position.tolist()
    return result


class _Fusion:
    """Fuses pairs one by one; a fused pair lives on as the node of its send."""

    def __init__(self, code: Code, position: list[int]) -> None:
        self.code, self.position = code, position
        n = len(code.instrs)
        inside = [i + 1 < n and code.block[i + 1] == code.block[i] for i in range(n)]
        self.next = [i + 1 if ok else NOBODY for i, ok in enumerate(inside)]
        self.previous = [i if i >= 0 and inside[i] else NOBODY for i in range(-1, n - 1)]
        self.waiters: list[list[int]] = [[] for _ in range(n)]
        for i, before in enumerate(code.waits):
            for one in before:
                self.waiters[one].append(i)
        self.partner: dict[int, int] = {}  # send -> receive it was fused with
        self.gone: dict[int, int] = {}  # receive -> send
        self.moved: dict[int, int] = {}  # receive whose place its send took -> send

    def attempt(self, recv: int, send: int) -> None:
        """Fuse the pair if its edges then still go upwards."""
        if recv in self.gone or send in self.partner:
            return
        if self.next[recv] == send and self._receive_can_wait(recv, send):
            self._unlink(recv)
        elif self._send_can_hurry(recv, send):
            self._keep_waiting(recv, send)
            self._unlink(send)
            self._replace(recv, send)
            self.position[send] = self.position[recv]
        else:
            return
        self.position[recv] = self.position[send]
        self.partner[send], self.gone[recv] = recv, send

    def _receive_can_wait(self, recv: int, send: int) -> bool:
        """All that needs the receive comes after the send."""
        at, credit = self.position[send], self.code.credit_to[recv]
        after = self.waiters[recv] if credit == NOBODY else [*self.waiters[recv], credit]
        return all(self.position[i] > at for i in after if i != send)

    def _send_can_hurry(self, recv: int, send: int) -> bool:
        """All that the send needs comes before the receive, and no send would be overtaken."""
        at, credit = self.position[recv], self.code.credit_from[send]
        before = self.code.waits[send] if credit == NOBODY else [*self.code.waits[send], credit]
        if not all(self.position[i] < at for i in before if i != recv):
            return False
        between = self.next[recv]
        for _ in range(REACH):
            if between == send:
                return True
            if self.code.instrs[between].op.sends or between in self.partner:
                return False
            between = self.next[between]
        return False

    def _keep_waiting(self, recv: int, send: int) -> None:
        """Who waits for a send waits for all before it in its block, also when it moves ahead."""
        last = self.previous[send]
        if last != recv:
            for waiter in self.waiters[send]:
                self.code.waits[waiter].append(last)
                self.waiters[last].append(waiter)

    def _unlink(self, node: int) -> None:
        before, after = self.previous[node], self.next[node]
        if before != NOBODY:
            self.next[before] = after
        if after != NOBODY:
            self.previous[after] = before

    def _replace(self, old: int, new: int) -> None:
        self.next[new], self.previous[new] = self.next[old], self.previous[old]
        self.moved[old] = new
        if self.previous[new] != NOBODY:
            self.next[self.previous[new]] = new
        if self.next[new] != NOBODY:
            self.previous[self.next[new]] = new

    def rewritten(self, program: Program) -> Program:
        """The program with the fused code and all waits renumbered."""
        kept = [
            [list(self._walk(at, len(b.code))) for at, b in zip(firsts, rank, strict=True)]
            for firsts, rank in zip(self.code.first, program.ranks, strict=True)
        ]
        place: dict[int, tuple[int, int]] = {}
        for blocks in kept:
            for b, nodes in enumerate(blocks):
                place.update((node, (b, i)) for i, node in enumerate(nodes))
        place.update((recv, place[send]) for recv, send in self.gone.items())
        ranks = tuple(
            replace(rank, blocks=tuple(
                Block(b.channel, b.send, b.recv, tuple(self._instr(i, place) for i in nodes))
                for b, nodes in zip(rank, blocks, strict=True)
            ))
            for rank, blocks in zip(program.ranks, kept, strict=True)
        )  # fmt: skip
        return replace(program, ranks=ranks)

    def _walk(self, first: int, count: int) -> Iterator[int]:
        """The nodes of a block in their new order, from its old first instruction."""
        if not count:
            return
        node = first
        while node in self.gone and node not in self.moved:
            node += 1  # the receive moved down to its send, its neighbour
        node = self.moved.get(node, node)
        while node != NOBODY:
            yield node
            node = self.next[node]

    def _instr(self, node: int, place: dict[int, tuple[int, int]]) -> Instr:
        own = self.code.instrs[node]
        before = self.code.waits[node]
        recv = self.partner.get(node)
        if recv is None and not before:
            return own
        if recv is not None:
            first = self.code.instrs[recv]
            op = PATTERNS[first.op, own.op]
            src = first.src if op.reads_src else first.dst
            own = Instr(op, src, first.dst, own.count)
            before = [*self.code.waits[recv], *before]
        latest: dict[int, int] = {}
        for block, index in (place[w] for w in before):
            latest[block] = max(index, latest.get(block, -1))
        latest.pop(place[node][0], None)
        return replace(own, waits=tuple(sorted(latest.items())))
