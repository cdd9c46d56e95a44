"""A linear order of all instructions of a program that every run could follow.

Edges: the code of a block; a wait; a message from its send to its receive; credit, from the receive
of operation k to the send of operation k + depth (large messages: every chunk is one operation). A
send of more chunks than ``depth`` cannot end before its receive has begun: whatever the receive
needs, the send needs. Such a pair gets *gates*, nodes that stand for "can begin".

The order sorts instructions by the length of the longest path that leads to them. Passes use it
as a potential: a change after which all edges still go upwards cannot have made a deadlock.
"""

from __future__ import annotations

import numpy as np

from weft.dsl.base.arrays import Ints, distinct_values
from weft.dsl.base.errors import CheckFailed
from weft.dsl.base.layers import WaitClocks, depths
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.program import ABSENT, BUFFERS, OPS, RECEIVES, SENDS, Program, Slice


@dataclass(frozen=True, eq=False)
class ProgramOrder:
    """The edges between the instructions of a program, and gates behind them.

    ``credit_from[i]`` is the receive whose end lets send i end (or -1), ``credit_to[i]`` the first
    send that waits for the end of receive i. ``gate[i]`` is where i begins: i, or its gate.
    """

    code: Program
    nodes: int
    source: Ints
    target: Ints
    gate: Ints
    credit_from: Ints
    credit_to: Ints

    @staticmethod
    def of(code: Program, depth: int | None = None) -> ProgramOrder:
        """Connect the instructions; ``depth`` of the FIFOs: if not the protocol's own.

        Raises:
            CheckFailed: a connection whose two ends do not match.
        """
        wait, size = code.wait, code.instructions
        depth = depth or code.protocol.fifo_operations
        send, recv, credit = messages(code, depth)
        large = code.count[send] > depth
        gated = distinct_values(np.concatenate([send[large], recv[large]]))
        gate = np.arange(size)
        gate[gated] = size + np.arange(len(gated))
        owed = credit != ABSENT
        credit_from, credit_to = (
            np.full(size, ABSENT),
            np.full(size, ABSENT),
        )
        credit_from[send[owed]] = credit[owed]
        credit_to[credit[owed][::-1]] = send[owed][::-1]  # the first one stays
        inner = np.flatnonzero(code.block[1:] == code.block[:-1])
        parts = (
            (send, recv),
            (gate[recv[large]], gate[send[large]]),
            (credit[owed], gate[send[owed]]),
            (gate[gated], gated),
            (wait, gate[code.waiting]),
            (inner, gate[inner + 1]),
        )
        source, target = (np.concatenate(side) for side in zip(*parts, strict=True))
        nodes = size + len(gated)
        return ProgramOrder(code, nodes, source, target, gate, credit_from, credit_to)

    @staticmethod
    def local(code: Program) -> ProgramOrder:
        """Only the code of the blocks and the waits."""
        inner = np.flatnonzero(code.block[1:] == code.block[:-1])
        source = np.concatenate([inner, code.wait])
        target = np.concatenate([inner + 1, code.waiting])
        size = code.instructions
        none = np.full(size, ABSENT)
        return ProgramOrder(code, size, source, target, np.arange(size), none, none)

    def unreached(self) -> Ints:
        """Return the instructions that never run."""
        level = depths(self.nodes, self.source, self.target)
        return np.flatnonzero(level[: self.code.instructions] < 0)

    def positions(self) -> Ints:
        """Return the level of each instruction: edges lead from lower to higher levels.

        Raises:
            CheckFailed: the program deadlocks.
        """
        return self.span()[0]

    def span(self) -> tuple[Ints, Ints]:
        """The level of each instruction, and the level where it begins (its own, or its gate's).

        A wait may be added wherever it leads from the level of the one to the begin of the other.

        Raises:
            CheckFailed: the program deadlocks.
        """
        code = self.code
        level = depths(self.nodes, self.source, self.target)
        stuck = np.flatnonzero(level[: code.instructions] < 0)
        if len(stuck):
            i = int(stuck[0])
            dst = Slice(BUFFERS[code.dst_buffer[i]], int(code.dst_offset[i]))
            raise CheckFailed(
                f"the program deadlocks: rank {code.rank[i]} never gets past "
                f"{OPS[code.op[i]].value} {dst}"
            )
        return level[: code.instructions], level[self.gate]

    def heights(self) -> Ints:
        """Return the longest path from each instruction to the end: how critical it is."""
        return depths(self.nodes, self.target, self.source)[: self.code.instructions]


def messages(code: Program, depth: int) -> tuple[Ints, Ints, Ints]:
    """(send, receive, receive that gives it credit or -1) for every message."""
    ranks = code.rank_count
    here, out, into, channel = (
        code.block_rank,
        code.block_send,
        code.block_recv,
        code.block_channel,
    )
    # A connection by number: its channel, source, destination.
    sides = ((SENDS, here, out), (RECEIVES, into, here))
    ends = []
    for does, source, target in sides:
        name = (channel * (ranks + 1) + source + 1) * (ranks + 1) + target + 1
        rows = np.flatnonzero(does[code.op])
        rows = rows[np.argsort(name[code.block[rows]], kind="stable")]
        ends.append((rows, name[code.block[rows]]))
    (send, connection), (recv, same) = ends
    _refuse_unmatched(code, send, connection, recv, same, ranks)
    return send, recv, _credits(code.count[send], connection, recv, depth)


def _refuse_unmatched(
    code: Program, send: Ints, connection: Ints, recv: Ints, same: Ints, ranks: int
) -> None:
    if np.array_equal(connection, same) and np.array_equal(code.count[send], code.count[recv]):
        return
    least = min(len(send), len(recv))
    odd = (connection[:least] != same[:least]) | (
        code.count[send[:least]] != code.count[recv[:least]]
    )
    at = int(np.argmax(odd)) if odd.any() else least
    name = min(int(side[at]) for side in (connection, same) if at < len(side))
    pair, target = divmod(name, ranks + 1)
    channel, source = divmod(pair, ranks + 1)
    raise CheckFailed(
        f"connection {source - 1} -> {target - 1} on channel {channel}: "
        "sends and receives do not match"
    )


def _credits(count: Ints, connection: Ints, recv: Ints, depth: int) -> Ints:
    """Return the earlier receive whose end each send needs; messages are sorted by connection."""
    ends = np.cumsum(count)
    first = np.searchsorted(connection, connection)
    at = np.arange(len(count))
    # The operation that must be received before our last one, and the message it belongs to.
    last = ends - 1 - depth
    need = np.clip(np.searchsorted(ends, last, side="right"), first, at)
    owed = (at > first) & (last >= (ends - count)[need])
    return np.where(owed, recv[np.maximum(np.minimum(need, at - 1), 0)], ABSENT)


def wait_clocks(code: Program) -> WaitClocks:
    """Return the clocks of a program whose waits form no cycle."""
    return WaitClocks(code.block, code.block_index, code.wait, code.waiting)
