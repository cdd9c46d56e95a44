"""NCCL and RCCL topology XML: servers of known cables, hostile files."""

from collections import Counter
from fractions import Fraction
from pathlib import Path

import pytest
from nccl_files import SERVERS, Server, xml
from shared import samples

from weft.dsl.base.errors import BadFile, BadTopology, UserError
from weft.dsl.catalogue import topology
from weft.dsl.machines.confined import plain_machine
from weft.dsl.machines.names import names_of
from weft.dsl.nouns.hops import hop_distances
from weft.dsl.nouns.parts import Medium
from weft.dsl.nouns.topology import NodeKind, Topology
from weft.dsl.symmetry.symmetry import generate, is_semiregular, verified

LANE = {"906": 24, "908": 24, "910": 36, "gfx942": 48}
"""GB/s of one xGMI link."""

THEIRS = {file.stem: file for file in samples("nccl-topo", "*.xml")}
LIKE = {
    "topo_4p1h": "ring of four",
    "topo_4p3l_2h": "two quads",
    "topo_4p4h": "four quads",
    "topo_8p1h": "dies of four cards",
    "topo_8p6l_4nic": "cocktail party",
    "topo_8p_90a": "three peers each",
    "topo_8p_940": "everyone to everyone",
    "topo_8p_pcie": "no cables",
    "topo_8p_rome_n4": "two rings",
    "topo_collnet_n1": "sums in the network",
}
"""RCCL's models, and which of our servers has the same cables and NICs."""


@pytest.fixture(params=[*SERVERS, *(pytest.param(n, marks=pytest.mark.shared) for n in LIKE)])
def sample(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, Server]:
    """A file, ours or one of RCCL's models, and the server that it describes."""
    if request.param in LIKE:
        return THEIRS[request.param], SERVERS[LIKE[request.param]]
    return written(tmp_path, request.param), SERVERS[request.param]


def written(tmp_path: Path, name: str) -> Path:
    file = tmp_path / f"{name.replace(' ', '_')}.xml"
    file.write_text(xml(SERVERS[name]))
    return file


def test_links_have_media_and_the_chip_tells_the_family(tmp_path: Path) -> None:
    made = topology(f"{written(tmp_path, 'everyone to everyone')}:nodes=2")
    assert made.timing.family == "mi300x"
    assert {one.medium for one in made.links} == {Medium.XGMI, Medium.PCIE, Medium.NETWORK}
    for one in made.links:
        assert (one.medium is Medium.XGMI) == (max(one.src, one.dst) < made.ranks)
    assert topology(str(written(tmp_path, "three peers each"))).timing.family == "mi250"


def gpu_cables(made: Topology) -> Counter[int]:
    return Counter(x.lanes for x in made.links if x.src < x.dst < made.ranks)


@pytest.mark.shared
def test_every_model_is_expected_here() -> None:
    assert set(THEIRS) == set(LIKE)


def test_a_sample_has_the_cables_of_its_machine(sample: tuple[Path, Server]) -> None:
    file, server = sample
    made = topology(str(file))
    width = LANE[server.gcn]
    assert gpu_cables(made) == {lanes: len(pairs) for lanes, pairs in server.cables.items()}
    assert all(x.bandwidth == width * x.lanes for x in made.links if max(x.src, x.dst) < made.ranks)
    assert made.ranks == server.ranks
    assert (hop_distances(made) >= 0).all()
    assert verified(made) == made.symmetries
    assert made.name == file.name


@pytest.mark.parametrize("name", SERVERS)
def test_cables_join_the_gpus_that_the_file_names(tmp_path: Path, name: str) -> None:
    made = topology(str(written(tmp_path, name)))
    found = {(x.src, x.dst): x.lanes for x in made.links if x.src < x.dst < made.ranks}
    wanted = SERVERS[name].cables.items()
    assert found == {(min(p), max(p)): lanes for lanes, pairs in wanted for p in pairs}


def test_boxes_are_joined_by_their_data_nics(sample: tuple[Path, Server]) -> None:
    """A box with only a management NIC stays alone, unless that NIC is asked for."""
    file, server = sample
    if max(card.speed for card in server.cards) < 10_000:
        with pytest.raises(BadTopology, match="no NIC"):
            topology(f"{file}:nodes=2")
        slow = topology(f"{file}:nodes=2,min_nic=0.1GB/s")
        assert (hop_distances(slow) >= 0).all()
        return
    made = topology(f"{file}:nodes=2")
    assert made.hosts == 2
    assert (hop_distances(made) >= 0).all()
    group = generate(verified(made))
    assert group is not None
    assert is_semiregular(group, made.ranks)
    made = plain_machine(made).machine
    fabric = [n.name for n in made.nodes].index("fabric")
    ports = [float(x.bandwidth) for x in made.links if x.dst == fabric]
    assert sorted(ports) == sorted(2 * [card.speed / 8000 for card in server.cards])


@pytest.mark.parametrize(
    "name", ["cocktail party", pytest.param("topo_8p6l_4nic", marks=pytest.mark.shared)]
)
def test_four_boxes_have_the_graph_of_the_grade_case_and_its_bound(
    tmp_path: Path, name: str
) -> None:
    """G23: 24 shards enter a box over four NICs that PCIe limits to 24 GB/s: 128 GB/s."""
    file = THEIRS[name] if name in LIKE else written(tmp_path, name)
    made = plain_machine(topology(f"{file}:nodes=4")).machine
    kinds = Counter(
        (made.nodes[x.src].kind, made.nodes[x.dst].kind, float(x.bandwidth), float(x.latency))
        for x in made.links
    )
    g, c, n, s = NodeKind.GPU, NodeKind.HOST, NodeKind.NIC, NodeKind.SWITCH
    assert kinds == {
        (g, g, 24.0, 0.7): 192,
        (c, c, 16.0, 0.3): 8,
        (g, c, 24.0, 0.3): 32,
        (c, g, 24.0, 0.3): 32,
        (c, n, 24.0, 0.3): 16,
        (n, c, 24.0, 0.3): 16,
        (n, s, 25.0, 1.25): 16,
        (s, n, 25.0, 1.25): 16,
    }
    into_box = [
        x
        for x in made.links
        if made.nodes[x.src].kind is NodeKind.NIC and made.nodes[x.dst].host == 0
    ]
    width = sum((x.bandwidth for x in into_box), Fraction(0))
    assert width * made.ranks / (made.ranks - 8) == 128
    # Each GPU's CPU is the one with its NICs: ranks 0-3 on one NUMA node, 4-7 on the other.
    cpus = {x.dst for x in made.links if x.src in range(4) and made.nodes[x.dst].kind is c}
    assert len(cpus) == 1


SYSTEM = (
    '<system version="1"><cpu numaid="0" arch="x86_64" vendor="AuthenticAMD" {0}>{1}</cpu></system>'
)
GPU = (
    '<pci busid="0000:{bus}:00.0" class="0x030200" link_speed="16.0 GT/s PCIe" link_width="16">'
    '<gpu dev="{rank}" sm="{sm}" rank="{rank}" gdr="1">{links}</gpu></pci>'
)
NIC = (
    '<pci busid="0000:{bus}:00.{f}" class="0x020700" link_speed="16.0 GT/s" link_width="16">'
    '<nic><net name="{name}" dev="0" speed="{speed}" port="1" guid="0x1" maxconn="4"/></nic></pci>'
)


def read(tmp_path: Path, text: str, options: str = "") -> Topology:
    file = tmp_path / "topo.xml"
    file.write_text(text)
    return topology(f"{file}{options}")


def switched(gpus: int, sm: int, counts: tuple[int, ...]) -> str:
    """GPUs with several lines to different NVSwitch chips, as dumps of DGX A100 and H100 have."""
    links = "".join(
        f'<nvlink target="0000:c{i}:00.0" count="{c}" tclass="0x068000"/>'
        for i, c in enumerate(counts)
    )
    return "".join(GPU.format(bus=f"0{r}", rank=r, sm=sm, links=links) for r in range(gpus))


@pytest.mark.parametrize(
    ("sm", "counts", "port"), [(80, (2,) * 6, 240), (90, (4, 5, 5, 4), Fraction("370.8"))]
)
def test_chips_of_an_nvswitch_are_one_switch(
    tmp_path: Path, sm: int, counts: tuple[int, ...], port: Fraction
) -> None:
    made = read(tmp_path, SYSTEM.format("", switched(8, sm, counts)))
    assert (made.ranks, len(made.nodes), len(made.links)) == (8, 9, 16)
    assert {x.bandwidth for x in made.links} == {port}
    assert {float(x.latency) for x in made.links} == {0.35}
    assert made.symmetries == verified(made) != ()


def test_ranks_order_the_gpus_and_gpus_without_rank_are_left_out(tmp_path: Path) -> None:
    body = "".join(GPU.format(bus=f"0{b}", rank=3 - b, sm=80, links="") for b in range(4))
    body += '<pci busid="0000:09:00.0" class="0x030200"><gpu dev="4" sm="80"/></pci>'
    made = read(tmp_path, SYSTEM.format("", body))
    assert made.ranks == 4
    assert any("0000:09" in note for note in made.notes)
    # All hang on one CPU over PCIe Gen4 x16.
    assert {float(x.bandwidth) for x in made.links} == {24.0}


def test_a_cable_listed_at_one_end_is_both_ways_and_one_that_differs_is_an_error(
    tmp_path: Path,
) -> None:
    def pair(first: str, second: str) -> str:
        link = '<nvlink target="0000:0{}:00.0" count="{}" tclass="0x030200"/>'
        left = GPU.format(bus="01", rank=0, sm=70, links=link.format(2, first) if first else "")
        right = GPU.format(bus="02", rank=1, sm=70, links=link.format(1, second) if second else "")
        return SYSTEM.format("", left + right)

    made = read(tmp_path, pair("2", ""))
    assert [(x.src, x.dst, float(x.bandwidth)) for x in made.links] == [(0, 1, 40), (1, 0, 40)]
    with pytest.raises(BadFile, match="lists 2 links"):
        read(tmp_path, pair("2", "1"))


def test_nics_are_filtered_and_wrong_speeds_read(tmp_path: Path) -> None:
    body = switched(2, 80, (12,))
    body += NIC.format(bus="11", f=0, name="ib0", speed=200_000_000)
    body += NIC.format(bus="11", f=1, name="ib1", speed=200_000)
    body += NIC.format(bus="12", f=0, name="eth0", speed=10_000)
    made = read(tmp_path, SYSTEM.format("", body), ":nodes=2,fabric=rails")
    made = plain_machine(made).machine
    nics = [n for n in made.nodes if n.kind is NodeKind.NIC]
    # Two functions of one device are one NIC with two ports.
    assert len(nics) == 2
    rails = {i for i, n in enumerate(made.nodes) if n.name.startswith("rail")}
    assert [float(x.bandwidth) for x in made.links if x.dst in rails] == [25.0] * 4
    assert any("is impossible" in note for note in made.notes)
    assert any("eth0" in note for note in made.notes)


def test_pcie_chains_are_one_hop_and_trees_keep_their_branches(tmp_path: Path) -> None:
    gpus = [GPU.format(bus=f"0{r}", rank=r, sm=80, links="") for r in range(3)]
    bridge = (
        '<pci busid="0000:{}:00.0" class="0x060400" link_speed="8 GT/s" link_width="16">{}</pci>'
    )
    chain = bridge.format("a0", bridge.format("a1", gpus[0]))
    tree = bridge.format("b0", gpus[1] + gpus[2])
    made = read(tmp_path, SYSTEM.format("", chain + tree))
    assert [n.name for n in made.nodes[3:]] == ["cpu0.0", "pci0.2"]
    widths = {(x.src, made.nodes[x.dst].name): float(x.bandwidth) for x in made.links if x.src < 3}
    assert widths == {(0, "cpu0.0"): 12.0, (1, "pci0.2"): 24.0, (2, "pci0.2"): 24.0}


def test_absurd_counts_and_widths_are_errors(tmp_path: Path) -> None:
    link = '<nvlink target="0000:02:00.0" count="{}" tclass="0x030200"/>'
    other = GPU.format(bus="02", rank=1, sm=70, links="")
    for count in ("-2", "99999999999999999999", "2.5", "1e9"):
        one = GPU.format(bus="01", rank=0, sm=70, links=link.format(count))
        with pytest.raises(UserError):
            read(tmp_path, SYSTEM.format("", one + other))


def trays(links: str, speed: int = 400_000) -> str:
    """Two hosts with two CPUs each, as NCCL writes those of one NVSwitch."""
    found = []
    for host in (0, 1):
        for cpu in (0, 1):
            found.append(f'<cpu host_hash="0x{host}a" numaid="{cpu}" arch="arm64">')
            for gpu in (2 * cpu, 2 * cpu + 1):
                found.append(
                    f'<pci busid="0000:{8 + gpu:02x}:00.0" class="0x030200" '
                    'link_speed="32.0 GT/s PCIe" link_width="16">'
                    f'<gpu dev="{gpu}" sm="100" rank="{4 * host + gpu}" gdr="1">{links}</gpu></pci>'
                )
            found.append(
                f'<pci busid="0000:0{cpu}:00.0" class="0x020700" link_speed="32.0 GT/s PCIe" '
                f'link_width="16"><nic><net name="mlx5_{cpu}" dev="{cpu}" speed="{speed}" '
                f'port="1" guid="0x{host}{cpu}" maxconn="100" gdr="1"/></nic></pci></cpu>'
            )
    return f'<system version="1">{"".join(found)}</system>'


SWITCHED = '<nvlink target="fffffff:ffff:ff" count="18" tclass="0x068000"/>'


def test_several_host_hashes_are_several_hosts_on_one_nvswitch(tmp_path: Path) -> None:
    file = tmp_path / "trays.xml"
    file.write_text(trays(SWITCHED))
    made = topology(str(file))
    assert made.hosts == 2
    assert made.host_of[:8] == (0, 0, 0, 0, 1, 1, 1, 1)
    assert [(n.name, n.host) for n in made.nodes[8:]] == [("nvswitch", None)]
    assert {x.medium for x in made.links} == {Medium.NVLINK}
    assert names_of(made).rank("host1.GPU3") == names_of(made).rank("host1.0b:00.0") == 7
    assert any("the file has 2 hosts" in note for note in made.notes)
    with pytest.raises(UserError, match="has 2 hosts"):
        topology(f"{file}:nodes=2")


def test_hosts_of_one_file_without_a_common_nvswitch_are_joined_by_their_nics(
    tmp_path: Path,
) -> None:
    file = tmp_path / "cards.xml"
    file.write_text(trays(""))
    made = plain_machine(topology(f"{file}:fabric=rails+spine")).machine
    ports = [x for x in made.links if x.medium is Medium.NETWORK and made.nodes[x.src].host == 1]
    assert [(made.nodes[x.src].name, made.nodes[x.dst].name) for x in ports] == [
        ("nic1.0", "rail0"),
        ("nic1.1", "rail1"),
    ]
    assert (hop_distances(made) >= 0).all()


def test_a_host_of_a_file_without_gpus_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "lost.xml"
    file.write_text(trays(SWITCHED).replace("</system>", '<cpu host_hash="0xff"/></system>'))
    with pytest.raises(BadFile, match="host_hash=0xff has no GPU"):
        topology(str(file))
