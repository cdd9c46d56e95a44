"""Rounds of direct messages: nobody meets in a round, and they fill the tight rows."""

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from packings import named, quick

from weft.dsl.catalogue import topology
from weft.dsl.nouns.collective import make
from weft.synth.engines.packing.order.order_search import OrderLimits, quickest
from weft.synth.engines.packing.order.plan import PackingPlan, PlanQuotient
from weft.synth.engines.packing.paths.matching import in_rounds
from weft.synth.engines.packing.paths.matching_kernel import edge_colouring
from weft.synth.judge.verify import verify
from weft.synth.time.schedule_time import simulate


@settings(max_examples=examples(40))
@given(data=st.data())
def test_a_colour_uses_no_port_twice(data: st.DataObject) -> None:
    ranks = data.draw(st.integers(2, 8))
    rank = st.integers(0, ranks - 1)
    ends = np.array(data.draw(st.lists(st.tuples(rank, rank), min_size=1, max_size=60)), np.int64)
    src, dst = np.ascontiguousarray(ends[:, 0]), np.ascontiguousarray(ends[:, 1])
    degree = max(np.bincount(src).max(), np.bincount(dst).max())
    colours = int(degree) + data.draw(st.integers(0, 2))
    colour = edge_colouring(src, dst, ranks, colours)
    assert 0 <= colour.min() <= colour.max() < colours
    for port in (src, dst):
        assert len(set(zip(port.tolist(), colour.tolist(), strict=True))) == len(port)


@pytest.mark.parametrize(("name", "rounds"), [("fat-tree:k=4,oversub=2", 14), ("fat-tree:k=4", 15)])
def test_rounds_in_a_fat_tree_share_no_row(name: str, rounds: int) -> None:
    machine = topology(name)
    made = in_rounds(quick(machine, make("alltoall", machine.ranks)))
    assert made is not None
    assert verify(PackingPlan.of(made).schedule()).ok
    slow = max(1 / machine.links[i].bandwidth for t in made.trees for i in t.route_links.tolist())
    heavy = [
        t.route_links.tolist()
        for t in made.trees
        if max(1 / machine.links[i].bandwidth for i in t.route_links.tolist()) == slow
    ]
    size, rest = divmod(len(heavy), rounds)
    assert rest == 0
    cuts = range(0, len(heavy) + 1, size)
    for begin, end in pairwise(cuts):
        links = [i for way in heavy[begin:end] for i in way]
        assert len(links) == len(set(links))


def test_a_fat_tree_with_narrow_uplinks_is_kept_full() -> None:
    machine = topology("fat-tree:k=4,oversub=2")
    packing = quick(machine, make("alltoall", machine.ranks))
    made = in_rounds(packing)
    assert made is not None
    assert made.us_per_byte == Fraction(70, 10**6)
    best = quickest([PlanQuotient.of(PackingPlan.of(made))], 64_000_000, OrderLimits())
    assert best.order.rule == "listed"
    schedule = best.schedule()
    assert verify(schedule).ok
    assert simulate(schedule, 64_000_000).time_us <= 4_490


def test_without_direct_ways_or_with_heavy_ones_there_are_no_rounds() -> None:
    assert in_rounds(named("torus:4x4", "alltoall")) is None


def test_the_same_seed_finds_the_same_rounds() -> None:
    packing = named("fat-tree:k=4", "alltoall")
    one, two = (in_rounds(packing, seed=5) for _ in range(2))
    assert one is not None
    assert two is not None
    for a, b in zip(one.trees, two.trees, strict=True):
        assert a.chunk == b.chunk
        assert a.route_links.tolist() == b.route_links.tolist()
