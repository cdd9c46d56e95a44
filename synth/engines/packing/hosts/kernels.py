"""Compiled search for trees over groups of GPUs; import this lazily.

A *group* is a set of GPUs that counts as reached as soon as one of them is: a host, for the
fabric, or one GPU, inside its host. Many trees share the links; each is removed and grown again
under exponential prices until the load of the busiest resource no longer falls (negotiated
congestion as in McMurchie and Ebeling 1995, with the prices of Garg and Könemann 2007).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from weft.dsl.base.arrays import Floats, Ints
from weft.dsl.base.jit import Array, compiled

from ....base.heaps import pop, push
from ....fabric.hosts import GroupGraph
from ..trees.kernels import FAR, STEEPEST


class TreeJobs(NamedTuple):
    """Trees to be grown: tree t on ``graphs[turned[t]]`` (forwards, turned), loading every resource
    that it uses by ``weights[t]``. Groups join it in ``waves[t]`` waves, prices being counted anew
    after each."""

    graphs: tuple[GroupGraph, GroupGraph]
    turned: Ints
    weights: Floats
    waves: Ints


class Wave(NamedTuple):
    """The groups g with (g + ``shift``) mod ``waves`` = ``number``: those that join at once."""

    number: int
    waves: int
    shift: int


@compiled
def _record(graph: GroupGraph, back: Array, node: int, links: Array) -> int:
    """The route that ends at a node, from its GPU on, -1 after its end; returns that GPU."""
    links[:] = -1
    at, used = node, 0  # back from the end: links come last first
    while True:
        links[used] = back[at]
        used += 1
        at = graph.link_src[back[at]]
        if graph.group[at] >= 0:
            break
    for k in range(used // 2):
        links[k], links[used - 1 - k] = links[used - 1 - k], links[k]
    return int(at)


@compiled
def _grow(
    graph: GroupGraph,
    price: Array,
    wave: Wave,
    level: float,
    relay: int,
    count: int,
    order: Array,
    links: Array,
    work: Array,
) -> int:
    """Directed Prim over groups: add the groups of one wave to a tree.

    A level costs ``level``, and groups at depth ``relay`` do not send on. The tree has reached
    ``count`` groups, those whose ``depth`` in ``work`` is not -1. Fills
    ``order`` (groups - 1,) and ``links`` (groups - 1, width) from there on. Returns the new
    count, -1 if some group is out of reach.
    """
    dist, back, steps, depth, keys, items = work  # columns: see _room_for_work
    dist[:] = FAR
    size, missing = 0, 0
    for g in range(len(depth)):
        missing += depth[g] < 0 and (g + wave.shift) % wave.waves == wave.number
        for j in range(graph.member_start[g], graph.member_start[g + 1]):
            m = graph.member[j]
            if 0 <= depth[g] < relay:
                dist[m] = level * depth[g]
                steps[m] = 0
                size = push(keys, items, size, dist[m], m)
    while size and missing:
        at, node = keys[0], items[0]
        size = pop(keys, items, size)
        if at != dist[node]:  # an older entry of the node: a cheaper one was settled
            continue
        g = graph.group[node]
        if g >= 0 and depth[g] < 0:
            sender = _record(graph, back, node, links[count])
            depth[g] = depth[graph.group[sender]] + 1
            order[count] = g
            count += 1
            missing -= 1
            for j in range(graph.member_start[g], graph.member_start[g + 1]):
                m = graph.member[j]
                dist[m] = -1.0  # less than any cost: no hop ends here again
                if depth[g] < relay:
                    dist[m] = level * depth[g]
                    steps[m] = 0
                    size = push(keys, items, size, dist[m], m)
            continue
        if steps[node] >= graph.width:
            continue
        for k in range(graph.out_start[node], graph.out_start[node + 1]):
            i = graph.out_link[k]
            to = graph.link_dst[i]
            h = graph.group[to]
            if h >= 0 and (depth[h] >= 0 or (h + wave.shift) % wave.waves != wave.number):
                continue
            cost = at
            for r in range(graph.row_start[i], graph.row_start[i + 1]):
                cost += price[graph.rows[r]]
            if cost < dist[to]:
                dist[to], back[to], steps[to] = cost, i, steps[node] + 1
                if size == len(keys):
                    return -1
                size = push(keys, items, size, cost, to)
    return -1 if missing else count


@compiled
def _worth(load: float, room: float, eta: float) -> float:
    at = eta * (load / room - 1.0)
    if at > STEEPEST:
        return float(np.exp(STEEPEST) * (1.0 + at - STEEPEST) / room)
    return float(np.exp(at) / room)


@compiled
def _count(
    graph: GroupGraph,
    links: Array,
    weight: float,
    state: tuple[Array, Array, Array, float],
) -> None:
    """Put a tree's load on its resources (or take it off) and keep their prices up to date."""
    load, price, room, eta = state  # by resource; price is kept equal to _worth of the load
    for k in range(links.shape[0]):
        for j in range(links.shape[1]):
            i = links[k, j]
            if i < 0:
                break
            for r in range(graph.row_start[i], graph.row_start[i + 1]):
                row = graph.rows[r]
                load[row] += weight
                price[row] = _worth(load[row], room[row], eta)


@compiled
def _room_for_work(graph: GroupGraph) -> tuple[Array, ...]:
    nodes = len(graph.out_start) - 1
    most = 16 * (len(graph.link_src) + nodes)
    return (
        np.empty(nodes),  # dist: cost of the cheapest way found to each node
        np.full(nodes, -1),  # back: the link by which that way ends
        np.zeros(nodes, np.int64),  # steps: links of it since the last GPU
        # depth: hops from the root to each group; -1: not in the tree
        np.empty(len(graph.member_start) - 1, np.int64),
        np.empty(most),  # keys of the heap; a tree for which it is too small is given up
        np.empty(most, np.int64),  # items of the heap: nodes
    )


@compiled
def _cost(graph: GroupGraph, links: Array, price: Array) -> float:
    total = 0.0
    for k in range(links.shape[0]):
        for j in range(links.shape[1]):
            i = links[k, j]
            if i < 0:
                break
            for r in range(graph.row_start[i], graph.row_start[i + 1]):
                total += price[graph.rows[r]]
    return total


@compiled
def _plant(
    jobs: TreeJobs,
    first: int,
    root: int,
    state: tuple[Array, Array, Array, float],
    level: float,
    relay: int,
    order: Array,
    links: Array,
    work: Array,
) -> float:
    """Grow one tree, or both of a pair; their cost, FAR if they do not reach everything.

    The hops of a wave count at once for the next one; all are taken off again at the end.
    """
    price, depth, cost = state[1], work[3], 0.0
    for t in range(len(order)):
        graph, waves = jobs.graphs[jobs.turned[first + t]], jobs.waves[first + t]
        depth[:] = -1
        depth[root] = 0
        shift = np.random.randint(waves)
        count = 0
        for wave in range(waves):
            begin = count
            count = _grow(
                graph,
                price,
                Wave(wave, waves, shift),
                level,
                relay,
                count,
                order[t],
                links[t],
                work,
            )
            if count < 0:
                return FAR
            cost += _cost(graph, links[t, begin:count], price)
            if waves > 1:
                _count(graph, links[t, begin:count], jobs.weights[first + t], state)
        if waves > 1:
            _count(graph, links[t], -jobs.weights[first + t], state)
    return cost


@compiled
def route_all(
    jobs: TreeJobs,
    room: Array,
    base: Array,
    etas: Array,
    level: Array,
    relay: int,
    free: Array,
    seed: int,
    roots: Array,
    order: Array,
    links: Array,
) -> Array:
    """Rip up and re-route trees, one pass for each of ``etas``, all passes kept.

    Tree t grows from group ``roots[0, t]``. ``room`` is what a resource may carry, ``base`` what it
    carries anyway. ``level`` is what a hop costs in mean prices; only groups nearer than
    ``relay`` hops send on. With ``free`` > 0 trees 2p and 2p + 1 are a pair that tries ``free``
    other roots in every pass and moves to the best.

    Fills ``roots`` (passes, trees), ``order`` (passes, trees, groups - 1) and ``links`` (passes,
    trees, groups - 1, width). Returns the congestion after each pass: FAR for passes after one
    that meets 1, FAR throughout if some group is out of reach.
    """
    groups, step = len(jobs.graphs[0].member_start) - 1, 2 if free > 0 else 1
    np.random.seed(seed)
    work = _room_for_work(jobs.graphs[0])
    load, price = base.copy(), np.empty(len(base))
    found = np.full(len(etas), FAR)
    # of the roots that are tried
    try_order, try_links = order[0, :step].copy(), links[0, :step].copy()
    for turn in range(len(etas)):
        # the first pass starts without trees, others from the pass before
        eta, last = etas[turn], max(turn - 1, 0)
        state = (load, price, room, eta)
        for row in range(len(price)):
            price[row] = _worth(load[row], room[row], eta)
        for at in np.random.permutation(len(jobs.turned) // step):
            a, b = at * step, at * step + step
            mu = level * price.mean()
            for t in range(a, b if turn else a):
                _count(jobs.graphs[jobs.turned[t]], links[last, t], -jobs.weights[t], state)
            root = roots[last, a]
            least = _plant(
                jobs, a, root, state, mu, relay, order[turn, a:b], links[turn, a:b], work
            )
            for _ in range(free):
                other = np.random.randint(groups)
                cost = _plant(jobs, a, other, state, mu, relay, try_order, try_links, work)
                if cost < least:
                    least, root = cost, other
                    order[turn, a:b] = try_order
                    links[turn, a:b] = try_links
            if least >= FAR:
                return np.full(len(etas), FAR)
            for t in range(a, b):
                roots[turn, t] = root
                _count(jobs.graphs[jobs.turned[t]], links[turn, t], jobs.weights[t], state)
        found[turn] = (load / room).max()
        if found[turn] <= 1.0 + 1e-9:
            break
    return found
