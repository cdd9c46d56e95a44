"""Fabrics between hosts: the switch of each NIC.

==================  ===========================================================================
``star``            every NIC on one non-blocking switch
``rails``           NIC i of every host on rail switch i, without links between rails
``rails+spine``     the same, with a spine above the rail switches (``oversub=2``: half as wide)
``planes:K``        NIC i on plane i mod K, without links between planes
``pods:B``          B hosts on one leaf switch, with a spine above the leaves (``oversub=``)
``direct``          two hosts back to back: NIC i with NIC i
a file              as :mod:`.fabric_file` reads it; ``hosts=`` names those of the machine
==================  ===========================================================================

A NIC of one GPU is the link from that GPU to the fabric; a NIC of several GPUs is a node between
them and the fabric, so that they share its bandwidth.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from ..base.errors import BadFile, BadTopology, UnknownName, UserError
from ..base.files import read_text
from ..base.lazy_dataclass import Frozen
from ..base.spans import Span
from ..nouns.topology import Link, Node, Topology, both_ways, switch
from .fabric_file import FabricFile, FabricLayout, FabricLink, read_fabric
from .spec import MachineSpec

FABRICS = ("star", "rails", "rails+spine", "planes:K", "pods:B", "direct")


class Port(Frozen):
    """Port of a host to the fabric: a node, its slot, and the cable to the fabric.

    ``names``: of the NIC, where the node is a GPU or CPU that has it.
    """

    node: int
    host: int
    slot: int
    bandwidth: Fraction
    alpha: Fraction
    names: tuple[str, ...] = ()

    def names_of_host(self) -> tuple[str, ...]:
        """Return the names with the host, for links between two hosts."""
        return tuple(f"host{self.host}.{name}" for name in self.names)


class FabricSpec(Frozen):
    """Kind of wiring; ``size`` is K of planes, B of pods."""

    kind: str
    size: int = 1
    oversub: Fraction = Fraction(1)
    file: FabricFile | None = None

    @property
    def has_spine(self) -> bool:
        """Return True if an oversubscription has an effect."""
        return self.kind in ("rails+spine", "pods") or self.file is not None


def asked_fabric(spec: MachineSpec, default: str = "star") -> FabricSpec:
    """Return the fabric of the options ``fabric=``, ``oversub=`` and ``hosts=``.

    Raises:
        UnknownName, UserError, BadFile: an unknown fabric, or an invalid file.
    """
    text, span = spec.word("fabric", default)
    found = parse_fabric(text, span)
    if found.file is not None:
        chosen = tuple(value.text for value in spec.words("hosts"))
        found = replace(found, file=replace(found.file, chosen=chosen))
    return replace(found, oversub=spec.factor("oversub"))


def parse_fabric(text: str, where: Span | None = None) -> FabricSpec:
    """Parse ``rails``, ``planes:2`` and the like, without the oversubscription.

    Raises:
        UnknownName: an unknown fabric. UserError: a missing or superfluous number.
    """
    kind, _, number = text.partition(":")
    if kind not in FABRICS and os.path.isfile(text):
        return FabricSpec("file", file=read_fabric(read_text(text), text))
    sized = f"{kind}:K" in FABRICS or f"{kind}:B" in FABRICS
    if not sized and kind not in FABRICS:
        if os.sep in text or os.path.splitext(text)[1]:
            raise BadFile("no such file", where=text)
        raise UnknownName("fabric", text, FABRICS, where=where)
    if sized != bool(number) or (sized and not (number.isascii() and number.isdigit())):
        raise UserError(
            f"fabric {text!r} is not complete" if sized else f"fabric {kind} takes no number",
            where=where,
            hint=f"known: {', '.join(FABRICS)}",
        )
    size = int(number[:9]) if number else 1
    if size < 1:
        raise UserError(f"expected a fabric of one switch or more, got {text!r}", where=where)
    return FabricSpec(kind, size)


def join(topology: Topology, ports: tuple[Port, ...], fabric: FabricSpec) -> Topology:
    """Return the topology with its ports wired.

    Raises:
        BadTopology: ``direct`` with other than two hosts.
    """
    if fabric.kind == "direct":
        return _back_to_back(topology, ports)
    if fabric.file is not None:
        return _placed(topology, ports, fabric.file, fabric.oversub)
    leaf_of = {port: _leaf(port, fabric) for port in ports}
    names = list(dict.fromkeys(sorted(leaf_of.values(), key=lambda name: (len(name), name))))
    first = len(topology.nodes)
    place = {name: first + i for i, name in enumerate(names)}
    links = list(topology.links)
    for port in ports:
        ends = port.node, place[leaf_of[port]]
        links += both_ways(*ends, port.bandwidth, port.alpha, names=port.names)
    nodes: list[Node] = [*topology.nodes, *map(switch, names)]
    if fabric.kind in ("rails+spine", "pods") and len(names) > 1:
        nodes.append(switch("spine"))
        links += _spine(place, first + len(names), leaf_of, fabric.oversub)
    return replace(topology, nodes=tuple(nodes), links=tuple(links), symmetries=())


def _leaf(port: Port, fabric: FabricSpec) -> str:
    match fabric.kind:
        case "star":
            return "fabric"
        case "planes":
            return f"plane{port.slot % fabric.size}"
        case "pods":
            return f"pod{port.host // fabric.size}"
        case _:
            return f"rail{port.slot}"


def _spine(
    place: Mapping[str, int], spine: int, leaf_of: Mapping[Port, str], oversub: Fraction
) -> list[Link]:
    """Return leaf-spine links: a leaf's bandwidth up is that down, divided by ``oversub``."""
    links: list[Link] = []
    for name, node in place.items():
        below = [port for port, leaf in leaf_of.items() if leaf == name]
        up = sum((port.bandwidth for port in below), Fraction(0)) / oversub
        links += both_ways(node, spine, up, max(port.alpha for port in below))
    return links


def _placed(
    topology: Topology, ports: tuple[Port, ...], file: FabricFile, oversub: Fraction
) -> Topology:
    """Return the hosts in the fabric of a file, with the switches that lie between them."""
    hosts = 1 + max(port.host for port in ports)
    layout = file.laid_out(hosts, 1 + max(port.slot for port in ports))
    places = [
        layout.hosts[p.host].port(p.slot, p.names or topology.nodes[p.node].names, file.name)
        for p in ports
    ]
    used = _between({place.leaf for place in places}, layout)
    first = len(topology.nodes)
    at = {switch: first + i for i, switch in enumerate(used)}
    links = list(topology.links)
    below = [Fraction(0)] * len(layout.switches)
    for port, place in zip(ports, places, strict=True):
        width = place.bandwidth or port.bandwidth
        below[place.leaf] += width
        links += both_ways(port.node, at[place.leaf], width, port.alpha, names=port.names)
    alpha = max(port.alpha for port in ports)
    for link, width in _widths(layout, used, below, oversub):
        delay = alpha if link.alpha is None else link.alpha
        links += both_ways(at[link.low], at[link.high], width, delay)
    made = [replace(switch(layout.switches[i].name), names=layout.switches[i].names) for i in used]
    taken = {node.name for node in topology.nodes}
    named = (replace(n, name=f"{n.name}.sw") if n.name in taken else n for n in made)
    names = tuple(host.name for host in layout.hosts[:hosts])
    return replace(
        topology,
        nodes=(*topology.nodes, *named),
        links=tuple(links),
        symmetries=(),
        host_names=names if all(names) else (),
        notes=(*topology.notes, *layout.notes),
    )


def _between(leaves: set[int], layout: FabricLayout) -> list[int]:
    near: dict[int, set[int]] = {i: set() for i in range(len(layout.switches))}
    for link in layout.links:
        near[link.low].add(link.high)
        near[link.high].add(link.low)
    ends = [i for i in near if i not in leaves]
    while ends:
        i = ends.pop()
        if i in near and len(near[i]) < 2:
            for other in near.pop(i):
                near[other].discard(i)
                ends += [other] if other not in leaves else []
    return sorted(near)


def _widths(
    layout: FabricLayout, used: Iterable[int], below: Sequence[Fraction], oversub: Fraction
) -> Iterator[tuple[FabricLink, Fraction]]:
    """Yield the links between switches in use with their GB/s, from the leaves upwards.

    Links without one of their own share the bandwidth below, divided by the oversubscription.
    """
    kept = set(used)
    links = [link for link in layout.links if link.low in kept and link.high in kept]
    up: dict[int, list[FabricLink]] = {}
    waiting = Counter(link.high for link in links)
    for link in links:
        up.setdefault(link.low, []).append(link)
    ready = [i for i in sorted(kept) if not waiting[i]]
    total = list(below)
    while ready:
        low = ready.pop(0)
        for link in up.get(low, ()):
            width = link.bandwidth or total[low] / len(up[low]) / oversub / layout.oversub
            total[link.high] += width
            yield link, width
            waiting[link.high] -= 1
            if not waiting[link.high]:
                ready.append(link.high)


def _back_to_back(topology: Topology, ports: tuple[Port, ...]) -> Topology:
    hosts = sorted({port.host for port in ports})
    if len(hosts) != 2:
        raise BadTopology(
            f"{topology.name}: fabric direct connects two hosts, not {len(hosts)}",
            hint="fabric=star and fabric=rails connect any number",
        )
    links = list(topology.links)
    there = {port.slot: port for port in ports if port.host == hosts[1]}
    for port in ports:
        if port.host == hosts[0] and port.slot in there:
            other = there[port.slot]
            bandwidth = min(port.bandwidth, other.bandwidth)
            names = (*port.names_of_host(), *other.names_of_host())
            alpha = max(port.alpha, other.alpha)
            links += both_ways(port.node, other.node, bandwidth, alpha, names=names)
    return replace(topology, links=tuple(links), symmetries=())
