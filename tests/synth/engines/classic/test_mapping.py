"""Orders of ranks: rings that the fabric has, trees along its hierarchy."""

from itertools import pairwise, permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.dsl.base.errors import BadTopology
from weft.dsl.catalogue import topology
from weft.dsl.nouns.topology import Topology, both_ways, gpu, link
from weft.synth.base.meter import STEPS, Meter
from weft.synth.engines.classic.flat import classic_algorithm
from weft.synth.engines.classic.mapping import average_linkage, ring_order, tree_order
from weft.synth.solvers import cp_sat
from weft.synth.solvers.cp_sat import CpAnswer, CpModel
from weft.synth.solvers.pool import Listener


def test_the_search_for_a_ring_is_counted() -> None:
    meter = Meter(STEPS)
    ring_order(topology("dgx1"), meter=meter)
    assert 0 < meter.done < STEPS


def test_a_ring_is_searched_once_and_counted_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Phases and rounds of one search ask for it again; a search that was stopped is no answer."""
    asked: list[CpModel] = []
    solve = cp_sat.solve

    def heard(model: CpModel, *, steps: int, listener: Listener) -> CpAnswer:
        asked.append(model)
        return solve(model, steps=steps, listener=listener)

    monkeypatch.setattr(cp_sat, "solve", heard)
    name = "torus:3x5,dead=0-1"
    with pytest.raises(BadTopology, match="no ring"):
        ring_order(topology(name), meter=Meter(STEPS, stopped=lambda: True))
    first, again = Meter(STEPS), Meter(STEPS)
    asked.clear()
    ring = ring_order(topology(name), meter=first)
    assert asked
    asked.clear()
    assert ring_order(topology(name), meter=again) == ring
    assert not asked
    assert again.done == first.done > 0


def hops(order: tuple[int, ...]) -> list[tuple[int, int]]:
    return [*pairwise(order), (order[-1], order[0])]


def cables(machine: Topology) -> dict[tuple[int, int], float]:
    """The widest direct link of each ordered pair."""
    found: dict[tuple[int, int], float] = {}
    for x in machine.links:
        found[x.src, x.dst] = max(found.get((x.src, x.dst), 0), float(x.bandwidth))
    return found


@pytest.mark.parametrize(
    "name", ["ring:7", "dgx1", "torus:4x4", "torus:3x5", "mesh:4x3", "hypercube:4", "mi250", "amd4"]
)
def test_a_ring_uses_cables_only_where_they_close_one(name: str) -> None:
    machine = topology(name)
    order = ring_order(machine)
    assert sorted(order) == list(range(machine.ranks))
    assert all(hop in cables(machine) for hop in hops(order))


def test_the_dgx1_ring_is_its_double_nvlinks() -> None:
    machine = topology("dgx1")
    assert {cables(machine)[hop] for hop in hops(ring_order(machine))} == {50.0}


@pytest.mark.parametrize("name", ["hub:6", "full:5", "dgx2", "ring:9", "mi300x"])
def test_rank_order_is_kept_where_nothing_is_better(name: str) -> None:
    machine = topology(name)
    assert ring_order(machine) == tuple(range(machine.ranks))


@pytest.mark.parametrize(
    ("name", "inside"), [("dgx1:nodes=2", 50.0), ("dgx-a100:nodes=3", 0.0), ("mi250:nodes=2", 50.0)]
)
def test_a_ring_enters_and_leaves_every_box_once(name: str, inside: float) -> None:
    machine = topology(name)
    order, box = ring_order(machine), machine.host_of
    assert sum(box[a] != box[b] for a, b in hops(order)) == machine.hosts
    within = [hop for hop in hops(order) if box[hop[0]] == box[hop[1]]]
    assert all(cables(machine).get(hop, inside) >= inside for hop in within)


def test_many_boxes_are_joined_one_by_one() -> None:
    machine = topology("dgx-a100:nodes=16")
    order, box = ring_order(machine), machine.host_of
    assert sorted(order) == list(range(128))
    assert sum(box[a] != box[b] for a, b in hops(order)) == 16


def test_a_group_gets_the_ring_of_what_it_sees() -> None:
    machine = topology("dgx1").restricted_to([4, 1, 0, 5])
    order = ring_order(machine)  # 0-1-5-4-0: cables of 50, 25, 50, 50
    assert min(cables(machine)[hop] for hop in hops(order)) == 25.0
    classic_algorithm("ring", "allreduce", 4, order=order)


@given(st.data())
def test_no_ring_is_wider_then_quicker(data: st.DataObject) -> None:
    """Against all cycles of small random machines."""
    n = data.draw(st.integers(3, 6))
    links = []
    for a in range(n):
        for b in range(a + 1, n):
            if data.draw(st.booleans()):
                width, alpha = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3))
                links += both_ways(a, b, width, alpha)
    machine = Topology("random", tuple(map(gpu, range(n))), tuple(links))
    wide = {(x.src, x.dst): float(x.bandwidth) for x in links}
    late = {(x.src, x.dst): float(x.latency) for x in links}

    def quality(order: tuple[int, ...]) -> tuple[float, float]:
        return min(map(wide.__getitem__, hops(order))), -sum(map(late.__getitem__, hops(order)))

    orders = [(0, *rest) for rest in permutations(range(1, n))]
    closed = [quality(order) for order in orders if all(hop in wide for hop in hops(order))]
    if closed:
        assert quality(ring_order(machine)) == max(closed)
    else:
        with pytest.raises(BadTopology, match="no ring through"):
            ring_order(machine)


def test_a_machine_without_a_ring_is_refused() -> None:
    for name in ("line:4", "mesh:3x3", "star:4"):
        with pytest.raises(BadTopology, match="no ring through all ranks"):
            ring_order(topology(name))
    assert ring_order(topology("line:2")) == (0, 1)


def test_trees_keep_boxes_and_close_ranks_together() -> None:
    two = topology("dgx1:nodes=2")
    shuffled = two.restricted_to([8, 0, 9, 1, 10, 2, 11, 3])
    order = tree_order(shuffled)
    assert [shuffled.host_of[r] for r in order] in ([1] * 4 + [0] * 4, [0] * 4 + [1] * 4)
    assert tree_order(topology("hub:6")) == tuple(range(6))
    # Cables 0-2 and 1-3 are wide, all others narrow: the wide pairs stay together.
    links = [x for a, b in ((0, 1), (1, 2), (2, 3), (0, 3)) for x in both_ways(a, b, 1, 1)]
    links += [x for a, b in ((0, 2), (1, 3)) for x in both_ways(a, b, 10, 1)]
    assert tree_order(Topology("pairs", tuple(map(gpu, range(4))), tuple(links))) == (0, 2, 1, 3)


def test_a_one_way_ring_is_gone_round_as_its_links_lead() -> None:
    one_way = tuple(link(i, (i + 1) % 4, 25) for i in range(4))
    machine = Topology("one way", tuple(map(gpu, range(4))), one_way)
    assert ring_order(machine) == (0, 1, 2, 3)


@pytest.mark.parametrize("most", [3, 999])
def test_clusters_merge_as_scipy_has_them(most: int) -> None:
    """Small distances have many ties."""
    linkage = pytest.importorskip("scipy.cluster.hierarchy").linkage
    chance = np.random.default_rng(most)
    for _ in range(100):
        n = int(chance.integers(3, 24))
        upper = chance.integers(1, most + 1, n * (n - 1) // 2).astype(float)
        far = np.zeros((n, n))
        far[np.triu_indices(n, 1)] = upper
        held = [frozenset([i]) for i in range(n)]
        wanted = []
        for a, b in linkage(upper, method="average")[:, :2].astype(int).tolist():
            wanted.append({held[a], held[b]})
            held.append(held[a] | held[b])
        cluster = held[:n]
        for a, b in average_linkage(far + far.T):
            assert {cluster[a], cluster[b]} == wanted.pop(0)
            joined = cluster[a] | cluster[b]
            cluster = [joined if i in joined else one for i, one in enumerate(cluster)]
        assert not wanted
