"""Trees that avoid loaded resources: grown nearest first, then removed and grown again."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.dsl.base.jit import Array, compiled

from .events_kernel import SIZE, pop, push

NONE = -1


@compiled
def price(hop: int, held: tuple[Array, Array, Array], busy: Array, target: float) -> float:
    """Return the increase of Σ (load / target)^8 over all resources by a chunk over a hop."""
    total = 0.0
    for k in range(held[0][hop], held[0][hop + 1]):
        before = busy[held[1][k]] / target
        after = before + held[2][k] / target
        before *= before
        after *= after
        before *= before
        after *= after
        total += after * after - before * before
    return total


@compiled
def load(hop: int, held: tuple[Array, Array, Array], busy: Array, sign: int) -> None:
    """Add the loads of a hop, or remove them."""
    for k in range(held[0][hop], held[0][hop + 1]):
        busy[held[1][k]] += sign * held[2][k]


@compiled
def nearest(
    ends: tuple[Array, Array],
    out_hops: tuple[Array, Array],
    held: tuple[Array, Array, Array],
    busy: Array,
    target: float,
    toll: Array,
    wanted: Array,
    depth: Array,
    members: Array,
    many: int,
    cost: Array,
    by: Array,
    heap: tuple[Array, Array],
    size: Array,
    deep: float,
) -> Any:
    """Dijkstra's search from a tree to the next rank that wants the chunk; ``by`` is the hop into
    each rank. -1 if there is none."""
    cost[:] = np.inf
    by[:] = NONE
    size[SIZE] = 0
    for i in range(many):
        cost[members[i]] = deep * depth[members[i]]
        push(heap[0], heap[1], size, cost[members[i]], members[i])
    while size[SIZE] > 0:
        reached = heap[0][0]
        u = pop(heap[0], heap[1], size)
        if reached > cost[u]:
            continue
        if wanted[u]:
            return u
        for k in range(out_hops[0][u], out_hops[0][u + 1]):
            hop = out_hops[1][k]
            v = ends[1][hop]
            if depth[v] >= 0:
                continue
            there = reached + toll[hop] + price(hop, held, busy, target)
            if there < cost[v]:
                cost[v] = there
                by[v] = hop
                push(heap[0], heap[1], size, there, v)
    return NONE


@compiled
def graft(
    ends: tuple[Array, Array], by: Array, depth: Array, rank: int, tree: Array, hops: int
) -> int:
    """Append the hops from the tree to ``rank``, in that order: the new number of hops.

    Ranks of the tree have depths, all others -1. -2: ``tree`` is too short.
    """
    begin = hops
    while depth[rank] < 0:
        if hops == len(tree):
            return -2
        tree[hops] = by[rank]
        hops += 1
        rank = ends[0][by[rank]]
    tree[begin:hops] = tree[begin:hops][::-1].copy()
    return hops


@compiled
def grow(
    ends: tuple[Array, Array],
    out_hops: tuple[Array, Array],
    held: tuple[Array, Array, Array],
    busy: Array,
    target: float,
    toll: Array,
    deep: float,
    holders: Array,
    wanters: Array,
    tree: Array,
) -> int:
    """Grow a chunk's tree from its holders to all wanters, and load it: its number of hops.

    Hops come after those that they depend on. -1: a wanter cannot be reached; -2: ``tree`` is too
    short.
    """
    nodes = len(out_hops[0]) - 1
    depth = np.full(nodes, NONE)
    wanted = np.zeros(nodes, np.bool_)
    members = np.empty(nodes, np.int64)
    cost, by = np.empty(nodes), np.empty(nodes, np.int64)
    heap = (np.empty(len(toll) + nodes + 1), np.empty(len(toll) + nodes + 1, np.int64))
    size, many, hops = np.zeros(4, np.int64), len(holders), 0
    for i in range(many):
        members[i], depth[holders[i]] = holders[i], 0
    left = 0
    for v in wanters:
        if depth[v] < 0 and not wanted[v]:
            wanted[v] = True
            left += 1
    while left > 0:
        v = nearest(
            ends,
            out_hops,
            held,
            busy,
            target,
            toll,
            wanted,
            depth,
            members,
            many,
            cost,
            by,
            heap,
            size,
            deep,
        )
        if v == NONE:
            return -1
        begin, hops = hops, graft(ends, by, depth, v, tree, hops)
        if hops < 0:
            return -2
        for i in range(begin, hops):
            load(tree[i], held, busy, 1)
            u = ends[1][tree[i]]
            depth[u] = depth[ends[0][tree[i]]] + 1
            members[many] = u
            many += 1
            if wanted[u]:
                wanted[u] = False
                left -= 1
    return hops


@compiled
def grow_all(
    ends: tuple[Array, Array],
    out_hops: tuple[Array, Array],
    held: tuple[Array, Array, Array],
    busy: Array,
    target: float,
    toll: Array,
    deep: float,
    order: Array,
    holders: tuple[Array, Array],
    wanters: tuple[Array, Array],
    trees: Array,
    length: Array,
) -> int:
    """Grow the trees of chunks in an order; those that are there are torn up first. 0, -1 or -2."""
    for c in order:
        for i in range(length[c]):
            load(trees[c, i], held, busy, -1)
        length[c] = 0
        many = grow(
            ends,
            out_hops,
            held,
            busy,
            target,
            toll,
            deep,
            holders[1][holders[0][c] : holders[0][c + 1]],
            wanters[1][wanters[0][c] : wanters[0][c + 1]],
            trees[c],
        )
        if many < 0:
            return many
        length[c] = many
    return 0
