"""The channels of NCCL_GRAPH_DUMP_FILE as a machine."""

from pathlib import Path

from weft.dsl.catalogue import topology
from weft.dsl.machines.confined import plain_machine
from weft.dsl.machines.failures import find
from weft.dsl.nouns.hops import hop_distances
from weft.dsl.nouns.parts import Medium
from weft.dsl.nouns.topology import NodeKind, Topology


def graphs(channels: list[str], pattern: str = "4", more: str = "") -> str:
    lines = [
        f'  <graph id="0" pattern="{pattern}" crossnic="0" nchannels="{len(channels)}" '
        'speedintra="20" speedinter="12.5" latencyinter="0" typeintra="NVL" typeinter="PIX">'
    ]
    for words in channels:
        devices = [word.split(":") for word in words.split()]
        listed = "".join(f'<{kind} dev="{number}"/>' for kind, number in devices)
        lines.append(f"    <channel>{listed}</channel>")
    return "\n".join(['<graphs version="1">', *lines, "  </graph>", more, "</graphs>", ""])


def read(tmp_path: Path, text: str, options: str = "") -> Topology:
    file = tmp_path / "graph.xml"
    file.write_text(text)
    return topology(f"{file}{options}")


RINGS = ["gpu:0 gpu:1 gpu:2 gpu:3", "gpu:0 gpu:1 gpu:2 gpu:3", "gpu:0 gpu:2 gpu:1 gpu:3"]
NETS = ["net:0 gpu:0 gpu:1 net:0", "net:1 gpu:1 gpu:0 net:1", "net:0 gpu:0 gpu:1 net:0"]


def test_neighbours_in_rings_are_cables(tmp_path: Path) -> None:
    made = read(tmp_path, graphs(RINGS))
    wide = {(x.src, x.dst): float(x.bandwidth) for x in made.links if x.src < x.dst}
    assert wide == {(0, 1): 40, (1, 2): 40, (2, 3): 40, (0, 3): 60, (0, 2): 20, (1, 3): 20}
    assert {x.medium for x in made.links} == {Medium.NVLINK}
    assert any("NCCL's 3 rings, 20GB/s each" in note for note in made.notes)


def test_nics_are_as_wide_as_their_channels(tmp_path: Path) -> None:
    made = plain_machine(read(tmp_path, graphs(NETS), ":nodes=2")).machine
    nics = {n.name: i for i, n in enumerate(made.nodes) if n.kind is NodeKind.NIC}
    assert list(nics) == ["nic0.0", "nic0.1", "nic1.0", "nic1.1"]
    out = {
        made.nodes[x.src].name: float(x.bandwidth)
        for x in made.links
        if x.src in nics.values() and made.nodes[x.dst].host is None
    }
    assert out == {"nic0.0": 25.0, "nic0.1": 12.5, "nic1.0": 25.0, "nic1.1": 12.5}
    assert find(made, "host1.NET/1") == find(made, "host1.nic1") == find(made, "nic1.1")
    assert (hop_distances(made) >= 0).all()
    fewer = read(tmp_path, graphs(NETS), ":nodes=2,without=NIC1")
    nodes = plain_machine(fewer).machine.nodes
    assert len([n for n in nodes if n.kind is NodeKind.NIC]) == 2


def test_chains_of_trees_are_read_where_there_is_no_ring(tmp_path: Path) -> None:
    made = read(tmp_path, graphs(["gpu:0x0 gpu:0x1 gpu:0x2"], pattern="1"))
    assert {(x.src, x.dst) for x in made.links if x.src < x.dst} == {(0, 1), (1, 2)}
