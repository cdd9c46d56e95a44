"""The joint bound: known answers, its checker, and a linear program written out."""

from fractions import Fraction

import numpy as np
import pytest
from examples import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.joint_cases import (
    boxes,
    brute_force_us,
    collective,
    is_relaxed,
    machines,
    rails,
    workloads,
)
from weft.dsl.base.errors import UserError
from weft.dsl.catalogue import topology
from weft.dsl.nouns.topology import Topology, both_ways, gpu
from weft.dsl.nouns.workload import Shard, Workload, WorkloadOperation
from weft.synth.joint.bound import joint_bound, priced
from weft.synth.joint.demands import demands_of
from weft.synth.joint.times import collective_times
from weft.synth.prices.arborescence import tree_costs
from weft.synth.prices.joint_prices import joint_prices
from weft.synth.steiner.graph import least_parents

A100 = "dgx-a100:nodes=4"
ROW, COLUMN = "row", "column"
CASES = {
    "three classes": (
        A100,
        [*boxes(4, 8, 1000), *rails(4, 8, 100), collective("ep", "alltoall", range(32), 100)],
        Fraction(9000),
    ),
    "ports": (A100, [*boxes(4, 8, 1000), *rails(4, 8, 97.2)], Fraction(17500, 3)),
    "one rail": (
        A100,
        [
            collective("dp", "allreduce", range(0, 32, 8), 100),
            collective("ep", "alltoall", range(32), 100),
        ],
        Fraction(6000),
    ),
    "one rail, relays": (
        A100,
        [
            collective("dp", "allreduce", range(0, 32, 8), 100, relays="all"),
            collective("ep", "alltoall", range(32), 100),
        ],
        Fraction(3750),
    ),
    "idle relays": (
        A100,
        [collective("dp", "allreduce", range(0, 32, 8), 1000, relays="idle")],
        Fraction(7500),
    ),
    "quads": (
        "dgx1",
        [
            collective("a", "allreduce", range(4), 100, relays="all"),
            collective("b", "allreduce", range(4, 8), 100, relays="all"),
        ],
        Fraction(4000, 3),
    ),
    "odd groups": (
        "dgx1",
        [
            collective("a", "allreduce", [0, 5, 6], 100, relays="all"),
            collective("b", "allreduce", [1, 2, 3, 4, 7], 100, relays="all"),
        ],
        Fraction(16000, 11),
    ),
    "row with relays": (
        "torus:8x8,bw=50GB/s",
        [
            collective("r", "allreduce", range(8), 400, relays="all"),
            collective("ep", "alltoall", range(64), 100),
        ],
        Fraction(278375, 88),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_known_answers(name):
    machine, operations, us = CASES[name]
    chip = topology(machine)
    found = joint_bound(chip, demands_of(Workload("w", tuple(operations)), chip.ranks))
    assert found.us == us
    assert found.exact
    again = joint_prices(chip, [priced(one) for one in found.demands], found.prices)
    assert again.us == us


def test_a_sentence_says_what_binds():
    machine, operations, _ = CASES["three classes"]
    chip = topology(machine)
    times = collective_times(chip, demands_of(Workload("w", tuple(operations)), chip.ranks))
    assert times.sentence.removeprefix("NIC-in").removeprefix("NIC-out") == (
        ": (8 × 600 + 2,400) MB / 800 GB/s"
    )
    alone = {one.name: one.alone_us for one in times.classes}
    assert alone == {"tp": Fraction(17500, 3), "dp": 6000, "ep": 3000}
    assert float(times.sequence_us) == pytest.approx(14833.33, abs=0.01)
    assert times.together_us == pytest.approx(9000)


def test_a_shard_may_come_from_the_holder_that_is_nearest():
    """Two holders, each beside one receiver, and little between: no tree spans both receivers."""
    links = tuple(x for i, b in enumerate((25, 1, 25)) for x in both_ways(i, i + 1, b, 1))
    chip = Topology("neck", tuple(gpu(i) for i in range(4)), links)
    shard = Shard((0, 3), (1, 2), 25_000_000)
    one = WorkloadOperation("m", "multicast", shards=(shard,))
    demands = demands_of(Workload("w", (one,)), chip.ranks)
    found = joint_bound(chip, demands)
    assert found.us == Fraction(12500, 13)
    assert brute_force_us(chip, demands) == pytest.approx(12500 / 13)


def test_worse_prices_prove_less():
    machine, operations, us = CASES["quads"]
    chip = topology(machine)
    found = joint_bound(chip, demands_of(Workload("w", tuple(operations)), chip.ranks))
    flat = joint_prices(chip, [priced(one) for one in found.demands], [1] * len(found.prices))
    assert flat.us < us
    with pytest.raises(UserError, match="prices"):
        joint_prices(chip, [priced(one) for one in found.demands], [0] * len(found.prices))


@settings(max_examples=examples(20, 40), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_the_written_out_program_agrees_on_small_ones(data):
    chip = data.draw(machines(most=5))
    work = data.draw(workloads(chip.ranks, most_classes=2))
    try:
        found = joint_bound(chip, demands_of(work, chip.ranks))
    except UserError:
        return  # a group that is not connected
    brute = brute_force_us(chip, found.demands)
    assert float(found.us) <= found.value_us * (1 + 1e-9)
    assert brute <= found.value_us * (1 + 1e-6)
    if not any(is_relaxed(one) for one in found.demands):
        assert brute == pytest.approx(float(found.us), rel=1e-6)


@settings(max_examples=examples(12, 60), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_loads_of_the_solution_attain_the_bound(data):
    chip = data.draw(machines(most=10))
    work = data.draw(workloads(chip.ranks))
    try:
        found = joint_bound(chip, demands_of(work, chip.ranks))
    except UserError:
        return
    from weft.synth.fabric.fabric import fabric_of

    busy = found.loads.sum(axis=0) / (fabric_of(chip).GBps * 1000)
    assert busy.max() <= found.value_us * (1 + 1e-6)
    assert float(found.us) <= busy.max() * (1 + 1e-6)
    assert found.exact


@settings(max_examples=examples(80), deadline=None)
@given(st.integers(2, 9), st.integers(0, 10**6))
def test_trees_cost_what_the_contraction_says(n, seed):
    cost = np.random.default_rng(seed).integers(0, 6, (n, n))
    for root in range(n):
        parent = least_parents(cost.astype(float), root, root_first=True)
        assert parent is not None
        spent = sum(int(cost[parent[v], v]) for v in range(n) if v != root)
        assert spent == tree_costs(cost)[root]
        for start in range(n):
            at, seen = start, 0
            while at != root:
                at, seen = int(parent[at]), seen + 1
                assert seen <= n
