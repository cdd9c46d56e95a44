"""Maps of machines: no two nodes or names overlap, grids have their sides, rows are balanced."""

from dataclasses import replace
from itertools import combinations

import pytest
from examples import examples
from hypothesis import given, settings
from strategies import topologies

from weft.backends.report.html.machine import folded, machine_map
from weft.backends.report.layout import grid_of, half_width, layout, link_paths, node_label
from weft.backends.report.sizes import PIXELS
from weft.dsl.catalogue import topology
from weft.dsl.nouns.topology import Topology, both_ways, gpu, switch

MACHINES = (
    "dgx1 dgx1:nodes=2 dgx2:nodes=2 ndv2:nodes=2 ndv2:nodes=5 dgx-a100 dgx-a100:nodes=4 mi250 "
    "mi300x:nodes=2 dgx-h100:nodes=13 gb200-nvl72 amd4 amd8 z52 hub:8 full:30 hypercube:4 ring:40 "
    "fat-tree:k=4 dragonfly:p=2,a=4,h=2 torus:4x6 torus:4x4x4 mesh:3x5 torus:16x32"
).split()


def boxes(t: Topology) -> list[tuple[str, float, float, float, float]]:
    """Left, top, right and bottom of every node and of the name of every host."""
    found = layout(t)
    drawn = []
    for i, (x, y) in enumerate(found.spots):
        half, high = half_width(t, i), PIXELS.node_radius if t.nodes[i].stores else 10.0
        drawn.append((t.nodes[i].name, x - half, y - high, x + half, y + high))
    for frame in found.frames:
        wide = 20 + 7.0 * len(frame.name)
        drawn.append((frame.name, frame.x, frame.y, frame.x + wide, frame.y + 22))
    return drawn


def overlaps(t: Topology) -> list[tuple[str, str]]:
    return [
        (a[0], b[0])
        for a, b in combinations(boxes(t), 2)
        if a[1] < b[3] - 1e-6 and b[1] < a[3] - 1e-6 and a[2] < b[4] - 1e-6 and b[2] < a[4] - 1e-6
    ]


def outside(t: Topology) -> list[str]:
    found = layout(t)
    return [
        name
        for name, left, top, right, bottom in boxes(t)
        if left < 0 or top < 0 or right > found.width or bottom > found.height
    ]


@pytest.mark.parametrize("spec", MACHINES)
def test_nothing_overlaps_on_machines_of_the_catalogue(spec: str) -> None:
    machine = topology(spec)
    assert overlaps(machine) == []
    assert outside(machine) == []


@settings(max_examples=examples(40, 80), deadline=None)
@given(topologies())
def test_nothing_overlaps_on_any_machine(t: Topology) -> None:
    long = replace(t, nodes=tuple(replace(n, name=f"{n.name} at rack 12") for n in t.nodes))
    for machine in (t, long):
        assert overlaps(machine) == []
        assert outside(machine) == []


@pytest.mark.parametrize(
    ("spec", "sides", "columns"),
    [
        ("torus:4x6", (4, 6), 4),
        ("torus:6x4", (6, 4), 6),
        ("mesh:3x5", (3, 5), 3),
        ("torus:16x32", (16, 32), 32),
    ],
)
def test_grids_have_their_sides(spec: str, sides: tuple[int, ...], columns: int) -> None:
    """Whatever it is called; cables that do not go round join neighbours in the drawing."""
    machine = replace(topology(spec), name="a file")
    grid = grid_of(machine)
    assert grid is not None
    assert grid.sides == sides
    found = layout(machine)
    assert len({x for x, _ in found.spots}) == columns
    step = min(abs(x - found.spots[0][0]) for x, _ in found.spots if x != found.spots[0][0])
    for i, link in enumerate(machine.links):
        (ax, ay), (bx, by) = found.spots[link.src], found.spots[link.dst]
        assert (abs(ax - bx) + abs(ay - by) > step + 1e-6) == (i in found.wraps)
    assert set(link_paths(machine, found, range(len(machine.links)))) == set(
        range(len(machine.links))
    )


def test_a_grid_with_a_dead_cable_is_one_and_a_ring_is_none() -> None:
    damaged = topology("torus:4x6").without_links([0, 1])
    assert grid_of(damaged).sides == (4, 6)
    for spec in ("ring:8", "full:6", "dgx1", "mi250", "line:6"):
        assert grid_of(topology(spec)) is None


def test_nics_are_called_as_their_machine_calls_them() -> None:
    machine = topology("dgx1:nodes=2")
    at = [n.name for n in machine.nodes].index("nic0.0")
    named = replace(machine.nodes[at], names=("0000:07:00.0", "mlx5_3"))
    nodes = (*machine.nodes[:at], named, *machine.nodes[at + 1 :])
    assert node_label(replace(machine, nodes=nodes), at) == "nic0.0 mlx5_3"
    assert overlaps(replace(machine, nodes=nodes)) == []


@pytest.mark.parametrize("hosts", [4, 5, 7, 13])
def test_rows_of_hosts_are_balanced(hosts: int) -> None:
    found = layout(topology(f"dgx-a100:nodes={hosts}"))
    rows: dict[float, int] = {}
    for frame in found.frames:
        rows[frame.y] = rows.get(frame.y, 0) + 1
    assert max(rows.values()) - min(rows.values()) <= 1
    assert found.width > 0.8 * found.height


MANY = ("dgx-a100:nodes=16", "dgx-h100:nodes=64", "dgx1:nodes=16", "mi250:nodes=8")


@pytest.mark.parametrize("spec", MANY)
def test_hosts_of_a_folded_machine_do_not_overlap(spec: str) -> None:
    found = folded(topology(spec))
    assert found is not None
    assert overlaps(found.topology) == []
    assert outside(found.topology) == []


@pytest.mark.parametrize("spec", MANY)
def test_a_folded_machine_has_all_bandwidth_between_hosts(spec: str) -> None:
    machine = topology(spec)
    found = folded(machine)
    assert found is not None
    widths = [0] * len(found.topology.links)
    for link, at in zip(machine.links, found.link_of, strict=True):
        a, b = found.node_of[link.src], found.node_of[link.dst]
        assert (at < 0) == (a == b)
        if at >= 0:
            assert (found.topology.links[at].src, found.topology.links[at].dst) == (a, b)
            widths[at] += link.bandwidth
    assert widths == [x.bandwidth for x in found.topology.links]
    assert sorted(r for mine in found.ranks for r in mine) == list(range(machine.ranks))


def test_small_machines_and_those_without_hosts_stay_open() -> None:
    assert folded(topology("dgx-a100:nodes=12")) is None  # 96 ranks
    assert folded(topology("torus:16x32")) is None


def test_hosts_behind_one_switch_are_a_rack_and_rails_are_one_node() -> None:
    """Thirteen hosts of eight, in racks of five, five and three, behind two spines."""
    hosts = [5, 5, 3]
    racks = [rack for rack, many in enumerate(hosts) for _ in range(many)]
    nodes = [gpu(i, i // 8) for i in range(8 * len(racks))]
    first = len(nodes)
    nodes += [switch(f"leaf{k}") for k in range(3)] + [switch(f"spine{k}") for k in range(2)]
    links = [x for i in range(first) for x in both_ways(i, first + racks[i // 8], 50)]
    links += [x for k in range(3) for s in (3, 4) for x in both_ways(first + k, first + s, 400)]
    machine = Topology("racks", tuple(nodes), tuple(links))
    found = folded(machine)
    assert found is not None
    names = [node.name for node in found.topology.nodes]
    assert names[13:] == ["leaf0", "leaf1", "leaf2", "spine0…spine1"]
    assert [node.host for node in found.topology.nodes[:13]] == racks
    assert found.out_GBps(0) == 400
    assert overlaps(found.topology) == []
    drawn = machine_map(machine)["folded"]
    assert [box[0] for box in drawn["boxes"]] == ["rack 0", "rack 1", "rack 2"]
    assert drawn["hosts"][12] == "host 12: GPUs 96…103, 400 GB/s out"
