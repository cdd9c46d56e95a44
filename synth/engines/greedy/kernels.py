"""Kernels of the engine: words of 64 bits, matching on a grid and at any time, trees, steps.

Chunks are bits, shuffled; ``have[rank, word]`` are those that a rank has, ``promised`` those that
it has, gets, or does not want. A heap is two arrays (key, what), its size stands in a ``clock``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.dsl.base.jit import Array, compiled

from ...base.heaps import pop, push

Number = int | np.int64

FEW = 1 << 60


@compiled
def lowest(word: np.uint64) -> int:
    """The place of the lowest bit of a word that has one."""
    place = 0
    if word & np.uint64(0xFFFFFFFF) == 0:
        place += 32
        word >>= np.uint64(32)
    if word & np.uint64(0xFFFF) == 0:
        place += 16
        word >>= np.uint64(16)
    if word & np.uint64(0xFF) == 0:
        place += 8
        word >>= np.uint64(8)
    if word & np.uint64(0xF) == 0:
        place += 4
        word >>= np.uint64(4)
    if word & np.uint64(3) == 0:
        place += 2
        word >>= np.uint64(2)
    if word & np.uint64(1) == 0:
        place += 1
    return place


@compiled
def draw(rng: Array, below: int) -> Any:
    """A number 0 … below-1 (below < 2^31) from Marsaglia's xorshift64; ``rng`` is its state."""
    state = rng[0]
    state ^= state << np.uint64(13)
    state ^= state >> np.uint64(7)
    state ^= state << np.uint64(17)
    rng[0] = state
    return np.int64(((state >> np.uint64(32)) * np.uint64(below)) >> np.uint64(32))


@compiled
def rarest(
    have: Array,
    u: int,
    promised: Array,
    v: int,
    count: Array,
    start: int,
    enough: int,
    others: Array,
    first: int,
    last: int,
) -> int:
    """A chunk that u has and v lacks and is not promised; -1 if there is none.

    Words are looked at from ``start`` on, round the end, until ``enough`` such chunks were seen:
    of these the one that fewest ranks have (rarest first; ``count``). So a choice costs the words
    until something is found, not all of them. Chunks that the ranks ``others[first:last]`` have or
    are promised are left to these.
    """
    words = have.shape[1]
    seen, least, best = 0, FEW, -1  # least: ranks that have the best chunk so far
    w = start
    for _ in range(words):
        word = have[u, w] & ~promised[v, w]
        if word != 0:
            for k in range(first, last):
                word &= ~promised[others[k], w]
        while word != 0:
            bit = w * 64 + lowest(word)
            word &= word - np.uint64(1)  # without its lowest bit
            seen += 1
            if count[bit] < least:
                least, best = count[bit], bit
        if seen >= enough:
            break
        w += 1
        if w == words:
            w = 0
    return best


@compiled
def put(bits: Array, row: int, bit: Number) -> None:
    """Set a bit of a row."""
    bits[row, bit >> 6] |= np.uint64(1) << np.uint64(bit & 63)


# --- matching at any time: hops of different durations that share resources -----------------------

NOW, LEFT, SIZE, STAMP = 0, 1, 2, 3
"""Places of ``clock`` at any time: the time, open demands, events in the heap, the turn's
number."""


@compiled
def gather(
    resource_hops: tuple[Array, Array],
    out_hops: tuple[Array, Array],
    have: Array,
    flight: Array,
    free: Array,
    when: Array,
    what: Array,
    clock: Array,
    stamp: Array,
    found: Array,
) -> int:
    """Take all events of the next time; the hops that can be tried because of them."""
    now = when[0]
    clock[NOW] = now
    clock[STAMP] += 1
    # events below: a resource is free; from it on: a slot of flight arrived
    resources, many = len(resource_hops[0]) - 1, 0
    while clock[SIZE] > 0 and when[0] == now:
        event = what[0]
        clock[SIZE] = pop(when, what, clock[SIZE])
        if event < resources:
            table, key = resource_hops, event
        else:
            slot = event - resources
            table, key = out_hops, flight[0, slot]
            put(have, flight[0, slot], flight[1, slot])
            free[0] += 1  # free[0]: how many slots are free; free[1:]: these, as a stack
            free[free[0]] = slot
        for k in range(table[0][key], table[0][key + 1]):
            hop = table[1][k]
            if stamp[hop] != clock[STAMP]:  # a hop is found once a turn
                stamp[hop] = clock[STAMP]
                found[many] = hop
                many += 1
    return many


@compiled
def begin(
    hop: int,
    held: tuple[Array, Array, Array],
    until: Array,
    arrives: Array,
    slot: int,
    when: Array,
    what: Array,
    clock: Array,
) -> None:
    """Occupy the resources of a hop; schedule the events of their release and of the arrival."""
    now = clock[NOW]
    for k in range(held[0][hop], held[0][hop + 1]):
        resource, end = held[1][k], now + held[2][k]  # held: first, resource, ticks
        until[resource] = end
        clock[SIZE] = push(when, what, clock[SIZE], end, resource)
    clock[SIZE] = push(when, what, clock[SIZE], now + arrives[hop], len(until) + slot)


@compiled
def idle(hop: int, held: tuple[Array, Array, Array], until: Array, now: int) -> bool:
    """Return True if all resources that a hop occupies are free."""
    for k in range(held[0][hop], held[0][hop + 1]):
        if until[held[1][k]] > now:
            return False
    return True


@compiled
def run_events(
    ends: tuple[Array, Array],
    held: tuple[Array, Array, Array],
    arrives: Array,
    into: tuple[Array, Array],
    out_hops: tuple[Array, Array],
    resource_hops: tuple[Array, Array],
    ahead: Array,
    bits: tuple[Array, Array, Array, Array],
    flight: Array,
    free: Array,
    until: Array,
    when: Array,
    what: Array,
    clock: Array,
    rng: Array,
    enough: int,
    stamp: Array,
    found: Array,
    key: Array,
    out: tuple[Array, Array, Array],
) -> int:
    """Turn after turn until the output is full or nothing is left: transfers written.

    A turn: all events of one time are taken, then the hops that they may have made possible are
    tried, those into the ranks that lack most first. ``out``: hop, bit, start.
    """
    # missing: chunks each rank lacks; count: ranks that have a chunk, or will
    have, promised, missing, count = bits
    src, dst = ends  # ranks, by hop
    filled, words = 0, have.shape[1]
    while clock[LEFT] > 0 and clock[SIZE] > 0 and filled + len(until) <= len(out[0]):
        many = gather(resource_hops, out_hops, have, flight, free, when, what, clock, stamp, found)
        for i in range(many):
            # those in most need first, ties by chance
            key[i] = -missing[dst[found[i]]] * 65536 + draw(rng, 65536)
        for i in np.argsort(key[:many]):
            hop = found[i]
            v = dst[hop]
            if missing[v] == 0 or not idle(hop, held, until, clock[NOW]):
                continue
            start = draw(rng, words)
            first = into[0][v]  # of the sources of the hops into v, the quickest first
            last = first + ahead[hop]
            bit = rarest(have, src[hop], promised, v, count, start, enough, into[1], first, last)
            if bit < 0:
                continue
            put(promised, v, bit)
            count[bit] += 1
            missing[v] -= 1
            slot = free[free[0]]
            free[0] -= 1
            flight[0, slot], flight[1, slot] = v, bit  # where to, and which chunk, until it arrives
            begin(hop, held, until, arrives, slot, when, what, clock)
            out[0][filled], out[1][filled], out[2][filled] = hop, bit, clock[NOW]
            filled += 1
            clock[LEFT] -= 1
    return filled


# --- matching in equal steps, where all links are alike -------------------------------------------

STEP, IDLE = 0, 2
"""Places of ``clock`` on a grid: the next step, steps in a row without any transfer; between them,
``LEFT``."""


@compiled
def run_steps(
    edges: tuple[Array, Array, Array],
    bits: tuple[Array, Array, Array, Array],
    flight: Array,
    flying: Array,
    clock: Array,
    rng: Array,
    enough: int,
    out: tuple[Array, Array, Array],
) -> tuple[int, int]:
    """Whole steps until the output is full or nothing is left: (steps, transfers) written.

    ``edges``: first, source, link: ``source[first[v]:first[v+1]]`` and ``link`` are the links into
    v. What goes in a step can be sent on ``len(flying)`` steps later; until then it is in
    ``flight[k] = (ranks, bits)``. ``out``: link and bit of each transfer, the number in each step.
    """
    out_link, out_bit, out_count = out  # by transfer, by transfer, by step
    steps, filled, delay = 0, 0, len(flying)
    room = len(edges[1])  # a step has a transfer a link at most: it must fit before it begins
    while clock[LEFT] > 0 and steps < len(out_count) and filled + room <= len(out_link):
        slot = clock[STEP] % delay  # flight of the step that is delay steps back has landed: reused
        went = match_all(
            edges, bits, flight[slot], rng, enough, out_link[filled:], out_bit[filled:]
        )
        flying[slot] = went
        out_count[steps] = went
        filled += went
        steps += 1
        clock[LEFT] -= went
        clock[STEP] += 1
        clock[IDLE] = 0 if went else clock[IDLE] + 1
        if clock[IDLE] > delay:
            break
        land(bits[0], flight[clock[STEP] % delay], flying[clock[STEP] % delay])
    return steps, filled


@compiled
def match_all(
    edges: tuple[Array, Array, Array],
    bits: tuple[Array, Array, Array, Array],
    flight: Array,
    rng: Array,
    enough: int,
    out_link: Array,
    out_bit: Array,
) -> int:
    """One step: for every rank a chunk over each link into it, if one can be had; how many."""
    first, source, link = edges
    have, promised, missing, count = bits
    words, went = have.shape[1], 0  # went: transfers of this step
    for v in range(len(missing)):
        if missing[v] == 0:
            continue
        begin = first[v]
        degree = first[v + 1] - begin
        start, turn = draw(rng, words), draw(rng, degree) if degree else 0
        for j in range(degree):
            e = begin + (j + turn) % degree
            bit = rarest(have, source[e], promised, v, count, start, enough, source, 0, 0)
            if bit < 0:
                continue
            put(promised, v, bit)
            count[bit] += 1
            missing[v] -= 1
            flight[0, went] = v
            flight[1, went] = bit
            out_link[went] = link[e]
            out_bit[went] = bit
            went += 1
            if missing[v] == 0:
                break
    return went


@compiled
def land(have: Array, flight: Array, many: int) -> None:
    """Mark the chunks in flight as held at their destinations."""
    for i in range(many):
        put(have, flight[0, i], np.int64(flight[1, i]))


# --- trees that avoid loaded resources, grown nearest first ---------------------------------------

NONE = -1


@compiled
def price(hop: int, held: tuple[Array, Array, Array], busy: Array, target: float) -> float:
    """Return the increase of Σ (load / target)^8 over all resources by a chunk over a hop."""
    total = 0.0
    for k in range(held[0][hop], held[0][hop + 1]):
        # loads in units of the mean; the eighth power by three squarings
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
    net: tuple[Any, ...], search: tuple[Any, ...], wanted: Array, members: Array, many: int
) -> Any:
    """Dijkstra's search from a tree to the next rank that wants the chunk. -1 if there is none.

    ``search``: depth of each rank of the tree, cost of and hop into each rank, and the heap.
    """
    ends, out_hops, held, busy, target, toll, deep = net
    depth, cost, by, keys, ranks = search  # keys, ranks: the heap
    cost[:] = np.inf
    by[:] = NONE
    size = 0
    for i in range(many):
        cost[members[i]] = deep * depth[members[i]]
        size = push(keys, ranks, size, cost[members[i]], members[i])
    while size > 0:
        reached, u = keys[0], ranks[0]
        size = pop(keys, ranks, size)
        if reached > cost[u]:  # an older entry of the rank
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
                size = push(keys, ranks, size, there, v)
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
    tree[begin:hops] = tree[begin:hops][::-1].copy()  # found from the rank back
    return hops


@compiled
def grow(net: tuple[Any, ...], holders: Array, wanters: Array, tree: Array) -> int:
    """Grow a chunk's tree from its holders to all wanters, and load it: its number of hops.

    Hops come after those that they depend on. -1: a wanter cannot be reached; -2: ``tree`` is too
    short. ``net``: as of :func:`grow_all`.
    """
    ends, out_hops, held, busy, _, toll, _ = net
    nodes = len(out_hops[0]) - 1
    depth = np.full(nodes, NONE)  # hops from a holder; NONE: not in the tree
    wanted = np.zeros(nodes, np.bool_)
    members = np.empty(nodes, np.int64)  # ranks of the tree, as they joined
    cost, by = np.empty(nodes), np.empty(nodes, np.int64)
    keys, ranks = np.empty(len(toll) + nodes + 1), np.empty(len(toll) + nodes + 1, np.int64)
    many, hops = len(holders), 0
    for i in range(many):
        members[i], depth[holders[i]] = holders[i], 0
    left = 0
    for v in wanters:
        if depth[v] < 0 and not wanted[v]:
            wanted[v] = True
            left += 1
    while left > 0:
        v = nearest(net, (depth, cost, by, keys, ranks), wanted, members, many)
        if v == NONE:
            return -1
        # hops that are new: from begin on
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
    net: tuple[Any, ...],
    order: Array,
    holders: tuple[Array, Array],
    wanters: tuple[Array, Array],
    trees: Array,
    length: Array,
) -> int:
    """Grow the trees of chunks in an order; those that are there are torn up first. 0, -1 or -2.

    ``net``: ends of hops, hops out of each rank, what each hop holds, load of resources, mean load,
    price of each hop besides, price of a level of a tree.
    """
    held, busy = net[2], net[3]  # busy: ticks of load by resource, of all trees
    for c in order:
        for i in range(length[c]):
            load(trees[c, i], held, busy, -1)
        length[c] = 0
        many = grow(
            net,
            holders[1][holders[0][c] : holders[0][c + 1]],
            wanters[1][wanters[0][c] : wanters[0][c + 1]],
            trees[c],
        )
        if many < 0:
            return many
        length[c] = many
    return 0


# --- steps ----------------------------------------------------------------------------------------


@compiled
def steps_of(src: Array, dst: Array, chunk: Array, places: Array, chunks: int) -> Array:
    """The step of each transfer, given in order of start; ``places`` (rank, chunk) begin at 0."""
    steps = np.empty(len(src), np.int32)
    for i in range(len(src)):
        step = places[src[i] * chunks + chunk[i]]  # the step from which the source has the chunk
        steps[i] = step
        there = dst[i] * chunks + chunk[i]
        places[there] = max(places[there], step + 1)
    return steps
