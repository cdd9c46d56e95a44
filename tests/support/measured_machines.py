"""Machines of published tables: of the catalogue, or hosts of GPUs on PCIe."""

import re
from dataclasses import replace
from fractions import Fraction

from measured_tables import MeasuredTable

from weft.dsl.base.errors import UserError
from weft.dsl.catalogue import names
from weft.dsl.catalogue import topology as catalogue
from weft.dsl.importers.generations import family_of
from weft.dsl.nouns.topology import (
    MachineTiming,
    Medium,
    Node,
    NodeKind,
    Resource,
    Topology,
    both_ways,
    gpu,
)

PCIE_GEN5, PCIE_GEN4, PCIE_GEN3 = Fraction(63), Fraction("31.5"), Fraction("15.75")

THROUGH_HOST = Fraction(6, 10)
"""Share of a GPU's PCIe bandwidth where messages go through host memory, twice over its bus.
Fitted to 8 RTX 4090, whose p2pBandwidthLatencyTest has 21 GB/s both ways together."""

USUAL = {
    "v100": "dgx1",
    "p100": "dgx1",
    "a100": "dgx-a100",
    "a800": "dgx-a100",
    "h100": "dgx-h100",
    "h800": "dgx-h100:bw=200GB/s",
    "h200": "dgx-h100",
    "h20": "dgx-h100",
    "gh200": "dgx-h100",
    "b200": "dgx-h100:bw=900GB/s",
    "b300": "dgx-h100:bw=900GB/s",
    "gb200": "gb200-nvl72",
    "gb300": "gb200-nvl72",
    "mi250": "mi250",
    "mi300x": "mi300x",
    "mi325x": "mi300x",
    "mi355x": "mi300x",
}
"""The usual machine of a family, for tables whose machine is not in the catalogue."""


def machine_of(table: MeasuredTable) -> Topology:
    """The machine of a table.

    Raises:
        UserError: nothing tells it, or it has fewer GPUs than took part.
    """
    family = family_of([table.text("gpu")])
    nodes = table.number("nodes") or 1
    ranks = table.number("ranks")
    if ranks is not None and ranks % nodes:
        raise UserError(f"{ranks} ranks on {nodes} hosts, of which one has more than another")
    share, nics = _network(table)
    name = table.text("topology")
    base, _, options = name.partition(":")
    if base not in {one.name for one in names()}:
        if ranks and (base.startswith("pcie") or (family and family not in USUAL)):
            return _pcie_hosts(table, ranks // nodes, nodes, nics)
        if family not in USUAL:
            raise UserError(f"no machine is known: topology {name!r}, GPU {table.text('gpu')!r}")
        big = base.startswith("dgx2") or (family == "v100" and (ranks or 0) // nodes > 8)
        base, _, options = ("dgx2" if big else USUAL[family]).partition(":")
    given = [x for x in options.split(",") if x]
    if nodes > 1 and "nodes=" not in options:
        given.append(f"nodes={nodes}")
    if (nodes > 1 or "nodes=" in options) and nics and "nic_bw" not in options:
        one = nics * share / Fraction(_nics_of(base, options))
        given.append(f"nic_bw={float(one)}GB/s")
    if family:  # else the catalogue's
        given.append(f"family={family}")
    made = catalogue(f"{base}:{','.join(given)}" if given else base)
    return _first_gpus(made, ranks or made.ranks)


def _first_gpus(machine: Topology, ranks: int) -> Topology:
    """As many GPUs of each host."""
    each, here = ranks // machine.hosts, machine.ranks // machine.hosts
    if ranks % machine.hosts or each > here:
        raise UserError(f"{ranks} ranks on {machine.hosts} hosts of {here} GPUs")
    if each == here:
        return machine
    return machine.restricted_to(r for r in range(machine.ranks) if r % here < each)


def _nics_of(base: str, options: str) -> int:
    if found := re.search(r"nics=(\d+)", options):
        return int(found[1])
    return {"dgx1": 4, "ndv2": 1, "gb200-nvl72": 72}.get(base, 8)


_NICS = re.compile(
    r"(\d+) ?[x×] ?(?:[A-Z][\w-]* )*(\d+) ?(?:Gb/s|Gbps|Gbit/s|GbE|G\b)", re.IGNORECASE
)
_TOTAL = re.compile(r"(\d+(?:\.\d+)?) ?([GT])(?:b/s|bps|bit/s|bE)", re.IGNORECASE)


def _network(table: MeasuredTable) -> tuple[Fraction, Fraction]:
    """The share of the network that was reached, and GB/s of all NICs of a host (0: not told)."""
    told = table.text("network")
    found = _NICS.search(told)
    if slow := re.findall(r"([\d.]+) GB/s", told.partition("perftest")[2]):
        reached = min(map(Fraction, slow)) / Fraction("0.96")
        count = int(found[1]) if found else 8
        return Fraction(1), reached * count
    half = "half" in f"{told} {table.text('note')}"
    total = Fraction(int(found[1]) * int(found[2]), 8) if found else Fraction(0)
    if not found and (whole := _TOTAL.search(told)):
        total = Fraction(whole[1]) * (1000 if whole[2].upper() == "T" else 1) / 8
    return Fraction(1, 2) if half else Fraction(1), total


def _pcie_width(told: str) -> Fraction:
    """GB/s of a GPU's link, by its name and generation; GeForce cards go through host memory."""
    width = PCIE_GEN4
    if re.search(r"PCIe ?(Gen)? ?5|6000D|PRO 6000|5090|H100|H200", told, re.IGNORECASE):
        width = PCIE_GEN5
    elif re.search(r"PCIe ?(Gen)? ?3|V100|P100|T4|[ -]20[78]0", told, re.IGNORECASE):
        width = PCIE_GEN3
    through_host = "host memory" in told or re.search(
        r"\b(GeForce|RTX) (RTX )?[2345]0[6789]0", told
    )
    return width * THROUGH_HOST if through_host else width


def _pcie_hosts(table: MeasuredTable, gpus: int, nodes: int, nics: Fraction) -> Topology:
    """Hosts whose GPUs have one PCIe link each, for messages in the host and out of it."""
    told = table.text("gpu")
    width = _pcie_width(told)
    ranks = gpus * nodes
    members = [gpu(b * gpus + g, b) for b in range(nodes) for g in range(gpus)]
    bridges = [Node(f"bridge{b}", NodeKind.SWITCH, b) for b in range(nodes)]
    fabric = [Node("fabric", NodeKind.SWITCH)] if nodes > 1 else []
    links, shared = [], []
    for r in range(ranks):
        inner = both_ways(r, ranks + r // gpus, width, "0.3")
        outer = both_ways(r, ranks + nodes, nics / gpus or 25, "1.25") if fabric else ()
        first = len(links)
        links += [replace(x, medium=Medium.PCIE) for x in inner]
        links += [replace(x, medium=Medium.NETWORK) for x in outer]
        if outer:
            shared.append(Resource(f"gpu{r} out", (first, first + 2), width))
            shared.append(Resource(f"gpu{r} in", (first + 1, first + 3), width))
    nodes_of = (*members, *bridges, *fabric)
    timing = MachineTiming(family_of([table.text("gpu")]) or "pcie")
    return Topology(table.text("topology"), nodes_of, tuple(links), tuple(shared), timing=timing)
