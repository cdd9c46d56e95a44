"""Rings that share no cable, rings per rail, and the algorithms on them."""

import random
from itertools import pairwise

import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.backends.check.checker import check_program
from weft.backends.check.findings import errors
from weft.backends.compile.compile import lower_algorithm
from weft.dsl.author.builder import Builder
from weft.dsl.base.errors import UserError
from weft.dsl.catalogue import topology
from weft.dsl.nouns.collective import ROOTED, make
from weft.dsl.nouns.runtime import MSCCL
from weft.dsl.nouns.topology import Topology, both_ways, gpu
from weft.synth.engines.classic import lanes
from weft.synth.engines.classic.lanes import LANED, Laned, LaneStructure
from weft.synth.engines.classic.place import Site
from weft.synth.engines.classic.schedule import to_schedule
from weft.synth.judge.verify import require_valid


def hops(ring: tuple[int, ...]) -> list[tuple[int, int]]:
    """The hops of a ring."""
    return list(pairwise((*ring, ring[0])))


@pytest.mark.parametrize(("name", "count"), [("mi300x", 7), ("dgx1", 6), ("ring:5", 2)])
def test_rings_on_cables_share_no_lane_and_use_them_all(name: str, count: int) -> None:
    machine = topology(name)
    rings = lanes.lane_rings(machine, 10_000)
    assert len(rings) == count
    lane = min(x.bandwidth for x in machine.links)
    free = {(x.src, x.dst): int(x.bandwidth / lane) for x in machine.links}
    for ring in rings:
        assert sorted(ring) == list(range(machine.ranks))
        for hop in hops(ring):
            free[hop] -= 1
    assert min(free.values()) >= 0


def test_there_are_no_such_rings_through_switches_or_within_no_steps() -> None:
    assert lanes.lane_rings(topology("dgx-a100"), 10_000) == ()
    assert lanes.lane_rings(topology("mi300x"), 3) == ()


@pytest.mark.parametrize("hosts", [2, 3, 4, 5])
@pytest.mark.parametrize("machine", ["dgx-h100", "dgx2"])
def test_a_ring_per_rail_crosses_hosts_on_rails_and_loads_every_nic_once(
    machine: str, hosts: int
) -> None:
    made = topology(f"{machine}:nodes={hosts}")
    grid = Site(made).two_levels
    rings, g = lanes.rail_rings(grid), grid.shape[0]
    place = {rank: i for i, rank in enumerate(grid.ranks)}
    doors = []
    for ring in rings:
        assert sorted(ring) == list(range(made.ranks))
        crossing = [(a, b) for a, b in hops(ring) if place[a] // g != place[b] // g]
        assert len(crossing) == hosts
        assert all(place[a] % g == place[b] % g for a, b in crossing)
        doors += crossing
    assert len(set(doors)) == len(doors) == g * hosts


@pytest.mark.parametrize("hosts", [2, 4])
@pytest.mark.parametrize("machine", ["ndv2", "mi250"])
def test_rings_through_hosts_that_are_not_fully_cabled_take_cables(
    machine: str, hosts: int
) -> None:
    """As NCCL's do; by PCIe and the sockets the library would seem several times slower."""
    made = topology(f"{machine}:nodes={hosts}")
    cables = {(x.src, x.dst) for x in made.links}
    crossings: list[tuple[int, int]] = []
    for ring in Site(made).rings:
        assert sorted(ring) == list(range(made.ranks))
        crossing = [hop for hop in hops(ring) if made.host_of[hop[0]] != made.host_of[hop[1]]]
        assert {*hops(ring)} - {*crossing} <= cables
        crossings += crossing
    assert len(set(crossings)) == len(crossings) == hosts * made.ranks // hosts
    assert not Site(topology("mi300x:nodes=2")).host_paths


def test_paths_go_through_hives_one_after_the_other() -> None:
    """Two hives of three, cabled inside only: one crossing a path, all ends different."""
    cabled = [{b: 1 for b in range(6) if b != a and b // 3 == a // 3} for a in range(6)]
    paths = lanes._through_hives(cabled)
    assert [path[0] for path in paths] == list(range(6))
    assert sorted(path[-1] for path in paths) == list(range(6))
    assert all(sorted(path) == list(range(6)) for path in paths)
    assert {sum(a // 3 != b // 3 for a, b in pairwise(path)) for path in paths} == {1}
    assert lanes._through_hives([{1: 1}, {0: 1}, {}]) == ()


def test_rings_in_fully_connected_hosts_use_every_cable_at_most_once() -> None:
    made = topology("mi300x:nodes=2")
    rings = lanes.rail_rings(Site(made).two_levels)
    used = [hop for ring in rings for hop in hops(ring)]
    assert len(set(used)) == len(used)


def test_the_search_needs_no_recursion_on_a_thousand_ranks() -> None:
    machine = topology("torus:32x32")
    rings = Site(machine).rings
    assert len(rings) == 2
    used = [hop for ring in rings for hop in hops(ring)]
    assert len(set(used)) == len(used) == 2 * machine.ranks
    assert set(used) <= {(x.src, x.dst) for x in machine.links}


@settings(max_examples=examples(30), deadline=None)
@given(st.integers(3, 7), st.randoms(use_true_random=False))
def test_rings_of_random_machines_share_no_lane(ranks: int, draw: random.Random) -> None:
    """Cables of one to three lanes, some missing: every ring is one, and no lane has two."""
    wires = [
        wire
        for a in range(ranks)
        for b in range(a)
        if draw.random() < 0.8
        for wire in both_ways(a, b, 25 * draw.randint(1, 3))
    ]
    if not wires:
        return
    machine = Topology("random", tuple(map(gpu, range(ranks))), tuple(wires))
    lane = min(x.bandwidth for x in machine.links)
    free = {(x.src, x.dst): int(x.bandwidth / lane) for x in machine.links}
    for ring in lanes.lane_rings(machine, 2_000):
        assert sorted(ring) == list(range(ranks))
        for hop in hops(ring):
            free[hop] -= 1
    assert min(free.values()) >= 0


ON_MACHINES = [
    (one, name)
    for one in LANED
    for name in ("dgx1", "dgx-a100:nodes=2", "ndv2:nodes=2")
    if one.structure is LaneStructure.RINGS or "nodes" in name
]


@pytest.mark.parametrize(("one", "name"), ON_MACHINES, ids=lambda x: getattr(x, "kind", x))
def test_algorithms_in_lanes_are_schedules_of_as_many_steps_as_they_cost(
    one: Laned, name: str
) -> None:
    made, root = topology(name), 3 if one.kind in ROOTED else 0
    site = Site(made)
    schedule = to_schedule(site.algorithm(one.name, one.kind, root=root), made)
    require_valid(schedule)
    assert schedule.steps == one.cost(made.ranks, len(site.rings)).steps


@pytest.mark.parametrize("kind", ["allreduce", "broadcast"])
def test_more_pieces_are_a_pipeline_or_finer_blocks(kind: str) -> None:
    made = topology("dgx1")
    schedule = to_schedule(Site(made).algorithm("rings", kind, chunks=2), made)
    require_valid(schedule)


def test_one_ring_is_no_rings_and_one_host_no_rails() -> None:
    with pytest.raises(UserError, match="has one ring"):
        Site(topology("dgx-a100")).algorithm("rings", "allreduce")
    with pytest.raises(UserError, match="expected a machine with a hierarchy"):
        Site(topology("dgx1")).algorithm("rail_tree", "allreduce")
    assert Site(topology("dgx1"), (4, 2)).algorithm("rail_tree", "allreduce").moves
    three = Site(topology("dgx-a100:nodes=2"), (2, 4, 2))  # as the phases of a sketch may have it
    assert len(three.rings) == 1
    assert len(Site(topology("dgx-a100:nodes=2"), (16, 1)).rings) == 1
    with pytest.raises(UserError, match="several hosts"):
        three.algorithm("rail_tree", "allreduce")
    with pytest.raises(UserError, match="several hosts"):
        Site(topology("dgx1"), (8, 1)).algorithm("rail_tree", "allreduce")


WRITERS = {
    "allreduce": lanes.allreduce,
    "allgather": lanes.allgather,
    "reduce_scatter": lanes.reduce_scatter,
    "broadcast": lanes.broadcast,
    "reduce": lanes.reduce,
}


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize("name", ["mi300x", "dgx-a100:nodes=2"])
def test_algorithms_on_rings_are_right(kind: str, name: str) -> None:
    made = topology(name)
    rings = lanes.lane_rings(made, 10_000) or lanes.rail_rings(Site(made).two_levels)
    parts = made.ranks if kind == "allreduce" else 1
    roots = (0,) if kind in ("broadcast", "reduce") else ()
    builder = Builder(make(kind, made.ranks, chunks=parts * len(rings), roots=roots), name=kind)
    WRITERS[kind](builder, rings)
    program = lower_algorithm(builder.algorithm())
    assert not errors(check_program(program, MSCCL))


def test_trees_of_rails_are_right() -> None:
    made = topology("dgx-a100:nodes=3")
    builder = Builder(make("allreduce", 24, chunks=16), name="tree")
    lanes.rail_tree(builder, Site(made).two_levels)
    assert not errors(check_program(lower_algorithm(builder.algorithm()), MSCCL))
