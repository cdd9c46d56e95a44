"""Tree prices: minimum arborescences against brute force, and never above the best bound."""

from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from bound_checks import rows_of
from examples import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from strategies import gpu_routes, topologies

from weft.dsl.base.errors import UserError
from weft.dsl.catalogue import topology as machine
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.topology import Topology
from weft.synth.bounds import bounds, tree_prices
from weft.synth.prices.arborescence import tree_costs

QUICK = settings(max_examples=examples(60), suppress_health_check=list(HealthCheck), deadline=None)


def cheapest_tree(cost: list[list[int | None]], root: int) -> int | None:
    """Over all choices of parents."""
    n = len(cost)
    others = [v for v in range(n) if v != root]
    best: int | None = None
    for choice in product(range(n), repeat=n - 1):
        parent = dict(zip(others, choice, strict=True))
        price = 0
        for v in others:
            arc, seen, at = cost[parent[v]][v], {v}, parent[v]
            while at != root and at not in seen:
                seen.add(at)
                at = parent[at]
            if arc is None or at != root:
                break
            price += arc
        else:
            best = price if best is None else min(best, price)
    return best


@QUICK
@given(st.integers(2, 5), st.sampled_from([1, 3, 10**25]), st.data())
def test_tree_costs_equal_brute_force(n, scale, data):
    some = st.one_of(st.none(), st.integers(0, 6))
    cost = [[data.draw(some) for _ in range(n)] for _ in range(n)]
    for v in range(n):
        cost[v][(v + 1) % n] = cost[v][(v + 1) % n] or 0  # a ring: everything is reached
    kind = object if scale > 3 else np.int64
    table = np.array([[-1 if x is None else x * scale for x in row] for row in cost], kind)
    for v in range(n):
        cost[v][v] = None
    wanted = [cheapest_tree(cost, r) for r in range(n)]
    assert tree_costs(table) == [x * scale for x in wanted if x is not None]


def test_a_root_that_does_not_reach_all_is_an_error():
    with pytest.raises(ValueError, match="does not reach"):
        tree_costs(np.array([[0, 1], [-1, 0]]))


def by_hand(topology: Topology, prices: list[int], holders: list[int]) -> Fraction:
    """Chunks per GB/s from all routes and all trees."""
    price = [sum(prices[r] for r in rows_of(topology, i)) for i in range(len(topology.links))]
    n = topology.ranks
    cost: list[list[int | None]] = [[None] * n for _ in range(n)]
    for (src, dst), routes in gpu_routes(topology).items():
        cost[src][dst] = min(sum(price[i] for i in route) for route in routes)
    worth = sum(p * b for p, b in zip(prices, topology.capacities(), strict=True))
    return sum(Fraction(cheapest_tree(cost, v) or 0) for v in holders) / worth


@QUICK
@given(
    topologies(max_ranks=4),
    st.sampled_from(["allgather", "broadcast", "reduce_scatter"]),
    st.data(),
)
def test_prices_prove_no_more_than_trees_cost(topology, kind, data):
    rows = len(topology.capacities())
    prices = data.draw(st.lists(st.integers(0, 4), min_size=rows, max_size=rows))
    prices[0] += 1
    collective = make(kind, topology.ranks)
    value, why = tree_prices(topology, collective, prices)
    way = topology.reversed() if kind == "reduce_scatter" else topology
    holders = [0] if kind == "broadcast" else list(range(topology.ranks))
    assert value == by_hand(way, prices, holders) / (1000 * collective.message_chunks)
    assert why.data["us_per_byte"] == str(value)
    large = [p * 10**30 for p in prices]
    assert tree_prices(topology, collective, large)[0] == value


@pytest.mark.parametrize("name", ["dgx1", "mi250", "torus:3x3", "full:5"])
@pytest.mark.parametrize("kind", ["allgather", "reduce_scatter", "broadcast"])
def test_no_prices_exceed_what_is_attained(name, kind):
    where = machine(name)
    found = bounds(where, make(kind, where.ranks))
    assert found.tight
    rng = np.random.default_rng(7)
    for _ in range(10):
        prices = rng.integers(0, 9, len(where.capacities())).tolist()
        value, _ = tree_prices(where, make(kind, where.ranks), prices)
        assert value <= found.us_per_byte


def test_uniform_prices_are_best_on_a_torus():
    where = machine("torus:3x3")
    value, why = tree_prices(where, make("allgather", 9), [1] * len(where.links))
    assert value == bounds(where, make("allgather", 9)).us_per_byte
    assert "Price every link at 1. The cheapest tree from each of 9 ranks" in why.text


def test_what_it_cannot_judge_it_refuses():
    where = machine("torus:3x3")
    many = len(where.links)
    for collective, prices, match in [
        (make("alltoall", 9), [1] * many, "from one rank each to all"),
        (make("allgather", 9), [1], "1 prices for 36"),
        (make("allgather", 9), [0] * many, "not all of them 0"),
        (make("allgather", 9), [-1] * many, "non-negative"),
    ]:
        with pytest.raises(UserError, match=match):
            tree_prices(where, collective, prices)
    box = machine("dgx-a100")
    nodes = tuple(replace(x, multicast=not x.stores) for x in box.nodes)
    with pytest.raises(UserError, match="copies in the network"):
        tree_prices(replace(box, nodes=nodes), make("allgather", 8), [1] * len(box.links))
