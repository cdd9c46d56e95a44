"""Prices by multiplicative weights and a program over trees: near the exact flow program."""

import random
from dataclasses import replace

import numpy as np
import pytest

from weft.dsl.nouns.collective import make
from weft.dsl.nouns.topology import Link, Topology, both_ways, gpu
from weft.synth.bounds import bounds
from weft.synth.bounds.effort import BOUND_EFFORT
from weft.synth.bounds.flow import SourceTrees

TREES = replace(BOUND_EFFORT, flow_kept=0, weight_sources=4)
"""No exact program; weights wherever there are some sources."""


def irregular(ranks: int, seed: int) -> Topology:
    """A ring with chords, cables of three widths: no symmetry."""
    dice = random.Random(seed)
    pairs = {(i, (i + 1) % ranks) for i in range(ranks)}
    pairs |= {tuple(sorted(dice.sample(range(ranks), 2))) for _ in range(ranks)}
    links: list[Link] = []
    for a, b in sorted(pairs):
        links += both_ways(a, b, dice.choice([12, 25, 50]))
    return Topology(f"irregular {ranks}", tuple(map(gpu, range(ranks))), tuple(links))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", ["alltoall", "scatter"])
def test_trees_prove_nearly_what_the_exact_program_proves(kind: str, seed: int) -> None:
    machine = irregular(12, seed)
    collective = make(kind, 12, roots=[0] if kind == "scatter" else [])
    exact, found = (bounds(machine, collective, effort) for effort in (BOUND_EFFORT, TREES))
    assert exact.us_per_byte * (1 - TREES.price_gap) <= found.us_per_byte <= exact.us_per_byte
    if kind == "alltoall":
        assert found.attainable is not None
        assert exact.us_per_byte <= found.attainable
        assert found.attainable <= found.us_per_byte * (1 + 2 * TREES.price_gap)


def test_a_tree_carries_each_chunk_on_a_cheapest_path() -> None:
    machine = irregular(9, 7)
    pairs = np.arange(81).reshape(9, 9) * (1 - np.eye(9, dtype=np.int64))
    trees = SourceTrees.of_pairs(machine, pairs)
    price = np.random.default_rng(1).random(len(trees.width)) + 0.1
    whole = trees.cheapest(price)
    some = trees.cheapest(price, np.array([3, 5]))
    assert np.array_equal(some.load, whole.load[[3, 5]])
    assert np.array_equal(some.into, whole.into[[3, 5]])
    assert some.paid.tolist() == pytest.approx(whole.paid[[3, 5]].tolist())
    far = np.full((9, 9), np.inf)
    np.fill_diagonal(far, 0)
    for one, toll in zip(machine.links, price, strict=True):
        far[one.src, one.dst] = min(far[one.src, one.dst], toll)
    for k in range(9):
        far = np.minimum(far, far[:, k, None] + far[None, k])
    assert whole.paid.tolist() == pytest.approx((far * pairs).sum(axis=1).tolist())
