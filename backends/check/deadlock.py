"""Waits that nothing satisfies, and cycles of operations that wait for each other."""

from __future__ import annotations

import numpy as np

from ..listing import Listing
from .connections import Connections
from .findings import Finding, Severity, at_transfers
from .graph import Edge, Graph, expand, find_cycle


def waits(listing: Listing, graph: Graph) -> list[Finding]:
    """Dependences on what is never published; deadlock at the latest in the last iteration."""
    if not len(graph.unmet):
        return []
    transfer = graph.transfer[graph.unmet[:, 0]]
    wait = graph.unmet[:, 1]
    _, first = np.unique(wait, return_index=True)

    def message(k: int) -> str:
        block, flag = listing.wait_block[wait[first[k]]], listing.wait_flag[wait[first[k]]]
        if block < 0:
            return "waits for a thread block that does not exist"
        return (
            f"waits for step {flag} of tb {listing.block_id[block]}, which publishes nothing from "
            "there on (hasdep)"
        )

    return at_transfers("waits", listing, transfer[first], message)


def deadlock(
    listing: Listing, links: Connections, merge: int, severity: Severity = Severity.ERROR
) -> list[Finding]:
    """A cycle of waiting, with at most ``merge`` chunks per operation; empty if there is none.

    Two iterations of the loop are looked at where operations are single chunks (several chunks in
    one operation mean that the message fits one iteration).
    """
    graph = expand(listing, links, merge=merge, iterations=2 if merge == 1 else 1)
    cycle = find_cycle(graph)
    if cycle is None:
        return []
    text = f"deadlock with at most {merge} chunks per operation: {_tell(graph, cycle)}"
    first = int(graph.transfer[cycle[0]])
    return at_transfers("deadlock", listing, np.array([first]), text, severity)


def _tell(graph: Graph, cycle: list[int]) -> str:
    """The cycle in words: each operation that waits for another block, and for what."""
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
    if len(parts) > 12:
        parts = [*parts[:12], f"… {len(parts) - 12} more"]
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
