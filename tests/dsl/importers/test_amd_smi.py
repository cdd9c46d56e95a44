"""The texts of rocm-smi --showtopo and amd-smi topology, as people have them."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from weft.dsl.base.errors import UserError
from weft.dsl.catalogue import topology
from weft.dsl.machines.confined import plain_machine
from weft.dsl.machines.names import names_of
from weft.dsl.nouns.hops import hop_distances
from weft.dsl.nouns.parts import Medium
from weft.dsl.nouns.topology import NodeKind, Topology

Cell = Callable[[int, int], object]


def hive(size: int) -> Cell:
    return lambda a, b: "XGMI" if a // size == b // size else "PCIE"


def rocm(n: int, kind: Cell, weight: Cell, hops: Cell, numa: Callable[[int], int] | None) -> str:
    """The form of rocm-smi: titles between equal signs, GPUs by number."""
    names = [f"GPU{g}" for g in range(n)]
    lines = ["", "===== ROCm System Management Interface ====="]
    for title, cell in (("Weight", weight), ("Hops", hops), ("Link Type", kind)):
        lines += [f"===== {title} between two GPUs =====", "       " + "         ".join(names)]
        lines += [
            f"{name:<7}" + "".join(f"{0 if a == b else cell(a, b):<13}" for b in range(n))
            for a, name in enumerate(names)
        ]
        lines.append("")
    lines.append("===== Numa Nodes =====")
    for g in range(n) if numa else ():
        lines.append(f"GPU[{g}]\t\t: (Topology) Numa Node: {numa(g) if numa else 0}")
        lines.append(f"GPU[{g}]\t\t: (Topology) Numa Affinity: 0")
    return "\n".join([*lines, "===== End of ROCm SMI Log =====", ""])


def amd(n: int, tables: dict[str, Cell], own: str = "N/A", bus: str = "0000:{:02x}:00.0") -> str:
    """The form of amd-smi: titles with a colon, GPUs by bus id."""
    names = [bus.format(5 + 22 * g) for g in range(n)]
    lines = []
    for title, cell in tables.items():
        lines += [f"{title} TABLE:", " " * 13 + " ".join(names)]
        lines += [
            " ".join([name, *(f"{own if a == b else cell(a, b)!s:<12}" for b in range(n))])
            for a, name in enumerate(names)
        ]
    return "\n".join([*lines, "", "Legend:", "  SELF = Current GPU", "  N/A = Not supported", ""])


MI300X = rocm(8, lambda a, b: "XGMI", lambda a, b: 15, lambda a, b: 1, lambda g: g // 4)
QUADS = rocm(
    8,
    hive(4),
    lambda a, b: 15 if a // 4 == b // 4 else 72,
    lambda a, b: 1 if a // 4 == b // 4 else 3,
    lambda g: g // 4,
)
SLOTS = rocm(
    4,
    lambda a, b: "PCIE",
    lambda a, b: 40 if a // 2 == b // 2 else 72,
    lambda a, b: 2 if a // 2 == b // 2 else 3,
    None,
)
AMD_TABLES: dict[str, Cell] = {
    "ACCESS": lambda a, b: "ENABLED",
    "WEIGHT": lambda a, b: 15,
    "HOPS": lambda a, b: 1,
    "LINK TYPE": lambda a, b: "XGMI",
    "NUMA BW": lambda a, b: "50000-50000",
}


def read(tmp_path: Path, text: str, options: str = "") -> Topology:
    file = tmp_path / "amd.txt"
    file.write_text(text)
    return topology(f"{file}{options}")


def rows(made: Topology) -> list[tuple[int, int, float]]:
    return sorted((x.src, x.dst, float(x.bandwidth)) for x in made.links)


@pytest.mark.parametrize("text", [MI300X, amd(8, AMD_TABLES)], ids=["rocm-smi", "amd-smi"])
def test_eight_joined_by_xgmi_are_the_machine_of_the_catalogue(tmp_path: Path, text: str) -> None:
    made = read(tmp_path, text)
    assert rows(made) == rows(topology("mi300x"))
    assert made.timing.family == "mi300x"
    assert {one.medium for one in made.links} == {Medium.XGMI}
    assert any("mi300x is assumed" in note for note in made.notes)
    assert made.symmetries


def test_several_hosts_have_assumed_nics(tmp_path: Path) -> None:
    made = read(tmp_path, MI300X, ":nodes=2,fabric=rails")
    assert rows(made) == rows(topology("mi300x:nodes=2"))
    assert any("no NICs: 8 NICs of 50GB/s assumed" in note for note in made.notes)
    few = read(tmp_path, MI300X, ":nodes=2,nics=2,nic_bw=25GB/s")
    assert sum(node.kind is NodeKind.NIC for node in plain_machine(few).machine.nodes) == 4
    assert any("2 NICs of 25GB/s assumed" in note for note in few.notes)
    with pytest.raises(UserError, match="3 NICs do not spread evenly over 8 GPUs"):
        read(tmp_path, MI300X, ":nodes=2,nics=3")


def test_bus_ids_are_names(tmp_path: Path) -> None:
    names = names_of(read(tmp_path, amd(8, AMD_TABLES)))
    assert names.rank("0000:1B:00.0") == names.rank("1b:00.0") == names.rank("GPU1") == 1
    listed = "".join(f"GPU[{g}]\t\t: PCI Bus: 0000:{g + 12:02X}:00.0\n" for g in range(8))
    assert names_of(read(tmp_path, MI300X + listed)).rank("0000:0c:00.0") == 0


def test_islands_of_xgmi_are_joined_by_pcie(tmp_path: Path) -> None:
    made = read(tmp_path, QUADS, ":gpu=mi100")
    direct = [x for x in made.links if x.medium is Medium.XGMI]
    assert {(x.src // 4 == x.dst // 4, float(x.bandwidth)) for x in direct} == {(True, 46.0)}
    assert len(direct) == 24
    cpus = [n.name for n in made.nodes if n.kind is NodeKind.HOST]
    assert cpus == ["cpu0.0", "cpu0.1"]
    assert (hop_distances(made) >= 0).all()
    assert any("mi210 is assumed" in note for note in read(tmp_path, QUADS).notes)


def test_without_numa_nodes_hops_tell_the_sockets(tmp_path: Path) -> None:
    made = read(tmp_path, SLOTS, ":nodes=2")
    above = {x.src: made.nodes[x.dst].name for x in made.links if x.src < 4}
    assert above == {0: "cpu0.0", 1: "cpu0.0", 2: "cpu0.1", 3: "cpu0.1"}
    assert (hop_distances(made) >= 0).all()
    assert any("1 NIC of 25GB/s assumed" in note for note in made.notes)


def test_pairs_of_more_than_the_least_weight_have_no_cable(tmp_path: Path) -> None:
    ring = {frozenset((g, (g + 1) % 8)) for g in range(8)}
    text = rocm(
        8, lambda a, b: "XGMI", lambda a, b: 15 if {a, b} in ring else 30, lambda a, b: 1, None
    )
    made = read(tmp_path, text)
    assert {frozenset((x.src, x.dst)) for x in made.links} == ring
    assert any("8 of 28 pairs of type XGMI have the least weight, 15" in n for n in made.notes)
    assert any("how many links a pair has is not in the text" in n for n in made.notes)


def test_bandwidths_tell_the_links_of_a_pair(tmp_path: Path) -> None:
    def span(a: int, b: int) -> str:
        return "50000-200000" if a // 2 == b // 2 else "50000-100000" if a % 2 == b % 2 else "N/A"

    tables: dict[str, Cell] = {
        "WEIGHT": lambda a, b: 30 if span(a, b) == "N/A" else 15,
        "LINK TYPE": lambda a, b: "XGMI",
        "NUMA BW": span,
    }
    made = read(tmp_path, "GPU: 0 MARKET_NAME: AMD Instinct MI250X\n" + amd(4, tables))
    lanes = Counter((x.lanes, float(x.bandwidth)) for x in made.links)
    assert lanes == {(4, 200.0): 4, (2, 100.0): 4}  # 50000 MB/s is one link
    assert made.timing.family == "mi250"


@pytest.mark.parametrize(
    ("line", "bandwidth"),
    [
        ("GPU[0]\t\t: Card Series: AMD Instinct MI325X", 64.0),
        ("GPU[0]\t\t: GFX Version: gfx950", 76.8),
        ("GPU[0]\t\t: Card Series: AMD Instinct MI308X", 64.0),
    ],
)
def test_names_and_chips_tell_the_generation(tmp_path: Path, line: str, bandwidth: float) -> None:
    made = read(tmp_path, f"{line}\n{MI300X}")
    assert {float(x.bandwidth) for x in made.links} == {bandwidth}
    assert not any("is assumed," in note for note in made.notes)


def test_four_apus_have_two_links_for_each_pair(tmp_path: Path) -> None:
    text = rocm(4, lambda a, b: "XGMI", lambda a, b: 15, lambda a, b: 1, lambda g: g)
    made = read(tmp_path, text, ":gpu=mi300a")
    assert {(x.lanes, float(x.bandwidth)) for x in made.links} == {(2, 128.0)}


@pytest.mark.parametrize(
    ("span", "bus", "told"),
    [
        ("50000-100000", "0000:{:02x}:00.0", "from two links for each pair of four mi300a"),
        ("N/A", "{:04x}:01:00.0", "one for each of four GPUs, mi300a is assumed"),
    ],
)
def test_four_apus_without_a_name_are_told_by_links_or_buses(
    tmp_path: Path, span: str, bus: str, told: str
) -> None:
    made = read(tmp_path, amd(4, AMD_TABLES | {"NUMA BW": lambda a, b: span}, bus=bus))
    assert {(x.lanes, float(x.bandwidth)) for x in made.links} == {(2, 128.0)}
    assert made.timing.family == "mi300x"
    assert any(told in note for note in made.notes)


def test_what_else_has_such_links_is_named(tmp_path: Path) -> None:
    text = rocm(4, lambda a, b: "XGMI", lambda a, b: 15, lambda a, b: 1, lambda g: g)
    (note,) = (n for n in read(tmp_path, text).notes if "mi210 is assumed" in n)
    assert note.endswith("says otherwise; gpu=mi100, gpu=mi300a would fit too)")
    one_link = amd(4, AMD_TABLES)
    (note,) = (n for n in read(tmp_path, one_link).notes if "mi210 is assumed" in n)
    assert note.endswith("says otherwise; gpu=mi100 would fit too)")


def test_disabled_links_are_left_out(tmp_path: Path) -> None:
    tables = dict(AMD_TABLES) | {"ACCESS": lambda a, b: "DISABLED" if a + b == 1 else "ENABLED"}
    made = read(tmp_path, amd(8, tables))
    assert len(made.links) == 54
    assert any("left out: GPU0-GPU1" in note for note in made.notes)


@pytest.mark.parametrize("width", [40, 70, 100])
def test_colours_and_wrapped_lines(tmp_path: Path, width: int) -> None:
    def wrapped(line: str) -> str:
        words, lines = line.split(), [""]
        for word in words:
            if len(lines[-1]) + len(word) > width:
                lines.append("")
            lines[-1] += f" {word}"
        return line if "=" in line else "\n".join(lines)

    text = "\n".join(wrapped(line) for line in QUADS.splitlines())
    coloured = text.replace("XGMI", "\x1b[32mXGMI\x1b[0m").replace("\n", "\r\n")
    assert read(tmp_path, coloured).digest() == read(tmp_path, QUADS).digest()


def test_a_title_may_be_broken_within_its_equal_signs(tmp_path: Path) -> None:
    broken = QUADS.replace(" between two GPUs =====", " between two GPUs =====\n==========")
    assert read(tmp_path, broken).digest() == read(tmp_path, QUADS).digest()


def test_types_of_links_in_other_letters_and_of_other_kinds(tmp_path: Path) -> None:
    small = read(tmp_path, MI300X.replace("XGMI", "xgmi"))
    assert small.digest() == read(tmp_path, MI300X).digest()
    odd: dict[str, Cell] = {"LINK TYPE": lambda a, b: "UNKNOWN" if a + b == 1 else "XGMI"}
    made = read(tmp_path, amd(8, dict(AMD_TABLES) | odd))
    assert len(made.links) == 54
    assert any("have no cable: GPU0-GPU1 UNKNOWN" in note for note in made.notes)


def test_the_same_text_twice_is_one_host(tmp_path: Path) -> None:
    assert read(tmp_path, MI300X + MI300X).digest() == read(tmp_path, MI300X).digest()


def test_the_two_dies_of_a_package_have_four_links(tmp_path: Path) -> None:
    """MI250X: GPUs 2k and 2k+1 are one package; rocm-smi tells no numbers of links."""
    made = read(tmp_path, MI300X, ":gpu=mi250x")
    wide = {(x.src, x.dst) for x in made.links if float(x.bandwidth) == 200.0}
    assert wide == {(g, g ^ 1) for g in range(8)}
    assert {float(x.bandwidth) for x in made.links} == {50.0, 200.0}
    assert any("of the two dies of a package 4 assumed" in note for note in made.notes)
    far = rocm(
        4, lambda a, b: "XGMI", lambda a, b: 30 - 15 * (a % 2 == b % 2), lambda a, b: 1, None
    )
    assert {x.lanes for x in read(tmp_path, far, ":gpu=mi250x").links} == {1}
