"""Compiled searches for paths: Dijkstra with exact keys, and rip-up and re-route.

Costs are integers, so that equal costs are equal and ties are decided by rule, not by rounding.
Imported lazily by :mod:`.route` and :mod:`.columns`, since numba is slow to load.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.dsl.base.jit import compiled

FAR = np.int64(1) << np.int64(62)  # above any sum of costs
ONE = 1 << 20
"""Price of a full resource, in integer costs."""


@compiled
def _before(key: Any, a: int, b: int) -> bool:
    """Return True if node a comes before node b, in lexicographic order of three keys."""
    if key[0, a] != key[0, b]:
        return key[0, a] < key[0, b]  # type: ignore[no-any-return]
    if key[1, a] != key[1, b]:
        return key[1, a] < key[1, b]  # type: ignore[no-any-return]
    return key[2, a] < key[2, b]  # type: ignore[no-any-return]


@compiled
def _rise(heap: Any, place: Any, key: Any, at: int) -> None:
    node = heap[at]
    while at > 0:
        above = (at - 1) >> 1
        if not _before(key, node, heap[above]):
            break
        heap[at] = heap[above]
        place[heap[at]] = at
        at = above
    heap[at] = node
    place[node] = at


@compiled
def _sink(heap: Any, place: Any, key: Any, size: int) -> None:
    at, node = 0, heap[0]
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size and _before(key, heap[child + 1], heap[child]):
            child += 1
        if not _before(key, heap[child], node):
            break
        heap[at] = heap[child]
        place[heap[at]] = at
        at = child
    heap[at] = node
    place[node] = at


@compiled
def search(
    net: Any, strict: Any, soft: Any, price: Any, source: int, target: int, work: Any
) -> int:
    """Find the cheapest paths from one node; stops at ``target`` (-1: at none).

    Returns the number of links looked at, plus that of the nodes settled.

    Keys: the sum of ``strict``, then of ``soft`` and the prices of resources, then the arrival
    times at the GPUs on the way (so that among equals the short hop comes first, as in a
    rail-aligned exchange). ``work``: keys (3, nodes), the link to each node, heap, place in the
    heap.
    """
    # Links of node v: out_links[out_start[v]:out_start[v + 1]]; resource orbits of link i likewise;
    # latency: α in whole units of the net; stores: 1 where a hop ends (the GPUs), else 0.
    out_start, out_links, head, resource_start, resources, latency, stores = net
    # place: index in the heap, -1 not reached, -2 settled; since: α of the path so far.
    key, into, heap, place, since = work
    for v in range(len(into)):
        key[0, v] = FAR  # not reached
        key[1, v] = key[2, v] = since[v] = 0
        into[v] = place[v] = -1
    key[0, source] = 0
    heap[0] = source
    place[source] = 0
    size, looked = 1, 0
    while size > 0:
        node = heap[0]
        if node == target:
            break
        looked += 1 + out_start[node + 1] - out_start[node]
        size -= 1
        place[node] = -2  # settled: its keys are final
        if size > 0:
            heap[0] = heap[size]
            place[heap[0]] = 0
            _sink(heap, place, key, size)
        # a hop ends here: its arrival counts
        wait = since[node] if stores[node] else 0
        for i in range(out_start[node], out_start[node + 1]):
            link = out_links[i]
            to = head[link]
            if place[to] == -2:
                continue
            first = key[0, node] + strict[link]
            second = key[1, node] + soft[link]
            for j in range(resource_start[link], resource_start[link + 1]):
                second += price[resources[j]]
            third = key[2, node] + wait
            better = first < key[0, to] or (
                first == key[0, to]
                and (second < key[1, to] or (second == key[1, to] and third < key[2, to]))
            )
            if not better:
                continue
            key[0, to] = first
            key[1, to] = second
            key[2, to] = third
            into[to] = link
            since[to] = since[node] + latency[link]
            if place[to] < 0:
                heap[size] = to
                place[to] = size
                size += 1
            _rise(heap, place, key, place[to])
    return looked


@compiled
def workspace(nodes: int) -> Any:
    """The arrays of :func:`search`."""
    return (
        np.zeros((3, nodes), np.int64),  # key: (measure, node)
        np.zeros(nodes, np.int64),  # into: the last link of the path to each node
        np.zeros(nodes, np.int64),  # heap: nodes, the least key first
        np.zeros(nodes, np.int64),  # place: of each node in the heap
        np.zeros(nodes, np.int64),  # since: α of the path to each node
    )


@compiled
def _walk(into: Any, tail: Any, source: int, target: int, path: Any) -> int:
    """Write the links of the found path, first link first; -1 where they do not fit."""
    length, node = 0, target
    while node != source:
        if length == len(path) or into[node] < 0:
            return -1
        path[length] = into[node]
        length += 1
        node = tail[into[node]]
    for i in range(length // 2):
        path[i], path[length - 1 - i] = path[length - 1 - i], path[i]
    return length


@compiled
def trees(
    net: Any, tail: Any, strict: Any, soft: Any, price: Any, src: Any, dst: Any, longest: int
) -> Any:
    """Find a cheapest path per pair; pairs of one source are adjacent and share one search.

    Returns the links of each path (pairs, longest), its length (-1: none), and the work of all
    searches (:func:`search_steps`).
    """
    work = workspace(len(net[0]) - 1)
    looked = 0
    paths = np.full((len(src), longest), -1, np.int32)
    length = np.zeros(len(src), np.int64)
    for k in range(len(src)):
        if k == 0 or src[k] != src[k - 1]:
            looked += search(net, strict, soft, price, src[k], -1, work)
        length[k] = _walk(work[1], tail, src[k], dst[k], paths[k])
    return paths, length, looked


@compiled
def price_of(load: float, room: float, eta: float) -> float:
    """Exponential in the use of a resource, linear beyond full (never flat), nothing below half."""
    use = load / room if room > 0 else 2.0
    if use <= 0.5:
        return 0.0
    if use <= 1.0:
        return np.exp(eta * (use - 1.0))  # type: ignore[no-any-return]
    return min(1.0 + eta * (use - 1.0), 1e6)


@compiled
def _reprice(price: Any, load: Any, room: Any, past: Any, eta: float, resource: int) -> None:
    after = price_of(load[resource] + 1.0, room[resource], eta) * (1.0 + past[resource])
    price[resource] = np.int64(min(after, 1e9) * ONE)


@compiled
def reroute(
    net: Any,
    tail: Any,
    strict: Any,
    soft: Any,
    src: Any,
    dst: Any,
    paths: Any,
    length: Any,
    load: Any,
    room: Any,
    past: Any,
    order: Any,
    eta: float,
    every: bool,
) -> int:
    """Run one round of rip-up and re-route, in place; return its work (:func:`search_steps`).

    Paths over no overloaded resource stay, unless ``every``. ``room``: allowed uses of a resource;
    ``past`` remembers how overloaded it was in earlier rounds (McMurchie and Ebeling,
    "PathFinder", FPGA 1995: negotiated congestion).
    """
    resource_start, resources = net[3], net[4]
    work = workspace(len(net[0]) - 1)
    price = np.zeros(len(room), np.int64)
    for resource in range(len(room)):
        _reprice(price, load, room, past, eta, resource)
    fresh = np.zeros(paths.shape[1], np.int32)  # the new path, before it replaces the old one
    looked = 0
    for k in order:
        crowded = every or length[k] == 0
        for i in range(length[k]):
            for j in range(resource_start[paths[k, i]], resource_start[paths[k, i] + 1]):
                crowded = crowded or load[resources[j]] > room[resources[j]]
        if not crowded:
            continue
        for i in range(length[k]):
            for j in range(resource_start[paths[k, i]], resource_start[paths[k, i] + 1]):
                load[resources[j]] -= 1
                _reprice(price, load, room, past, eta, resources[j])
        looked += len(work[1]) // 8  # to empty the workspace
        looked += search(net, strict, soft, price, src[k], dst[k], work)
        found = _walk(work[1], tail, src[k], dst[k], fresh)
        if found > 0:
            length[k] = found
            paths[k, :found] = fresh[:found]
        for i in range(length[k]):
            for j in range(resource_start[paths[k, i]], resource_start[paths[k, i] + 1]):
                load[resources[j]] += 1
                _reprice(price, load, room, past, eta, resources[j])
    return looked


@compiled
def _price_use(price: Any, load: Any, full: Any, steep: float, resource: int) -> None:
    after = np.exp(steep * ((load[resource] + 1.0) / full[resource] - 1.0)) / full[resource]
    price[resource] = np.int64(min(after * ONE, 1e12)) + 1


@compiled
def settle(
    graph: Any,
    tail: Any,
    into: Any,
    source: Any,
    src: Any,
    dst: Any,
    tree: Any,
    load: Any,
    full: Any,
    order: Any,
    steep: float,
) -> int:
    """Move every chunk to the cheapest tree of its source, in turn and in place; return the work.

    ``into[k, s]`` are the links into each node in tree k of source s; chunk c goes along tree
    ``tree[c]`` of source ``source[c]`` from ``src[c]`` to ``dst[c]``. A resource costs
    exp(``steep`` · use), its use being 1 where the load is ``full``; ties go to the tree so far.
    """
    begin, resources = graph[3], graph[4]
    price = np.zeros(len(full), np.int64)
    for resource in range(len(full)):
        _price_use(price, load, full, steep, resource)
    looked = 0
    for c in order:
        s, kept = source[c], tree[c]  # index of the source in into; the tree so far
        node = dst[c]
        while node != src[c]:
            link = into[kept, s, node]
            for j in range(begin[link], begin[link + 1]):
                load[resources[j]] -= 1
                _price_use(price, load, full, steep, resources[j])
            node = tail[link]
        best, least = kept, FAR
        for turn in range(len(into)):
            # the tree so far, then all others
            k = kept if turn == 0 else turn - 1 if turn <= kept else turn
            cost, node = np.int64(0), dst[c]
            while node != src[c] and cost < least:
                link = into[k, s, node]
                for j in range(begin[link], begin[link + 1]):
                    cost += price[resources[j]]
                node = tail[link]
                looked += 1
            if cost < least:
                best, least = k, cost
        tree[c] = best
        node = dst[c]
        while node != src[c]:
            link = into[best, s, node]
            for j in range(begin[link], begin[link + 1]):
                load[resources[j]] += 1
                _price_use(price, load, full, steep, resources[j])
            node = tail[link]
    return looked


def search_steps(looked: int) -> int:
    """Return the steps of work for ``looked`` links and nodes in searches: a link with its
    resources and its share of the heap takes some 30 ns."""
    return 1 + looked // 32


def ready() -> None:
    """Compile everything, or load it from the cache, so that no deadline pays for that."""
    none, one = np.zeros(1, np.int64), np.ones(1, np.int64)
    net = (np.array([0, 1, 1]), none, one, np.array([0, 1]), none, one, np.ones(2, np.int64))
    trees(net, none, none, one, none, none, one, 2)
    paths = np.zeros((1, 2), np.int32)
    room = np.ones(1)
    into = np.zeros((1, 1, 2), np.int32)
    settle(net, none, into, none, none, one, none.copy(), one.copy(), room, none, 4.0)
    reroute(
        net,
        none,
        none,
        one,
        none,
        one,
        paths,
        none.copy(),
        none.copy(),
        room,
        room,
        none,
        4.0,
        True,
    )
