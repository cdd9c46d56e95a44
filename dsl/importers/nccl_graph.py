"""Importer of NCCL's and RCCL's graphs of channels (``NCCL_GRAPH_DUMP_FILE``).

The file lists the channels that the library found on its machine: GPUs in the order of a ring (or a
chain), between the NICs by which data comes and goes, and GB/s of a channel inside and between
hosts. Read is what the rings use: a cable for every two neighbours, as wide as the channels over
it, and NICs alike. Links that no channel uses are not in the file.
"""

from __future__ import annotations

import re
from collections import Counter
from fractions import Fraction
from itertools import pairwise

from ..base.errors import BadFile, UserError
from ..base.lazy_dataclass import dataclass
from ..base.units import exact
from ..machines.names import named_places
from ..machines.spec import MAX_GPUS, MachineSpec
from ..nouns.parts import Medium
from ..nouns.topology import NodeKind, Topology
from .defaults import ALPHA_NOTE, CABLE_ALPHA, PCIE_ALPHA
from .host_plan import Cable, HostPart, HostPlan, Plug, build_hosts
from .xml_tree import Element, parse_xml

_RING = "4"
"""NCCL's ``pattern`` of rings; the others are trees, whose channels are chains of GPUs."""

_MEDIA = {"NVL": Medium.NVLINK, "NVB": Medium.NVLINK, "XGMI": Medium.XGMI, "LOC": Medium.NVLINK}


@dataclass(frozen=True, slots=True)
class _PlannedChannels:
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
    gone = named_places(options.words("without"), [(f"NIC{n}", f"NET/{n}") for n in nets], "NIC")
    if gone:
        listed = ", ".join(f"NIC{nets[i]}" for i in gone)
        notes.append(f"left out as without= asks: {listed}")
    kept = [n for i, n in enumerate(nets) if i not in gone]
    if kept and options.integer("nodes", 1) == 1:
        listed = ", ".join(f"NIC{n}" for n in kept)
        notes.append(f"NICs of a single host are left out (nodes=2 keeps them): {listed}")
    return build_hosts(_plan(channels, gpus, kept), options.title(), options, notes)


def _channels(graph: Element) -> _PlannedChannels:
    paths = []
    for channel in graph.find("channel"):
        devices = [child for child in channel.children if child.tag in ("gpu", "net")]
        paths.append(tuple((device.tag, _device(device)) for device in devices))
    inside, outside = _speed(graph, "speedintra"), _speed(graph, "speedinter")
    medium = _MEDIA.get(graph.get("typeintra"), Medium.PCIE)
    return _PlannedChannels(tuple(paths), graph.get("pattern") == _RING, inside, outside, medium)


def _device(element: Element) -> int:
    """Parse ``dev``: decimal, or hexadecimal in newer versions."""
    try:
        return int(element.get("dev"), 0)
    except ValueError:
        raise BadFile(
            f"dev={element.get('dev')[:40]!r} of <{element.tag}> is not a number",
            where=element.where,
        ) from None


def _speed(graph: Element, key: str) -> Fraction:
    try:
        speed = exact(graph.get(key) or "0", key)
    except UserError as error:
        raise BadFile(error.message, where=graph.where) from None
    if speed <= 0:
        raise BadFile(f"{key} is {graph.get(key) or 'missing'}", where=graph.where)
    return speed


def _plan(channels: _PlannedChannels, gpus: list[int], nets: list[int]) -> HostPlan:
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
