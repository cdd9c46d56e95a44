"""Events of a program: operations, their conditions, and their effects, in columns.

An operation needs some counters to have reached values (messages sent and received on a connection,
the flag of a thread block) and sets some when it is done: the bounded FIFOs and the flags of the
runtime, taken literally. Program order is position. The checker reads its graph from this, the
interpreter draws orders from it; the k-th message of a connection is always in slot k mod depth.
"""

from __future__ import annotations

import numpy as np

from weft.dsl.base.arrays import Bools, Ints
from weft.dsl.base.layers import ranges
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.program import NOP, READS_SRC, RECEIVES, SENDS, WRITES_DST, Code

_STRIDE = 1 << 17
"""Bools are compared as (iteration, step); a step number has 16 bits."""

_NEVER = -(1 << 62)
"""A flag before anything was published."""


@dataclass(frozen=True, slots=True)
class MessageShape:
    """Cut of the message: ``merge`` chunks at most in one operation (``maxAllowedCount``),
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


@dataclass(frozen=True)
class ControlOperations:
    """Operations of the runtime: up to ``merge`` chunks of a transfer at once, in one iteration.

    Columns over the operations of all blocks, block after block: ``count`` chunks from the
    ``first`` of the transfer's; ``out``, ``into``: the ordinal of its message on the connection it
    sends to, takes from. ``opens``, ``closes``: whether it is the first, the last of its transfer
    in that iteration.
    """

    block: Ints
    transfer: Ints
    iteration: Ints
    first: Ints
    count: Ints
    sends: Bools
    receives: Bools
    out: Ints
    into: Ints
    opens: Bools
    closes: Bools

    def __len__(self) -> int:
        return len(self.transfer)


@dataclass(frozen=True)
class CounterPairs:
    """Some (counter, value) for each operation: those of i are ``start[i]:start[i+1]``."""

    start: Ints
    counter: Ints
    value: Ints

    def of(self, operation: int) -> list[tuple[int, int]]:
        """Those of one operation."""
        among = slice(int(self.start[operation]), int(self.start[operation + 1]))
        return list(zip(self.counter[among].tolist(), self.value[among].tolist(), strict=True))


@dataclass(frozen=True)
class Control:
    """The control of a code.

    Attributes:
        begin, end: delimit the operations of each block.
        needs, effects: (counter, least value) and (counter, new value) of each operation.
        counters: their initial values: sent and received per connection, then flags.
        connections: shape (·, 3), source, destination and channel of each, in ascending order;
            ``depth`` of their FIFOs.
        send_on, recv_on: the connection each block sends to and takes from, or -1.
    """

    code: Code
    shape: MessageShape
    operations: ControlOperations
    begin: Ints
    end: Ints
    needs: CounterPairs
    effects: CounterPairs
    counters: Ints
    connections: Ints
    send_on: Ints
    recv_on: Ints
    depth: int


def connect(code: Code) -> tuple[Ints, Ints, Ints]:
    """Number the connections that some block names: a table of (source, destination, channel), and
    of each block the number of the one it sends to, and takes from (-1: none).
    """
    rank, channel = code.block_rank, code.block_channel
    out = np.stack([rank, code.block_send, channel], axis=1)
    into = np.stack([code.block_recv, rank, channel], axis=1)
    sends, receives = code.block_send >= 0, code.block_recv >= 0
    ends, index = np.unique(
        np.concatenate([out[sends], into[receives]]), axis=0, return_inverse=True
    )
    index = index.reshape(-1)
    send_on, recv_on = np.full((2, code.blocks), -1, np.int64)
    send_on[sends] = index[: int(sends.sum())]
    recv_on[receives] = index[int(sends.sum()) :]
    return ends.reshape(-1, 3), send_on, recv_on


def assemble(code: Code, shape: MessageShape) -> Control:
    """Return the control of a code for one way of cutting the message. O(operations)."""
    connections, send_on, recv_on = connect(code)
    flags, depth = 2 * len(connections), code.protocol.fifo_operations
    operations = _operations(code, shape)
    bounds = np.searchsorted(operations.block, np.arange(code.blocks + 1))
    counters = np.repeat(np.array([0, _NEVER], np.int64), [flags, code.blocks])
    return Control(
        code,
        shape,
        operations,
        bounds[:-1],
        bounds[1:],
        _needs(code, operations, send_on, recv_on, flags, depth),
        _effects(code, operations, send_on, recv_on, flags),
        counters,
        connections,
        send_on,
        recv_on,
        depth,
    )


def _operations(code: Code, shape: MessageShape) -> ControlOperations:
    """Of each block: iterations × transfers × pieces of at most ``merge`` chunks."""
    busy = np.where(code.op == NOP, 0, code.count)
    pieces = np.maximum(-(-busy // shape.merge), 1)
    transfer = np.tile(np.arange(code.instructions), shape.iterations)
    turn = np.repeat(np.arange(shape.iterations), code.instructions)
    # Stable: the transfers of an iteration stay in their order.
    order = np.lexsort((turn, code.block[transfer]))
    transfer, turn = transfer[order], turn[order]
    many = pieces[transfer]
    piece = np.arange(int(many.sum())) - np.repeat(np.cumsum(many) - many, many)
    transfer, turn, many = (np.repeat(x, many) for x in (transfer, turn, many))
    block = code.block[transfer]
    first = piece * shape.merge
    count = np.minimum(shape.merge, busy[transfer] - first)
    sends = SENDS[code.op[transfer]] & (count > 0)
    receives = RECEIVES[code.op[transfer]] & (count > 0)
    return ControlOperations(
        block,
        transfer,
        turn,
        first,
        count,
        sends,
        receives,
        _ordinals(sends, block),
        _ordinals(receives, block),
        piece == 0,
        piece == many - 1,
    )


def _ordinals(flags: Bools, block: Ints) -> Ints:
    """Count the operations before each, in its block, that have a flag."""
    before: Ints = np.cumsum(flags) - flags
    starts = np.searchsorted(block, np.arange(int(block.max(initial=-1)) + 1))
    return before - before[starts[block]] if len(block) else before


def _needs(
    code: Code, o: ControlOperations, send_on: Ints, recv_on: Ints, flags: int, depth: int
) -> CounterPairs:
    """Bools of other blocks, then a message, then a free slot."""
    waits = np.where(o.opens, np.diff(code.wait_start)[o.transfer], 0)
    owner = np.repeat(np.arange(len(o)), waits)
    row = np.arange(len(owner)) - np.repeat(np.cumsum(waits) - waits, waits)
    row += code.wait_start[o.transfer[owner]]
    takes = np.flatnonzero(o.receives)
    full = np.flatnonzero(o.sends & (o.out >= depth))
    return _pairs(
        len(o),
        (
            (
                owner,
                np.where(code.wait_block[row] < 0, -1, flags + code.wait_block[row]),
                o.iteration[owner] * _STRIDE + code.wait_flag[row],
            ),
            (takes, 2 * recv_on[o.block[takes]], o.into[takes] + 1),
            (full, 2 * send_on[o.block[full]] + 1, o.out[full] - depth + 1),
        ),
    )


def _effects(
    code: Code, o: ControlOperations, send_on: Ints, recv_on: Ints, flags: int
) -> CounterPairs:
    """Return the counters an operation sets: a slot freed, a message sent, then the flag."""
    takes, gives = np.flatnonzero(o.receives), np.flatnonzero(o.sends)
    tells = np.flatnonzero(o.closes & (code.publishes[o.transfer] >= 0))
    return _pairs(
        len(o),
        (
            (takes, 2 * recv_on[o.block[takes]] + 1, o.into[takes] + 1),
            (gives, 2 * send_on[o.block[gives]], o.out[gives] + 1),
            (
                tells,
                flags + o.block[tells],
                o.iteration[tells] * _STRIDE + code.publishes[o.transfer[tells]],
            ),
        ),
    )


def _pairs(operations: int, parts: tuple[tuple[Ints, Ints, Ints], ...]) -> CounterPairs:
    """Columns of (operation, counter, value), by operation; within one in the order of parts."""
    owner, counter, value = (np.concatenate(x) for x in zip(*parts, strict=True))
    order = np.argsort(owner, kind="stable")
    start = np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=operations))])
    return CounterPairs(start, counter[order], value[order])


Touched = tuple[Ints, Ints, Ints]
"""Columns: operation, buffer, first chunk."""


def touched(code: Code, o: ControlOperations) -> tuple[Touched, Touched, Touched]:
    """Return the reads of operations, the further reads of sums, and the writes of operations."""
    t = o.transfer
    src, dst = (np.flatnonzero(does[code.op[t]]) for does in (READS_SRC, WRITES_DST))
    number = np.diff(code.more_start)[t]
    owner, more = np.repeat(np.arange(len(o)), number), ranges(code.more_start[t], number)
    return (
        (src, code.src_buffer[t[src]], code.src_offset[t[src]] + o.first[src]),
        (owner, code.src_buffer[t[owner]], code.more_offset[more] + o.first[owner]),
        (dst, code.dst_buffer[t[dst]], code.dst_offset[t[dst]] + o.first[dst]),
    )
