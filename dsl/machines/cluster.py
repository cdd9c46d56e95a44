"""Clusters of different hosts: the hosts of several machines on one fabric.

A host is taken out of a machine of two of them on one switch: its nodes, the links between these,
and what leaves it as ports.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from ..base.errors import BadTopology, UserError
from ..base.lazy_dataclass import dataclass
from ..nouns.parts import Medium
from ..nouns.timing import NO_TIMING, MachineTiming
from ..nouns.topology import Link, Node, Topology
from ..symmetry.symmetry import GUESSED, Image, extend, guess
from .fabric_links import FabricSpec, Port, join
from .hosts import asked_capable, with_sharp
from .spec import MachineSpec, check_size


@dataclass(frozen=True, slots=True)
class HostTemplate:
    """A host: ``nodes`` (GPUs first) with links between them, and ports of a host 0."""

    name: str
    nodes: tuple[Node, ...]
    gpus: int
    links: tuple[Link, ...]
    ports: tuple[Port, ...]
    notes: tuple[str, ...] = ()
    timing: MachineTiming = NO_TIMING


def host_of(two: Topology, name: str) -> HostTemplate:
    """Return the first host of a machine of several.

    Raises:
        BadTopology: nothing leaves the host, or links share bandwidth.
    """
    if two.hosts < 2:
        raise BadTopology(
            f"{name} is one host, and what leaves it is not known",
            hint="give the text of its tools, or a machine of two such hosts",
        )
    if two.resources:
        raise BadTopology(f"{name}: hosts with shared resources cannot be joined with others")
    if any(
        one.medium is Medium.NVLINK and two.nodes[one.src].host != two.nodes[one.dst].host
        for one in two.links
    ):
        raise BadTopology(
            f"{name}: its hosts share an NVSwitch, and cannot be joined with others",
            hint="nodes= makes more of one kind; trays=1 gives each host a switch of its own",
        )
    inside = [v for v, node in enumerate(two.nodes) if node.host == two.host_of[0]]
    place = {v: i for i, v in enumerate(inside)}
    links: list[Link] = []
    ports: list[Port] = []
    for one in two.links:
        if one.src in place and one.dst in place:
            links.append(replace(one, src=place[one.src], dst=place[one.dst]))
        elif one.src in place:
            slot, names = len(ports), one.names
            ports.append(Port(place[one.src], 0, slot, one.bandwidth, one.latency, names))
    if not ports:
        raise BadTopology(f"{name}: nothing leaves its hosts")
    nodes = tuple(two.nodes[v] for v in inside)
    gpus = sum(node.stores for node in nodes)
    return HostTemplate(name, nodes, gpus, tuple(links), tuple(ports), two.notes, two.timing)


def cluster(
    parts: Sequence[tuple[HostTemplate, int]], spec: MachineSpec, fabric: FabricSpec
) -> Topology:
    """Return the machine of all hosts on a fabric, in the order of the parts.

    Raises:
        UserError: too many GPUs, ``sharp=nvls``. BadTopology: ``direct`` with other than two hosts.
    """
    hosts = [template for template, count in parts for _ in range(count)]
    gpus = sum(host.gpus for host in hosts)
    check_size(spec, gpus, sum(len(host.links) for host in hosts))
    places = _places(hosts, gpus)
    nodes: list[Node] = [Node("")] * sum(len(host.nodes) for host in hosts)
    links: list[Link] = []
    ports: list[Port] = []
    for h, (host, place) in enumerate(zip(hosts, places, strict=True)):
        for i, node in enumerate(host.nodes):
            name = f"gpu{place[i]}" if node.stores else _renamed(node.name, h)
            nodes[place[i]] = replace(node, name=name, host=h)
        links += (replace(x, src=place[x.src], dst=place[x.dst]) for x in host.links)
        ports += (replace(p, node=place[p.node], host=h) for p in host.ports)
    made = join(Topology(spec.title(), tuple(nodes), tuple(links)), tuple(ports), fabric)
    able = asked_capable(spec)
    if able.hosts:
        raise UserError(
            "sharp= of several kinds of hosts is of their network",
            where=spec.keys["sharp"],
            hint="sharp=fabric; nvls=on in the term of each host that has it",
        )
    if able.fabric:
        made = with_sharp(made, len(nodes))
    families = {host.timing.family for host, _ in parts}
    timing = hosts[0].timing if len({host.timing for host in hosts}) == 1 else NO_TIMING
    notes = [f"{host.name}: {note}" for host, _ in parts for note in host.notes]
    notes += made.notes
    if len(families) > 1:
        listed = ", ".join(sorted(family or "unknown" for family in families))
        notes.append(
            f"GPUs of several families ({listed}): times of programs are of none (family=)"
        )
    return replace(
        made, symmetries=_symmetries(made, parts), notes=tuple(dict.fromkeys(notes)), timing=timing
    )


def _places(hosts: Sequence[HostTemplate], gpus: int) -> list[list[int]]:
    """Return the node numbers of each host: all GPUs first, host by host, then the rest."""
    places, rank, other = [], 0, gpus
    for host in hosts:
        rest = len(host.nodes) - host.gpus
        places.append([*range(rank, rank + host.gpus), *range(other, other + rest)])
        rank, other = rank + host.gpus, other + rest
    return places


def _renamed(name: str, host: int) -> str:
    """Return the name of a part of host 0 in another: ``cpu0.1`` is ``cpu2.1`` in host 2."""
    found = re.fullmatch(r"(.*?[^\d.])0((?:\.\d+)?)", name)
    return f"{found[1]}{host}{found[2]}" if found else f"{name}.{host}"


def _symmetries(made: Topology, parts: Sequence[tuple[HostTemplate, int]]) -> tuple[Image, ...]:
    """Return the symmetries that :func:`guess` finds; in large machines rotations of like hosts."""
    if made.ranks <= GUESSED:
        return guess(made)
    images = []
    first = 0
    for host, count in parts:
        size = host.gpus * count
        block = [first + (r + host.gpus) % size for r in range(size)]
        image = extend(made, [*range(first), *block, *range(first + size, made.ranks)])
        images += [image] if image and count > 1 else []
        first += size
    return tuple(images)
