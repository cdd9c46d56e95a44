"""Which messages bring what another one sends on: the pairs that fusion may join."""

from __future__ import annotations

import numpy as np

from weft.dsl.base.arrays import Bools, Ints

from .flow import Messages


def forwarded(m: Messages) -> tuple[Ints, Ints]:
    """Pairs of messages: the second sends what the first was the last to bring."""

    wide = np.int64(m.chunk.max(initial=0)) + 1
    steps = np.int64(m.step.max(initial=0)) + 2
    arrival = (m.dst * wide + m.chunk) * steps + m.step
    order = np.lexsort((m.turn, arrival))
    departure = (m.src * wide + m.chunk) * steps + m.step
    before = np.searchsorted(arrival[order], departure) - 1
    outgoing = np.flatnonzero(before >= 0)
    incoming = order[before[outgoing]]
    same = arrival[incoming] // steps == departure[outgoing] // steps
    return incoming[same], outgoing[same]


def places_in_step(m: Messages, connection: Ints) -> tuple[Ints, Ints]:
    """Position of each message among those of its step and connection, and how many there are."""
    order = np.lexsort((m.chunk, m.step, connection))
    key = connection * (m.step.max(initial=0) + 1) + m.step
    _, start, inverse, size = np.unique(
        key[order], return_index=True, return_inverse=True, return_counts=True
    )
    position, total = np.empty(len(m), np.int64), np.empty(len(m), np.int64)
    position[order] = np.arange(len(m)) - start[inverse]
    total[order] = size[inverse]
    return position, total


def circular(i: Ints, o: Ints, nodes: int) -> Bools:
    """Whether each edge i → o of a graph lies on a cycle. Linear (strong components, by scipy).

    Edges from the connection that brings to the one that sends on: where they lie on no cycle, no
    ring of blocks with full FIFOs can wait for itself.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    graph = coo_array((np.ones(len(i), np.int8), (i, o)), shape=(nodes, nodes))
    _, part = connected_components(graph, directed=True, connection="strong")
    result: Bools = part[i] == part[o]
    return result


def lone(m: Messages, connection: Ints, depth: int) -> Bools:
    """Whether a message is the only one of its step and connection, or can travel with all others.

    Those others are its neighbours then, and together fewer than ``depth``: a ring of blocks that
    receive and send in one instruction, all with full FIFOs, would wait for ever (see
    :func:`circular`).
    """
    position, total = places_in_step(m, connection)
    key = connection * (m.step.max(initial=0) + 1) + m.step
    _, inverse = np.unique(key, return_inverse=True)
    base = m.chunk - position
    least = np.full(int(inverse.max(initial=-1)) + 1, np.iinfo(np.int64).max)
    most = np.full(len(least), np.iinfo(np.int64).min)
    np.minimum.at(least, inverse, base)
    np.maximum.at(most, inverse, base)
    result: Bools = (total <= max(1, depth - 1)) & (least == most)[inverse]
    return result
