"""TACCL's topology files: of its two machines, the documented custom format, bad ones."""

import json
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest
from shared import samples
from taccl_files import TOPOLOGIES

from weft.dsl.base.errors import BadFile, BadTopology
from weft.dsl.catalogue import topology
from weft.dsl.nouns.hops import hop_distances
from weft.dsl.nouns.topology import NodeKind, Topology
from weft.dsl.symmetry.symmetry import generate, is_semiregular, verified

SHIPPED = samples("taccl/topo", "*.json")

CUSTOM: dict[str, Any] = {
    "name": "three_1MB",
    "gpus_per_node": 3,
    "links": [[0, 2, 0], [2, 0, 1], [0, 1, 0]],
    "betas": [[0, 23, 0], [23, 0, 46], [0, 46, 0]],
    "invbws": [[0, 23.3, 0], [23.3, 0, 46.3], [0, 46.3, 0]],
}
HUB: dict[str, Any] = {
    "name": "hub",
    "gpus_per_node": 4,
    "nics_per_node": 2,
    "alpha": 0.3,
    "node_betas_list": [8],
    "node_invbws_list": [8],
    "remote_alpha": 2.6,
    "remote_beta": 100,
    "remote_invbw": 107,
}


def read(tmp_path: Path, data: object, options: str = "") -> Topology:
    file = tmp_path / "topo.json"
    file.write_text(json.dumps(data))
    return topology(f"{file}{options}")


@pytest.mark.parametrize("name", TOPOLOGIES)
@pytest.mark.parametrize("nodes", [1, 2, 4])
def test_files_of_one_machine_in_three_units_mean_the_same(
    tmp_path: Path, name: str, nodes: int
) -> None:
    """0.3 µs, 23 and 46 µs per MiB; InfiniBand 10 GB/s, 2.6 µs."""
    held_to_the_machine(read(tmp_path, TOPOLOGIES[name], f":nodes={nodes}"), name, nodes)


@pytest.mark.shared
@pytest.mark.parametrize("file", SHIPPED, ids=lambda f: f.stem)
@pytest.mark.parametrize("nodes", [1, 2, 4])
def test_the_shipped_files_mean_the_same_machine(file: Path, nodes: int) -> None:
    held_to_the_machine(topology(f"{file}:nodes={nodes}"), file.stem, nodes, {131, 102})


def held_to_the_machine(
    made: Topology, name: str, nodes: int, ports: Collection[int] = (131,)
) -> None:
    """Links and NICs of the host; ``ports`` are the GB/s of a DGX-2's link, rounded."""
    assert made.hosts == nodes
    assert (hop_distances(made) >= 0).all()
    assert verified(made) == made.symmetries != ()
    group = generate(made.symmetries)
    assert group is not None
    assert is_semiregular(group, made.ranks)
    inside = {
        (round(float(x.bandwidth)), float(x.latency), x.lanes)
        for x in made.links
        if NodeKind.NIC not in (made.nodes[x.src].kind, made.nodes[x.dst].kind)
    }
    if "ndv2" in name:
        assert inside == {(46, 0.3, 2), (23, 0.3, 1)}
    else:
        # 1 KiB at β 0.01 µs is 102 GB/s: TACCL's file rounds 0.78 up to 1.
        ((port, *rest),) = inside
        assert port in ports
        assert rest == [0.15, 1]
    outside = [
        x for x in made.links if made.nodes[x.src].kind is NodeKind.NIC and x.dst >= made.ranks
    ]
    assert len(outside) == (0 if nodes == 1 else nodes * (1 if "ndv2" in name else 8))
    assert all(round(float(x.bandwidth)) == 10 and float(x.latency) == 1.3 for x in outside)


def test_custom_matrices_are_read_by_destination_and_source(tmp_path: Path) -> None:
    made = read(tmp_path, CUSTOM)
    found = {(x.src, x.dst): (x.lanes, float(x.bandwidth)) for x in made.links}
    single = (1 << 20) / 46_000
    assert {k: lanes for k, (lanes, _) in found.items()} == {
        (0, 1): 2,
        (1, 0): 2,
        (1, 2): 1,
        (2, 1): 1,
    }
    # Two lanes, each of the full cost 23: four times the single lane of cost 46.
    assert found[0, 1][1] == pytest.approx(4 * single)
    assert found[1, 2][1] == pytest.approx(single)
    assert {float(x.latency) for x in made.links} == {0.3}


def test_units_come_from_the_name_or_from_options(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match="is not in the file") as caught:
        read(tmp_path, HUB)
    assert "unit=1us" in caught.value.render()
    made = read(tmp_path, HUB, ":chunk=1MB,unit=1us")
    assert {float(x.bandwidth) for x in made.links} == {125.0}
    tenth = read(tmp_path, HUB, ":chunk=1MB,unit=0.1us")
    assert {float(x.bandwidth) for x in tenth.links} == {1250.0}


def test_boxes_are_joined_by_their_nics(tmp_path: Path) -> None:
    made = read(tmp_path, HUB, ":chunk=1MB,unit=1us,nodes=2,fabric=rails")
    kinds = Counter(n.kind for n in made.nodes)
    assert kinds == {NodeKind.GPU: 8, NodeKind.SWITCH: 2 + 2, NodeKind.NIC: 4}


def test_a_box_without_nics_stays_alone(tmp_path: Path) -> None:
    with pytest.raises(BadTopology, match="are connected is not known"):
        read(tmp_path, CUSTOM, ":nodes=2")
