"""The compiled searches against slow ones: cheapest trees, heights, routes."""

import random

import numpy as np

from weft.dsl.nouns.topology import Topology, gpu, link, switch
from weft.dsl.symmetry.orbits import without_symmetry
from weft.synth.engines.packing.trees.branchings import edmonds
from weft.synth.engines.packing.trees.kernels import plant_all
from weft.synth.engines.packing.trees.machine import TreeMachine
from weft.synth.engines.packing.trees.search import Batch
from weft.synth.prices.arborescence import tree_costs


def random_machine(rng: random.Random, n: int) -> Topology:
    pairs = {(i, (i + 1) % n) for i in range(n)}
    pairs |= {(u, v) for u in range(n) for v in range(n) if u != v and rng.random() < 0.4}
    links = tuple(link(u, v, 1) for u, v in sorted(pairs))
    return Topology("random", tuple(gpu(i) for i in range(n)), links)


def test_one_contraction_serves_all_roots() -> None:
    rng = random.Random(5)
    for n in (2, 3, 5, 8, 11):
        for _ in range(8):
            made = random_machine(rng, n)
            machine = TreeMachine.of(made, without_symmetry(made))
            length = np.array([float(rng.randint(0, 6)) for _ in made.links])
            weight = np.full((n, n), -1)
            weight[tuple(made.link_ends().T)] = length
            least = tree_costs(weight)
            batch = Batch.empty(machine, n, len(length))
            roots = np.arange(n)
            assert edmonds(machine.net, roots, -1, length, batch.arcs, batch.links, batch.loads)
            for root in range(n):
                assert (batch.arcs[root] < 0).tolist() == [v == root for v in range(n)]
                assert batch.loads[root] @ length == least[root]
            low = Batch.empty(machine, n, len(length))
            limit = int(machine.eccentricity.max())
            plant_all(machine.net, roots, limit, 0.01, length, low.arcs, low.links, low.loads)
            assert (low.heights(machine) <= limit).all()
            assert (low.loads @ length >= batch.loads @ length - 1e-9).all()


def test_one_root_needs_no_way_back() -> None:
    """Broadcast on a directed line: the root alone reaches all."""
    made = Topology(
        "line", tuple(gpu(i) for i in range(4)), tuple(link(i, i + 1, 1) for i in range(3))
    )
    machine = TreeMachine.of(made, without_symmetry(made))
    assert machine.eccentricity.tolist() == [3, -1, -1, -1]
    batch = Batch.empty(machine, 1, 3)
    assert edmonds(machine.net, np.array([0]), 0, np.ones(3), batch.arcs, batch.links, batch.loads)
    assert batch.loads.tolist() == [[1, 1, 1]]


def test_a_cheap_way_of_too_many_links_does_not_hide_the_short_one() -> None:
    """A route has three links at most: the cheap way to the last switch leaves none to go on."""
    nodes = (gpu(0), gpu(1), switch("a"), switch("b"), switch("last"))
    ends = ((0, 2), (2, 3), (3, 4), (0, 4), (4, 1), (1, 0))
    made = Topology("detour", nodes, tuple(link(u, v, 1) for u, v in ends))
    machine = TreeMachine.of(made, without_symmetry(made), detour=1)
    batch = Batch.empty(machine, 1, len(ends))
    length = np.array([1.0, 1.0, 1.0, 9.0, 1.0, 1.0])
    plant_all(machine.net, np.array([0]), 1, 0.01, length, batch.arcs, batch.links, batch.loads)
    assert batch.loads.tolist() == [[0, 0, 0, 1, 1, 0]]
    assert batch.links[0, 1].tolist() == [3, 4, -1]
