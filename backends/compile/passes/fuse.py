"""Receive and send on in one instruction, by a table of patterns.

Before::

    block 0 (from 0, to 2):   0: r o[0]      1: s o[0]

After::

    block 0 (from 0, to 2):   0: rcs o[0]

A pair fuses when the send reads exactly what the receive wrote, nothing wrote there in between, and
the fused instruction can stand in the place of one of the two: of the send, if they are neighbours
and all that waits for the receive comes after the send in the linear order of ``order.py``; or of
the receive, if the block sends nothing in between and all that the send waits for comes before the
receive. Either way every edge still goes upwards, so no deadlock is made. A send that moves ahead
no longer signals to its receiver what was before it; so that is done only in programs whose ranks
order all their accesses by their own waits, as ``weave`` writes them.

Receives are taken in the linear order. Where what one brought is sent on more than once, the send
with the longest path to the end of the program goes first: the hop that fusion saves counts there.
A sum that other blocks send at the same time is not fused: they would wait for the whole of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from weft.dsl.base.arrays import Bools, Ints
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.program import ABSENT, OP_NUMBER, OPS, READS_SRC, SENDS, Op, Program
from weft.dsl.nouns.runtime import Target

from ..analyses.access import SlotAccesses, accesses, last_writers, latest
from ..analyses.order import ProgramOrder, wait_clocks

PATTERNS: Mapping[tuple[Op, Op], Op] = MappingProxyType(
    {
        (Op.RECV, Op.SEND): Op.RECV_COPY_SEND,
        (Op.RECV_REDUCE_COPY, Op.SEND): Op.RECV_REDUCE_COPY_SEND,
    }
)
"""(writer of the slot, sender of it) -> the fused operation."""

_FUSED = np.full((len(OPS), len(OPS)), ABSENT)
"""The same in numbers of operations."""
for (_first, _second), _both in PATTERNS.items():
    _FUSED[OP_NUMBER[_first], OP_NUMBER[_second]] = OP_NUMBER[_both]

REACH = 64
"""Maximum number of instructions between the two; keeps the pass linear."""


@dataclass(frozen=True, slots=True)
class Fuse:
    """Fuse wherever the target executes the result."""

    name: ClassVar[str] = "fuse"

    def apply(self, program: Program, target: Target) -> Program:
        """Return the program with fused instructions. O(instructions log instructions).

        Raises:
            CheckFailed: the program deadlocks already.
        """
        patterns = {pair: op for pair, op in PATTERNS.items() if op in target.ops}
        if not patterns:
            return program
        order = ProgramOrder.of(program)
        level = order.positions()
        found = accesses(program, level)
        recv, send = _candidates(program, last_writers(program, found), patterns)
        alone = _alone(program, level, recv, send)
        recv, send = recv[alone], send[alone]
        if not len(send):
            return program
        height = order.heights()
        fusion = _Fusion(order, _linear(level, send))
        left = ~fusion.neighbours(recv, send)
        recv, send = recv[left], send[left]
        if len(send):
            turns = np.lexsort((-height[send], fusion.position[recv]))
            fusion.one_by_one(recv[turns], send[turns], _ordered_locally(program, found))
        return fusion.rewritten()


def _candidates(
    code: Program, source: Ints, patterns: Mapping[tuple[Op, Op], Op]
) -> tuple[Ints, Ints]:
    """(receive, send) that match a pattern: of one block and count, the send reading just that."""
    fits = np.zeros((len(OPS), len(OPS)), bool)
    for first, second in patterns:
        fits[OP_NUMBER[first], OP_NUMBER[second]] = True
    send = np.flatnonzero(source != ABSENT)
    recv = source[send]
    ok = (code.block[recv] == code.block[send]) & (recv < send)
    ok &= fits[code.op[recv], code.op[send]] & (code.count[recv] == code.count[send])
    ok &= code.count[send] <= code.protocol.fifo_operations
    return recv[ok], send[ok]


def _alone(code: Program, level: Ints, recv: Ints, send: Ints) -> Bools:
    """Pairs without siblings: a sum that other blocks send at the same time is not fused.

    They wait for the whole instruction, so that they would start when the fused send is over. (The
    published compiler's rule, too: a sum must have one successor. What is only received comes in
    while it goes out, and delays no wait for longer than receiving it takes.)
    """
    first = np.full(code.instructions, np.iinfo(np.int64).max)
    np.minimum.at(first, code.wait, level[code.waiting])
    sums = code.op[recv] == OP_NUMBER[Op.RECV_REDUCE_COPY]
    result: Bools = ~sums | (first[recv] > level[send])
    return result


def _ordered_locally(code: Program, found: SlotAccesses) -> bool:
    """Test if no rank needs messages to order two of its accesses."""
    later, earlier = found.conflicts()
    apart = code.block[later] != code.block[earlier]
    return bool(wait_clocks(code).done(earlier[apart], later[apart]).all())


def _linear(level: Ints, sends: Ints) -> Ints:
    """Positions without ties: by level, sends that may fuse before others."""
    late = np.ones(len(level), np.int8)
    late[sends] = 0
    position = np.empty(len(level), np.int64)
    position[np.lexsort((late, level))] = np.arange(len(level))
    return position


class _Fusion:
    """Fused pairs of a receive and a send; the node of the send stands for both."""

    def __init__(self, order: ProgramOrder, position: Ints) -> None:
        self.order, self.code, self.position = order, order.code, position
        self.into = np.full(len(position), ABSENT)  # receive -> its send
        self.place = np.arange(len(position))  # of a send that took its receive's place: that
        self.more: list[tuple[int, int]] = []  # further waits: instruction, awaited

    def neighbours(self, recv: Ints, send: Ints) -> Bools:
        """Fuse all pairs of neighbours whose receive can wait for its send; which were fused.

        Conditions are on positions before any fusion, and no fusion here breaks that of another:
        it raises a receive to a send, which all that follows the receive was above already.
        """
        code, at = self.code, self.position
        close = send == recv + 1
        partner = np.full(code.instructions, ABSENT)
        partner[recv[close]] = send[close]
        refused = np.zeros(code.instructions, bool)
        for before, after in (
            (code.wait, code.waiting),
            (np.arange(code.instructions), self.order.credit_to),
        ):
            other = partner[before]
            held = (other != ABSENT) & (after != ABSENT) & (after != other)
            refused[before[held & (at[after] <= at[other])]] = True
        fused: Bools = close & ~refused[recv]
        self.into[recv[fused]] = send[fused]
        at[recv[fused]] = at[send[fused]]
        return fused

    def one_by_one(self, recv: Ints, send: Ints, hurry: bool) -> None:
        """Fuse further pairs in their order, each if its edges then still go upwards.

        ``hurry``: a send may move ahead to its receive.
        """
        walk = _FusionWalk(self, hurry)
        for first, second in zip(recv.tolist(), send.tolist(), strict=True):
            walk.attempt(first, second)
        self.into = np.array(walk.into)
        self.place = np.array(walk.place)
        self.more = [(who, one) for who, some in walk.waits.more.items() for one in some]

    def rewritten(self) -> Program:
        """Return the program with the fused code and all waits renumbered."""
        code = self.code
        gone = np.flatnonzero(self.into != ABSENT)
        if not len(gone):
            return code
        kept = np.flatnonzero(self.into == ABSENT)
        kept = kept[np.argsort(self.place[kept])]
        stays = np.arange(code.instructions)
        stays[gone] = self.into[gone]
        number = np.empty(code.instructions, np.int64)
        number[kept] = np.arange(len(kept))
        more = np.array(self.more, np.int64).reshape(-1, 2)
        before = stays[np.concatenate([code.wait, more[:, 1]])]
        after = stays[np.concatenate([code.waiting, more[:, 0]])]
        apart = code.block[before] != code.block[after]
        before, after = number[before[apart]], number[after[apart]]
        fused = self._fused(gone, self.into[gone])
        fused = fused.take(kept, np.bincount(code.block[kept], minlength=code.blocks))
        return fused.with_waits(*latest(fused, after, before))

    def _fused(self, first: Ints, second: Ints) -> Program:
        """Return the program in which each second instruction does the work of its pair."""
        code = self.code
        op = code.op.copy()
        op[second] = _FUSED[op[first], op[second]]
        columns: dict[str, Any] = {"op": op}
        for name in ("buffer", "offset"):
            src, dst = getattr(code, f"src_{name}").copy(), getattr(code, f"dst_{name}").copy()
            src[second] = np.where(READS_SRC[op[second]], src[first], dst[first])
            dst[second] = dst[first]
            columns |= {f"src_{name}": src, f"dst_{name}": dst}
        return replace(code, **columns)


class _GrowingRows:
    """Lists of instructions, one for each, that may grow."""

    def __init__(self, row: Ints, value: Ints, rows: int) -> None:
        order = np.argsort(row, kind="stable")
        self.start = np.searchsorted(row[order], np.arange(rows + 1)).tolist()
        self.value = value[order].tolist()
        self.more: dict[int, list[int]] = {}

    def __getitem__(self, row: int) -> list[int]:
        own: list[int] = self.value[self.start[row] : self.start[row + 1]]
        return own + self.more[row] if row in self.more else own

    def add(self, row: int, value: int) -> None:
        self.more.setdefault(row, []).append(value)


class _FusionWalk:
    """The state of fusing one by one, in Python's lists: one pair decides about the next."""

    def __init__(self, fusion: _Fusion, hurry: bool) -> None:
        code, self.hurry = fusion.code, hurry
        self.into, self.place = fusion.into.tolist(), fusion.place.tolist()
        self.position = fusion.position.tolist()
        self.taken = set(fusion.into.tolist())  # sends that are fused
        self.sends = SENDS[code.op].tolist()
        same = np.append(code.block[1:] == code.block[:-1], False)
        follows = np.where(same, np.arange(1, code.instructions + 1), ABSENT)
        gone = np.flatnonzero(fusion.into != ABSENT)  # neighbours: the one after is the send
        before = gone[(gone > 0) & (code.block[gone - 1] == code.block[gone])] - 1
        follows[before] = before + 2
        self.next: list[int] = follows.tolist()
        inside = np.flatnonzero(follows != ABSENT)
        comes = np.full(code.instructions, ABSENT)
        alive = inside[fusion.into[inside] == ABSENT]
        comes[follows[alive]] = alive
        self.previous: list[int] = comes.tolist()
        self.waits = _GrowingRows(code.waiting, code.wait, code.instructions)
        self.waiters = _GrowingRows(code.wait, code.waiting, code.instructions)
        self.credit_from = fusion.order.credit_from.tolist()
        self.credit_to = fusion.order.credit_to.tolist()

    def attempt(self, recv: int, send: int) -> None:
        """Fuse the pair if its edges then still go upwards."""
        if self.into[recv] != ABSENT or send in self.taken:
            return
        if self.next[recv] == send and self._receive_can_wait(recv, send):
            self._unlink(recv)
        elif self.hurry and self._send_can_hurry(recv, send):
            self._keep_waiting(recv, send)
            self._unlink(send)
            self._replace(recv, send)
            self.position[send] = self.position[recv]
        else:
            return
        self.position[recv] = self.position[send]
        self.into[recv] = send
        self.taken.add(send)

    def _receive_can_wait(self, recv: int, send: int) -> bool:
        at, credit = self.position[send], self.credit_to[recv]
        if credit not in (ABSENT, send) and self.position[credit] <= at:
            return False
        return all(self.position[i] > at for i in self.waiters[recv] if i != send)

    def _send_can_hurry(self, recv: int, send: int) -> bool:
        """All that the send needs comes before the receive, and no send would be overtaken."""
        at, credit = self.position[recv], self.credit_from[send]
        if credit not in (ABSENT, recv) and self.position[credit] >= at:
            return False
        if any(self.position[i] >= at for i in self.waits[send] if i != recv):
            return False
        between = self.next[recv]
        for _ in range(REACH):
            if between == send:
                return True
            if self.sends[between] or between in self.taken:
                return False
            between = self.next[between]
        return False

    def _keep_waiting(self, recv: int, send: int) -> None:
        """Add the instruction before a moved send to all instructions that wait for the send."""
        last = self.previous[send]
        if last != recv:
            for waiter in self.waiters[send]:
                self.waits.add(waiter, last)
                self.waiters.add(last, waiter)

    def _unlink(self, node: int) -> None:
        before, after = self.previous[node], self.next[node]
        if before != ABSENT:
            self.next[before] = after
        if after != ABSENT:
            self.previous[after] = before

    def _replace(self, old: int, new: int) -> None:
        self.next[new], self.previous[new] = self.next[old], self.previous[old]
        self.place[new] = self.place[old]
        if self.previous[new] != ABSENT:
            self.next[self.previous[new]] = new
        if self.next[new] != ABSENT:
            self.previous[self.next[new]] = new
