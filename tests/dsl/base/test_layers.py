"""Layers of graphs and clocks along them, against plain recurrences."""

import random

import numpy as np
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.dsl.base.layers import EdgeLevels, WaitClocks, depths


@settings(max_examples=examples(20), deadline=None)
@given(seed=st.integers(0, 10**6), reach=st.sampled_from([2, 5, 200]))
def test_depths_are_longest_paths(seed: int, reach: int) -> None:
    """Against the recurrence, in long thin graphs (walked one by one) and broad ones."""
    dice = random.Random(seed)
    nodes = 400
    pairs = {(a, a + dice.randint(1, reach)) for a in range(nodes) for _ in range(2)}
    names = dice.sample(range(nodes), nodes)  # no help from the numbers
    edges = [(a, b) for a, b in pairs if b < nodes]
    source, target = (np.array([names[e[k]] for e in edges]) for k in range(2))
    best = [0] * nodes
    for a, b in sorted(edges):
        best[b] = max(best[b], best[a] + 1)
    found = depths(nodes, source, target)
    assert [int(found[names[v]]) for v in range(nodes)] == best
    # The layers are the same levels, and every edge of theirs goes forward.
    levels = EdgeLevels.of(nodes, source, target)
    assert levels.level.tolist() == found.tolist()
    assert (np.diff(levels.level[levels.order]) >= 0).all()
    # A circle: it and all behind it are never reached.
    circle = depths(nodes, np.append(source, names[9]), np.append(target, names[0]))
    reached = {0}
    for a, b in sorted(edges):
        if a in reached:
            reached.add(b)
    if 9 in reached:
        assert {v for v in range(nodes) if circle[names[v]] < 0} == reached


@settings(max_examples=examples(40), deadline=None)
@given(seed=st.integers(0, 10**6))
def test_wait_clocks_are_what_a_walk_finds(seed: int) -> None:
    """Blocks of two ranks; each item knows what its block, and those it waits for, know."""
    dice = random.Random(seed)
    lengths = [dice.randint(1, 5) for _ in range(6)]  # three blocks on each rank
    block = np.repeat(np.arange(6), lengths)
    starts = np.cumsum([0, *lengths])
    written: list[int] = []  # in an order that waits allow
    at = [0] * 6
    waits: list[tuple[int, int]] = []
    known: dict[int, set[int]] = {}
    early: dict[int, set[int]] = {}
    while len(written) < len(block):
        b = dice.choice([b for b in range(6) if at[b] < lengths[b]])
        item = int(starts[b]) + at[b]
        before = {item - 1, *known[item - 1]} if at[b] else set()
        early[item] = set(before)
        others = [x for x in written if block[x] // 3 == b // 3 and block[x] != b]
        for other in dice.sample(others, min(len(others), dice.randint(0, 2))):
            waits.append((other, item))
            own = range(int(starts[block[other]]), other + 1)
            before |= {*own, *known[other]}
        known[item] = before
        at[b] += 1
        written.append(item)
    pairs = np.array(waits, np.int64).reshape(-1, 2)
    clocks = WaitClocks(block, np.arange(6) % 3, pairs[:, 0], pairs[:, 1])
    for later in written:
        for first in written:
            if block[first] // 3 == block[later] // 3 and block[first] != block[later]:
                one = np.array([first]), np.array([later])
                assert clocks.done(*one)[0] == (first in known[later])
                assert clocks.done_before(*one)[0] == (first in early[later])
