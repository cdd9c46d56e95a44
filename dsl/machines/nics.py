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

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

from ..base.lazy_dataclass import dataclass
from ..nouns.parts import Medium
from ..nouns.topology import NodeKind, Topology
from .confined import plain_machine

_NUMBERED = re.compile(r"NIC(\d{1,6})", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Nic:
    """A NIC: its names, the displayed one first, and all its links."""

    names: tuple[str, ...]  # each is this NIC's alone
    links: tuple[int, ...]
    # host, number: the host that it belongs to, and its number there
    host: int = 0
    number: int = 0
    # Names that the host's own tools use; NICs of other hosts may have the same names
    own: tuple[str, ...] = ()
    node: int | None = None  # its node, if it is one
    gpus: tuple[int, ...] = ()  # the ranks that have it on their own cable; empty for a node

    @property
    def name(self) -> str:
        """Return the displayed name."""
        return self.names[0]


def own_number(names: Iterable[str]) -> int | None:
    """Return the number that a machine's tools give a NIC: 3 of ``NIC3``."""
    found = filter(None, map(_NUMBERED.fullmatch, names))
    return next((int(match[1]) for match in found), None)


def nics_of(topology: Topology) -> tuple[Nic, ...]:
    """Return all NICs, host by host; ``hostH.nicI`` has the number that the machine's tools give it
    (``NIC3``), or counts those of a host from 0.

    Displayed is the name of its tools with the host (``host0.mlx5_3``), else that of its node.
    Names of the others: ``nicH.I``, the name of
    the GPU or switch that has only this one, and the names of its shared resources.
    """
    whole = plain_machine(topology)
    found = [*_of_nodes(whole.machine), *_of_cables(whole.machine)]
    found.sort(key=lambda nic: (nic.host, nic.links))
    places = _numbers(found)
    uses = Counter(alias for nic in found for alias in nic.aliases)
    uses.update(f"host{nic.host}.{name}" for nic in found for name in nic.own)
    named = []
    for nic, place in zip(found, places, strict=True):
        counted = [f"host{nic.host}.nic{place}"]
        counted += [] if nic.node is not None else [f"nic{nic.host}.{place}"]
        others = [a for a in nic.aliases if uses[a] == 1]
        own = [f"host{nic.host}.{name}" for name in nic.own if not _NUMBERED.fullmatch(name)]
        own = [name for name in own if uses[name] == 1]
        weft = [*others, *counted] if nic.node is not None else [*counted, *others]
        names = tuple(dict.fromkeys([*own[:1], *weft, *own[1:]]))
        node = None if nic.node is None else whole.nodes[nic.node]
        named.append(Nic(names, whole.spread(nic.links), nic.host, place, nic.own, node, nic.gpus))
    return tuple(named)


@dataclass(frozen=True, slots=True)
class _UnnumberedNic:
    """A NIC before numbering: host, further names, links, and whether it is a node."""

    host: int
    aliases: tuple[str, ...]
    links: tuple[int, ...]
    own: tuple[str, ...]
    node: int | None = None
    gpus: tuple[int, ...] = ()


def _numbers(found: Sequence[_UnnumberedNic]) -> list[int]:
    """Return the number of each NIC in its host: by its tools, if they number all of the host."""
    by_tools = [own_number(nic.own) for nic in found]
    count: Counter[int] = Counter()
    given: dict[int, list[int | None]] = defaultdict(list)
    for nic, number in zip(found, by_tools, strict=True):
        given[nic.host].append(number)
    numbers = []
    for nic, number in zip(found, by_tools, strict=True):
        known = None not in given[nic.host] and len(set(given[nic.host])) == len(given[nic.host])
        numbers.append(number if known and number is not None else count[nic.host])
        count[nic.host] += 1
    return numbers


def _of_nodes(topology: Topology) -> Iterator[_UnnumberedNic]:
    at: dict[int, list[int]] = defaultdict(list)
    for i, link in enumerate(topology.links):
        for end in (link.src, link.dst):
            if topology.nodes[end].kind is NodeKind.NIC:
                at[end].append(i)
    for node, links in at.items():
        one = topology.nodes[node]
        yield _UnnumberedNic(one.host or 0, (one.name,), tuple(links), one.names, node)


def _of_cables(topology: Topology) -> Iterator[_UnnumberedNic]:
    """Yield NICs that are cables from a node of a host to a node outside."""
    if topology.hosts < 2:
        return
    cables: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    seen: Counter[tuple[int, int]] = Counter()
    for i, link in enumerate(topology.links):
        if NodeKind.NIC in (topology.nodes[link.src].kind, topology.nodes[link.dst].kind):
            continue
        if link.medium is Medium.NVLINK:  # to an NVSwitch that hosts of a rack share
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
        host = topology.nodes[ports[0]].host or 0
        gpus = tuple(v for v in ports if v < topology.ranks)
        yield _UnnumberedNic(host, aliases, links, _own(topology, links, host), None, gpus)


def _own(topology: Topology, links: Iterable[int], host: int) -> tuple[str, ...]:
    """Return the names of links in a host: of links between hosts, those that begin with it."""
    names = dict.fromkeys(name for i in links for name in topology.links[i].names)
    others = re.compile(rf"host(?!{host}\.)\d+\.")
    return tuple(n.removeprefix(f"host{host}.") for n in names if not others.match(n))


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
