"""Hosts placed in fabrics of files: leaf-spine TOML, Slurm's topology.conf, ibnetdiscover."""

from fractions import Fraction
from pathlib import Path

import pytest

from tests.dsl.machines.test_names import smi_text
from weft.dsl.base.errors import UserError
from weft.dsl.catalogue import topology
from weft.dsl.machines.confined import plain_machine
from weft.dsl.machines.fabric_file import read_fabric
from weft.dsl.machines.failures import find
from weft.dsl.nouns.hops import hop_distances
from weft.dsl.nouns.topology import Topology

RACKS = """hosts_per_rack = 2
oversubscription = 2
hop = "0.4us"
"""

SLURM = """# two racks below one core
SwitchName=core Switches=leaf[1-2] LinkSpeed=100
SwitchName=leaf1 Nodes=gpu[01-02]
SwitchName=leaf2 \\
    Nodes=gpu03,dgx-[7-8]
"""


def cable(port: int, peer: str, name: str, rate: str = "4xHDR") -> str:
    return f'[{port}]\t"{peer}"[1](ab12) \t\t# "{name}" lid {port} {rate}'


def switch(guid: str, name: str, cables: list[str]) -> list[str]:
    head = (
        f'switchguid=0x{guid}({guid})\nSwitch\t40 "S-{guid}"\t\t# "{name}" base port 0 lid 4 lmc 0'
    )
    return [f"vendid=0x2c9\n{head}", *cables, ""]


def infiniband() -> str:
    """Two leaves with two hosts of two NICs each on both, joined by two spines."""
    hosts = ["node1", "node2"]
    leaf = [
        [cable(h + 1, f"H-{h}{n}aa", f"{host} mlx5_{n}") for h, host in enumerate(hosts)]
        + [cable(9 + s, f"S-c{s}", "MF0;spine:QM8700/U1") for s in (0, 1)]
        for n in (0, 1)
    ]
    spine = [[cable(9, f"S-b{n}", "MF0;leaf:QM8700/U1") for n in (0, 1)] for _ in (0, 1)]
    lines = ["#", "# Topology file: generated on Fri Jul 19 02:49:25 2024", "#"]
    for n in (0, 1):
        lines += switch(f"b{n}", "MF0;leaf:QM8700/U1", leaf[n])
        lines += switch(f"c{n}", "MF0;spine:QM8700/U1", spine[n])
    lines += ["caguid=0x10aa", 'Ca\t1 "H-10aa"\t\t# "node2 mlx5_0"', cable(1, "S-b0", "leaf")]
    return "\n".join(lines) + "\n"


TWO_NICS = """  GPU0 GPU1 mlx5_0 mlx5_1
GPU0 X NV12 PIX SYS
GPU1 NV12 X SYS PIX
mlx5_0 PIX SYS X SYS
mlx5_1 SYS PIX SYS X
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("racks.toml").write_text(RACKS)
    Path("topology.conf").write_text(SLURM)
    Path("ib.txt").write_text(infiniband())
    Path("two.txt").write_text(TWO_NICS)
    Path("dgx.txt").write_text(smi_text())
    return tmp_path


def refused(text: str) -> str:
    with pytest.raises(UserError) as caught:
        topology(text)
    return caught.value.render()


def named(made: Topology) -> dict[tuple[str, str], tuple[float, float]]:
    """Links outside the hosts by the names of their ends."""
    made = plain_machine(made).machine
    return {
        (made.nodes[x.src].name, made.nodes[x.dst].name): (float(x.bandwidth), float(x.latency))
        for x in made.links
        if made.nodes[x.dst].host is None
    }


def test_racks_of_hosts_below_a_spine(folder: Path) -> None:
    made = topology("two.txt:nodes=4,nic_bw=25GB/s,fabric=racks.toml")
    assert named(made) == {
        **{(f"gpu{r}", f"leaf{r // 4}"): (25.0, 1.25) for r in range(8)},
        ("leaf0", "spine"): (50.0, 0.4),
        ("leaf1", "spine"): (50.0, 0.4),
        ("spine", "leaf0"): (50.0, 0.4),
        ("spine", "leaf1"): (50.0, 0.4),
    }
    assert (hop_distances(made) >= 0).all()
    assert made.symmetries
    alone = topology("two.txt:nodes=2,fabric=racks.toml")
    nodes = plain_machine(alone).machine.nodes
    assert [n.name for n in nodes if n.host is None] == ["leaf0"]


def test_rails_in_racks_and_several_spines(folder: Path) -> None:
    Path("rails.toml").write_text("racks = [1, 2]\nrails = true\nspines = 2\n")
    made = topology("dgx-a100:nodes=3,fabric=rails.toml,oversub=4")
    ends = named(made)
    assert ("gpu3", "leaf0.3") in ends
    assert ("gpu11", "leaf1.3") in ends
    assert ("gpu19", "leaf1.3") in ends
    assert ends["leaf1.3", "spine0"] == (6.25, 1.25)
    assert ends["leaf0.3", "spine1"] == (3.125, 1.25)


def test_slurms_tree_names_the_hosts(folder: Path) -> None:
    made = topology("dgx.txt:nodes=5,fabric=topology.conf")
    assert made.host_names == ("gpu01", "gpu02", "gpu03", "dgx-7", "dgx-8")
    assert named(made)["leaf1", "core"] == (400.0, 1.25)
    assert named(made)["leaf2", "core"] == (600.0, 1.25)
    assert find(made, "dgx-7.mlx5_6") == find(made, "host3.nic6") == find(made, "DGX-7.NIC6")
    assert find(made, "gpu03").ranks == tuple(range(16, 24))
    assert find(made, "gpu3").ranks == (3,)
    assert find(made, "dgx-8").ranks == tuple(range(32, 40))
    assert any("Slurm's tree lacks bandwidths" in note for note in made.notes)
    again = Topology.from_json(made.to_json())
    assert again == made == Topology.from_networkx(made.to_networkx())


def test_hosts_are_chosen_by_name(folder: Path) -> None:
    made = topology("two.txt:nodes=2,fabric=topology.conf,hosts=dgx-7,gpu01")
    assert made.host_names == ("dgx-7", "gpu01")
    assert ("gpu0", "leaf2") in named(made)
    assert ("gpu2", "leaf1") in named(made)
    mixed = topology("two.txt*1+dgx-a100*1:fabric=topology.conf,hosts=gpu02,gpu03")
    assert mixed.host_names == ("gpu02", "gpu03")
    assert "unknown option" in refused("two.txt:nodes=2,fabric=star,hosts=gpu01")
    assert "unknown host of topology.conf 'gpu9'" in refused(
        "two.txt:nodes=2,fabric=topology.conf,hosts=gpu9,gpu01"
    )


def test_infiniband_as_it_was_discovered(folder: Path) -> None:
    made = topology("two.txt:nodes=2,fabric=ib.txt")
    assert made.host_names == ("node1", "node2")
    ends = named(made)
    assert {pair: ends[pair][0] for pair in ends if pair[0].startswith("gpu")} == {
        ("gpu0", "leaf0"): 25.0,
        ("gpu1", "leaf1"): 25.0,
        ("gpu2", "leaf0"): 25.0,
        ("gpu3", "leaf1"): 25.0,
    }
    assert {pair for pair in ends if pair[0].startswith("leaf")} == {
        (f"leaf{a}", f"spine{b}") for a in (0, 1) for b in (0, 1)
    }
    assert {ends[pair][0] for pair in ends if pair[0].startswith("leaf")} == {25.0}
    leaf = next(n for n in made.nodes if n.name == "leaf0")
    assert leaf.names == ("b0", "MF0;leaf:QM8700/U1")
    assert find(made, "node2.mlx5_1").name == "host1.mlx5_1"
    assert "mlx5_2 of node1 is not in ib.txt" in refused("dgx.txt:nodes=2,fabric=ib.txt")


def test_the_rate_of_each_generation() -> None:
    for rate, width in (
        ("4xEDR", Fraction(25, 2)),
        ("2xNDR", Fraction(25)),
        ("4xNDR", Fraction(50)),
    ):
        text = "\n".join(switch("b0", "leaf", [cable(1, "H-1a", "n1 HCA-1", rate)]))
        layout = read_fabric(text, "ib.txt").layout
        assert layout is not None
        assert layout.hosts[0].ports[0].bandwidth == width


def test_a_file_that_is_not_there(folder: Path) -> None:
    assert "no such file" in refused("two.txt:nodes=2,fabric=nix.toml")
    assert "unknown fabric" in refused("two.txt:nodes=2,fabric=rails2")
