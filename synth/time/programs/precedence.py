"""Who goes first among messages that are ready at the same instant."""

from __future__ import annotations

import numpy as np

from weft.dsl.base.arrays import Ints

from .costs import Costs
from .operations import Operations


def precedence(operations: Operations, costs: Costs, ranks: int) -> list[int]:
    """A place in the order for every operation of a turn; least first.

    First what has the longest way behind it: the time that must still pass after it in its turn
    if nothing had to queue (list scheduling by critical path). Then by how far round the ranks
    the message goes, the farthest first, so that a symmetric exchange is served as rotations,
    each rank at another port. Then in the order of thread blocks.

    Cost: one pass over the operations and what links them.
    """
    block = operations.block_of()
    tail = _tails(operations, costs)
    ends = np.array(operations.connections, np.int64).reshape(-1, 3)
    far = np.append((ends[:, 1] - ends[:, 0]) % ranks, 0)[operations.out[block]]
    # Tails may be beyond 64 bits: their order is what matters.
    _, rank = np.unique(np.array([-t for t in tail], object), return_inverse=True)
    place = np.empty(operations.size, np.int64)
    place[np.lexsort((np.arange(operations.size), -far, rank))] = np.arange(operations.size)
    return place.tolist()


def _tails(operations: Operations, costs: Costs) -> list[int]:
    """Ticks from the start of each operation to the end of all that needs it, without queues."""
    count = operations.size
    start, after = successors(operations)
    into = np.zeros(count, np.int64)
    np.add.at(into, after, 1)
    missing = into.tolist()
    begin, following = start.tolist(), after.tolist()
    order = [i for i, n in enumerate(missing) if not n]
    for node in order:  # grows as it is read
        for other in following[begin[node] : begin[node + 1]]:
            missing[other] -= 1
            if not missing[other]:
                order.append(other)
    meets = meeting(operations)
    tail = [0] * count
    for node in reversed(order):
        leg = costs.leg[node]
        leaves = arrives = costs.extra[node]
        if leg >= 0:
            leaves += costs.legs[leg].leaves
            arrives += costs.legs[leg].arrives
        longest = leaves
        meet = meets[node]
        for other in following[begin[node] : begin[node + 1]]:
            way = tail[other] + (arrives if other == meet else leaves)
            if way > longest:
                longest = way
        tail[node] = longest
    return tail


def meeting(operations: Operations) -> list[int]:
    """Within a turn, for each operation that sends: the one that receives its message; -1: none."""
    block = operations.block_of()
    meets = np.full(operations.size, -1, np.int64)
    sends, receives = np.flatnonzero(operations.sends), np.flatnonzero(operations.receives)
    key = _ordinals(operations.out[block[sends]], operations.size)
    other = _ordinals(operations.into[block[receives]], operations.size)
    _, at, where = np.intersect1d(key, other, assume_unique=True, return_indices=True)
    meets[sends[at]] = receives[where]
    return meets.tolist()


def _ordinals(connection: Ints, width: int) -> Ints:
    """connection · width + how many of that connection come before, for each in the column."""
    order = np.argsort(connection, kind="stable")
    among = connection[order]
    keys = np.empty(len(connection), np.int64)
    keys[order] = among * width + np.arange(len(among)) - np.searchsorted(among, among)
    return keys


def successors(operations: Operations) -> tuple[Ints, Ints]:
    """CSR of what must come after each operation within a turn."""
    block = operations.block_of()
    program = np.flatnonzero(block[1:] == block[:-1])
    meets = np.array(meeting(operations), np.int64)
    sends = np.flatnonzero(meets >= 0)
    waits = np.array(
        [(operations.first[b] + n - 1, op) for op, w in operations.waits.items() for b, n in w],
        np.int64,
    ).reshape(-1, 2)
    source = np.concatenate([program, sends, waits[:, 0]])
    target = np.concatenate([program + 1, meets[sends], waits[:, 1]])
    order = np.argsort(source, kind="stable")
    start = np.searchsorted(source[order], np.arange(operations.size + 1))
    return start, target[order]
