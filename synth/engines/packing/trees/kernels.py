"""Compiled loops of the tree packing: routes, trees and prices; import this lazily.

Every function takes a :class:`TreeNet`, plain arrays of one machine (built by :mod:`.machine`), and
*lengths*: what it costs to use a resource orbit once. Ranks are vertices, *arcs* are what one hop
can do (GPU to GPU through nodes that do not store). Where the machine is symmetric, arcs of one
orbit share a *cell*, the arc of the orbit that leaves a representative, and with it cost and route.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from weft.dsl.base.arrays import Ints
from weft.dsl.base.jit import Array, compiled

from ....base.heaps import pop, push

FAR = 1e300
"""Distance greater than that of any route."""

STEEPEST = 30.0
"""Exponents of prices stop here; beyond, prices grow linearly, so that overload still costs."""


class TreeNet(NamedTuple):
    """A machine in arrays (all int64): links, arcs, cells."""

    ranks: int  # nodes 0 … ranks - 1, those that store
    width: int  # most links of a route
    link_src: Ints  # node, by link
    link_dst: Ints  # node, by link
    out_start: Ints  # (nodes + 1,): of out_link, the links that leave node v
    out_link: Ints  # links, by the node that they leave
    resource_start: Ints  # (links + 1,): of resources, the orbits that link i loads
    resources: Ints  # orbits of links and shared resources, by link
    sources: Ints  # representatives: the rank of each orbit from which cells go
    cell_start: Ints  # (sources + 1,): the cells of source k; cells ascend by source
    cell_source: Ints  # index into sources, by cell
    cell_head: Ints  # rank in which the hop of a cell ends
    arc_start: Ints  # (ranks + 1,): the arcs that leave rank u; arcs ascend by tail
    arc_tail: Ints  # rank, by arc
    arc_head: Ints  # rank, by arc
    arc_cell: Ints  # cell of which the arc is an image: cost and route are the cell's
    in_start: Ints  # (ranks + 1,): of in_arc, the arcs that enter rank v
    in_arc: Ints  # arcs, by the rank that they enter


@compiled
def cheapest(net: TreeNet, length: Array, cost: Array, back: Array) -> None:
    """Cheapest route of every cell: Dijkstra that expands only nodes that do not store.

    Fills ``cost`` (cells,) and ``back`` (sources, nodes): the link by which a node is reached.
    Where a cheap way to a switch has too many links to go on, the routes are those of fewest links.
    """
    nodes = len(net.out_start) - 1
    price = np.zeros(len(net.link_src))  # cost of one use of each link
    for i in range(len(price)):
        for k in range(net.resource_start[i], net.resource_start[i + 1]):
            price[i] += length[net.resources[k]]
    dist = np.full(nodes, FAR)
    steps = np.zeros(nodes, np.int64)  # links from the source; valid where dist is
    # heap: distances, and nodes in items; a link adds one entry at most
    keys = np.empty(len(price) + 1)
    items = np.empty(len(price) + 1, np.int64)
    for k in range(len(net.sources)):
        dist[:] = FAR
        source = net.sources[k]
        dist[source] = 0.0
        steps[source] = 0
        keys[0], items[0], size = 0.0, source, 1
        while size:
            at, node = keys[0], items[0]
            size = pop(keys, items, size)
            if at > dist[node] or steps[node] >= net.width:
                continue
            for j in range(net.out_start[node], net.out_start[node + 1]):
                i = net.out_link[j]
                to = net.link_dst[i]
                if at + price[i] < dist[to] and to != source:
                    dist[to] = at + price[i]
                    steps[to] = steps[node] + 1
                    back[k, to] = i
                    if to >= net.ranks:
                        size = push(keys, items, size, dist[to], to)
        for q in range(net.cell_start[k], net.cell_start[k + 1]):
            if dist[net.cell_head[q]] == FAR:
                _fewest(net, k, price, dist, steps, back, items)
                break
        for q in range(net.cell_start[k], net.cell_start[k + 1]):
            cost[q] = dist[net.cell_head[q]]


@compiled
def _fewest(
    net: TreeNet, k: int, price: Array, dist: Array, steps: Array, back: Array, items: Array
) -> None:
    """Routes of fewest links from source k, the cheapest of these, as :func:`cheapest` has them."""
    dist[:] = FAR
    source = net.sources[k]
    dist[source] = 0.0
    steps[source] = 0
    items[0], at, size = source, 0, 1
    while at < size:
        node = items[at]
        at += 1
        for j in range(net.out_start[node], net.out_start[node + 1]):
            i = net.out_link[j]
            to = net.link_dst[i]
            if to == source:
                continue
            fresh = dist[to] == FAR
            cheap = dist[node] + price[i]
            if fresh or (steps[to] == steps[node] + 1 and cheap < dist[to]):
                dist[to] = cheap
                steps[to] = steps[node] + 1
                back[k, to] = i
            if fresh and to >= net.ranks:
                items[size] = to
                size += 1


@compiled
def _grow(
    net: TreeNet, root: int, limit: int, mu: float, cost: Array, arc_of: Array, depth: Array
) -> bool:
    """Directed Prim under a height limit, deep nodes made dearer by ``mu`` a level; may fail."""
    n = net.ranks
    key = np.full(n, FAR)  # cost of the cheapest arc from the tree to each rank
    via = np.full(n, -1)  # that arc; -1: none yet
    arc_of[:] = -1
    depth[:] = -1
    depth[root] = 0
    u = root
    for _ in range(n - 1):
        if depth[u] < limit:
            for a in range(net.arc_start[u], net.arc_start[u + 1]):
                v = net.arc_head[a]
                if depth[v] < 0:
                    c = cost[net.arc_cell[a]] + mu * depth[u]
                    if c < key[v]:
                        key[v] = c
                        via[v] = a
        least = FAR
        u = -1
        for i in range(n):  # ties go round with the root, so that roots do not all agree
            v = root + 1 + i
            if v >= n:
                v -= n
            if depth[v] < 0 and key[v] < least:
                least = key[v]
                u = v
        if u < 0:
            return False
        arc_of[u] = via[u]
        depth[u] = depth[net.arc_tail[via[u]]] + 1
    return True


@compiled
def _by_levels(net: TreeNet, root: int, cost: Array, arc_of: Array, depth: Array) -> bool:
    """Build a tree of least depths, by cheapest arcs; False if a rank is not reached."""
    n = net.ranks
    arc_of[:] = -1
    depth[:] = -1
    depth[root] = 0
    order = np.empty(n, np.int64)  # ranks by level; each is put there once
    order[0] = root
    seen = 1
    at = 0
    while at < seen:
        u = order[at]
        at += 1
        for a in range(net.arc_start[u], net.arc_start[u + 1]):
            v = net.arc_head[a]
            c = cost[net.arc_cell[a]]
            if c >= FAR:
                continue
            if depth[v] < 0:
                depth[v] = depth[u] + 1
                arc_of[v] = a
                order[seen] = v
                seen += 1
            elif depth[v] == depth[u] + 1 and c < cost[net.arc_cell[arc_of[v]]]:
                arc_of[v] = a
    return seen == n


@compiled
def _settle(net: TreeNet, root: int, arc_of: Array, depth: Array, under: Array) -> None:
    """Depths, and heights of subtrees, of a tree given by the arcs into its nodes."""
    n = net.ranks
    start = np.zeros(n + 1, np.int64)  # CSR of the children of each rank, in child
    for v in range(n):
        if arc_of[v] >= 0:
            start[net.arc_tail[arc_of[v]] + 1] += 1
    for v in range(n):
        start[v + 1] += start[v]
    fill = start[:-1].copy()
    child = np.empty(n, np.int64)
    for v in range(n):
        if arc_of[v] >= 0:
            u = net.arc_tail[arc_of[v]]
            child[fill[u]] = v
            fill[u] += 1
    order = np.empty(n, np.int64)  # ranks from the root on, parents first
    order[0] = root
    depth[root] = 0
    seen = 1
    for at in range(n):
        u = order[at]
        for j in range(start[u], start[u + 1]):
            depth[child[j]] = depth[u] + 1
            order[seen] = child[j]
            seen += 1
    under[:] = 0
    for at in range(n - 1, 0, -1):
        v = order[at]
        u = net.arc_tail[arc_of[v]]
        under[u] = max(under[u], under[v] + 1)


@compiled
def _reparent(
    net: TreeNet, root: int, limit: int, cost: Array, arc_of: Array, depth: Array
) -> None:
    """Move subtrees to cheaper parents while the height limit allows it."""
    n = net.ranks
    under = np.zeros(n, np.int64)  # levels below each rank in the tree
    _settle(net, root, arc_of, depth, under)
    for _ in range(3):
        moved = False
        for v in range(n):
            if v == root:
                continue
            now = cost[net.arc_cell[arc_of[v]]]
            best = -1
            for j in range(net.in_start[v], net.in_start[v + 1]):
                a = net.in_arc[j]
                c = cost[net.arc_cell[a]]
                u = net.arc_tail[a]
                if c >= now * (1 - 1e-9) or depth[u] + 1 + under[v] > limit:
                    continue
                x = u  # the new parent must not lie below v: its way up ends at the root
                while x != v and x != root:
                    x = net.arc_tail[arc_of[x]]
                if x == root:
                    now, best = c, a
            if best >= 0:
                arc_of[v] = best
                _settle(net, root, arc_of, depth, under)
                moved = True
        if not moved:
            break


@compiled
def plant(
    net: TreeNet, root: int, limit: int, mu: float, cost: Array, arc_of: Array, depth: Array
) -> None:
    """Build a cheap tree of limited height; the limit is at least the root's eccentricity."""
    if not _grow(net, root, limit, mu, cost, arc_of, depth):
        _by_levels(net, root, cost, arc_of, depth)
    _reparent(net, root, limit, cost, arc_of, depth)


@compiled
def record(net: TreeNet, back: Array, arc_of: Array, links: Array, load: Array) -> None:
    """Routes of the arcs of a tree, as links in the frame of their cells, and its loads."""
    links[:] = -1  # links[v]: the route into v, first link first, -1 behind it
    load[:] = 0
    for v in range(net.ranks):
        if arc_of[v] < 0:
            continue
        q = net.arc_cell[arc_of[v]]
        k = net.cell_source[q]
        node = net.cell_head[q]
        count = 0
        while node != net.sources[k]:
            i = back[k, node]
            for j in range(net.resource_start[i], net.resource_start[i + 1]):
                load[net.resources[j]] += 1
            links[v, count] = i
            count += 1
            node = net.link_src[i]
        for j in range(count // 2):
            links[v, j], links[v, count - 1 - j] = links[v, count - 1 - j], links[v, j]


@compiled
def fill(
    net: TreeNet,
    roots: Array,
    limit: int,
    eta: float,
    seed: int,
    inc: Array,
    arcs: Array,
    links: Array,
    loads: Array,
) -> None:
    """Multiplicative weights: rounds of one tree for every root, until ``arcs`` is full.

    A tree adds ``inc`` times its loads to the congestion of the resources, whose prices grow
    exponentially with it (Plotkin, Shmoys and Tardos 1995).
    """
    np.random.seed(seed)
    # By cell, and by source and node: refilled for every tree.
    cost = np.empty(len(net.cell_head))
    back = np.full((len(net.sources), len(net.out_start) - 1), -1)
    depth = np.empty(net.ranks, np.int64)
    # of each resource orbit: the sum of load · inc of the trees so far
    congestion = np.zeros(len(inc))
    t = 0
    while t < len(arcs):
        for i in np.random.permutation(len(roots)):
            y = np.exp(np.maximum(eta * (congestion - congestion.max()), -STEEPEST)) + 1e-3
            cheapest(net, y * inc, cost, back)
            plant(net, roots[i], limit, 0.02 * (y * inc).mean(), cost, arcs[t], depth)
            record(net, back, arcs[t], links[t], loads[t])
            congestion += loads[t] * inc
            t += 1


@compiled
def plant_all(
    net: TreeNet,
    roots: Array,
    limit: int,
    mu: float,
    length: Array,
    arcs: Array,
    links: Array,
    loads: Array,
) -> None:
    """Build one cheap tree of limited height per root, all at the same prices."""
    cost = np.empty(len(net.cell_head))
    back = np.full((len(net.sources), len(net.out_start) - 1), -1)
    depth = np.empty(net.ranks, np.int64)
    cheapest(net, length, cost, back)
    for t in range(len(roots)):
        plant(net, roots[t], limit, mu, cost, arcs[t], depth)
        record(net, back, arcs[t], links[t], loads[t])


@compiled
def reroute(
    nets: tuple[TreeNet, ...],
    turned: Array,
    roots: Array,
    limit: int,
    mu: float,
    steep: Array,
    rounds: int,
    seed: int,
    inc: Array,
    arcs: Array,
    links: Array,
    loads: Array,
) -> int:
    """Rip up and reroute: one tree for every entry of ``roots``, the largest congestion least.

    Tree t grows in ``nets[turned[t]]``: an allreduce has trees that lead to their roots as well.
    ``arcs``, ``links``, ``loads`` hold the trees to start from (``arcs[t, roots[t] - 1]`` < 0 for
    all other entries: none yet), in the end the best found. Stops at congestion 1.
    Returns the number of rounds.
    """
    np.random.seed(seed)
    most = 0
    for net in nets:
        most = max(most, len(net.cell_head))
    cost = np.empty(most)
    back = np.full((len(nets[0].sources), len(nets[0].out_start) - 1), -1)
    depth = np.empty(nets[0].ranks, np.int64)
    total = loads.sum(axis=0)  # uses of each resource orbit by all trees as they are now
    now_arcs, now_links, now_loads = arcs.copy(), links.copy(), loads.copy()
    habit = np.zeros(loads.shape)  # what a tree used to load: few trees must learn of themselves
    weight = 1.0 / len(roots)
    best, done = FAR, 0
    for p in range(rounds):
        eta = steep[0] + (steep[1] - steep[0]) * p / max(rounds - 1, 1)
        for t in np.random.permutation(len(roots)):
            net = nets[turned[t]]
            total -= now_loads[t]
            x = eta * ((total + 0.5 + weight * habit[t]) * inc - 1.0)
            y = np.exp(np.minimum(x, STEEPEST)) * (1.0 + np.maximum(x - STEEPEST, 0.0))
            length = (y + 1e-6 * y.max()) * inc
            cheapest(net, length, cost, back)
            plant(net, roots[t], limit, mu * length.mean(), cost, now_arcs[t], depth)
            record(net, back, now_arcs[t], now_links[t], now_loads[t])
            total += now_loads[t]
            habit[t] += 0.3 * (now_loads[t] - habit[t])
        worst = (total * inc).max()
        if worst < best * (1 - 1e-12):
            best = worst
            arcs[:] = now_arcs
            links[:] = now_links
            loads[:] = now_loads
        done += 1
        if best <= 1 + 1e-9:
            break
    return done


@compiled
def reached(
    ranks: int, sources: Array, out_start: Array, out_link: Array, link_dst: Array
) -> tuple[Array, Array, Array]:
    """GPUs that each source reaches in one hop: (index of source, GPU, fewest links), sorted."""
    nodes = len(out_start) - 1
    source = np.empty(len(sources) * ranks, np.int64)
    head, steps = source.copy(), source.copy()
    count = 0
    level = np.empty(nodes, np.int64)  # links from the source; -1: not reached
    queue = np.empty(nodes, np.int64)
    for k in range(len(sources)):
        level[:] = -1
        level[sources[k]] = 0
        queue[0] = sources[k]
        at, size = 0, 1
        while at < size:
            node = queue[at]
            at += 1
            if node < ranks and node != sources[k]:
                continue
            for j in range(out_start[node], out_start[node + 1]):
                to = link_dst[out_link[j]]
                if level[to] < 0:
                    level[to] = level[node] + 1
                    queue[size] = to
                    size += 1
        for v in range(ranks):
            if level[v] > 0:
                source[count], head[count], steps[count] = k, v, level[v]
                count += 1
    return source[:count], head[:count], steps[:count]


@compiled
def eccentricities(net: TreeNet) -> Array:
    """Hops from every source to the rank farthest from it; -1 where it does not reach all."""
    found = np.empty(len(net.sources), np.int64)
    cost = np.zeros(len(net.cell_head))
    arc_of = np.empty(net.ranks, np.int64)
    depth = np.empty(net.ranks, np.int64)
    for k in range(len(net.sources)):
        every = _by_levels(net, net.sources[k], cost, arc_of, depth)
        found[k] = depth.max() if every else -1
    return found
