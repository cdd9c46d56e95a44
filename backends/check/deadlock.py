"""Waits that nothing satisfies, and cycles of operations that wait for each other."""

from __future__ import annotations

import numpy as np

from weft.dsl.base.arrays import Ints
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.program import Code
from weft.dsl.nouns.runtime import MAX_COUNT

from .findings import Finding, at_transfers
from .graph import Edge, Graph, expand, find_cycle

MOST_TOLD = 40
"""Waits of a cycle that are told; no shorter way around was found."""


def waits(code: Code, graph: Graph) -> list[Finding]:
    """Dependences on what is never published; deadlock at the latest in the last iteration."""
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
    """Test whether and at which sizes a program hangs whose waits are all met; None if at none.

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
        merged = expand(code, merge=middle)
        found = find_cycle(merged)
        if found is None:
            high = middle
        else:
            low, graph, cycle = middle, merged, found
    return Hang(low, int(graph.transfer[cycle[0]]), _tell(graph, cycle))


def _tell(graph: Graph, cycle: list[int]) -> str:
    """Return the cycle in words: each operation that waits for another block, and for what."""
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
    if len(parts) > MOST_TOLD:
        parts = [*parts[:MOST_TOLD], f"… {len(parts) - MOST_TOLD} more"]
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
