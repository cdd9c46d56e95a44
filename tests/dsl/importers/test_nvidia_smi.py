"""The text of ``nvidia-smi topo -m`` in all the shapes people have it in."""

import re
from collections import Counter
from pathlib import Path

import pytest

from weft.dsl.base.errors import BadFile, UserError
from weft.dsl.catalogue import topology
from weft.dsl.importers.generations import GENERATIONS
from weft.dsl.importers.smi_matrix import read_matrix
from weft.dsl.machines.confined import plain_machine
from weft.dsl.machines.names import names_of
from weft.dsl.nouns.hops import hop_distances
from weft.dsl.nouns.parts import Medium
from weft.dsl.nouns.topology import NodeKind, Topology
from weft.dsl.symmetry.symmetry import verified
from weft.synth.time.calibrated import families, inner_medium

LEGEND = """
Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes
  NODE = Connection traversing PCIe as well as the interconnect between PCIe Host Bridges
  PHB  = Connection traversing PCIe as well as a PCIe Host Bridge (typically the CPU)
  PXB  = Connection traversing multiple PCIe bridges (without traversing the PCIe Host Bridge)
  PIX  = Connection traversing at most a single PCIe bridge
  NV#  = Connection traversing a bonded set of # NVLinks
"""

# Doubles 0-3 0-4 1-2 1-5 2-3 4-7 5-6 6-7, singles 0-1 0-2 1-3 2-6 3-7 4-5 4-6 5-7.
DGX1 = [
    "X NV1 NV1 NV2 NV2 SYS SYS SYS PIX SYS",
    "NV1 X NV2 NV1 SYS NV2 SYS SYS PIX SYS",
    "NV1 NV2 X NV2 SYS SYS NV1 SYS PHB SYS",
    "NV2 NV1 NV2 X SYS SYS SYS NV1 PHB SYS",
    "NV2 SYS SYS SYS X NV1 NV1 NV2 SYS PIX",
    "SYS NV2 SYS SYS NV1 X NV2 NV1 SYS PIX",
    "SYS SYS NV1 SYS NV1 NV2 X NV2 SYS PHB",
    "SYS SYS SYS NV1 NV2 NV1 NV2 X SYS PHB",
    "PIX PIX PHB PHB SYS SYS SYS SYS X SYS",
    "SYS SYS SYS SYS PIX PIX PHB PHB SYS X",
]


def matrix(
    rows: list[str], gpus: int, nics: list[str], numa: int = 2, sep: str = "\t", last: str = ""
) -> str:
    """The text as the tool prints it: tabs, padded cells, affinity columns for GPUs only."""
    names = [f"GPU{g}" for g in range(gpus)] + nics
    head = sep + sep.join(names) + sep + "CPU Affinity" + sep + "NUMA Affinity" + last
    lines = [head]
    for i, (name, row) in enumerate(zip(names, rows, strict=True)):
        cells = [f" {c} " if c == "X" else c for c in row.split()]
        tail = [f"0-19,40-59{sep}", str(i * numa // gpus)] if i < gpus else []
        lines.append(sep.join([name, *cells, *tail]))
    return "\n".join(lines) + "\n"


def uniform(gpus: int, cell: str) -> list[str]:
    return [" ".join("X" if i == j else cell for j in range(gpus)) for i in range(gpus)]


def hgx(nics: str = "mlx5_{}") -> str:
    """HGX H100: NV18 everywhere, one NIC PIX per GPU, NODE and SYS elsewhere."""
    size = 8
    rows = []
    for i in range(2 * size):
        cells = []
        for j in range(2 * size):
            gi, gj = i % size, j % size
            far = "NODE" if gi // 4 == gj // 4 else "SYS"
            if i == j:
                cells.append("X")
            elif i < size and j < size:
                cells.append("NV18")
            else:
                cells.append("PIX" if gi == gj else far)
        rows.append(" ".join(cells))
    return matrix(rows, size, [nics.format(i) for i in range(size)])


def read(tmp_path: Path, text: str, options: str = "") -> Topology:
    file = tmp_path / "topo.txt"
    file.write_text(text)
    return topology(f"{file}{options}")


def cables(made: Topology) -> dict[tuple[int, int], int]:
    return {(x.src, x.dst): x.lanes for x in made.links if x.src < x.dst < made.ranks}


def same_machine(a: Topology, b: Topology) -> bool:
    return a.digest() == b.digest()


def media(made: Topology) -> set[Medium | None]:
    return {one.medium for one in made.links}


def test_links_have_the_medium_of_their_class(tmp_path: Path) -> None:
    assert media(read(tmp_path, matrix(DGX1, 8, ["mlx5_0", "mlx5_1"]))) == {Medium.NVLINK}
    assert media(read(tmp_path, hgx(), ":nodes=2")) == {Medium.NVLINK, Medium.NETWORK}
    assert media(read(tmp_path, matrix(uniform(4, "PHB"), 4, []))) == {Medium.PCIE}
    pairs = ["X NV4 SYS SYS", "NV4 X SYS SYS", "SYS SYS X NV4", "SYS SYS NV4 X"]
    made = read(tmp_path, matrix(pairs, 4, []))
    assert media(made) == {Medium.NVLINK, Medium.PCIE}
    nvlinks = {(x.src, x.dst) for x in made.links if x.medium is Medium.NVLINK}
    assert nvlinks == {(0, 1), (1, 0), (2, 3), (3, 2)}
    assert inner_medium(read(tmp_path, matrix(uniform(4, "PHB"), 4, []))) is Medium.PCIE


@pytest.mark.parametrize(
    ("text", "options", "family"),
    [
        (hgx(), "", "h100"),
        (hgx(), ":gpu=b200", "b200"),
        (hgx(), ":bw=20GB/s", ""),
        ("GPU 0: NVIDIA H200 (UUID: GPU-1f)\n" + hgx(), "", "h200"),
        (matrix(uniform(4, "PHB"), 4, []), "", ""),
        (matrix(uniform(4, "PHB"), 4, []), ":gpu=h100", "h100"),
    ],
)
def test_the_family_is_that_of_the_text_or_the_assumed_generation(
    tmp_path: Path, text: str, options: str, family: str
) -> None:
    assert read(tmp_path, text, options).timing.family == family


def test_dgx1_is_the_catalogue_machine_in_another_numbering(tmp_path: Path) -> None:
    made = read(tmp_path, matrix(DGX1, 8, ["mlx5_0", "mlx5_1"]) + LEGEND)
    place = (0, 2, 3, 1, 4, 6, 7, 5)  # number of the catalogue for each number of nvidia-smi
    wanted = {(x.src, x.dst): (x.lanes, x.bandwidth) for x in topology("dgx1").links}
    found = {(place[x.src], place[x.dst]): (x.lanes, x.bandwidth) for x in made.links}
    assert sorted(Counter(cables(made).values()).items()) == [(1, 8), (2, 8)]
    assert found == wanted
    assert any("v100" in note for note in made.notes)
    assert made.symmetries == verified(made)


@pytest.mark.parametrize(
    ("gpus", "cell", "port", "generation"),
    [
        (16, "NV6", 150, "v100"),
        (8, "NV12", 300, "a100"),
        (8, "NV18", 450, "h100"),
        (8, "NV8", 200, "a800"),
    ],
)
def test_equal_counts_everywhere_are_an_nvswitch(
    tmp_path: Path, gpus: int, cell: str, port: int, generation: str
) -> None:
    made = read(tmp_path, matrix(uniform(gpus, cell), gpus, []) + LEGEND)
    assert [n.kind for n in made.nodes[gpus:]] == [NodeKind.SWITCH]
    assert {float(x.bandwidth) for x in made.links} == {port}
    assert len(made.links) == 2 * gpus
    assert any(f"{generation} is assumed" in note for note in made.notes)


@pytest.mark.parametrize(("gpus", "cell"), [(4, "NV4"), (4, "NV1"), (2, "NV12"), (4, "NV6")])
def test_equal_counts_that_fit_one_gpu_are_cables(tmp_path: Path, gpus: int, cell: str) -> None:
    made = read(tmp_path, matrix(uniform(gpus, cell), gpus, []))
    assert len(made.nodes) == gpus
    assert set(cables(made).values()) == {int(cell[2:])}


def test_the_generation_decides_where_counts_do_not(tmp_path: Path) -> None:
    text = matrix(uniform(4, "NV6"), 4, [])
    on_switch = read(tmp_path, text, ":gpu=v100")
    assert {float(x.bandwidth) for x in on_switch.links} == {150.0}
    assert len(on_switch.nodes) == 5
    direct = read(tmp_path, text, ":gpu=h100,bw=20GB/s")
    assert {float(x.bandwidth) for x in direct.links} == {120.0}
    with pytest.raises(UserError) as caught:
        read(tmp_path, text, ":gpu=h200x")
    assert "'h200'" in caught.value.render()


@pytest.mark.parametrize(
    ("cell", "beside", "chosen", "others"),
    [
        ("NV18", "", "h100", "h200 h20 b200 b300"),
        ("NV12", "", "a100", ""),
        ("NV18", "root@dgx-h200-3:~# nvidia-smi topo -m", "h200", ""),
        ("NV18", "[ops@b200n7 ~]$ uname", "h100", "h200 h20 b200 b300"),  # another word
        ("NV18", "(base) me@hgxb200:/$ nvidia-smi topo -m", "b200", ""),
        ("NV18", "|  0MiB / 143771MiB |      0%      Default |", "h200", "h20"),
        ("NV18", "|  0MiB / 183359MiB |      0%      Default |", "b200", ""),
        ("NV18", "| NVIDIA-SMI 535.1   Driver Version: 535.129.03 |", "h100", "h200 h20"),
        ("NV18", "CA 'mlx5_0'\n\t\tRate: 800", "b300", ""),
        ("NV18", "root@a100-3:~# nvidia-smi topo -m", "h100", "h200 h20 b200 b300"),  # not NV18's
    ],
)
def test_generations_that_counts_leave_open(
    tmp_path: Path, cell: str, beside: str, chosen: str, others: str
) -> None:
    made = read(tmp_path, beside + "\n" + matrix(uniform(8, cell), 8, []))
    (note,) = (note for note in made.notes if "is assumed" in note)
    assert f"{chosen} is assumed" in note
    listed = ", ".join(f"gpu={name}" for name in others.split())
    assert note.endswith(f"; {listed} would fit too)" if others else "says otherwise)")


@pytest.mark.parametrize(
    "text",
    [
        "CA 'mlx5_{}'\n\t\tRate: 200",
        "Infiniband device 'mlx5_{}' port 1 status:\n\trate:\t200 Gb/sec (4X HDR)",
    ],
)
def test_nics_have_the_rate_that_the_text_has(tmp_path: Path, text: str) -> None:
    told = "\n".join(text.format(i) for i in range(8))
    made = read(tmp_path, f"{hgx()}\n{told}\n", ":nodes=2,fabric=rails")
    ports = {x.bandwidth for x in made.links if made.nodes[x.dst].host is None}
    assert ports == {25}
    assert any("25GB/s: the least rate of a NIC in the text" in note for note in made.notes)


def test_each_nic_serves_its_nearest_gpu(tmp_path: Path) -> None:
    made = read(tmp_path, hgx(), ":nodes=4,fabric=rails")
    assert {n.kind for n in made.nodes} == {NodeKind.GPU, NodeKind.SWITCH}
    wanted = topology("dgx-h100:nodes=4")
    rows = [sorted((x.src, x.dst, x.bandwidth, x.latency) for x in t.links) for t in (made, wanted)]
    assert rows[0] == rows[1]
    assert any("NIC bandwidth assumed 50GB/s" in note for note in made.notes)


def test_nics_of_a_single_box_are_said_to_be_left_out(tmp_path: Path) -> None:
    made = read(tmp_path, hgx())
    assert {n.kind for n in made.nodes} == {NodeKind.GPU, NodeKind.SWITCH}
    assert any("NICs of a single host are left out" in note for note in made.notes)


def test_gpus_that_share_nics_share_them_evenly(tmp_path: Path) -> None:
    """DGX A100: two GPUs and two NICs on each PCIe switch, and a storage NIC far from all."""
    rows = []
    for i in range(17):
        cells = []
        for j in range(17):
            if i == j:
                cells.append("X")
            elif i < 8 and j < 8:
                cells.append("NV12")
            elif 16 in (i, j):
                cells.append("SYS")
            else:
                cells.append("PXB" if i % 8 // 2 == j % 8 // 2 else "SYS")
        rows.append(" ".join(cells))
    nics = [f"mlx5_{i}" for i in range(9)]
    made = read(tmp_path, matrix(rows, 8, nics), ":nodes=2,fabric=rails")
    assert len(made.links) == len(topology("dgx-a100:nodes=2").links)
    assert any("mlx5_8" in note for note in made.notes)


def test_one_nic_for_all(tmp_path: Path) -> None:
    rows = [*(f"{row} SYS" for row in uniform(4, "NV12")), "SYS SYS SYS SYS X"]
    made = read(tmp_path, matrix(rows, 4, ["mlx5_0"]), ":nodes=2")
    assert [n.name for n in plain_machine(made).machine.nodes if n.kind is NodeKind.NIC] == [
        "nic0.0",
        "nic1.0",
    ]
    assert (hop_distances(made) >= 0).all()


def test_numbered_nics_with_their_legend(tmp_path: Path) -> None:
    legend = "\nNIC Legend:\n\n" + "".join(f"  NIC{i}: mlx5_{i}\n" for i in range(8))
    named = hgx("NIC{}").replace("NUMA Affinity", "NUMA Affinity\tGPU NUMA ID", 1)
    made = read(tmp_path, named + LEGEND + legend, ":nodes=2")
    assert same_machine(made, read(tmp_path, hgx(), ":nodes=2"))


@pytest.mark.parametrize("name", ["spaces", "ansi", "lost escape", "double tab", "crlf", "prompt"])
def test_damaged_copies_mean_the_same(tmp_path: Path, name: str) -> None:
    text = matrix(DGX1, 8, ["mlx5_0", "mlx5_1"])
    head, _, body = text.partition("\n")
    damaged = {
        "spaces": re.sub(r"\t", "    ", text),
        "ansi": f"\t\x1b[4m{head.strip()}\x1b[0m\n{body}",
        "lost escape": f"\t[4m{head.strip()}[0m\n{body}",
        "double tab": text.replace("59\t\t", "59\t\t\t"),
        "crlf": text.replace("\n", "\r\n"),
        "prompt": f"$ nvidia-smi topo -m\n{text}",
    }[name]
    assert same_machine(read(tmp_path, damaged + LEGEND), read(tmp_path, text))


def test_a_terminal_of_any_width_may_break_the_lines() -> None:
    text = matrix(DGX1, 8, ["mlx5_0", "mlx5_1"]).expandtabs(8)
    whole = read_matrix(text, "whole")
    for width in range(12, 130):
        broken = "\n".join(wrapped(line, width) for line in text.splitlines())
        found = read_matrix(broken, f"width {width}")
        assert (found.names, found.cells) == (whole.names, whole.cells)


def wrapped(line: str, width: int) -> str:
    """A line as a narrow terminal breaks it: anywhere, also inside a cell."""
    return "\n".join(line[i : i + width] for i in range(0, len(line), width))


def test_without_nvlink_the_classes_give_the_pcie_tree(tmp_path: Path) -> None:
    rows = [
        "X PIX PXB PXB SYS SYS",
        "PIX X PXB PXB SYS SYS",
        "PXB PXB X PIX SYS SYS",
        "PXB PXB PIX X SYS SYS",
        "SYS SYS SYS SYS X NODE",
        "SYS SYS SYS SYS NODE X",
    ]
    made = read(tmp_path, matrix(rows, 6, []))
    assert Counter(n.kind for n in made.nodes) == {
        NodeKind.GPU: 6,
        NodeKind.SWITCH: 3,
        NodeKind.HOST: 2,
    }
    names = {i: n.name for i, n in enumerate(made.nodes)}
    above = {x.src: names[x.dst] for x in made.links if x.src < 6}
    assert above[0] == above[1] != above[2] == above[3]
    assert above[4] == above[5] == "cpu0.1"
    assert (hop_distances(made) == 1).sum() == 30
    assert any("pcie_bw=" in note for note in made.notes)


def test_two_islands_of_nvlink_are_joined_by_pcie(tmp_path: Path) -> None:
    rows = ["X NV4 SYS SYS", "NV4 X SYS SYS", "SYS SYS X NV4", "SYS SYS NV4 X"]
    made = read(tmp_path, matrix(rows, 4, []))
    assert cables(made) == {(0, 1): 4, (2, 3): 4}
    hosts = [i for i, n in enumerate(made.nodes) if n.kind is NodeKind.HOST]
    assert len(hosts) == 2
    assert (hop_distances(made) >= 0).all()
    assert made.timing.family == "rtx"  # no V100 has four links to one other GPU
    (note,) = (note for note in made.notes if "rtx is assumed" in note)
    assert note.endswith("gpu=a30, gpu=a40 would fit too)")


def test_boxes_of_pcie_machines_are_joined(tmp_path: Path) -> None:
    rows = ["X PHB PHB", "PHB X PIX", "PHB PIX X"]
    made = read(tmp_path, matrix(rows, 2, ["mlx5_0"], numa=1), ":nodes=3,nic_bw=12.5GB/s")
    assert made.ranks == 6
    assert (hop_distances(made) >= 0).all()


def test_one_gpu_is_a_machine(tmp_path: Path) -> None:
    assert read(tmp_path, "\tGPU0\tCPU Affinity\nGPU0\t X \t0-7\n").ranks == 1


@pytest.mark.parametrize("rows", [0, 3])
def test_a_copy_that_ends_before_or_within_the_rows_of_nics(tmp_path: Path, rows: int) -> None:
    """The columns of the GPUs' rows say the same."""
    lines = hgx().splitlines()[: 9 + rows]
    whole, cut = (
        read(tmp_path, text, ":nodes=2,gpu=h100")
        for text in (hgx(), "\n".join([*lines, "mlx5_3\tNODE\tNO"[: 20 * rows]]) + LEGEND)
    )
    assert same_machine(whole, cut)
    assert any(f"the rows of its last NICs ({8 - rows})" in note for note in cut.notes)
    assert not any("the rows of its last" in note for note in whole.notes)


GOOD = matrix(uniform(4, "NV12"), 4, [])


def test_standard_input_and_odd_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import io

    monkeypatch.setattr("sys.stdin", io.StringIO(GOOD))
    assert topology("-").ranks == 4
    with pytest.raises(BadFile, match="directory"):
        topology(str(tmp_path))
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(BadFile, match="text file"):
        topology(str(tmp_path / "bytes"))


# --- generations, and what stands beside the matrix -----------------------------------------------


def listed(gpus: int, name: str) -> str:
    return "".join(f"GPU {g}: {name} (UUID: GPU-{g}c)\n" for g in range(gpus))


def status(gpus: int, name: str, links: int, speed: str, dead: dict[int, int] | None = None) -> str:
    """The form of nvidia-smi nvlink -s; ``dead``: the first links of a GPU that are inactive."""
    lines = []
    for g in range(gpus):
        lines.append(f"GPU {g}: {name} (UUID: GPU-{g}c)")
        gone = (dead or {}).get(g, 0)
        lines += [f"\t Link {k}: {'<inactive>' if k < gone else speed}" for k in range(links)]
    return "\n".join(lines) + "\n"


def ports(made: Topology) -> list[float]:
    return [float(x.bandwidth) for x in made.links if x.src < made.ranks <= x.dst]


def slots(gpus: int, nics: int) -> str:
    """Two sockets of cards, and NICs on the second."""
    rows = []
    for a in range(gpus + nics):
        cells = []
        for b in range(gpus + nics):
            side = [d >= gpus // 2 for d in (a, b)]
            cells.append("X" if a == b else "NODE" if side[0] == side[1] else "SYS")
        rows.append(" ".join(cells))
    return matrix(rows, gpus, [f"mlx5_{i}" for i in range(nics)])


@pytest.mark.parametrize(
    ("name", "pcie", "nic", "family"),
    [
        ("NVIDIA L40S", 24, 25, "l40s"),
        ("NVIDIA L4", 24, 25, "l4"),
        ("Tesla T4", 12, 12.5, "t4"),
        ("NVIDIA A10G", 24, 12.5, "a10"),
        ("NVIDIA A30", 24, 25, "a30"),
        ("NVIDIA A40", 24, 25, "a40"),
        ("NVIDIA A100-PCIE-40GB", 24, 25, "pcie"),
        ("NVIDIA A100 80GB PCIe", 24, 25, "pcie"),
        ("NVIDIA H100 PCIe", 48, 50, "pcie"),
        ("NVIDIA H100 NVL", 48, 50, "h100"),
    ],
)
def test_cards_in_slots_by_their_names(
    tmp_path: Path, name: str, pcie: float, nic: float, family: str
) -> None:
    made = read(tmp_path, listed(4, name) + slots(4, 1), ":nodes=2")
    assert {float(x.bandwidth) for x in made.links if x.src < made.ranks} == {pcie}
    assert {float(x.bandwidth) for x in made.links if x.medium is Medium.NETWORK} == {nic}
    assert made.timing.family == family
    assert not any("generation" in note and "assumed" in note for note in made.notes)
    assert any("data sheet" in note for note in made.notes)


@pytest.mark.parametrize(
    ("name", "cell", "port", "family"),
    [
        ("NVIDIA A100-SXM4-80GB", "NV12", 300, "a100"),
        ("NVIDIA H100 80GB HBM3", "NV18", 450, "h100"),
        ("NVIDIA H200", "NV18", 450, "h200"),
        ("NVIDIA B200", "NV18", 900, "b200"),
        ("NVIDIA GB200", "NV18", 900, "gb200"),
        ("NVIDIA H800", "NV8", 200, "h800"),
    ],
)
def test_gpus_on_an_nvswitch_by_their_names(
    tmp_path: Path, name: str, cell: str, port: float, family: str
) -> None:
    made = read(tmp_path, matrix(uniform(4, cell), 4, []) + LEGEND + "\n" + listed(4, name))
    assert set(ports(made)) == {port}
    assert made.timing.family == family


def test_bridged_cards_are_pairs(tmp_path: Path) -> None:
    pairs = ["X NV12 SYS SYS", "NV12 X SYS SYS", "SYS SYS X NV12", "SYS SYS NV12 X"]
    made = read(tmp_path, listed(4, "NVIDIA H100 NVL") + matrix(pairs, 4, []))
    direct = [x for x in made.links if x.medium is Medium.NVLINK]
    assert {(x.lanes, float(x.bandwidth)) for x in direct} == {(12, 300.0)}
    bridged = read(tmp_path, listed(2, "NVIDIA A40") + matrix(uniform(2, "NV4"), 2, []))
    assert {float(x.bandwidth) for x in bridged.links} == {56.25}


def test_plain_nvidia_smi_beside_the_matrix_names_bus_ids(tmp_path: Path) -> None:
    table = "".join(
        f"|   {g}  NVIDIA H100 80GB HBM3          On  |   00000000:{g + 25:02X}:00.0 Off |   0 |\n"
        for g in range(8)
    )
    made = read(tmp_path, table + hgx(), ":nodes=2")
    assert names_of(made).rank("host1.0000:1b:00.0") == 10
    assert made.timing.family == "h100"


def test_a_gpu_with_dead_nvlinks_has_a_narrower_port(tmp_path: Path) -> None:
    rows = [
        " ".join("X" if a == b else "NV16" if 3 in (a, b) else "NV18" for b in range(8))
        for a in range(8)
    ]
    made = read(tmp_path, matrix(rows, 8, []))
    assert ports(made) == [450.0] * 3 + [400.0] + [450.0] * 4
    assert any(
        "fewer NVLinks to the NVSwitch than the 18 of the others: GPU3 16" in n for n in made.notes
    )
    assert made.symmetries == verified(made)


def test_the_status_of_nvlinks_alone_is_a_machine(tmp_path: Path) -> None:
    name = "NVIDIA H100 80GB HBM3"
    made = read(tmp_path, status(8, name, 18, "26.562 GB/s", {3: 2}), ":nodes=2")
    assert ports(made)[:8] == [450.0] * 3 + [400.0] + [450.0] * 4
    assert any("inactive NVLinks are left out: GPU3 2" in note for note in made.notes)
    assert any("no NICs: 8 NICs of 50GB/s assumed" in note for note in made.notes)
    four = read(tmp_path, status(4, "NVIDIA A100-SXM4-40GB", 12, "25 GB/s"))
    assert set(cables(four).values()) == {4}
    two = read(tmp_path, status(2, "NVIDIA A30", 4, "25 GB/s"))
    assert {float(x.bandwidth) for x in two.links} == {100.0}
    odd = read(tmp_path, status(2, "NVIDIA Z9", 2, "12.5 GB/s"))
    assert {float(x.bandwidth) for x in odd.links} == {25.0}
    with pytest.raises(UserError) as caught:
        read(tmp_path, status(8, "Tesla V100-SXM2-32GB", 6, "25.781 GB/s"))
    assert "nvidia-smi topo -m" in caught.value.render()
    with pytest.raises(UserError, match="GPU 1 has no active NVLink"):
        read(tmp_path, status(2, "NVIDIA A30", 4, "25 GB/s", {1: 4}))


def test_hosts_without_nics_in_the_text_have_assumed_ones(tmp_path: Path) -> None:
    cards = read(tmp_path, slots(4, 0), ":nodes=2,nics=2")
    assert [n.name for n in plain_machine(cards).machine.nodes if n.kind is NodeKind.NIC] == [
        "nic0.0",
        "nic0.1",
        "nic1.0",
        "nic1.1",
    ]
    assert (hop_distances(cards) >= 0).all()
    switched = read(tmp_path, matrix(uniform(8, "NV18"), 8, []), ":nodes=2,fabric=rails")
    wanted = topology("dgx-h100:nodes=2")
    assert len(switched.links) == len(wanted.links)


def test_every_generation_has_its_source() -> None:
    page = (Path(__file__).parents[3] / "docs" / "topologies.md").read_text()
    for name, one in GENERATIONS.items():
        row = next(
            line for line in page.splitlines() if line.startswith("| `") and f"`{name}`" in line
        )
        assert row.endswith(f"| {float(one.pcie):g} | {float(one.nic):g} | {one.source} |")
        assert one.source, name
        assert one.timed_as in families(), name
        assert bool(one.links) == bool(one.lane), name


@pytest.mark.parametrize("damage", ["one line", "markdown", "one line, legend", "quoted"])
def test_texts_that_lost_their_lines_or_are_tables(tmp_path: Path, damage: str) -> None:
    text = matrix(DGX1, 8, ["mlx5_0", "mlx5_1"])
    flat = "Seen today: GPU Topology: " + " ".join(text.split())
    rows = ["| " + " | ".join(line.split()) + " |" for line in text.splitlines()]
    damaged = {
        "one line": flat,
        "one line, legend": f"{flat} {' '.join(LEGEND.split())}",
        "markdown": "\n".join(rows),
        "quoted": "".join(f"> {line}\n" for line in text.splitlines()),
    }[damage]
    assert same_machine(read(tmp_path, damaged), read(tmp_path, text))


def test_gpus_of_one_name_may_be_listed_together(tmp_path: Path) -> None:
    head = "GPU 0,1,2,3: NVIDIA H200\nGPU 0,1,2,3 Compute Capability: 9.0\n"
    assert read(tmp_path, head + matrix(uniform(4, "NV18"), 4, [])).timing.family == "h200"


def test_names_of_a_quoted_legend_are_kept(tmp_path: Path) -> None:
    legend = ["", "NIC Legend:", "", "  NIC0: mlx5_7"]
    quoted = "".join(f"> {line}\n" for line in [*hgx("NIC{}").splitlines(), *legend])
    assert names_of(read(tmp_path, quoted, ":nodes=2")).nic("host1.mlx5_7").name == "host1.mlx5_7"
