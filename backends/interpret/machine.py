"""A listing made ready to run: operations with what they wait for and what they do.

Control and data are apart. **Control**: an operation needs some counters to have reached values
(messages sent and received on a connection, the flag of a thread block) and sets some when it is
done: the bounded FIFOs and the flags of the runtime, taken literally. **Data**: an operation is a
few NumPy calls on views that never change (the k-th message of a connection is always in slot
k mod depth), so that an order of operations can be replayed on data of any type.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from weft.dsl.program import Op

from ..listing import OPS, Listing
from .layout import Layout

Pairs = tuple[tuple[int, int], ...]
Action = tuple[Callable[..., Any], tuple[npt.NDArray[Any], ...]]

_STRIDE = 1 << 17
"""Flags are compared as (iteration, step); a step number has 16 bits."""


@dataclass(frozen=True, slots=True)
class Shape:
    """How the message is cut: ``merge`` chunks at most in one operation (``maxAllowedCount``),
    ``elements`` per chunk, of which one loop iteration moves ``payload``.
    """

    elements: int = 1
    payload: int = 1
    merge: int = 1

    @property
    def iterations(self) -> int:
        """Turns of the loop over ``gridOffset``."""
        return -(-self.elements // self.payload)

    def __str__(self) -> str:
        return f"{self.iterations} iterations, at most {self.merge} chunks per operation"


@dataclass(frozen=True, slots=True)
class Operation:
    """What the runtime does at once: up to ``merge`` chunks of a transfer in one iteration.

    ``out``, ``into``: the ordinal of its message on the connection it sends to, takes from.
    """

    transfer: int
    iteration: int
    first: int
    count: int
    out: int
    into: int


@dataclass(frozen=True)
class Machine:
    """The compiled control of a listing.

    Attributes:
        operations: of all blocks, block after block; ``begin``/``end`` delimit each block's.
        needs, effects: per operation, (counter, least value) and (counter, new value).
        counters: their initial values: sent and received per connection, then flags.
        connections: (source, destination, channel) → number; ``depth`` of their FIFOs.
        send_on, recv_on: the connection each block sends to and takes from, or -1.
    """

    listing: Listing
    shape: Shape
    operations: tuple[Operation, ...]
    begin: tuple[int, ...]
    end: tuple[int, ...]
    needs: tuple[Pairs, ...]
    effects: tuple[Pairs, ...]
    counters: tuple[int, ...]
    connections: dict[tuple[int, int, int], int]
    send_on: tuple[int, ...]
    recv_on: tuple[int, ...]
    depth: int


def assemble(listing: Listing, shape: Shape) -> Machine:
    """Compile the control of a listing for one way of cutting the message."""
    connections: dict[tuple[int, int, int], int] = {}

    def connection(source: int, target: int, channel: int) -> int:
        if source < 0 or target < 0:
            return -1
        return connections.setdefault((source, target, channel), len(connections))

    heads = list(zip(
        listing.block_rank.tolist(), listing.block_send.tolist(), listing.block_recv.tolist(),
        listing.block_channel.tolist(), strict=True,
    ))  # fmt: skip
    send_on = tuple(connection(r, send, ch) for r, send, _, ch in heads)
    recv_on = tuple(connection(recv, r, ch) for r, _, recv, ch in heads)
    flags = 2 * len(connections)
    maker = _Maker(listing, shape, flags)
    begin, end = [], []
    for block in range(listing.blocks):
        begin.append(len(maker.operations))
        maker.block(block, send_on[block], recv_on[block])
        end.append(len(maker.operations))
    never = -(1 << 62)
    return Machine(
        listing, shape, tuple(maker.operations), tuple(begin), tuple(end),
        tuple(maker.needs), tuple(maker.effects),
        (0,) * flags + (never,) * listing.blocks,
        connections, send_on, recv_on, listing.protocol.fifo_operations,
    )  # fmt: skip


class _Maker:
    """Appends the operations of one block after another."""

    def __init__(self, listing: Listing, shape: Shape, flags: int) -> None:
        self.listing = listing
        self.shape = shape
        self.flags = flags
        self.depth = listing.protocol.fifo_operations
        self.operations: list[Operation] = []
        self.needs: list[Pairs] = []
        self.effects: list[Pairs] = []

    def block(self, block: int, send: int, recv: int) -> None:
        """The operations of one block: iterations × transfers × pieces of at most ``merge``."""
        code = self.listing
        sent = received = 0
        first, last = int(code.block_start[block]), int(code.block_start[block + 1])
        for iteration in range(self.shape.iterations):
            for transfer in range(first, last):
                op = OPS[code.op[transfer]]
                needs = self._waits(transfer, iteration)
                flag = int(code.publishes[transfer])
                count = int(code.count[transfer])
                starts = range(0, count, self.shape.merge) if op is not Op.NOP else range(0)
                for start in starts:
                    piece = min(self.shape.merge, count - start)
                    effects: Pairs = ()
                    if op.receives:
                        needs += ((2 * recv, received + 1),)
                        effects += ((2 * recv + 1, received + 1),)
                    if op.sends:
                        if sent >= self.depth:
                            needs += ((2 * send + 1, sent - self.depth + 1),)
                        effects += ((2 * send, sent + 1),)
                    self._add(transfer, iteration, start, piece, sent, received, needs, effects)
                    sent += op.sends
                    received += op.receives
                    needs = ()
                if not starts:
                    self._add(transfer, iteration, 0, 0, sent, received, needs, ())
                if flag >= 0:
                    self.effects[-1] += ((self.flags + block, iteration * _STRIDE + flag),)

    def _waits(self, transfer: int, iteration: int) -> Pairs:
        code = self.listing
        among = slice(int(code.wait_start[transfer]), int(code.wait_start[transfer + 1]))
        pairs = zip(code.wait_block[among].tolist(), code.wait_flag[among].tolist(), strict=True)
        return tuple((self.flags + b, iteration * _STRIDE + flag) for b, flag in pairs)

    def _add(
        self, transfer: int, iteration: int, first: int, count: int, out: int, into: int,
        needs: Pairs, effects: Pairs,
    ) -> None:  # fmt: skip
        self.operations.append(Operation(transfer, iteration, first, count, out, into))
        self.needs.append(needs)
        self.effects.append(effects)


class Memory:
    """All buffers and FIFO slots for one data type, and the actions of each operation on them."""

    def __init__(self, machine: Machine, place: Layout, before: npt.NDArray[Any]) -> None:
        self._before = before
        self.rows = before.copy()
        longest = max((op.count for op in machine.operations), default=0)
        slots = (len(machine.connections), machine.depth, longest, machine.shape.payload)
        self._slots = np.zeros(slots, before.dtype)
        self._machine = machine
        self._place = place
        blocks = machine.listing.block_of_transfer().tolist()
        self.actions = [self._actions(op, blocks[op.transfer]) for op in machine.operations]

    def reset(self) -> None:
        """Back to the state before the call."""
        np.copyto(self.rows, self._before)

    def replay(self, order: list[int]) -> None:
        """Do the data movement of operations in an order that the control allowed."""
        actions = self.actions
        for i in order:
            for function, views in actions[i]:
                function(*views)

    def _actions(self, o: Operation, block: int) -> tuple[Action, ...]:
        code, machine = self._machine.listing, self._machine
        op = OPS[code.op[o.transfer]]
        if op is Op.NOP or o.count == 0:
            return ()
        t = o.transfer
        width = min(machine.shape.payload,
                    machine.shape.elements - o.iteration * machine.shape.payload)  # fmt: skip

        def local(buffer: int, offset: int) -> npt.NDArray[Any]:
            row = int(self._place.base[code.block_rank[block], buffer]) + offset + o.first
            column = o.iteration * machine.shape.payload
            return self.rows[row : row + o.count, column : column + width]

        def slot(connection: int, k: int) -> npt.NDArray[Any]:
            view: npt.NDArray[Any] = self._slots[connection, k % machine.depth]
            return view[: o.count, :width]

        source_buffer = int(code.src_buffer[t])
        src = local(source_buffer, int(code.src_offset[t])) if op.reads_src else None
        dst = local(int(code.dst_buffer[t]), int(code.dst_offset[t])) if op.writes_dst else None
        incoming = slot(machine.recv_on[block], o.into) if op.receives else None
        outgoing = slot(machine.send_on[block], o.out) if op.sends else None
        if op is Op.REDUCE:
            more = slice(int(code.more_start[t]), int(code.more_start[t + 1]))
            others = [local(source_buffer, x) for x in code.more_offset[more].tolist()]
            assert src is not None
            assert dst is not None
            if any(np.may_share_memory(dst, s) for s in others):
                return ((_sum_into, (dst, src, *others)),)
            return tuple((np.add, (dst, s, dst)) for s in (src, *others))
        return _moves(src, dst, incoming, outgoing)


def _sum_into(dst: npt.NDArray[Any], *sources: npt.NDArray[Any]) -> None:
    """A fused ``re`` one of whose sources is its destination: all are read before the write."""
    total = dst.copy()
    for source in sources:
        np.add(total, source, total)
    np.copyto(dst, total)


def _moves(
    src: npt.NDArray[Any] | None, dst: npt.NDArray[Any] | None,
    incoming: npt.NDArray[Any] | None, outgoing: npt.NDArray[Any] | None,
) -> tuple[Action, ...]:  # fmt: skip
    """Everything but ``re``: (received ⊕ src, or the one there is) into dst and the message."""
    targets = [view for view in (dst, outgoing) if view is not None]
    if src is not None and incoming is not None:
        first, *rest = targets
        add: Action = (np.add, (incoming, src, first))
        return (add, *((np.copyto, (view, first)) for view in rest))
    value = incoming if incoming is not None else src
    assert value is not None
    return tuple((np.copyto, (view, value)) for view in targets)
