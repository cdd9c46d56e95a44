"""Shortest paths: the three ways to find them agree."""

import numpy as np
import pytest

from weft.dsl.base import shortest
from weft.dsl.base.shortest import distances


@pytest.mark.parametrize("seed", range(8))
def test_all_ways_find_the_same_lengths(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    chance = np.random.default_rng(seed)
    nodes, arcs = 12, 3 * seed * seed
    tails, heads = chance.integers(0, nodes, (2, arcs))
    lengths = chance.integers(0, 9, arcs) + 1
    every = np.arange(nodes)
    matrix = distances(nodes, tails, heads, lengths, every)
    for few in (every[:1], every[4:6], every[:0]):
        assert np.array_equal(distances(nodes, tails, heads, lengths, few), matrix[few])
    monkeypatch.setattr(shortest, "_SMALL", 0)
    assert np.array_equal(distances(nodes, tails, heads, lengths, every), matrix)
