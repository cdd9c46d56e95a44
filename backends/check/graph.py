"""Graph of operations, whose edges are the required order.

Nodes are operations: (block, iteration, transfer, piece), a transfer of *count* chunks being
⌈count / merge⌉ pieces. Edges: program order in a block, the k-th send before the k-th receive of
a connection, the (k - depth)-th receive before the k-th send (**credit**: the FIFO is bounded),
and a published flag before the transfer that waits for it. Nothing depends on timing, so the
program hangs if and only if the graph has a cycle or a wait that nothing satisfies. Without the
credit edges it is the happens-before order of the race proof (a deeper FIFO must not break a
program).

Everything is arrays; building is O(operations log operations), searching linear.
"""

from __future__ import annotations

from dataclasses import replace
from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np

from weft.dsl.base.arrays import Ints
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.program import BUFFERS, NOP, RECEIVES, SENDS, Buffer, Code

from .connections import Connections

if TYPE_CHECKING:
    from scipy import sparse

FEW_EDGES = 20_000
"""Smaller graphs are found acyclic without SciPy, which takes 150 ms to load."""

_STRIDE = 1 << 17  # flags are compared as (iteration, step); a step has 16 bits


class Edge(IntEnum):
    """Kinds of edges: the reasons for which an operation precedes another."""

    PROGRAM = 0
    MESSAGE = 1
    CREDIT = 2
    WAIT = 3


@dataclass(frozen=True)
class Graph:
    """Operations and edges.

    Attributes:
        code, merge, iterations: what was expanded, and how.
        transfer, iteration, piece: of each operation; those of a block are contiguous.
        source, target, kind: of each edge.
        unmet: shape (·, 2), (operation, index into ``code.wait_*``) of waits nothing satisfies.
        unsent: operations that receive a message that is never sent.
    """

    code: Code
    merge: int
    iterations: int
    transfer: Ints
    iteration: Ints
    piece: Ints
    source: Ints
    target: Ints
    kind: Ints
    unmet: Ints
    unsent: Ints

    @property
    def size(self) -> int:
        """Number of operations."""
        return len(self.transfer)

    def block(self) -> Ints:
        """Return the block of each operation."""
        return self.code.block[self.transfer]

    def matrix(self, *, credit: bool = True) -> sparse.csr_array:
        """Return the adjacency matrix, with or without the credit edges."""
        from scipy import sparse

        keep = slice(None) if credit else self.kind != Edge.CREDIT
        source, target = self.source[keep], self.target[keep]
        ones = np.ones(len(source), np.int8)
        shape = (self.size, self.size)
        return sparse.csr_array((ones, (source, target)), shape=shape)

    def describe(self, operation: int) -> str:
        """``rank 0 tb 1 step 2 (s)``, with iteration and piece where they say something."""
        text = self.code.describe(int(self.transfer[operation]))
        if self.piece[operation]:
            text += f" piece {self.piece[operation]}"
        if self.iteration[operation]:
            text += f" iteration {self.iteration[operation]}"
        return text


def expand(code: Code, links: Connections, *, merge: int = 1, iterations: int = 1) -> Graph:
    """Return the graph of a code whose structure is sound."""
    owner = code.block
    pieces = np.maximum(-(-code.count // merge), 1)
    pieces[code.op == NOP] = 1
    transfer = np.tile(np.arange(code.instructions), iterations)
    iteration = np.repeat(np.arange(iterations), code.instructions)
    order = np.lexsort((transfer, iteration, owner[transfer]))
    repeats = pieces[transfer[order]]
    transfer = np.repeat(transfer[order], repeats)
    iteration = np.repeat(iteration[order], repeats)
    starts = np.cumsum(repeats) - repeats
    piece = np.arange(len(transfer)) - np.repeat(starts, repeats)

    block = owner[transfer]
    program = np.flatnonzero(block[1:] == block[:-1])
    sends, receives, unsent = _messages(code, links, transfer, block)
    credit = _credit(code, sends, receives)
    published, waiting, unmet = _waits(code, transfer, iteration, piece, pieces, block)
    parts = (
        (program, program + 1, Edge.PROGRAM),
        (sends[2], receives[2], Edge.MESSAGE),
        (*credit, Edge.CREDIT),
        (published, waiting, Edge.WAIT),
    )
    return Graph(
        code,
        merge,
        iterations,
        transfer,
        iteration,
        piece,
        np.concatenate([a for a, _, _ in parts]),
        np.concatenate([b for _, b, _ in parts]),
        np.concatenate([np.full(len(a), kind, np.int64) for a, _, kind in parts]),
        unmet,
        unsent,
    )


_Ends = tuple[Ints, Ints, Ints]


def _messages(
    code: Code, links: Connections, transfer: Ints, block: Ints
) -> tuple[_Ends, _Ends, Ints]:
    """(connection, ordinal, operation) of matched sends and receives, and unmatched receives."""
    ends = []
    for does, side in ((SENDS, links.send), (RECEIVES, links.recv)):
        moves = np.flatnonzero(does[code.op[transfer]] & (code.count[transfer] > 0))
        moves = moves[np.argsort(side[block[moves]], kind="stable")]
        where = side[block[moves]]
        first = np.searchsorted(where, where)
        ends.append((where, np.arange(len(where)) - first, moves))
    (sc, sk, sends), (rc, rk, receives) = ends
    width = max(len(sends), len(receives)) + 1
    _, at_send, at_receive = np.intersect1d(
        sc * width + sk, rc * width + rk, assume_unique=True, return_indices=True
    )
    lonely = np.delete(receives, at_receive)
    return (
        (sc[at_send], sk[at_send], sends[at_send]),
        (rc[at_receive], rk[at_receive], receives[at_receive]),
        lonely,
    )


def _credit(code: Code, sends: _Ends, receives: _Ends) -> tuple[Ints, Ints]:
    """Receive k - depth frees the slot of send k. Matched ends are aligned, by connection."""
    depth = code.protocol.fifo_operations
    connection, ordinal, operation = sends
    late = np.flatnonzero(ordinal >= depth)
    assert not len(late) or bool((connection[late] == receives[0][late - depth]).all())
    return receives[2][late - depth], operation[late]


def _waits(
    code: Code, transfer: Ints, iteration: Ints, piece: Ints, pieces: Ints, block: Ints
) -> tuple[Ints, Ints, Ints]:
    """The operation whose flag first satisfies each wait, the waiting one, and unmet waits."""
    iterations = int(iteration.max(initial=0)) + 1
    width = (iterations + 1) * _STRIDE
    flag = code.publishes[transfer]
    publishers = np.flatnonzero((flag >= 0) & (piece == pieces[transfer] - 1))
    # Blocks, iterations and flags ascend with the operations, so these keys do.
    keys = block[publishers] * width + iteration[publishers] * _STRIDE + flag[publishers]
    number = np.diff(code.wait_start)
    waiters = np.flatnonzero((number[transfer] > 0) & (piece == 0))
    counts = number[transfer[waiters]]
    waiting = np.repeat(waiters, counts)
    within = np.arange(len(waiting)) - np.repeat(np.cumsum(counts) - counts, counts)
    wait = code.wait_start[transfer[waiting]] + within
    other = code.wait_block[wait]
    least = other * width + iteration[waiting] * _STRIDE + np.maximum(code.wait_flag[wait], -1)
    at = np.searchsorted(keys, least)
    safe = np.minimum(at, max(len(publishers) - 1, 0))
    met = (at < len(publishers)) & (other >= 0)
    if len(publishers):
        met &= block[publishers[safe]] == other
    unmet = np.stack([waiting[~met], wait[~met]], axis=1)
    return publishers[at[met]], waiting[met], unmet


def with_late_sends(graph: Graph) -> Graph:
    """As if the flag that a plain send publishes did not follow its reads (RCCL under LL).

    The edge of the wait then starts at the operation before the send.
    """
    block = graph.block()
    op = graph.code.op[graph.transfer]
    late = (graph.kind == Edge.WAIT) & (SENDS[op] & ~RECEIVES[op])[graph.source]
    source = np.where(late, graph.source - 1, graph.source)
    keep = (source >= 0) & (block[source] == block[graph.source])
    return replace(graph, source=source[keep], target=graph.target[keep], kind=graph.kind[keep])


def without_relaxed_waits(graph: Graph) -> Graph:
    """Without the waits that move no data in RCCL's memory order.

    It acquires only if the waiting step's srcbuf is ``o``, and releases only if the publishing
    step's dstbuf is not ``s``.
    """
    code, t = graph.code, graph.transfer
    acquires = code.src_buffer[t[graph.target]] == BUFFERS.index(Buffer.OUTPUT)
    releases = code.dst_buffer[t[graph.source]] != BUFFERS.index(Buffer.SCRATCH)
    keep = (graph.kind != Edge.WAIT) | (acquires & releases)
    return replace(
        graph, source=graph.source[keep], target=graph.target[keep], kind=graph.kind[keep]
    )


def find_cycle(graph: Graph) -> list[int] | None:
    """The operations of a short cycle, in order, or None if the graph has none. Linear time."""
    own = np.flatnonzero(graph.source == graph.target)
    if len(own):
        return [int(graph.source[own[0]])]
    if len(graph.source) <= FEW_EDGES and _acyclic(graph):
        return None
    from scipy import sparse
    from scipy.sparse import csgraph

    matrix = graph.matrix()
    number, component = csgraph.connected_components(matrix, directed=True, connection="strong")
    if number == graph.size:
        return None
    sizes = np.bincount(component)
    sizes[sizes < 2] = graph.size + 1
    inside = np.flatnonzero(component == int(np.argmin(sizes)))
    part = sparse.csr_array(matrix[inside][:, inside])
    order, before = csgraph.breadth_first_order(part, 0, directed=True)
    back = _sources_of(part, 0)
    reached = {int(v): i for i, v in enumerate(order)}
    node = min(back.tolist(), key=reached.__getitem__)
    path = [int(node)]
    while path[-1] != 0:
        path.append(int(before[path[-1]]))
    return [int(inside[v]) for v in reversed(path)]


def _acyclic(graph: Graph) -> bool:
    """Return True if all operations can be done, each after those that lead to it (Kahn 1962)."""
    order = np.argsort(graph.source, kind="stable")
    start = np.searchsorted(graph.source[order], np.arange(graph.size + 1)).tolist()
    after = graph.target[order].tolist()
    missing = np.bincount(graph.target, minlength=graph.size).tolist()
    ready = [node for node, count in enumerate(missing) if not count]
    for node in ready:  # grows as it is gone through
        for other in after[start[node] : start[node + 1]]:
            missing[other] -= 1
            if not missing[other]:
                ready.append(other)
    return len(ready) == graph.size


def _sources_of(matrix: sparse.csr_array, target: int) -> Ints:
    rows, columns = matrix.nonzero()
    return np.asarray(rows[columns == target], np.int64)
