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
from weft.dsl.nouns.program import BUFFERS, RECEIVES, SENDS, Buffer, Code
from weft.dsl.nouns.runtime import MAX_COUNT

from ..judge.events import ControlOperations, MessageShape, assemble
from .findings import LIMITS, Finding, at_transfers

if TYPE_CHECKING:
    from scipy import sparse


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
        code, operations: the source, and its operations; those of a block are contiguous.
        merge: chunks of an operation at most.
        source, target, kind: of each edge.
        unmet: shape (·, 2), (operation, index into ``code.wait_*``) of waits nothing satisfies.
    """

    code: Code
    operations: ControlOperations
    merge: int
    source: Ints
    target: Ints
    kind: Ints
    unmet: Ints

    @property
    def transfer(self) -> Ints:
        """The transfer of each operation."""
        return self.operations.transfer

    @property
    def size(self) -> int:
        """Number of operations."""
        return len(self.transfer)

    def block(self) -> Ints:
        """Return the block of each operation."""
        return self.operations.block

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
        if first := self.operations.first[operation]:
            text += f" piece {first // self.merge}"
        if turn := self.operations.iteration[operation]:
            text += f" iteration {turn}"
        return text


ONE_CHUNK = MessageShape()


def expand(code: Code, shape: MessageShape = ONE_CHUNK) -> Graph:
    """Return the graph of a code whose structure is sound, and whose messages are paired."""
    program = assemble(code, shape)
    o, needs, effects = program.operations, program.needs, program.effects
    follows = np.flatnonzero(o.block[1:] == o.block[:-1])
    owner, giver = (np.repeat(np.arange(len(o)), np.diff(some.start)) for some in (needs, effects))
    flags = 2 * len(program.connections)
    kind = np.where(needs.counter % 2, np.int64(Edge.CREDIT), np.int64(Edge.MESSAGE))
    kind[(needs.counter < 0) | (needs.counter >= flags)] = Edge.WAIT
    # Messages and credits by connection, waits by operation.
    order = np.lexsort((np.where(kind == Edge.WAIT, -1, needs.counter), kind))
    # Counters rise with the operations of the one block that raises them, so keys ascend.
    raised = np.argsort(effects.counter, kind="stable")
    values = np.concatenate([effects.value, needs.value])
    width = int(values.max(initial=0)) + 2
    keys = effects.counter[raised] * width + effects.value[raised]
    least = needs.counter[order] * width + np.maximum(needs.value[order], -1)
    at = np.searchsorted(keys, least)
    met = at < len(keys)
    met[met] = effects.counter[raised[at[met]]] == needs.counter[order[met]]
    lacking = order[~met]
    row = code.wait_start[o.transfer[owner[lacking]]] + lacking - needs.start[owner[lacking]]
    return Graph(
        code,
        o,
        shape.merge,
        np.concatenate([follows, giver[raised[at[met]]]]),
        np.concatenate([follows + 1, owner[order[met]]]),
        np.concatenate([np.full(len(follows), Edge.PROGRAM), kind[order[met]]]),
        np.stack([owner[lacking], row], axis=1),
    )


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
    if len(graph.source) <= LIMITS.plain_edges and _acyclic(graph):
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
    rows, columns = part.nonzero()
    back = rows[columns == 0]
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


# --- waits that nothing satisfies, and operations that wait for each other ----------------------


def waits(code: Code, graph: Graph) -> list[Finding]:
    """Dependences on steps that are never published; a deadlock in the last iteration or before."""
    if not len(graph.unmet):
        return []
    transfer = graph.transfer[graph.unmet[:, 0]]
    wait = graph.unmet[:, 1]
    _, first = np.unique(wait, return_index=True)

    def message(k: int) -> str:
        block, flag = code.wait_block[wait[first[k]]], code.wait_flag[wait[first[k]]]
        if block < 0:
            return "waits for a thread block that does not exist"
        return (
            f"waits for step {flag} of tb {code.block_id[block]}, which publishes nothing from "
            "there on (hasdep)"
        )

    nowhere = code.wait_block[wait[first]] < 0
    found = []
    for bad, kind in ((nowhere, "wait-nowhere"), (~nowhere, "wait")):
        some = np.flatnonzero(bad)

        def told(k: int, some: Ints = some) -> str:
            return message(int(some[k]))

        found += at_transfers("waits", code, transfer[first][some], told, kind=kind)
    return found


@dataclass(frozen=True)
class Hang:
    """A deadlock: the program hangs if and only if at most ``merge`` chunks share an operation.

    ``operation``: one of the waiting ones, ``story`` the waits along the cycle.
    """

    merge: int
    transfer: int
    story: str


def hang(code: Code, plain: Graph) -> Hang | None:
    """Find the sizes at which a program hangs whose waits are all met; None: at none.

    ``plain`` is its graph of single chunks. Two facts make the answer exact for every size. A
    dependence is met in its own iteration, and messages and credits never go back to an earlier
    one, so a cycle lies within one iteration, and all iterations are alike. And a cycle of merged
    operations is one of their first pieces when less is merged (credit counts no fewer operations
    between them), so a program that hangs at some size hangs at all larger ones.
    """
    cycle = find_cycle(plain)
    if cycle is None:
        return None
    low, high = 1, min(MAX_COUNT, max(1, int(code.count.max(initial=1)))) + 1
    graph = plain
    while high - low > 1:
        middle = (low + high) // 2
        merged = expand(code, MessageShape(merge=middle))
        found = find_cycle(merged)
        if found is None:
            high = middle
        else:
            low, graph, cycle = middle, merged, found
    return Hang(low, int(graph.transfer[cycle[0]]), _tell(graph, cycle))


def _tell(graph: Graph, cycle: list[int]) -> str:
    """Return the cycle in words: each operation that waits for another block, and its wait."""
    kinds = _kinds(graph, cycle)
    parts = []
    for i, kind in enumerate(kinds):
        before, after = cycle[i], cycle[(i + 1) % len(cycle)]
        if kind is Edge.PROGRAM:
            continue
        need = {
            Edge.MESSAGE: "for the message of",
            Edge.CREDIT: "for a free slot, after",
            Edge.WAIT: "for the flag of",
        }[kind]
        parts.append(f"{graph.describe(after)} waits {need} {graph.describe(before)}")
    if len(parts) > LIMITS.listed_waits:
        parts = [*parts[: LIMITS.listed_waits], f"… {len(parts) - LIMITS.listed_waits} more"]
    return "; ".join(reversed(parts))


def _kinds(graph: Graph, cycle: list[int]) -> list[Edge]:
    """The kind of the edge from each operation of a cycle to the next; program order if both."""
    wanted = {(v, cycle[(i + 1) % len(cycle)]) for i, v in enumerate(cycle)}
    members = np.zeros(graph.size, bool)
    members[cycle] = True
    among = np.flatnonzero(members[graph.source] & members[graph.target])
    kinds: dict[tuple[int, int], Edge] = {}
    for e in among[::-1].tolist():
        ends = (int(graph.source[e]), int(graph.target[e]))
        if ends in wanted:
            kinds[ends] = min(kinds.get(ends, Edge.WAIT), Edge(int(graph.kind[e])))
    return [kinds[v, cycle[(i + 1) % len(cycle)]] for i, v in enumerate(cycle)]
