"""Hosts whose matrix of ``nvidia-smi topo -m`` is not the textbook's, as people report them."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from weft.dsl.base.errors import BadFile, BadTopology
from weft.dsl.catalogue import topology
from weft.dsl.machines.confined import plain_machine
from weft.dsl.machines.names import names_of
from weft.dsl.machines.nics import nics_of
from weft.dsl.nouns.hops import hop_distances
from weft.dsl.nouns.parts import Medium
from weft.dsl.nouns.topology import NodeKind, Topology
from weft.dsl.symmetry.symmetry import verified

Cell = Callable[[str, str], str]


def text(gpus: int, nics: int, cell: Cell, name: str = "", numa: int = 2, width: int = 8) -> str:
    """The matrix with columns of ``width``; ``cell`` is asked for a device and one after it."""
    names = [f"GPU{g}" for g in range(gpus)] + [f"NIC{i}" for i in range(nics)]
    lines = [f"GPU {','.join(str(g) for g in range(gpus))}: {name}"] if name else []
    lines.append(
        " " * width + "".join(n.ljust(width) for n in names) + "CPU Affinity  NUMA Affinity"
    )
    for i, one in enumerate(names):
        row = [
            " X" if i == j else cell(*((one, two) if i < j else (two, one)))
            for j, two in enumerate(names)
        ]
        tail = f"0-31  {i * numa // gpus}" if i < gpus else ""
        lines.append("".join(c.ljust(width) for c in [one, *row]) + tail)
    return "\n".join(lines) + "\n"


def number(device: str) -> int:
    return int(device[3:])


def sides(gpus: int = 8) -> Cell:
    """Every GPU with a NIC of its own on a PCIe switch; two sockets."""

    def cell(a: str, b: str) -> str:
        if a[:3] == b[:3] == "GPU":
            return "NV18"
        if number(a) == number(b):
            return "PIX"
        return "NODE" if number(a) * 2 // gpus == number(b) * 2 // gpus else "SYS"

    return cell


def read(tmp_path: Path, content: str, options: str = "") -> Topology:
    file = tmp_path / "topo.txt"
    file.write_text(content)
    return topology(f"{file}{options}")


def said(made: Topology, words: str) -> bool:
    return any(words in note for note in made.notes)


def kinds(made: Topology) -> Counter[NodeKind]:
    return Counter(node.kind for node in plain_machine(made).machine.nodes)


def ports_of(made: Topology) -> list[tuple[str, ...]]:
    return [n.names for n in plain_machine(made).machine.nodes if n.kind is NodeKind.NIC]


@pytest.mark.parametrize("lost", ["header", "cells", "x"])
def test_words_that_lost_the_space_between_them(tmp_path: Path, lost: str) -> None:
    """Tabs that became spaces where a terminal wrapped leave NIC6NIC7 and SYSSYS."""
    whole = text(8, 8, sides())
    changes = {
        "header": ("NIC6    NIC7", "NIC6NIC7"),
        "cells": ("SYS     SYS     0-31", "SYSSYS  0-31"),
        "x": ("NODE     X      NODE", "NODE XNODE"),
    }
    damaged = whole.replace(*changes[lost])
    assert damaged != whole
    assert read(tmp_path, damaged).digest() == read(tmp_path, whole).digest()


def without_nvlink(lost: str) -> Cell:
    """The PCIe class instead of NVLink wherever one GPU is concerned."""
    whole = sides()

    def cell(a: str, b: str) -> str:
        if whole(a, b) == "NV18" and lost in (a, b):
            return "NODE" if number(a) // 4 == number(b) // 4 else "SYS"
        return whole(a, b)

    return cell


def test_a_gpu_that_lost_its_nvlinks_leaves_the_others_on_their_switch(tmp_path: Path) -> None:
    made = read(tmp_path, text(8, 8, without_nvlink("GPU2"), "NVIDIA B200"))
    inner = [x for x in made.links if x.medium is Medium.NVLINK]
    assert not any(x.dst < made.ranks and x.src < made.ranks for x in inner)
    assert {x.src for x in inner if x.src < made.ranks} == {0, 1, 3, 4, 5, 6, 7}
    assert {float(x.bandwidth) for x in inner} == {900.0}
    assert said(made, "GPUs without NVLink, reached over PCIe only: GPU2")
    assert said(made, "on an NVSwitch, up to 18 links each: GPU0, GPU1, GPU3")
    assert (hop_distances(made) >= 0).all()
    both = read(tmp_path, text(8, 8, without_nvlink("GPU2"), "NVIDIA B200"), ":nodes=2")
    assert both.ranks == 16
    assert kinds(both)[NodeKind.NIC] == 16


def test_an_nvswitch_in_two_partitions_is_two_switches(tmp_path: Path) -> None:
    whole = sides()

    def cell(a: str, b: str) -> str:
        found = whole(a, b)
        return "SYS" if found == "NV18" and number(a) // 4 != number(b) // 4 else found

    made = read(tmp_path, text(8, 8, cell, "NVIDIA H100 80GB HBM3"))
    inner = [x for x in made.links if x.medium is Medium.NVLINK and x.src < made.ranks]
    assert {float(x.bandwidth) for x in inner} == {450.0}
    assert len({x.dst for x in inner if x.src < 4} & {x.dst for x in inner if x.src >= 4}) == 0


def test_storage_nics_of_pcie_hosts_are_no_ports(tmp_path: Path) -> None:
    """Cards on PCIe switches with a NIC, two more NICs on the CPUs."""

    def cell(a: str, b: str) -> str:
        if a[:3] == b[:3] == "GPU":
            return "NODE" if number(a) // 4 == number(b) // 4 else "SYS"
        if b in ("NIC4", "NIC5"):
            return "NODE" if a.startswith("GPU") and number(a) // 4 == number(b) - 4 else "SYS"
        if a.startswith("NIC"):
            return "NODE" if number(a) // 2 == number(b) // 2 else "SYS"
        return "PXB" if number(a) // 2 == number(b) else "SYS"

    made = read(tmp_path, text(8, 6, cell, "NVIDIA L40S"), ":nodes=2")
    assert ports_of(made) == [("NIC0",), ("NIC1",), ("NIC2",), ("NIC3",)] * 2
    assert said(made, "no GPU is nearest to NIC4, NIC5: left out (storage, management)")


def test_a_gpu_without_a_nic_of_its_own_shares_those_of_others(tmp_path: Path) -> None:
    """NODE to the NICs of its neighbours and to one for storage: it uses its neighbours'."""
    whole = sides()

    def cell(a: str, b: str) -> str:
        if b in ("NIC3", "NIC8"):  # for storage, on either socket
            return "NODE" if a.startswith("GPU") and number(a) // 4 == number(b) // 8 else "SYS"
        return whole(a, b)

    made = read(tmp_path, text(8, 9, cell), ":nodes=2")
    assert said(made, "no GPU is nearest to NIC3, NIC8: left out (storage, management)")
    assert said(made, "NIC0 GPU0, GPU3 (PIX, NODE); NIC1 GPU1, GPU3 (PIX, NODE)")
    assert kinds(made)[NodeKind.NIC] == 6  # of those that several GPUs share


def test_nics_behind_the_cpu_serve_where_there_are_no_others(tmp_path: Path) -> None:
    """A tray of GB200: three NICs at each CPU, none on a PCIe switch."""

    def cell(a: str, b: str) -> str:
        if a[:3] == b[:3] == "GPU":
            return "NV18"
        side = [number(d) // (2 if d.startswith("GPU") else 3) for d in (a, b)]
        return "NODE" if side[0] == side[1] else "SYS"

    made = read(tmp_path, text(4, 6, cell, "NVIDIA GB200"), ":nodes=2")
    assert len(ports_of(made)) == 12
    assert not said(made, "left out (storage")


@pytest.mark.parametrize("bonds", [(5,), (2, 5), tuple(range(6))])
def test_bonds_are_for_storage_beside_nics_that_are_none(
    tmp_path: Path, bonds: tuple[int, ...]
) -> None:
    """As GB200's trays have them; where all are bonds they are what there is (RoCE)."""

    def cell(a: str, b: str) -> str:
        if a[:3] == b[:3] == "GPU":
            return "NV18"
        side = [number(d) // (2 if d.startswith("GPU") else 3) for d in (a, b)]
        return "NODE" if side[0] == side[1] else "SYS"

    names = [f"mlx5_bond_{i}" if i in bonds else f"mlx5_{i}" for i in range(6)]
    legend = "\n".join(f"  NIC{i}: {name}" for i, name in enumerate(names))
    tray = f"{text(4, 6, cell, 'NVIDIA GB200')}\nNIC Legend:\n\n{legend}\n"
    made = read(tmp_path, tray, ":nodes=2")
    serving = next(note for note in made.notes if note.startswith("NICs serve"))
    assert ("mlx5_bond_5" in serving) is (len(bonds) == 6)
    assert serving.count(" GPU2") + serving.count(" GPU3") >= 2
    assert said(made, "mlx5_bond_5 (NIC5): left out (storage, management)") is (len(bonds) < 6)


def test_a_bond_that_is_the_nearest_of_some_gpu_is_told_with_what_leaves_it_out(
    tmp_path: Path,
) -> None:
    """Two GPUs have a NIC of their own, the others a bond: nothing tells whether it is a DPU's."""

    def cell(a: str, b: str) -> str:
        if a[:3] == b[:3] == "GPU":
            return "NV18"
        return "NODE" if number(a) // 2 == number(b) else "SYS"

    host = f"{text(4, 2, cell)}\nNIC Legend:\n\n  NIC0: mlx5_0\n  NIC1: mlx5_bond_0\n"
    made = read(tmp_path, host, ":nodes=2")
    assert said(made, "counts as its NIC (--without mlx5_bond_0 leaves it out)")
    assert not said(read(tmp_path, host, ":nodes=2,without=mlx5_bond_0"), "counts as its NIC")


def test_the_texts_of_two_hosts_in_one_file_are_refused_unless_alike(tmp_path: Path) -> None:
    one, other = text(4, 4, sides(4)), text(8, 8, sides())
    assert read(tmp_path, one + one).digest() == read(tmp_path, one).digest()
    with pytest.raises(BadFile, match="the texts of two hosts") as caught:
        read(tmp_path, f"{other}\nLegend:\n\n  X = Self\n{one}")
    assert caught.value.where.endswith("topo.txt:22")  # the first row of the second
    with pytest.raises(BadFile):
        read(tmp_path, other + one)


@pytest.mark.parametrize("label", ["{}: ", "[{}] "])
def test_hosts_that_a_launcher_names_are_told_apart(tmp_path: Path, label: str) -> None:
    """pdsh and its like put the name of the host before each line."""
    one, other = text(4, 4, sides(4)), text(8, 8, sides())

    def said_by(host: str, matrix: str) -> str:
        return "".join(label.format(host) + line + "\n" for line in matrix.splitlines())

    alone = read(tmp_path, one)
    assert read(tmp_path, said_by("gpu-01", one)).digest() == alone.digest()
    assert read(tmp_path, said_by("a.b.c", one) + said_by("a.b.d", one)).digest() == alone.digest()
    for first, second in ((one, other), (other, one)):
        with pytest.raises(BadFile, match="the texts of two hosts"):
            read(tmp_path, said_by("node1", f"{first}\nLegend:\n\n") + said_by("node2", second))


def test_virtual_machines_show_sys_between_gpus_of_one_numa_node(tmp_path: Path) -> None:
    made = read(tmp_path, text(8, 0, lambda a, b: "SYS"))
    assert kinds(made)[NodeKind.HOST] == 2
    assert said(made, "GPUs of one NUMA node are on one CPU, even where SYS is between them")
    far = read(tmp_path, text(8, 0, lambda a, b: "SYS", numa=8))
    assert kinds(far)[NodeKind.HOST] == 8


def test_a_text_without_the_nvlinks_of_its_gpus_is_doubted(tmp_path: Path) -> None:
    pcie = text(8, 0, lambda a, b: "SYS", "NVIDIA H100 80GB HBM3")
    assert said(read(tmp_path, pcie), "nvidia-smi topo -mp leaves it out")
    cards = text(8, 0, lambda a, b: "SYS", "NVIDIA H100 PCIe")
    assert not said(read(tmp_path, cards), "topo -mp")


@pytest.mark.parametrize(
    ("name", "pcie"),
    [
        ("NVIDIA GeForce RTX 5090", 48),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", 48),
        ("NVIDIA GeForce RTX 4090", 24),
        ("NVIDIA RTX 6000 Ada Generation", 24),
        ("NVIDIA RTX A6000", 24),
        ("Quadro RTX 8000", 12),
        ("NVIDIA GeForce RTX 2080 Ti", 12),
        ("NVIDIA TITAN RTX", 12),
    ],
)
def test_workstation_cards_have_the_pcie_of_their_generation(
    tmp_path: Path, name: str, pcie: float
) -> None:
    made = read(tmp_path, text(2, 0, lambda a, b: "PHB", name))
    assert {float(x.bandwidth) for x in made.links} == {pcie}
    assert not said(made, "generation of a100 is assumed")


def test_turing_cards_have_two_links_of_their_own_speed(tmp_path: Path) -> None:
    made = read(tmp_path, text(2, 0, lambda a, b: "NV2", "Quadro RTX 8000"))
    assert {float(x.bandwidth) for x in made.links} == {50.0}


def test_gpus_that_are_numa_nodes_on_an_nvswitch_are_those_of_gb200(tmp_path: Path) -> None:
    """Beside Grace the column GPU NUMA ID has numbers, beside other CPUs N/A."""
    tray = text(4, 4, sides(4)).replace("NUMA Affinity", "NUMA Affinity   GPU NUMA ID")
    for ids, family in ((["2", "10", "18", "26"], "gb200"), (["N/A"] * 4, "h100")):
        lines = tray.splitlines()
        lines[1:5] = [f"{row}  {one}" for row, one in zip(lines[1:5], ids, strict=True)]
        made = read(tmp_path, "\n".join(lines), ":nodes=2")
        assert made.timing.family == family
        assert said(made, "GPUs that are NUMA nodes gb200 is assumed") is (family == "gb200")
        assert said(made, "trays of a rack") is (family == "gb200")


def test_trays_of_a_rack_share_an_nvswitch(tmp_path: Path) -> None:
    tray = text(4, 4, sides(4), "NVIDIA GB200")
    rack = read(tmp_path, tray, ":nodes=3")
    inner = [x for x in rack.links if x.medium is Medium.NVLINK and x.src < rack.ranks]
    assert len({x.dst for x in inner}) == 1
    assert len(inner) == 12
    assert rack.nodes[inner[0].dst].host is None
    assert rack.hosts == 3
    assert rack.symmetries == verified(rack)
    assert said(rack, "trays of a rack: up to 18 share an NVSwitch (trays=1: none does)")
    assert [nic.name for nic in nics_of(rack)][:5] == [
        *(f"host0.nic{i}" for i in range(4)),
        "host1.nic0",
    ]
    assert names_of(rack).nic("host1.NIC2") == names_of(rack).nic("host1.nic2")
    two = read(tmp_path, tray, ":nodes=4,trays=2")
    near = {x.src: x.dst for x in two.links if x.medium is Medium.NVLINK and x.src < two.ranks}
    assert [near[4 * b] == near[0] for b in range(4)] == [True, True, False, False]
    assert [rack.name for rack in two.nodes if rack.host is None][:2] == ["nvswitch0", "nvswitch1"]
    apart = read(tmp_path, tray, ":nodes=2,trays=1")
    assert apart.nodes[8].host == 0
    with pytest.raises(BadTopology, match="share an NVSwitch"):
        topology(f"{tmp_path / 'topo.txt'}*2+{tmp_path / 'topo.txt'}*1")
