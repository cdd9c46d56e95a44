"""Parts of a machine by weft's names and by those of the machine's tools."""

import json
from pathlib import Path

import pytest

from weft.backends.report.svg import drawing, machine_piece
from weft.dsl.base.errors import UserError
from weft.dsl.catalogue import topology
from weft.dsl.language.machine import SketchMachine
from weft.dsl.machines.confined import plain_machine
from weft.dsl.machines.failures import degraded, find, nic_down
from weft.dsl.machines.names import names_of
from weft.dsl.machines.nics import nics_of
from weft.dsl.nouns.topology import NodeKind, Topology

STORAGE = (4, 5)
"""NICs that are far from all GPUs."""


def smi_text(device: str = "NIC{}", legend: bool = True) -> str:
    """Eight GPUs on an NVSwitch, two GPUs and two NICs on a PCIe switch, two NICs for storage."""
    data = [c for c in range(10) if c not in STORAGE]
    switch = {8 + c: i // 2 for i, c in enumerate(data)} | {g: g // 2 for g in range(8)}

    def cell(a: int, b: int) -> str:
        if a == b:
            return " X "
        if max(a, b) < 8:
            return "NV12"
        if a not in switch or b not in switch:
            return "PIX" if a not in switch and b not in switch else "SYS"
        return "PXB" if switch[a] == switch[b] else "SYS"

    names = [*(f"GPU{g}" for g in range(8)), *(device.format(c) for c in range(10))]
    lines = ["\t" + "\t".join(names) + "\tCPU Affinity\tNUMA Affinity"]
    lines += ["\t".join([n, *(cell(a, b) for b in range(18))]) for a, n in enumerate(names)]
    lines += ["", "Legend:", "", "  X = Self"]
    if legend:
        lines += ["", "NIC Legend:", "", *(f"  NIC{c}: mlx5_{c}" for c in range(10))]
    return "\n".join(lines) + "\n"


XML = """<system version="1">
 <cpu numaid="0" affinity="ff" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143">
  <pci busid="0000:18:00.0" class="0x060400" link_speed="32.0 GT/s PCIe" link_width="16">
   <pci busid="0000:1a:00.0" class="0x020700" link_speed="32.0 GT/s PCIe" link_width="16">
    <nic><net name="mlx5_7" dev="2" speed="400000" port="1" guid="0x7" gdr="1"/></nic>
   </pci>
   <pci busid="0000:1b:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16">
    <gpu dev="1" sm="90" rank="0" gdr="1">
     <nvlink target="0000:43:00.0" count="12" tclass="0x030200"/></gpu>
   </pci>
  </pci>
  <pci busid="0000:40:00.0" class="0x060400" link_speed="32.0 GT/s PCIe" link_width="16">
   <pci busid="0000:41:00.0" class="0x020700" link_speed="32.0 GT/s PCIe" link_width="16">
    <nic><net name="mlx5_9" dev="1" speed="400000" port="1" guid="0x9" gdr="1"/></nic>
   </pci>
   <pci busid="0000:43:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16">
    <gpu dev="0" sm="90" rank="1" gdr="1">
     <nvlink target="0000:1b:00.0" count="12" tclass="0x030200"/></gpu>
   </pci>
  </pci>
 </cpu>
</system>
"""


def read(tmp_path: Path, text: str, options: str = ":nodes=2") -> Topology:
    file = tmp_path / "machine"
    file.write_text(text)
    return topology(f"{file}{options}")


def refused(machine: Topology, name: str) -> str:
    with pytest.raises(UserError) as caught:
        nic_down(machine, name)
    return caught.value.render()


@pytest.mark.parametrize("text", [smi_text(), smi_text("mlx5_{}", legend=False)])
def test_a_dead_nic_by_each_of_its_names_leaves_the_same_machine(tmp_path: Path, text: str) -> None:
    made = read(tmp_path, text)
    names = ["host1.mlx5_6", "host1.NIC6", "host1.nic6", "HOST1.MLX5_6", "nic1.6", "gpu12"]
    left = [degraded(made, [nic_down(made, name)]).topology.to_json() for name in names]
    assert left == [left[0]] * len(names)
    assert left[0]["name"].endswith("without host1.mlx5_6")
    assert find(made, "host1.mlx5_6").links == find(made, "gpu12-fabric").links


def test_the_numbers_of_nics_are_those_of_the_text(tmp_path: Path) -> None:
    made = read(tmp_path, smi_text())
    assert nic_down(made, "host0.nic6").links == nic_down(made, "host0.mlx5_6").links
    assert [nic.number for nic in nics_of(made)][:8] == [0, 1, 2, 3, 6, 7, 8, 9]


def test_a_nic_that_was_left_out_is_said_to_be(tmp_path: Path) -> None:
    made = read(tmp_path, smi_text())
    for name in ("mlx5_4", "host0.nic4", "NIC4", "host1.mlx5_4"):
        assert "no GPU is nearest to mlx5_4 (NIC4), mlx5_5 (NIC5): left out" in refused(made, name)
    alone = read(tmp_path, smi_text(), "")
    assert "nodes=2 keeps them" in refused(alone, "mlx5_6")


def test_names_of_several_hosts_need_one(tmp_path: Path) -> None:
    made = read(tmp_path, smi_text())
    assert "say which: host0.mlx5_6 or host1.mlx5_6" in refused(made, "mlx5_6")
    clash = read(tmp_path, smi_text().replace("NIC7: mlx5_7", "NIC7: NIC6"))
    assert "say which: host0.mlx5_8 or host0.nic5 or host0.mlx5_6" in refused(clash, "host0.NIC6")
    with pytest.raises(UserError, match="on 2 hosts"):
        names_of(made).rank("GPU3")
    assert names_of(made).rank("host1.GPU3") == names_of(made).rank("gpu11") == 11


def test_slips_get_the_nearest_names(tmp_path: Path) -> None:
    made = read(tmp_path, smi_text())
    assert "did you mean" in refused(made, "host1.mlx5_66")
    hint = refused(made, "host1.gpu12")
    assert hint.count("'host1.nic2'") == 1, hint
    assert "mlx5_3" in refused(made, "mlx6_3")


def test_nics_are_left_out_by_name(tmp_path: Path) -> None:
    made = read(tmp_path, smi_text(), ":nodes=2,without=mlx5_3,NIC8")
    assert {nic.own[0] for nic in nics_of(made)} == {f"mlx5_{c}" for c in (0, 1, 2, 6, 7, 9)}
    assert any("without= asks: mlx5_3 (NIC3), mlx5_8 (NIC8)" in note for note in made.notes)
    assert "without= asks" in refused(made, "host0.mlx5_3")
    assert [n.name for n in plain_machine(made).machine.nodes if n.kind is NodeKind.NIC] == [
        "nic0.2",
        "nic0.9",
        "nic1.2",
        "nic1.9",
    ]
    with pytest.raises(UserError, match="unknown NIC 'mlx5_33'"):
        read(tmp_path, smi_text(), ":nodes=2,without=mlx5_33")


def test_names_survive_in_files_and_restrictions(tmp_path: Path) -> None:
    made = read(tmp_path, smi_text())
    again = Topology.from_json(json.loads(json.dumps(made.to_json())))
    assert again == made
    assert Topology.from_networkx(made.to_networkx()) == made
    some = again.restricted_to(range(8, 16))
    assert names_of(some).rank("GPU3") == 3
    after = degraded(again, [nic_down(again, "host0.mlx5_0")]).topology
    assert nic_down(after, "host0.nic6").name == "host0.mlx5_6"


def test_names_are_not_in_the_digest(tmp_path: Path) -> None:
    text = smi_text()
    plain = "".join(line for line in text.splitlines(True) if "mlx5" not in line)
    assert read(tmp_path, text).digest() == read(tmp_path, plain).digest()


@pytest.mark.parametrize("name", ["host1.1A:00.0", "host1.0000:1a:00.0", "host1.00000000:1A:00.0"])
def test_bus_ids_in_all_their_spellings(tmp_path: Path, name: str) -> None:
    made = read(tmp_path, XML)
    assert find(made, name) == find(made, "host1.mlx5_7") == find(made, "host1.nic2")
    assert find(made, name).name == "host1.mlx5_7"


def test_gpus_of_xml_have_the_numbers_and_bus_ids_of_the_file(tmp_path: Path) -> None:
    made = names_of(read(tmp_path, XML))
    assert [made.rank(n) for n in ("host1.GPU1", "host1.GPU0", "host0.43:00.0")] == [2, 3, 1]
    assert made.rank("gpu1") == 1


def test_nics_between_two_hosts_back_to_back(tmp_path: Path) -> None:
    made = read(tmp_path, smi_text(), ":nodes=2,fabric=direct")
    assert nic_down(made, "host0.mlx5_6").links == nic_down(made, "host1.NIC6").links


def test_a_host_file_names_its_nics(tmp_path: Path) -> None:
    text = """schema = 1
name = "mine"
gpus = 2
[[cables]]
lane = "25GB/s"
alpha = "0.7us"
pairs = [[0, 1]]
source = "data sheet"
[nics]
attach = [[0], [1]]
names = ["mlx5_2", ["mlx5_bond_0", "0000:41:00.0"]]
bandwidth = "100Gb/s"
alpha = "1.3us"
source = "data sheet"
"""
    made = read(tmp_path, text)
    assert nic_down(made, "host1.41:00.0").name == "host1.mlx5_bond_0"
    with pytest.raises(UserError, match="names are of 1 NICs"):
        read(tmp_path, text.replace('"mlx5_2", ', ""))


def test_machines_without_names_of_their_own_have_numbers() -> None:
    two = topology("dgx-a100:nodes=2")
    assert find(two, "host1.GPU3").ranks == (11,)
    assert find(two, "host1.NIC3") == find(two, "host1.nic3")
    assert find(topology("dgx1"), "GPU0-GPU3") == find(topology("dgx1"), "0-3")


def test_sketches_and_drawings_know_the_names(tmp_path: Path) -> None:
    made = read(tmp_path, smi_text(), ":nodes=2,without=mlx5_3")
    machine = SketchMachine(made)
    assert machine.nodes_named("host1.GPU3") == (11,)
    assert [made.nodes[v].name for v in machine.nodes_named("host1.mlx5_2")] == ["nic1.2"]
    assert not machine.nodes_named("mlx6_0")
    with pytest.raises(UserError, match="on 2 hosts"):
        machine.nodes_named("mlx5_2")
    drawn = drawing("", [machine_piece(made)])
    assert "<title>nic1.2 (mlx5_2, NIC2)</title>" in drawn
    assert "gpu8 to fabric (mlx5_0, NIC0): 25 GB/s" in drawn
