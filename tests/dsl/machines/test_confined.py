"""Ways stay in their hosts, PCIe ports bound NICs, and two texts of one host are one machine."""

import json
from fractions import Fraction
from pathlib import Path

import pytest

from weft import bounds
from weft.dsl.base.errors import BadTopology
from weft.dsl.catalogue import topology
from weft.dsl.importers.generations import GENERATIONS
from weft.dsl.machines import confined as module
from weft.dsl.machines.confined import CONFINED_NOTE, LOOPBACK_NOTE, confined, plain_machine
from weft.dsl.machines.failures import degraded, find
from weft.dsl.nouns.hops import find_hops, hop_distances
from weft.dsl.nouns.parts import Medium, NodeKind
from weft.dsl.nouns.topology import Topology
from weft.dsl.symmetry.symmetry import verified

GEN4, GEN5 = GENERATIONS["a100"].pcie, GENERATIONS["h100"].pcie


def matrix(gpus: int, each: int, cell: str, name: str, near: str = "PIX") -> str:
    """The text of two sockets with so many NICs for each GPU; ``cell`` between GPUs."""
    devices = [(f"GPU{g}", g) for g in range(gpus)]
    devices += [(f"NIC{i}", i // each) for i in range(gpus * each)]
    lines = ["\t" + "\t".join(d for d, _ in devices) + "\tCPU Affinity\tNUMA Affinity"]
    for a, (device, at) in enumerate(devices):
        row = []
        for b, (_, other) in enumerate(devices):
            far = "NODE" if at * 2 // gpus == other * 2 // gpus else "SYS"
            beside = max(a, b) < gpus and cell.startswith("NV")
            row.append("X" if a == b else cell if beside else near if at == other else far)
        tail = f"\t0-31\t{at * 2 // gpus}" if a < gpus else ""
        lines.append(device + "\t" + "\t".join(row) + tail)
    lines += [f"GPU {g}: NVIDIA {name} (UUID: GPU-{g})" for g in range(gpus)]
    return "\n".join(lines) + "\n"


def xml(gpus: int, each: int, links: int, sm: int, gts: str, gbit: int) -> str:
    """NCCL's file of the same host: a PCIe switch for each GPU with its NICs."""
    sockets: list[list[str]] = [[], []]
    for g in range(gpus):
        wide = f'link_speed="{gts} GT/s PCIe" link_width="16"'
        link = f'<nvlink target="0000:07:00.0" count="{links}" tclass="0x068000"/>' * bool(links)
        nics = "".join(
            f'<pci busid="0000:{g + 16:x}:{i + 2:02x}.0" class="0x020000" {wide}><nic>'
            f'<net name="mlx5_{g * each + i}" dev="{g * each + i}" speed="{gbit * 1000}" '
            f'port="1" guid="0x{g * each + i + 1:x}" gdr="1"/></nic></pci>'
            for i in range(each)
        )
        sockets[g * 2 // gpus].append(
            f'<pci busid="0000:{g + 16:x}:00.0" class="0x060400" {wide}>'
            f'<pci busid="0000:{g + 16:x}:01.0" class="0x030200" {wide}>'
            f'<gpu dev="{g}" sm="{sm}" rank="{g}" gdr="1">{link}</gpu></pci>{nics}</pci>'
        )
    cpus = (
        f'<cpu host_hash="0x1" numaid="{i}" arch="x86_64" vendor="GenuineIntel" familyid="6" '
        f'modelid="143">{"".join(devices)}</cpu>'
        for i, devices in enumerate(sockets)
    )
    return f'<system version="1">{"".join(cpus)}</system>'


@pytest.fixture
def texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Files of several hosts in the working folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "h100.txt").write_text(matrix(8, 1, "NV18", "H100 80GB HBM3"))
    (tmp_path / "l4.txt").write_text(matrix(8, 1, "PCIe", "L4", near="PHB"))
    (tmp_path / "l40s.txt").write_text(matrix(4, 1, "PCIe", "L40S"))
    (tmp_path / "shared.txt").write_text(
        "\tGPU0\tGPU1\tNIC0\nGPU0\tX\tNV4\tPXB\nGPU1\tNV4\tX\tPXB\nNIC0\tPXB\tPXB\tX\n"
    )
    (tmp_path / "a100.xml").write_text(xml(4, 1, 12, 80, "16.0", 200))
    return tmp_path


MACHINES = (
    "h100.txt:nodes=2 h100.txt:nodes=3,fabric=rails+spine l4.txt:nodes=2 "
    "l4.txt:nodes=3,fabric=rails l40s.txt:nodes=2,fabric=direct l40s.txt*2+h100.txt*1 "
    "a100.xml:nodes=2 a100.xml:nodes=4,fabric=pods:2 dgx1:nodes=2,fabric=star "
    "dgx-a100:nodes=3,fabric=planes:2 gb200-nvl72:nodes=2,fabric=star shared.txt:nodes=2 "
    "mi250:nodes=2,loopback=off"
).split()


def all_ways(name: str) -> Topology:
    plain = name.removesuffix(",loopback=off")
    return topology(f"{plain}{',' if ':' in plain else ':'}loopback=on")


def passed(made: Topology, route: tuple[int, ...]) -> list[int | None]:
    """The hosts of the nodes of a route, each once where it stays; an NVSwitch of several: none."""
    links = [made.links[i] for i in route]
    nodes = [links[0].src, *(x.dst for x in links)]
    rack = {x.dst for x in made.links if x.medium is Medium.NVLINK}
    hosts = [made.nodes[v].host for v in nodes if made.nodes[v].host is not None or v not in rack]
    return [h for i, h in enumerate(hosts) if i == 0 or h != hosts[i - 1]]


@pytest.mark.parametrize("name", MACHINES)
def test_no_way_leaves_its_host_twice(texts: Path, name: str) -> None:
    made = topology(name)
    every = all_ways(name)
    for hop in find_hops(made).hops:
        ends = made.nodes[hop.src].host, made.nodes[hop.dst].host
        hosts = [h for h in passed(made, hop.route) if h is not None]
        assert hosts == list(dict.fromkeys(ends)), hop
        if ends[0] == ends[1] and not name.startswith(
            "dgx1"
        ):  # its NICs are slots of PCIe switches
            assert not any(made.nodes[made.links[i].dst].kind is NodeKind.NIC for i in hop.route)
    assert ((hop_distances(made) == 1) <= (hop_distances(every) == 1)).all()
    assert (hop_distances(made) >= 0).all()
    assert len(verified(made)) == len(verified(every))


@pytest.mark.parametrize("name", MACHINES)
def test_each_part_once_is_the_machine_with_all_ways(texts: Path, name: str) -> None:
    made = topology(name)
    every = all_ways(name)
    plain = plain_machine(made).machine
    assert (plain.nodes, plain.links, plain.resources) == (
        every.nodes,
        every.links,
        every.resources,
    )
    assert (CONFINED_NOTE in made.notes) == (len(made.nodes) > len(every.nodes))
    assert confined(made) is made
    for read in (Topology.from_json(made.to_json()), Topology.from_networkx(made.to_networkx())):
        assert read.nodes == made.nodes
        assert {(r.links, r.bandwidth) for r in read.resources} == {
            (r.links, r.bandwidth) for r in made.resources
        }


def test_one_host_of_two_has_what_it_has_alone(texts: Path) -> None:
    """Case P14: the allgather of the first host's GPUs goes over the CPUs, not the network."""
    group = [
        bounds(topology(n).restricted_to(range(8)), "allgather")
        for n in ("l4.txt:nodes=2", "l4.txt:nodes=2,loopback=on", "l4.txt")
    ]
    assert [found.algbw_GBps for found in group] == [20, Fraction(192, 7), 20]


@pytest.mark.parametrize("name", ["dgx1", "dgx2", "dgx-a100", "dgx-h100", "mi300x", "gb200-nvl72"])
def test_hosts_on_rails_have_no_way_to_exclude(name: str) -> None:
    made = topology(f"{name}:nodes=2")
    assert not any(node.copy_of for node in made.nodes)
    assert CONFINED_NOTE not in made.notes


def test_a_published_model_keeps_its_ways_and_says_so() -> None:
    made = topology("mi250:nodes=2")
    assert LOOPBACK_NOTE in made.notes
    assert bounds(made, "allreduce").latency_us == Fraction(5, 2)


def test_a_file_of_ours_is_as_it_is_unless_the_option_is_given(texts: Path) -> None:
    inside, every = topology("l4.txt:nodes=2"), topology("l4.txt:nodes=2,loopback=on")
    for name, made in (("in.json", inside), ("all.json", every)):
        (texts / name).write_text(json.dumps(made.to_json()))
        assert topology(name).links == made.links
        assert topology(f"{name}:loopback=on").links == every.links
        assert topology(f"{name}:loopback=off").links == inside.links


def test_a_failure_takes_all_copies(texts: Path) -> None:
    made = topology("l4.txt:nodes=2")
    whole = plain_machine(made)
    for name in "host0.NIC0 cpu0.0-cpu0.1 cpu0.0->cpu0.1 cpu1.1 fabric nic0.2-fabric".split():
        down = find(made, name)
        alone = find(whole.machine, name)
        assert down.links == whole.spread(alone.links), name
        left = degraded(made, [down]).topology
        kept = degraded(whole.machine, [alone]).topology
        assert len(plain_machine(left).machine.links) == len(kept.links), name


def test_capabilities_are_those_of_the_whole_switch(texts: Path) -> None:
    made = topology("h100.txt:nodes=2,capable=fabric:multicast+reduces+turns")
    (fabric,) = [n for n in made.nodes if n.host is None]
    assert fabric.computes


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"kind": "gpu", "copy_of": "a"}, "b cannot be a copy of a"),
        ({"copy_of": "s"}, "joins copies of one part"),
        ({"copy_of": "s", "host": 1}, "b cannot be a copy of s"),
        ({"copy_of": "a"}, "b cannot be a copy of a"),
        ({"kind": "nic", "copy_of": "s"}, "b cannot be a copy of s"),
    ],
)
def test_copies_of_a_file_that_are_none(changed: dict[str, object], message: str) -> None:
    """A file cannot hide GPUs, hosts or links from people who look at the machine."""
    nodes = [{"name": "a", "kind": "gpu"}, {"name": "b", "kind": "switch"} | changed]
    nodes.append({"name": "s", "kind": "switch"})
    links = [[0, 2, 1, 1, 1], [2, 1, 1, 1, 1], [1, 0, 1, 1, 1]]
    body = {"weft": "topology", "schema": 1, "name": "x", "nodes": nodes, "links": links}
    with pytest.raises(BadTopology, match=message):
        Topology.from_json(body)


def test_a_machine_that_would_be_too_large_stays_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_LINKS", 10)
    made = topology("dgx-a100:nodes=2,fabric=star")
    assert not any(node.copy_of for node in made.nodes)
    assert any("are not excluded" in note for note in made.notes)


# --- ports ----------------------------------------------------------------------------------------


def GBps_out(made: Topology) -> Fraction:
    """The bound of an alltoall of two hosts, as GB/s out of one."""
    return bounds(made, "alltoall").algbw_GBps * made.ranks / 4


@pytest.mark.parametrize(
    ("gpus", "each", "options", "wide"),
    [
        (2, 4, "", 2 * GEN5),
        (8, 4, "", 8 * GEN5),
        (8, 4, ",nic_bw=100Gb/s", 8 * 50),
        (8, 1, "", 8 * 50),
        (8, 1, ",pcie_bw=48GB/s", 8 * GEN5),
        (8, 1, ",nic_bw=800Gb/s", 8 * GEN5),
    ],
)
def test_a_port_bounds_what_its_nics_carry(
    tmp_path: Path, gpus: int, each: int, options: str, wide: Fraction
) -> None:
    (tmp_path / "box.txt").write_text(matrix(gpus, each, "NV18", "H100 80GB HBM3"))
    made = topology(f"{tmp_path}/box.txt:nodes=2{options}")
    assert GBps_out(made) == wide
    told = any("PCIe port" in note for note in made.notes)
    assert told == (wide == gpus * GEN5)


def test_a_described_host_has_ports_where_it_says_so(tmp_path: Path) -> None:
    text = """
schema = 1
name = "two"
title = "a GPU with two NICs"
gpus = 2
[[cables]]
lane = "25GB/s"
alpha = "0.7us"
pairs = [[0, 1, 12]]
source = "test"
[nics]
attach = [[0], [0], [1], [1]]
bandwidth = "25GB/s"
alpha = "1.25us"
fabric = "rails"
source = "test"
"""
    (tmp_path / "free.toml").write_text(text)
    (tmp_path / "port.toml").write_text(text.replace('fabric = "rails"', 'pcie = "31.5GB/s"'))
    assert GBps_out(topology(f"{tmp_path}/free.toml:nodes=2")) == 100
    made = topology(f"{tmp_path}/port.toml:nodes=2")
    assert GBps_out(made) == 63
    assert [n.name for n in made.nodes if n.kind is NodeKind.SWITCH and n.host == 0][:2] == [
        "pci0.0",
        "pci0.1",
    ]


# --- two texts of one host ------------------------------------------------------------------------


@pytest.mark.parametrize("each", [1, 2, 4])
@pytest.mark.parametrize("kind", ["allgather", "alltoall", "allreduce"])
@pytest.mark.parametrize(
    ("name", "links", "sm", "gts", "port"),
    [("H100 80GB HBM3", 18, 90, "32.0", GEN5), ("A100-SXM4-80GB", 12, 80, "16.0", GEN4)],
)
def test_text_and_xml_of_one_host_are_one_machine(
    tmp_path: Path, name: str, links: int, sm: int, gts: str, port: Fraction, kind: str, each: int
) -> None:
    """With NCCL's GB/s of a link and of PCIe, which its XML has; NICs as fast in both."""
    (tmp_path / "box.txt").write_text(matrix(4, each, f"NV{links}", name))
    (tmp_path / "box.xml").write_text(xml(4, each, links, sm, gts, 200))
    lane = "20.6" if sm == 90 else "20"
    options = f"nodes=2,nic_bw=25GB/s,bw={lane}GB/s,pcie_bw={float(port):g}GB/s,gpu="
    text = topology(f"{tmp_path}/box.txt:{options}{'h100' if sm == 90 else 'a100'}")
    file = topology(f"{tmp_path}/box.xml:nodes=2")
    assert bounds(text, kind).us_per_byte == bounds(file, kind).us_per_byte


@pytest.mark.parametrize("kind", ["allgather", "alltoall", "allreduce"])
def test_slots_in_text_and_xml_are_one_machine(tmp_path: Path, kind: str) -> None:
    (tmp_path / "box.txt").write_text(matrix(4, 1, "PCIe", "L40S"))
    (tmp_path / "box.xml").write_text(xml(4, 1, 0, 89, "16.0", 200))
    text, file = (topology(f"{tmp_path}/box.{end}:nodes=2") for end in ("txt", "xml"))
    found, other = bounds(text, kind), bounds(file, kind)
    assert found.us_per_byte == other.us_per_byte
    assert found.latency_us == other.latency_us
