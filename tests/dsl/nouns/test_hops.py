"""Ways between GPUs, against plain enumeration of all simple paths."""

from dataclasses import replace
from fractions import Fraction
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import gpu_routes, hub, ring, topologies

from weft.dsl.nouns.hops import (
    find_hops,
    gpu_neighbours,
    hop_distances,
    islands,
    latency_distances,
    latency_units,
    route_latency,
)
from weft.dsl.nouns.topology import Topology, both_ways, gpu, link, switch

MANY = 10**6


def fabric(ranks: int, switches: int) -> Topology:
    """Every GPU on every switch, every switch on every other."""
    nodes = (*map(gpu, range(ranks)), *(switch(f"s{i}") for i in range(switches)))
    inner = range(ranks, ranks + switches)
    cables = [(r, s) for r in range(ranks) for s in inner]
    cables += [(a, b) for a in inner for b in inner if a < b]
    return Topology("fabric", nodes, tuple(x for a, b in cables for x in both_ways(a, b, 25, 1)))


@st.composite
def broken(draw: st.DrawFn) -> Topology:
    """Machines of which any links may be missing."""
    machine = draw(topologies())
    dead = draw(st.sets(st.integers(0, len(machine.links) - 1)))
    return machine.without_links(dead)


@given(broken())
def test_all_simple_routes_are_found_the_quickest_first(machine: Topology) -> None:
    found = find_hops(machine, routes_per_pair=MANY)
    assert found.complete
    expected = gpu_routes(machine)
    for src, dst in product(range(machine.ranks), repeat=2):
        routes = [found.hops[i].route for i in found.between(src, dst)]
        assert set(routes) == set(expected.get((src, dst), []))
        assert len(set(routes)) == len(routes)
        order = [(route_latency(machine, r), len(r), r) for r in routes]
        assert order == sorted(order)


def test_a_hub_is_one_hop_for_every_pair() -> None:
    found = find_hops(hub(4))
    assert found.complete
    assert {(h.src, h.dst): h.route for h in found.hops} == {
        (a, b): (2 * a, 2 * b + 1) for a in range(4) for b in range(4) if a != b
    }


def test_parallel_links_are_ways_of_their_own() -> None:
    links = (link(0, 1, 25, 2), link(0, 1, 50, 1), link(0, 1, 10, 1))
    found = find_hops(Topology("twice", (gpu(0), gpu(1)), links))
    assert found.complete
    assert [h.route for h in found.hops] == [(1,), (2,), (0,)]


def test_gpus_do_not_forward() -> None:
    found = find_hops(ring(4))
    assert [(h.src, h.dst) for h in found.hops] == [(0, 1), (1, 2), (2, 3), (3, 0)]


def test_what_is_cut_off_is_told_and_the_quickest_stay() -> None:
    machine = fabric(2, 3)  # over one switch: 3 ways, over two: 6, over three: 6
    everything = find_hops(machine, routes_per_pair=15)
    assert everything.complete
    assert len(everything.between(0, 1)) == 15
    cut = find_hops(machine, routes_per_pair=14)
    assert not cut.complete
    for src, dst in ((0, 1), (1, 0)):
        kept = [cut.hops[i].route for i in cut.between(src, dst)]
        assert kept == [everything.hops[i].route for i in everything.between(src, dst)][:14]


def test_a_search_that_is_given_up_is_told_and_short_routes_are_there() -> None:
    found = find_hops(fabric(2, 7), routes_per_pair=1)  # 13699 ways for each pair
    assert not found.complete
    assert [len(h.route) for h in found.hops] == [2, 2]


@given(broken())
def test_neighbours_distances_and_islands_are_those_of_the_routes(machine: Topology) -> None:
    n = machine.ranks
    near = set(gpu_routes(machine))
    assert {(a, b) for a, others in enumerate(gpu_neighbours(machine)) for b in others} == near
    far = [[0 if a == b else 1 if (a, b) in near else n for b in range(n)] for a in range(n)]
    for k, a, b in product(range(n), repeat=3):
        far[a][b] = min(far[a][b], far[a][k] + far[k][b])
    assert hop_distances(machine).tolist() == [[-1 if d >= n else d for d in row] for row in far]
    together = [tuple(b for b in range(n) if far[a][b] < n and far[b][a] < n) for a in range(n)]
    assert islands(machine) == tuple(dict.fromkeys(together))


@pytest.mark.parametrize("ranks", [1, 3])
def test_without_links_every_rank_is_an_island(ranks: int) -> None:
    machine = replace(ring(4), nodes=tuple(map(gpu, range(ranks))), links=())
    assert islands(machine) == tuple((r,) for r in range(ranks))
    assert find_hops(machine).hops == ()


@given(broken())
def test_latency_distances_are_those_of_the_links(machine: Topology) -> None:
    size = len(machine.nodes)
    far = [[Fraction(0) if a == b else None for b in range(size)] for a in range(size)]
    for x in machine.links:
        before = far[x.src][x.dst]
        far[x.src][x.dst] = x.latency if before is None else min(before, x.latency)
    for k, a in product(range(size), repeat=2):
        if (one := far[a][k]) is None:
            continue
        for b, two in enumerate(far[k]):
            best = far[a][b]
            if two is not None and (best is None or one + two < best):
                far[a][b] = one + two
    _, scale = latency_units(machine)
    n = machine.ranks
    expected = [[-1 if d is None else d * scale for d in row[:n]] for row in far[:n]]
    assert latency_distances(machine).tolist() == expected
