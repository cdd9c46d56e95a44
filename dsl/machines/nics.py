"""NICs of a machine with their usual names, for all forms of machine descriptions.

A NIC is a node of that kind, or, where GPUs have their own, the cable from a host's node to the
outside. Cables that load a common shared resource are one NIC.

>>> from weft.dsl.catalogue import topology
>>> [nic.name for nic in nics_of(topology("dgx2:nodes=2"))][:2]
['nic0.0', 'nic0.1']
>>> nics_of(topology("dgx-a100:nodes=2"))[3].names
('host0.nic3', 'nic0.3', 'gpu3')
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from ..nouns.topology import NodeKind, Topology


@dataclass(frozen=True, slots=True)
class Nic:
    """A NIC: its names, the displayed one first, and all its links."""

    names: tuple[str, ...]
    links: tuple[int, ...]

    @property
    def name(self) -> str:
        """Return the displayed name."""
        return self.names[0]


def nics_of(topology: Topology) -> tuple[Nic, ...]:
    """Return all NICs, host by host; ``hostH.nicI`` counts those of a host from 0.

    A NIC that is a node is displayed by its own name. Names of the others: ``nicH.I``, the name of
    the GPU or switch that has only this one, and the names of its shared resources.
    """
    found = [*_of_nodes(topology), *_of_cables(topology)]
    found.sort(key=lambda nic: (nic.host, nic.links))
    count: Counter[int] = Counter()
    uses = Counter(alias for nic in found for alias in nic.aliases)
    named = []
    for nic in found:
        place = count[nic.host]
        count[nic.host] += 1
        own = [f"host{nic.host}.nic{place}", *([] if nic.node else [f"nic{nic.host}.{place}"])]
        others = [a for a in nic.aliases if uses[a] == 1]
        names = [*others, *own] if nic.node else [*own, *others]
        named.append(Nic(tuple(dict.fromkeys(names)), nic.links))
    return tuple(named)


@dataclass(frozen=True, slots=True)
class _UnnumberedNic:
    """A NIC before numbering: host, further names, links, and whether it is a node."""

    host: int
    aliases: tuple[str, ...]
    links: tuple[int, ...]
    node: bool


def _of_nodes(topology: Topology) -> Iterator[_UnnumberedNic]:
    """Yield NICs that are nodes, each with all its links."""
    at: dict[int, list[int]] = defaultdict(list)
    for i, link in enumerate(topology.links):
        for end in (link.src, link.dst):
            if topology.nodes[end].kind is NodeKind.NIC:
                at[end].append(i)
    for node, links in at.items():
        one = topology.nodes[node]
        yield _UnnumberedNic(one.host or 0, (one.name,), tuple(links), node=True)


def _of_cables(topology: Topology) -> Iterator[_UnnumberedNic]:
    """Yield NICs that are cables from a node of a host to a node outside."""
    if topology.hosts < 2:
        return
    cables: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    seen: Counter[tuple[int, int]] = Counter()
    for i, link in enumerate(topology.links):
        if NodeKind.NIC in (topology.nodes[link.src].kind, topology.nodes[link.dst].kind):
            continue
        turn = seen[link.src, link.dst]
        seen[link.src, link.dst] += 1
        for inside, outside in ((link.src, link.dst), (link.dst, link.src)):
            host = topology.nodes[inside].host
            if host is not None and topology.nodes[outside].host != host:
                cables[inside, outside, turn].append(i)  # k-th links of both directions: one cable
    for keys, resources in _tied(topology, cables):
        links = tuple(sorted(i for key in keys for i in cables[key]))
        ports = sorted({key[0] for key in keys})
        aliases = (*(topology.nodes[v].name for v in ports), *resources)
        yield _UnnumberedNic(topology.nodes[ports[0]].host or 0, aliases, links, node=False)


def _tied(
    topology: Topology, cables: dict[tuple[int, int, int], list[int]]
) -> Iterator[tuple[list[tuple[int, int, int]], list[str]]]:
    """Yield cables of one host grouped by shared resources, with the resources' names."""
    group = {key: [key] for key in cables}
    shares: dict[tuple[int, int, int], set[str]] = {key: set() for key in cables}
    for resource in topology.resources:
        held = set(resource.links)
        members = [key for key, links in cables.items() if held.intersection(links)]
        for host in {topology.nodes[key[0]].host for key in members}:
            mine = [key for key in members if topology.nodes[key[0]].host == host]
            joined = list(dict.fromkeys(k for key in mine for k in group[key]))
            for key in joined:
                group[key] = joined
            shares[joined[0]].add(resource.name)
    done: set[tuple[int, int, int]] = set()
    for key, joined in group.items():
        if key not in done:
            done.update(joined)
            yield joined, sorted(set().union(*(shares[k] for k in joined)))
