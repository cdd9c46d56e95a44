"""Fabrics between hosts: the switch of each NIC.

==================  ===========================================================================
``star``            every NIC on one non-blocking switch
``rails``           NIC i of every host on rail switch i, without links between rails
``rails+spine``     the same, with a spine above the rail switches (``oversub=2``: half as wide)
``planes:K``        NIC i on plane i mod K, without links between planes
``pods:B``          B hosts on one leaf switch, with a spine above the leaves (``oversub=``)
``direct``          two hosts back to back: NIC i with NIC i
==================  ===========================================================================

A NIC of one GPU is the link from that GPU to the fabric; a NIC of several GPUs is a node between
them and the fabric, so that they share its bandwidth.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from ..base.errors import BadTopology, UnknownName, UserError
from ..base.spans import Span
from ..nouns.topology import Link, Node, Topology, both_ways, switch

FABRICS = ("star", "rails", "rails+spine", "planes:K", "pods:B", "direct")


@dataclass(frozen=True, slots=True)
class Port:
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


@dataclass(frozen=True, slots=True)
class FabricSpec:
    """Kind of wiring; ``size`` is K of planes, B of pods."""

    kind: str
    size: int = 1
    oversub: Fraction = Fraction(1)


def parse_fabric(text: str, where: Span | None = None) -> FabricSpec:
    """Parse ``rails``, ``planes:2`` and the like, without the oversubscription.

    Raises:
        UnknownName: an unknown fabric. UserError: a missing or superfluous number.
    """
    kind, _, number = text.partition(":")
    sized = f"{kind}:K" in FABRICS or f"{kind}:B" in FABRICS
    if not sized and kind not in FABRICS:
        raise UnknownName("fabric", text, FABRICS, where=where)
    if sized != bool(number) or (sized and not (number.isascii() and number.isdigit())):
        raise UserError(
            f"fabric {text!r} is not complete" if sized else f"fabric {kind} takes no number",
            where=where,
            hint=f"known: {', '.join(FABRICS)}",
        )
    size = int(number[:9]) if number else 1
    if size < 1:
        raise UserError(f"fabric {text!r} has no switches", where=where)
    return FabricSpec(kind, size)


def join(topology: Topology, ports: tuple[Port, ...], fabric: FabricSpec) -> Topology:
    """Return the topology with its ports wired.

    Raises:
        BadTopology: ``direct`` with other than two hosts.
    """
    if fabric.kind == "direct":
        return _back_to_back(topology, ports)
    leaf_of = {port: _leaf(port, fabric) for port in ports}
    names = list(dict.fromkeys(sorted(leaf_of.values(), key=_natural)))
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


def _natural(name: str) -> tuple[int, str]:
    return len(name), name


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
