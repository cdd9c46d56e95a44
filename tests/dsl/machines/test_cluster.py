"""Machines of hosts of several kinds, and files of ours as hosts of more."""

import json
from pathlib import Path

import pytest

from tests.dsl.machines.test_names import smi_text
from weft.backends.cli import main
from weft.dsl.base.errors import UserError
from weft.dsl.catalogue import topology
from weft.dsl.machines.confined import plain_machine
from weft.dsl.machines.failures import find
from weft.dsl.nouns.hops import hop_distances
from weft.dsl.nouns.topology import NodeKind, Topology


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("a.txt").write_text(smi_text())
    cards = [" ".join("X" if a == b else "NODE" for b in range(5)) for a in range(5)]
    names = [f"GPU{g}" for g in range(4)] + ["mlx5_bond_0"]
    rows = [f"{name} {row}" for name, row in zip(names, cards, strict=True)]
    Path("b.txt").write_text(
        "\n".join(["GPU 0: NVIDIA L40S", "  " + " ".join(names), *rows]) + "\n"
    )
    return tmp_path


def refused(text: str) -> str:
    with pytest.raises(UserError) as caught:
        topology(text)
    return caught.value.render()


def links(made: Topology) -> list[tuple[int, int, float]]:
    return sorted((x.src, x.dst, float(x.bandwidth)) for x in made.links)


@pytest.mark.parametrize("fabric", ["star", "rails", "rails+spine", "pods:2"])
def test_hosts_of_one_kind_are_those_of_nodes(folder: Path, fabric: str) -> None:
    made, wanted = (topology(f"a.txt{t}fabric={fabric}") for t in ("*4:", ":nodes=4,"))
    assert links(made) == links(wanted)
    assert [n.name for n in made.nodes] == [n.name for n in wanted.nodes]
    assert [n.host for n in made.nodes] == [n.host for n in wanted.nodes]
    assert made.symmetries


def test_hosts_of_several_kinds(folder: Path) -> None:
    made = topology("a.txt*2+b.txt:nic_bw=12.5GB/s*3:fabric=rails+spine,oversub=2")
    assert made.host_of == (*[0] * 8, *[1] * 8, *[2] * 4, *[3] * 4, *[4] * 4)
    assert (hop_distances(made) >= 0).all()
    assert made.name == ("a.txt*2+b.txt:nic_bw=12.5GB/s*3:fabric=rails+spine,oversub=2")
    assert find(made, "host3.mlx5_bond_0").name == "host3.mlx5_bond_0"
    assert find(made, "host1.mlx5_6").links == find(made, "gpu12-rail4").links
    assert [n.name for n in plain_machine(made).machine.nodes if n.kind is NodeKind.HOST] == [
        "cpu2.0",
        "cpu3.0",
        "cpu4.0",
    ]
    assert any(note.startswith("b.txt:nic_bw=12.5GB/s: the GPUs are l40s") for note in made.notes)
    assert any("families (a100, l40s)" in note for note in made.notes)


def test_machines_of_the_catalogue_and_files_of_ours_are_hosts(folder: Path) -> None:
    topology_json(folder, "a.txt", "box.json")
    made = topology("dgx-h100+box.json*2")
    assert made.hosts == 3
    assert any("assumed fabric=star" in note for note in made.notes)
    two = topology("dgx-a100*2:fabric=rails")
    assert links(two) == links(topology("dgx-a100:nodes=2"))


def topology_json(folder: Path, text: str, output: str) -> None:
    assert main(["topo", "import", text, "-o", str(folder / output)]) == 0


@pytest.mark.parametrize("options", ["nodes=4", "nodes=2,fabric=rails,nic_bw=10GB/s", "gpu=h100"])
def test_a_file_of_ours_takes_the_options_of_its_text(folder: Path, options: str) -> None:
    topology_json(folder, "a.txt:without=mlx5_3", "box.json")
    again = topology(f"box.json:{options}")
    wanted = topology(f"a.txt:without=mlx5_3,{options}")
    assert again.digest() == wanted.digest()
    assert again.notes == wanted.notes
    assert again.name == f"box.json:{options}"
    assert "did you mean 'nodes'" in refused("box.json:node=4")


@pytest.mark.parametrize("text", ["a.txt", "b.txt"])
def test_the_text_in_a_file_of_ours_is_not_taken_for_the_file(folder: Path, text: str) -> None:
    spaced = Path(text).read_text().replace("\t", "    ")
    Path("spaced.txt").write_text(spaced)
    topology_json(folder, "spaced.txt:nodes=2", "box.json")
    assert topology("box.json").digest() == topology(f"{text}:nodes=2").digest()


def test_a_file_that_was_changed_does_not(folder: Path) -> None:
    topology_json(folder, "a.txt", "box.json")
    data = json.loads(Path("box.json").read_text())
    data["links"][0][3] = "1/2"
    Path("changed.json").write_text(json.dumps(data))
    assert "changed after its import" in refused("changed.json:nodes=4")
    assert topology("changed.json").ranks == 8
    del data["imported"]
    Path("plain.json").write_text(json.dumps(data))
    assert "is a machine of its own, and takes no nodes=" in refused("plain.json:nodes=4")
    assert "is one host" in refused("plain.json*2") or "takes no nodes=" in refused("plain.json*2")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a.txt*0", "expected a host"),
        ("a.txt*2+nix.txt*2", "no such file\n --> nix.txt"),
        ("a.txt*2+", "a + without a host"),
        ("a.txt*two+b.txt", "expected a number of hosts, got 'two'"),
        ("a.txt:nodes=2*2", "nodes= is written *N here"),
        ("ring:4*2", "ring is not a host"),
        ("a.txt*2+b.txt:fabric=rings", "unknown fabric"),
        ("a.txt*2:colour=red", "unknown option"),
        ("a.txt*99999", "at most"),
    ],
)
def test_slips_are_told(folder: Path, text: str, says: str) -> None:
    assert says in refused(text)


def test_options_with_a_plus_are_no_hosts(folder: Path) -> None:
    assert topology("dgx-a100:nodes=2,fabric=rails+spine").hosts == 2
