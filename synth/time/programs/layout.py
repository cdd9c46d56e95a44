"""What the compiled loop needs to know of a program's operations, whatever the size of a message.

Made once for each way to merge chunks; a size then only fills in ticks.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from weft.dsl.base.arrays import Ints
from weft.dsl.nouns.topology import Topology

from ...fabric.fabric import fabric_of
from .costs import Ticks
from .operations import Operations
from .precedence import meeting, successors
from .routes import Route

FITS = 1 << 61
"""Runs that take fewer ticks, all operations one after the other, fit 64 bits with all sums."""


@dataclass(frozen=True, eq=False)
class Layout:
    """Columns of a turn of the loop, and its distinct legs without their ticks.

    A *leg* is a connection and a number of chunks.

    Attributes:
        leg: of each operation; -1: it does not send.
        leg_chunks: of each leg. ``hold_begin``: where its holds begin, and one more.
        hold_row, hold_chunks: the row of each hold, and how many chunks hold it for how long.
        alpha_leg, alpha_link: pairs of a leg and a link of its route.
        start, after: CSR of what comes after each operation. ``meets``: who receives its message.
        order: operations, each after what it needs; those that wait for themselves are not there.
        by_far: operations, those first whose messages go farthest round the ranks.
        wait_begin, waits: CSR of (block, operations) that each operation waits for.
        idle: blocks whose operations all do nothing and wait for nothing.
    """

    operations: Operations
    leg: Ints
    leg_chunks: Ints
    hold_begin: Ints
    hold_row: Ints
    hold_chunks: Ints
    alpha_leg: Ints
    alpha_link: Ints
    start: Ints
    after: Ints
    meets: Ints
    order: Ints
    by_far: Ints
    wait_begin: Ints
    waits: Ints

    @staticmethod
    def of(operations: Operations, topology: Topology, routes: list[Route]) -> Layout:
        """The layout of operations on routes of a topology."""
        from .kernel import in_order

        leg, connection, chunks = _legs(operations)
        fabric = fabric_of(topology)
        held = [fabric.times_held(routes[c]) for c in connection]
        links = [routes[c] for c in connection]
        begin = np.cumsum([0, *map(len, held)])
        start, after = successors(operations)
        order = np.empty(operations.size, np.int64)
        missing = np.bincount(after, minlength=operations.size)
        order = order[: in_order(start, after, missing, order)]
        wait_begin, waits = _waits(operations)
        return Layout(
            operations,
            leg,
            chunks,
            begin,
            _ints(row for h in held for row in h),
            _ints(n for h in held for n in h.values()) * np.repeat(chunks, np.diff(begin)),
            np.repeat(np.arange(len(links)), [len(x) for x in links]),
            _ints(i for x in links for i in x),
            start,
            after,
            _ints(meeting(operations)),
            order,
            _by_far(operations, topology.ranks),
            wait_begin,
            waits,
        )

    def longest(self, ticks: Ticks, turns: int) -> float:
        """No run of so many turns takes more ticks, or holds a row for more."""
        chunks, sends = self.operations.chunks, self.leg[self.leg >= 0]
        alpha = np.bincount(
            self.alpha_leg, np.array(ticks.alpha, float)[self.alpha_link], len(self.leg_chunks)
        )
        each = self.operations.size * float(ticks.overhead)
        each += float(max(ticks.local)) * float(chunks[self.operations.local].sum())
        rows = np.maximum(*(np.array(row, float) for row in ticks.row))
        holds = rows[self.hold_row] * self.hold_chunks
        leaves = np.add.reduceat(holds, self.hold_begin[:-1]) if len(holds) else holds
        return turns * (each + float((leaves + alpha)[sends].sum()))


def _ints(values: Iterable[int]) -> Ints:
    return np.fromiter(values, np.int64)


def _legs(operations: Operations) -> tuple[Ints, Ints, Ints]:
    """The leg of each operation, and the connection and chunks of each leg."""
    sends = np.flatnonzero(operations.sends)
    connection = operations.out[operations.block_of()[sends]]
    most = int(operations.chunks.max(initial=0)) + 1
    keys, which = np.unique(connection * most + operations.chunks[sends], return_inverse=True)
    leg = np.full(operations.size, -1, np.int64)
    leg[sends] = which
    return leg, keys // most, keys % most


def _by_far(operations: Operations, ranks: int) -> Ints:
    ends = np.array(operations.connections, np.int64).reshape(-1, 3)
    far = np.append((ends[:, 1] - ends[:, 0]) % ranks, 0)[operations.out[operations.block_of()]]
    return np.argsort(-far, kind="stable")


def _waits(operations: Operations) -> tuple[Ints, Ints]:
    count = np.zeros(operations.size + 1, np.int64)
    pairs: list[tuple[int, int]] = []
    for op in sorted(operations.waits):
        count[op + 1] = len(operations.waits[op])
        pairs += operations.waits[op]
    return np.cumsum(count), np.array(pairs, np.int64).reshape(-1, 2)
