"""The loops of the interpreter: drawing an order, and replaying one on data."""

from __future__ import annotations

import numpy as np

from weft.dsl.base.jit import Array, kernel

UNIFORM, BURSTS, GREEDY, PRIORITIES, LATEST, EARLIEST = range(6)
"""The policies, as :data:`.interleave.POLICIES` has them."""

LONGEST_BURST = 8
NO_LIMIT = 1 << 62


# --- orders ---------------------------------------------------------------------------------------


@kernel
def draw(
    begin: Array,
    end: Array,
    need: Array,
    need_counter: Array,
    need_value: Array,
    effect: Array,
    effect_counter: Array,
    effect_value: Array,
    counters: Array,
    at: Array,
    order: Array,
    policy: int,
    seed: int,
) -> int:
    """Draw one order into ``order``; how many operations it has.

    Operations are numbered block after block: those of block b are ``begin[b] … end[b] - 1``, in
    order. Operation i may start when ``counters[need_counter[n]] >= need_value[n]`` for all n in
    ``need[i] … need[i + 1] - 1``; done, it sets ``counters[effect_counter[e]]`` to
    ``effect_value[e]``, which is never less than it was. ``counters`` and ``at`` (the next
    operation of each block) are brought to their last state. A block that waits is in the list of
    the one counter that it waits for, first come first served: no other block is looked at when
    a counter rises.
    """
    np.random.seed(seed)
    blocks = len(begin)
    rank, of_rank = ranking(blocks, policy)
    bag, bagged = np.empty(blocks + 1, np.int64), 0
    first, last = np.full(len(counters), -1), np.full(len(counters), -1)
    after = np.full(blocks, -1)
    done = 0
    for block in range(blocks):
        at[block] = begin[block]
        if at[block] < end[block]:
            lacks = lacking(at[block], need, need_counter, need_value, counters)
            bagged = settle(lacks, block, bag, bagged, policy, rank, first, last, after)
    while bagged > 0:
        block, bagged = take(bag, bagged, policy, of_rank)
        i, left = at[block], burst(policy)
        while True:
            order[done] = i
            done += 1
            for e in range(effect[i], effect[i + 1]):
                counter = effect_counter[e]
                counters[counter] = effect_value[e]
                woken = first[counter]
                first[counter] = last[counter] = -1
                while woken >= 0:
                    following = after[woken]
                    after[woken] = -1
                    lacks = lacking(at[woken], need, need_counter, need_value, counters)
                    bagged = settle(lacks, woken, bag, bagged, policy, rank, first, last, after)
                    woken = following
            i += 1
            if i == end[block]:
                break
            lacks = lacking(i, need, need_counter, need_value, counters)
            left -= 1
            if lacks >= 0 or left == 0:
                bagged = settle(lacks, block, bag, bagged, policy, rank, first, last, after)
                break
        at[block] = i
    return done


@kernel
def lacking(i: int, need: Array, need_counter: Array, need_value: Array, counters: Array) -> int:
    """Return the first counter that keeps an operation from starting; -1: none."""
    for n in range(need[i], need[i + 1]):
        if counters[need_counter[n]] < need_value[n]:
            counter: int = need_counter[n]
            return counter
    return -1


@kernel
def settle(
    lacks: int,
    block: int,
    bag: Array,
    size: int,
    policy: int,
    rank: Array,
    first: Array,
    last: Array,
    after: Array,
) -> int:
    """Put a block into the bag, or behind those that wait for the counter it lacks; the bag's size.

    The blocks that wait for counter c are a list: ``first[c]``, then ``after`` of each, to
    ``last[c]``; -1 ends it.
    """
    if lacks < 0:
        return put(bag, size, block, policy, rank)
    join(lacks, block, first, last, after)
    return size


@kernel
def join(counter: int, block: int, first: Array, last: Array, after: Array) -> None:
    """A block waits for a counter, behind those that do already."""
    if first[counter] < 0:
        first[counter] = block
    else:
        after[last[counter]] = block
    last[counter] = block


@kernel
def ranking(blocks: int, policy: int) -> tuple[Array, Array]:
    """Return the priority of each block, and the block of each priority, for fixed priorities."""
    of_rank = np.arange(blocks)
    if policy == PRIORITIES:
        np.random.shuffle(of_rank)
    rank = np.empty(blocks, np.int64)
    for r in range(blocks):
        rank[of_rank[r]] = r
    return rank, of_rank


@kernel
def burst(policy: int) -> int:
    """Draw the most operations that a block may do before others have their chance."""
    if policy == BURSTS:
        return 1 + int(np.random.random() * LONGEST_BURST)
    return NO_LIMIT if policy in (GREEDY, LATEST) else 1


@kernel
def put(bag: Array, size: int, block: int, policy: int, rank: Array) -> int:
    """Put a block that can go on into the bag, a heap of ranks if they are fixed; its size."""
    bag[size] = block
    if policy in (PRIORITIES, EARLIEST):
        child, key = size, rank[block]
        while child > 0 and bag[(child - 1) >> 1] > key:
            bag[child] = bag[(child - 1) >> 1]
            child = (child - 1) >> 1
        bag[child] = key
    return size + 1


@kernel
def take(bag: Array, size: int, policy: int, of_rank: Array) -> tuple[int, int]:
    """Take a block out of the bag; which, and the size of the bag."""
    size -= 1
    if policy == LATEST:
        return bag[size], size
    if policy not in (PRIORITIES, EARLIEST):
        j = int(np.random.random() * (size + 1))
        block = bag[j]
        bag[j] = bag[size]
        return block, size
    least, key = bag[0], bag[size]
    hole, child = 0, 1
    while child < size:
        if child + 1 < size and bag[child + 1] < bag[child]:
            child += 1
        if bag[child] >= key:
            break
        bag[hole] = bag[child]
        hole, child = child, 2 * child + 1
    bag[hole] = key
    return of_rank[least], size


# --- data -----------------------------------------------------------------------------------------


@kernel
def replay(
    order: Array,
    rows: Array,
    slots: Array,
    value: Array,
    counts: Array,
    columns: Array,
    widths: Array,
    src: Array,
    dst: Array,
    into: Array,
    out: Array,
    sums: Array,
    starts: Array,
    more: Array,
    more_end: Array,
    more_offset: Array,
) -> None:
    """Execute operations in an order.

    ``value``: room for what one operation moves. Then columns of operations. ``columns``,
    ``widths``: where its elements begin in a row, and how many there are. ``src``, ``dst``: the
    first row that is read, written; ``into``, ``out``: the slot that is taken from, filled; -1:
    none. ``sums``: whether it is a local reduction, with further sources at
    ``more_offset[more:more_end]`` from ``starts``. All is read before anything is written.
    """
    for i in order:
        begin, width = columns[i], widths[i]
        for j in range(counts[i]):
            for e in range(width):
                if into[i] >= 0:
                    value[j, e] = slots[into[i], j, e]
                    if src[i] >= 0:
                        value[j, e] += rows[src[i] + j, begin + e]
                else:
                    value[j, e] = rows[src[i] + j, begin + e]
                if sums[i]:
                    value[j, e] += rows[dst[i] + j, begin + e]
                    for k in range(more[i], more_end[i]):
                        value[j, e] += rows[starts[i] + more_offset[k] + j, begin + e]
        for j in range(counts[i]):
            for e in range(width):
                if dst[i] >= 0:
                    rows[dst[i] + j, begin + e] = value[j, e]
                if out[i] >= 0:
                    slots[out[i], j, e] = value[j, e]
