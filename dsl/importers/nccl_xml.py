"""Importer of NCCL's and RCCL's topology XML (``NCCL_TOPO_FILE``, ``NCCL_TOPO_DUMP_FILE``).

Interpreted as by the libraries (their ``src/graph/xml.cc`` and ``topo.cc``): PCIe widths, NVLink
and xGMI bandwidth per link, NVSwitch chips merged into one, CPUs of one host joined in pairs. Ranks
are in the order of ``rank``. CPUs of several ``host_hash`` are several hosts, as NCCL writes them
for GPUs that are on one NVSwitch across hosts. Not in the file: α, and the network between hosts.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import field, replace
from fractions import Fraction
from itertools import pairwise

from ..base.errors import BadFile, placed
from ..base.lazy_dataclass import Frozen, dataclass
from ..base.units import exact
from ..machines.nics import own_number
from ..machines.spec import MAX_GPUS, MachineSpec
from ..nouns.parts import Medium
from ..nouns.topology import NodeKind, Topology
from .generations import (
    ALPHA_NOTE,
    CABLE_ALPHA,
    CPU_LINK,
    NVSWITCH_ALPHA,
    PCIE_ALPHA,
    family_of_chips,
)
from .host_plan import Cable, HostPart, HostPlan, Plug, build_hosts, grouped, without_named
from .xml_tree import Element, parse_xml

_PCI_SPEED = {"2.5": 15, "5": 30, "8": 60, "16": 120, "32": 240, "64": 480}
"""NCCL's k of a PCIe transfer rate in GT/s: bandwidth = width · k / 80 GB/s."""

_NVLINK = ((60, "18"), (70, "20"), (80, "20"), (86, "12"), (90, "20.6"), (100, "40.1"))
"""GB/s per NVLink by compute capability, NCCL's values."""

_XGMI = (("90", 24), ("91", 36), ("94", 48), ("95", 48))
"""GB/s per xGMI link by prefix of the gfx number, RCCL's values (gfx90a is 36)."""

_OUTLIER_MBPS = 3_200_000
"""Port speeds from here on are kbit/s by mistake (seen: 200000000 for 200 Gb/s)."""

_MANAGEMENT_MBPS = 10_000


@dataclass(slots=True)
class _XmlGpu:
    element: Element
    busid: str
    rank: int
    host: int


@dataclass(slots=True)
class _NicPort:
    name: str
    nic: int
    speed: int  # Mbit/s
    where: str
    own: tuple[str, ...]


@dataclass(slots=True)
class _Reading:
    """Parts found while the tree is read; parts are numbered from 0, GPUs separately."""

    parts: list[HostPart] = field(default_factory=list)
    gpus: list[tuple[_XmlGpu, int, Cable]] = field(default_factory=list)
    cables: list[Cable] = field(default_factory=list)
    nets: list[_NicPort] = field(default_factory=list)
    hosts: dict[str, list[int]] = field(default_factory=dict)
    nics: dict[tuple[int, str], int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    host: int | None = 0

    def add(self, kind: NodeKind, name: str) -> int:
        count = sum(
            part.name.startswith(f"{name}.") and part.host == self.host for part in self.parts
        )
        self.parts.append(HostPart(f"{name}.{count}", kind, host=self.host))
        return len(self.parts) - 1


def read_nccl_xml(text: str, where: str, options: MachineSpec) -> Topology:
    """Return the topology of NCCL's or RCCL's XML.

    Options: ``nodes=``, ``fabric=``, ``oversub=``, ``nic_bw=``, ``nic_alpha=``; ``bw=`` per NVLink
    or xGMI link; ``min_nic=`` (slower NICs are ignored); ``without=`` (NICs by name);
    ``pcie=auto|on|off`` (auto: PCIe only where the GPUs of one host are not connected without it,
    or to reach the NICs).

    Raises:
        BadFile: an invalid file, with the line.
    """
    root = parse_xml(text, where)
    if root.tag != "system":
        raise BadFile(
            f"<{root.tag}> is not the root of a NCCL topology",
            where=root.where,
            hint="a topology file starts with <system>",
        )
    reading = _Reading(notes=[ALPHA_NOTE])
    for number, cpu in enumerate(root.find("cpu")):
        _read_cpu(reading, cpu, number)
    found = _ranked(reading, where)
    plan, direct = _plan(reading, found, options)
    plan = replace(
        plan,
        parts=_named_nics(reading),
        plugs=_plugs(reading, len(found), options),
        gpu_names=tuple(_gpu_names(one) for one, _, _ in found),
        gpu_hosts=_gpu_hosts(reading, found, where),
    )
    wanted = options.choice("pcie", "auto", ("auto", "on", "off"))
    alone = options.integer("nodes", 1) == 1
    groups = grouped(((c.a, c.b) for c in direct), plan.gpus + len(plan.parts))
    whole = set(range(plan.gpus)) <= set(groups[0])  # node 0 is a GPU
    if wanted == "off" or (wanted == "auto" and alone and whole):
        plan = replace(plan, cables=tuple(direct), plugs=() if alone else plan.plugs)
        reading.notes.append(
            "all GPUs are connected without PCIe: it is left out (pcie=on keeps it)"
        )
    family = family_of_chips(
        [gpu.element.get("gcn") or gpu.element.get("sm") for gpu, _, _ in found]
    )
    return build_hosts(plan, options.title(), options, reading.notes, family)


def _gpu_hosts(
    reading: _Reading, found: list[tuple[_XmlGpu, int, Cable]], where: str
) -> tuple[int, ...]:
    """Return the host of each GPU by ``host_hash``; a note reports several."""
    hosts = tuple(gpu.host for gpu, _, _ in found)
    if (several := len(set(hosts))) > 1:
        reading.notes.append(f"the file has {several} hosts (host_hash)")
        if several < len(reading.hosts):
            lacking = next(h for i, h in enumerate(reading.hosts) if i not in hosts)
            raise BadFile(f"the host of host_hash={lacking} has no GPU with a rank", where=where)
    return hosts


def _read_cpu(reading: _Reading, cpu: Element, number: int) -> None:
    host = reading.hosts.setdefault(cpu.get("host_hash"), [])
    reading.host = list(reading.hosts).index(cpu.get("host_hash"))
    node = reading.add(NodeKind.HOST, "cpu")
    bandwidth = _cpu_link(cpu)
    for other in host:
        reading.cables.append(Cable(other, node, bandwidth, PCIE_ALPHA))
    host.append(node)
    if len(host) == 2 and reading.host == 0:
        reading.notes.append(
            f"CPU to CPU: {float(bandwidth):g}GB/s, as the library assumes for "
            f"{cpu.get('vendor') or cpu.get('arch') or 'this CPU'}"
        )
    for child in cpu.children:
        _read_device(reading, child, node)


def _read_device(reading: _Reading, element: Element, parent: int) -> None:
    if element.tag == "nic":
        _read_nic(reading, element, parent, None)
        return
    if element.tag != "pci":
        return
    cable = Cable(parent, -1, _pci_bandwidth(element), PCIE_ALPHA)
    busid = element.get("busid").lower()
    gpus = list(element.find("gpu"))
    nics = list(element.find("nic"))
    if gpus:
        rank = gpus[0].get("rank")
        if rank:
            number = _integer(gpus[0], "rank")
            found = _XmlGpu(gpus[0], busid, number, reading.host or 0)
            reading.gpus.append((found, parent, cable))
        else:
            reading.notes.append(f"GPU {busid} has no rank and is left out")
        return
    for nic in nics:
        _read_nic(reading, nic, parent, element)
    children = [child for child in element.children if child.tag == "pci"]
    if children:
        node = reading.add(NodeKind.SWITCH, "pci")
        reading.cables.append(replace(cable, b=node))
        for child in children:
            _read_device(reading, child, node)


def _read_nic(reading: _Reading, nic: Element, parent: int, pci: Element | None) -> None:
    """Read the ports of a NIC; the functions of one PCI device are one node."""
    nets = list(nic.find("net"))
    if not nets:
        return
    device = pci.get("busid").lower().rpartition(".")[0] if pci else nic.where
    node = reading.nics.get((parent, device))
    if node is None:
        node = reading.add(NodeKind.NIC, "nic")
        reading.nics[parent, device] = node
        width = _pci_bandwidth(pci) if pci else _UNKNOWN_PCI
        reading.cables.append(Cable(parent, node, width, PCIE_ALPHA))
    for net in nets:
        speed = _integer(net, "speed") if net.get("speed") else 0
        speed = speed if speed > 0 else 10_000
        name = net.get("name") or f"net{len(reading.nets)}"
        busid = pci.get("busid").lower() if pci else ""
        if speed >= _OUTLIER_MBPS:
            reading.notes.append(
                f"{name}: speed {speed} Mbit/s is impossible; read as {speed // 1000}"
            )
            speed //= 1000
        number = (f"NIC{_integer(net, 'dev')}",) if net.get("dev") else ()
        own = (name, *number, *filter(None, [busid]))
        reading.nets.append(_NicPort(name, node, speed, net.where, own))


def _named_nics(reading: _Reading) -> tuple[HostPart, ...]:
    own: dict[int, tuple[str, ...]] = {}
    for net in reading.nets:
        own[net.nic] = tuple(dict.fromkeys((*own.get(net.nic, ()), *net.own)))
    parts = list(reading.parts)
    numbers = {nic: own_number(names) for nic, names in own.items()}
    places = {(parts[nic].host, number) for nic, number in numbers.items()}
    if None in numbers.values() or len(places) < len(numbers):
        numbers = {}
    for nic, names in own.items():
        name = f"nic.{numbers[nic]}" if numbers else parts[nic].name
        parts[nic] = replace(parts[nic], name=name, names=names)
    return tuple(parts)


def _gpu_names(gpu: _XmlGpu) -> tuple[str, ...]:
    number = (f"GPU{_integer(gpu.element, 'dev')}",) if gpu.element.get("dev") else ()
    return (*number, *filter(None, [gpu.busid]))


def _ranked(reading: _Reading, where: str) -> list[tuple[_XmlGpu, int, Cable]]:
    if not reading.gpus:
        raise BadFile(
            "no GPU with a rank",
            where=where,
            hint="a file that NCCL completes at run time names no GPUs; give the dump "
            "(NCCL_TOPO_DUMP_FILE) instead",
        )
    if len(reading.gpus) > MAX_GPUS:
        raise BadFile(f"more than {MAX_GPUS} GPUs", where=where)
    found = sorted(reading.gpus, key=lambda g: g[0].rank)
    for (one, _, _), (two, _, _) in pairwise(found):
        if one.rank == two.rank:
            raise BadFile(f"two GPUs have rank {one.rank}", where=two.element.where)
    busids: dict[tuple[int, str], _XmlGpu] = {}
    for one, _, _ in found:
        if (one.host, one.busid) in busids:
            raise BadFile(f"two GPUs have bus id {one.busid}", where=one.element.where)
        busids[one.host, one.busid] = one
    return found


def _plan(
    reading: _Reading, found: list[tuple[_XmlGpu, int, Cable]], options: MachineSpec
) -> tuple[HostPlan, list[Cable]]:
    n = len(found)
    cables = [replace(c, a=c.a + n, b=c.b + n) for c in reading.cables]
    for rank, (_, parent, cable) in enumerate(found):
        cables.append(replace(cable, a=parent + n, b=rank))
    direct = _direct(reading, found, options)
    parts = tuple(reading.parts)
    return HostPlan(n, parts, (*direct, *cables)), direct


def _direct(
    reading: _Reading, found: list[tuple[_XmlGpu, int, Cable]], options: MachineSpec
) -> list[Cable]:
    """Return NVLink, xGMI and C2C cables; the NVSwitch is added if a GPU is connected to it."""
    n = len(found)
    place = {(gpu.host, gpu.busid): rank for rank, (gpu, _, _) in enumerate(found)}
    counts: dict[tuple[int, int], int] = {}
    switched: dict[int, int] = {}
    cables: list[Cable] = []
    for rank, (gpu, parent, _) in enumerate(found):
        for link in gpu.element.find("nvlink", "xgmi"):
            count = _integer(link, "count")
            target, kind = link.get("target").lower(), link.get("tclass").lower()
            peer = place.get((gpu.host, target), rank)
            if peer != rank:
                counts[rank, peer] = counts.get((rank, peer), 0) + count
            elif kind.startswith("0x068001"):
                width = _lane(gpu, options) * count
                above = _cpu_above(reading, parent) + n
                cables.append(Cable(rank, above, width, CABLE_ALPHA, medium=_peer_medium(gpu)))
            elif kind.startswith(("0x03", "0x12")):
                reading.notes.append(
                    f"{link.where}: link to {target}, which is not a GPU here: left out"
                )
            elif count:
                switched[rank] = switched.get(rank, 0) + count
        for c2c in gpu.element.find("c2c"):
            width = Fraction(_integer(c2c, "bw") * _integer(c2c, "count"), 1000)
            if width:
                above = _cpu_above(reading, parent) + n
                cables.append(Cable(rank, above, width, CABLE_ALPHA, medium=Medium.NVLINK))
    cables += _peer_cables(reading, found, counts, options)
    joined = sorted({*switched, *(a for a, _ in counts)})
    if joined and not options.has("bw"):
        lanes = dict.fromkeys(_lane(found[rank][0], options) for rank in joined)
        listed = " and ".join(f"{float(lane):g}GB/s" for lane in lanes)
        reading.notes.append(
            f"{listed} per NVLink or xGMI link, as the library counts, which is less than data "
            "sheets have (bw=)"
        )
    if switched:
        if len({found[rank][0].host for rank in switched}) > 1:
            reading.host = None
        node = reading.add(NodeKind.SWITCH, "nvswitch") + n
        for rank, count in switched.items():
            width = _lane(found[rank][0], options) * count
            cables.append(Cable(rank, node, width, NVSWITCH_ALPHA, count, Medium.NVLINK))
    return cables


def _peer_cables(
    reading: _Reading,
    found: list[tuple[_XmlGpu, int, Cable]],
    counts: dict[tuple[int, int], int],
    options: MachineSpec,
) -> Iterator[Cable]:
    for (a, b), count in sorted(counts.items()):
        other = counts.get((b, a))
        if other is None:
            reading.notes.append(f"rank {a} lists a link to {b}, {b} does not; taken as both ways")
        elif other != count:
            raise BadFile(
                f"rank {a} lists {count} links to {b}, rank {b} lists {other} to {a}",
                where=found[max(a, b)][0].element.where,
            )
        if count and (a < b or other is None):
            lane = min(_lane(found[a][0], options), _lane(found[b][0], options))
            yield Cable(a, b, lane * count, CABLE_ALPHA, count, _peer_medium(found[a][0]))


def _cpu_above(reading: _Reading, node: int) -> int:
    above = {c.b: c.a for c in reading.cables if reading.parts[c.b].kind is not NodeKind.HOST}
    while node in above:
        node = above[node]
    return node


def _peer_medium(gpu: _XmlGpu) -> Medium:
    """The medium of a GPU's links to others: RCCL writes ``gcn``, and old ones ``nvlink``, too."""
    return Medium.XGMI if gpu.element.get("gcn") else Medium.NVLINK


def _lane(gpu: _XmlGpu, options: MachineSpec) -> Fraction:
    """Return GB/s of one NVLink or xGMI link of a GPU."""
    gcn = gpu.element.get("gcn")
    if gcn:
        number = gcn.removeprefix("gfx").lower()
        if number == "90a":
            default = Fraction(36)
        else:
            default = Fraction(next((w for start, w in _XGMI if number.startswith(start)), 48))
    else:
        sm = _integer(gpu.element, "sm") if gpu.element.get("sm") else 80
        default = Fraction(next((w for least, w in reversed(_NVLINK) if sm >= least), "18"))
    return options.bandwidth("bw", default)


def _plugs(reading: _Reading, gpus: int, options: MachineSpec) -> tuple[Plug, ...]:
    """Return the network ports for data, without management ports."""
    fastest = max((net.speed for net in reading.nets), default=0)
    least = int(options.bandwidth("min_nic", Fraction(1, 10**9)) * 8000)
    if not options.has("min_nic"):
        # Management ports: 1 Gbit/s, or at most 10 Gbit/s beside ports four times as fast.
        least = _MANAGEMENT_MBPS + 1 if fastest >= 4 * _MANAGEMENT_MBPS else 1001
    shown = [net.name for net in reading.nets]
    places = without_named(options, [net.own for net in reading.nets], shown, reading.notes)
    alone = options.integer("nodes", 1) == 1 and len(reading.hosts) == 1
    wanted = [net for i, net in enumerate(reading.nets) if i not in places]
    used = [net for net in wanted if net.speed >= least]
    slow = [net for net in wanted if net.speed < least]
    if slow:
        listed = ", ".join(f"{net.name} ({net.speed / 1000:g} Gbit/s)" for net in slow[:8])
        reading.notes.append(f"NICs too slow for data are left out: {listed}")
    if used and alone:
        listed = ", ".join(net.name for net in used)
        reading.notes.append(
            f"{len(used)} NICs are left out: they connect several hosts (nodes=2): {listed}"
        )
    return tuple(Plug(net.nic + gpus, Fraction(net.speed, 8000)) for net in used)


_UNKNOWN_PCI = Fraction(60 * 16, 80)


def _pci_bandwidth(element: Element) -> Fraction:
    speed = re.match(r"\d+(\.\d+)?", element.get("link_speed").strip())
    key = speed.group().removesuffix(".0") if speed else ""
    width = _integer(element, "link_width") if element.get("link_width") else 0
    return Fraction((width or 16) * _PCI_SPEED.get(key, 60), 80)


def _cpu_link(cpu: Element) -> Fraction:
    """Return GB/s between two CPUs of a host, as assumed by the libraries."""
    vendor, arch = cpu.get("vendor"), cpu.get("arch")
    if vendor == "GenuineIntel":
        skylake = cpu.get("familyid") == "6" and _integer(cpu, "modelid") >= 0x55
        return Fraction(10 if skylake else 6)
    if "Shanghai" in vendor or vendor == "CentaurHauls":
        return Fraction(6)
    known = {"AuthenticAMD": 16}.get(vendor) or {"ppc64": 32, "arm64": 6}.get(arch)
    return Fraction(known) if known else CPU_LINK


def _integer(element: Element, name: str) -> int:
    text = element.get(name).strip()
    if not re.fullmatch(r"-?[0-9]{1,12}", text):
        raise BadFile(
            f"{name}={text[:40]!r} of <{element.tag}> is not an integer", where=element.where
        )
    return int(text)


# --- graphs of channels ---------------------------------------------------------------------------
# A graph file (``NCCL_GRAPH_DUMP_FILE``) lists the channels that the library found on its machine:
# GPUs in the order of a ring (or a chain), between the NICs by which data comes and goes, and GB/s
# of a channel inside and between hosts. Read is what the rings use: a cable for every two
# neighbours, as wide as the channels over it, and NICs alike. Links that no channel uses are not in
# the file.

_RING = "4"
"""NCCL's ``pattern`` of rings; the others are trees, whose channels are chains of GPUs."""

_MEDIA = {"NVL": Medium.NVLINK, "NVB": Medium.NVLINK, "XGMI": Medium.XGMI, "LOC": Medium.NVLINK}


class _PlannedChannels(Frozen):
    """Channels as lists of (kind, number), and GB/s of each inside and between hosts."""

    paths: tuple[tuple[tuple[str, int], ...], ...]
    ring: bool
    inside: Fraction
    outside: Fraction
    medium: Medium


def looks_like_graphs(text: str) -> bool:
    """Return True for a text whose root is ``<graphs>``."""
    return re.match(r"(\s|<\?.*?\?>|<!--.*?-->)*<graphs\b", text, re.DOTALL) is not None


def read_nccl_graph(text: str, where: str, options: MachineSpec) -> Topology:
    """Return the topology that the channels use.

    Options: ``without=`` NICs; ``nodes=``, ``fabric=``, ``nic_bw=`` and the like.

    Raises:
        BadFile: an invalid file, or one without channels.
    """
    root = parse_xml(text, where)
    graphs = [graph for graph in root.find("graph") if next(graph.find("channel"), None)]
    if not graphs:
        raise BadFile("no graph has a channel", where=where)
    chosen = next((graph for graph in graphs if graph.get("pattern") == _RING), graphs[0])
    channels = _channels(chosen)
    gpus = sorted({number for path in channels.paths for kind, number in path if kind == "gpu"})
    nets = sorted({number for path in channels.paths for kind, number in path if kind == "net"})
    if not gpus or len(gpus) > MAX_GPUS:
        raise BadFile("no GPU in any channel", where=chosen.where)
    notes = [
        ALPHA_NOTE,
        f"links are those of NCCL's {len(channels.paths)} {'rings' if channels.ring else 'chains'},"
        f" {float(channels.inside):g}GB/s each inside the host: others are not in the file",
    ]
    shown = [f"NIC{n}" for n in nets]
    gone = without_named(options, [(f"NIC{n}", f"NET/{n}") for n in nets], shown, notes)
    kept = [n for i, n in enumerate(nets) if i not in gone]
    if kept and options.integer("nodes", 1) == 1:
        listed = ", ".join(f"NIC{n}" for n in kept)
        notes.append(f"NICs of a single host are left out (nodes=2 keeps them): {listed}")
    return build_hosts(_plan_of_channels(channels, gpus, kept), options.title(), options, notes)


def _channels(graph: Element) -> _PlannedChannels:
    paths = []
    for channel in graph.find("channel"):
        devices = [child for child in channel.children if child.tag in ("gpu", "net")]
        paths.append(tuple((device.tag, _device_number(device)) for device in devices))
    inside, outside = _speed(graph, "speedintra"), _speed(graph, "speedinter")
    medium = _MEDIA.get(graph.get("typeintra"), Medium.PCIE)
    return _PlannedChannels(tuple(paths), graph.get("pattern") == _RING, inside, outside, medium)


def _device_number(element: Element) -> int:
    """Parse ``dev``: decimal, or hexadecimal in newer versions."""
    try:
        return int(element.get("dev"), 0)
    except ValueError:
        raise BadFile(
            f"dev={element.get('dev')[:40]!r} of <{element.tag}> is not a number",
            where=element.where,
        ) from None


def _speed(graph: Element, key: str) -> Fraction:
    speed = placed(lambda: exact(graph.get(key) or "0", key), graph.where)
    if speed <= 0:
        raise BadFile(f"{key} is {graph.get(key) or 'missing'}", where=graph.where)
    return speed


def _plan_of_channels(channels: _PlannedChannels, gpus: list[int], nets: list[int]) -> HostPlan:
    """Return the host: cables of neighbours, and NICs on the GPUs beside them in some channel."""
    place = {number: i for i, number in enumerate(gpus)}
    slot = {number: len(gpus) + i for i, number in enumerate(nets)}
    inner: Counter[tuple[int, int]] = Counter()
    into: Counter[int] = Counter()
    out: Counter[int] = Counter()
    served: set[tuple[int, int]] = set()
    for path in channels.paths:
        hops = list(pairwise(path))
        if channels.ring and len(path) > 2 and all(kind == "gpu" for kind, _ in path):
            hops.append((path[-1], path[0]))
        for (one, a), (two, b) in hops:
            if one == two == "gpu" and a != b:
                inner[place[a], place[b]] += 1
            elif one == "net" and two == "gpu" and a in slot:
                into[slot[a]] += 1
                served.add((slot[a], place[b]))
            elif one == "gpu" and two == "net" and b in slot:
                out[slot[b]] += 1
                served.add((slot[b], place[a]))
    # Channels have a direction, cables do not: the busier direction counts.
    pairs = {(min(pair), max(pair)) for pair in inner}
    cables = [
        Cable(a, b, channels.inside * n, CABLE_ALPHA, medium=channels.medium)
        for a, b in sorted(pairs)
        if (n := max(inner[a, b], inner[b, a]))
    ]
    plugs = [Plug(v, channels.outside * max(into[v], out[v], 1)) for v in slot.values()]
    width = {plug.nic: plug.bandwidth for plug in plugs}
    cables += [Cable(gpu, nic, width[nic], PCIE_ALPHA) for nic, gpu in sorted(served)]
    return HostPlan(
        len(gpus),
        tuple(HostPart(f"nic.{n}", NodeKind.NIC, (f"NIC{n}", f"NET/{n}")) for n in nets),
        tuple(cables),
        tuple(plugs),
        tuple((f"GPU{n}",) for n in gpus),
    )
