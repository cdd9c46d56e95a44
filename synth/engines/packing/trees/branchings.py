"""Cheapest trees for all roots at once, compiled; import this lazily, as :mod:`.kernels`."""

from __future__ import annotations

import numpy as np

from weft.dsl.base.jit import Array, compiled

from .kernels import FAR, STEEPEST, TreeNet, cheapest, plant, plant_all, record


@compiled
def _contract(weight: Array, up: Array, tail: Array, head: Array) -> int:
    """The contraction forest of Edmonds' algorithm on a dense, strongly connected graph.

    ``weight`` (n, n), tail to head, is used up. Vertices 0 … n-1, then contracted cycles. Fills
    for each the vertex it is contracted into (``up``, -1 for the last) and its cheapest in-arc
    between original vertices. Returns the number of vertices; 0: not strongly connected.
    The path-growing order of Gabow, Galil, Spencer and Tarjan (1986), here in O(n²).
    """
    n = len(weight)
    # A contracted vertex reuses the row (slot) of the cycle's entry; label: the live vertex of each
    # original one; lands[slot, u]: the original head of the cheapest way in from u; paid: price of
    # the chosen in-arc, off which later ways into the cycle are counted.
    enters = weight.T.copy()  # row of a live vertex: by original tail, cheapest way in
    lands = np.empty((n, n), np.int64)
    for v in range(n):
        lands[v, :] = v
    label = np.arange(n)
    slot = np.empty(2 * n, np.int64)  # row of enters and lands that each vertex uses
    slot[:n] = np.arange(n)
    paid = np.zeros(2 * n)
    on_path = np.zeros(2 * n, np.bool_)
    # live vertices, each entered by its cheapest arc from the next one
    path = np.empty(2 * n, np.int64)
    up[:] = -1
    path[0], size, count = 0, 1, n
    on_path[0] = True
    live = n
    while live > 1:
        v = path[size - 1]
        row = enters[slot[v]]
        least, u = FAR, -1
        for i in range(n):
            if row[i] < least and label[i] != v:
                least, u = row[i], i
        if u < 0:
            return 0
        tail[v], head[v], paid[v] = u, lands[slot[v], u], least
        s = label[u]
        if not on_path[s]:
            on_path[s] = True
            path[size] = s
            size += 1
            continue
        new = count
        count += 1
        slot[new] = slot[s]
        kept = enters[slot[s]]
        kept -= paid[s]
        while True:
            size -= 1
            x = path[size]
            up[x] = new
            live -= 1
            if x == s:
                break
            other = enters[slot[x]]
            for i in range(n):
                c = other[i] - paid[x]
                if c < kept[i]:
                    kept[i] = c
                    lands[slot[s], i] = lands[slot[x], i]
        live += 1
        for i in range(n):
            if up[label[i]] == new:
                label[i] = new
        on_path[new] = True
        path[size] = new
        size += 1
    return count


@compiled
def _expand(
    root: int,
    up: Array,
    tail: Array,
    head: Array,
    count: int,
    start: Array,
    child: Array,
    gone: Array,
    parent: Array,
) -> None:
    """The cheapest arborescence of one root, out of the contraction forest; tails in ``parent``.

    The forest does not depend on the root: what holds the root is dissolved, and every cycle that
    is left is entered by its own cheapest arc and opened where that lands.
    """
    gone[:] = False
    stack = np.empty(count, np.int64)  # vertices still to be entered by their own cheapest arc
    size = 0
    parent[:] = -1
    first, last = root, -1
    while True:
        # Open the chain from ``first`` to just below ``last``; what hung beside it enters by
        # its own arc.
        x = first
        while x != last:
            gone[x] = True
            above = up[x]
            if above >= 0:
                for j in range(start[above], start[above + 1]):
                    if child[j] != x and not gone[child[j]]:
                        stack[size] = child[j]
                        size += 1
            x = above
        if size == 0:
            break
        size -= 1
        v = stack[size]
        gone[v] = True
        parent[head[v]] = tail[v]
        first, last = head[v], v


@compiled
def edmonds(
    net: TreeNet, roots: Array, anchor: int, length: Array, arcs: Array, links: Array, loads: Array
) -> bool:
    """A cheapest tree (any height) for every root, from one contraction.

    ``anchor``: the only root there is, where not all ranks reach each other, else -1.
    """
    n = net.ranks
    cost = np.empty(len(net.cell_head))
    back = np.full((len(net.sources), len(net.out_start) - 1), -1)
    cheapest(net, length, cost, back)
    weight = np.full((n, n), FAR)  # cost of the arc from tail to head; FAR: none
    at = np.full((n, n), -1)  # that arc
    for a in range(len(net.arc_tail)):
        u, v = net.arc_tail[a], net.arc_head[a]
        weight[u, v] = cost[net.arc_cell[a]]
        at[u, v] = a
    if anchor >= 0:
        weight[:, anchor] = 0.0
        weight[anchor, anchor] = FAR
    up = np.empty(2 * n, np.int64)  # of the contraction forest: see _contract
    tail = np.empty(2 * n, np.int64)
    head = np.empty(2 * n, np.int64)
    count = _contract(weight, up, tail, head)
    start = np.zeros(2 * n + 1, np.int64)  # CSR of what was contracted into each vertex, in child
    for x in range(count):
        if up[x] >= 0:
            start[up[x] + 1] += 1
    for x in range(2 * n):
        start[x + 1] += start[x]
    put = start.copy()
    child = np.empty(2 * n, np.int64)
    for x in range(count):
        if up[x] >= 0:
            child[put[up[x]]] = x
            put[up[x]] += 1
    gone = np.empty(2 * n, np.bool_)
    parent = np.empty(n, np.int64)
    for t in range(len(roots)):
        _expand(roots[t], up, tail, head, count, start, child, gone, parent)
        arcs[t, :] = -1
        for v in range(n):
            if parent[v] >= 0:
                arcs[t, v] = at[parent[v], v]
        record(net, back, arcs[t], links[t], loads[t])
    return count > 0


@compiled
def fill_pairs(
    net: TreeNet,
    turned: Array,
    roots: Array,
    limit: int,
    eta: float,
    inc: Array,
    arcs: Array,
    links: Array,
    loads: Array,
    arcs2: Array,
    links2: Array,
    loads2: Array,
) -> Array:
    """Multiplicative weights for allreduce: every step reduces to, and broadcasts from, the root
    where both together are cheapest. Returns the index of the root of every step.

    ``net`` grows the out-trees, ``turned`` the in-trees; ``inc`` is the congestion per use.
    """
    steps, n = arcs.shape
    resources = loads.shape[1]
    chosen = np.empty(steps, np.int64)
    congestion = np.zeros(resources)
    cost = np.empty(len(net.cell_head))
    cost2 = np.empty(len(turned.cell_head))
    back = np.full((len(roots), len(net.out_start) - 1), -1)
    back2 = back.copy()
    depth = np.empty(n, np.int64)
    some = min(len(roots), n)
    try_arcs = np.empty((some, n), np.int64)
    try_links = np.empty((some, n, net.width), np.int64)
    try_links2 = np.empty((some, n, turned.width), np.int64)
    try_loads = np.empty((some, resources), np.int64)
    price = np.empty(some)
    for t in range(steps):
        y = np.exp(np.maximum(eta * (congestion - congestion.max()), -STEEPEST)) + 1e-3
        length = y * inc
        mu = 0.02 * length.mean()
        price[:] = 0.0
        cheapest(net, length, cost, back)
        cheapest(turned, length, cost2, back2)
        if some > 4:
            edmonds(net, roots, -1, length, try_arcs, try_links, try_loads)
            add_lengths(price, try_loads, length)
            edmonds(turned, roots, -1, length, try_arcs, try_links2, try_loads)
            add_lengths(price, try_loads, length)
        else:
            plant_all(net, roots, limit, mu, length, try_arcs, try_links, try_loads)
            add_lengths(price, try_loads, length)
            plant_all(turned, roots, limit, mu, length, try_arcs, try_links2, try_loads)
            add_lengths(price, try_loads, length)
        k = price.argmin()
        chosen[t] = k
        plant(net, roots[k], limit, mu, cost, arcs[t], depth)
        record(net, back, arcs[t], links[t], loads[t])
        plant(turned, roots[k], limit, mu, cost2, arcs2[t], depth)
        record(turned, back2, arcs2[t], links2[t], loads2[t])
        congestion += (loads[t] + loads2[t]) * inc
    return chosen


@compiled
def add_lengths(price: Array, loads: Array, length: Array) -> None:
    """Add to the price of each tree what its loads cost, resource after resource.

    A product of matrices would load SciPy, and add in an order that depends on the processor.
    """
    for tree in range(len(loads)):
        total = 0.0
        for resource in range(len(length)):
            total += loads[tree, resource] * length[resource]
        price[tree] += total
