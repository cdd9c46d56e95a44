"""A machine of many hosts as one of hosts: what a drawing shows before a host is opened.

Its nodes are hosts and the switches between them, its links all links of two of these together.
Switches that join the same, such as rails, are one node; hosts behind the same switches are a rack,
where there are several such.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from fractions import Fraction

from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.topology import Link, Node, NodeKind, Topology

MOST_OPEN = 100
"""Most ranks whose machine is drawn open."""


@dataclass(frozen=True, slots=True)
class FoldedMachine:
    """A machine of hosts.

    Attributes:
        topology: hosts as its GPUs, and what stands between them.
        node_of: its node for each node of the whole machine. ``link_of``: its link for each link,
            -1 for those inside a host.
        ranks: those of each host, in their order.
    """

    topology: Topology
    node_of: tuple[int, ...]
    link_of: tuple[int, ...]
    ranks: tuple[tuple[int, ...], ...]

    def out_GBps(self, host: int) -> float:
        """Return the bandwidth of all links out of a host together."""
        return float(sum(x.bandwidth for x in self.topology.links if x.src == host))


def folded(topology: Topology) -> FoldedMachine | None:
    """Return a machine as one of hosts; None where it is small, or has no hosts to fold."""
    hosts = sorted({host for host in topology.host_of if host is not None})
    if topology.ranks <= MOST_OPEN or len(hosts) < 2 or None in topology.host_of:
        return None
    place = {host: i for i, host in enumerate(hosts)}
    between = [i for i, node in enumerate(topology.nodes) if node.host not in place]
    number, alike = _alike(topology, between, place, len(hosts))
    of_host = number | {
        i: place[node.host]
        for i, node in enumerate(topology.nodes)
        if node.host is not None and node.host in place
    }
    node_of = tuple(of_host[i] for i in range(len(topology.nodes)))
    ends = [(node_of[x.src], node_of[x.dst]) for x in topology.links]
    widths: dict[tuple[int, int], Fraction] = defaultdict(Fraction)
    for pair, link in zip(ends, topology.links, strict=True):
        if pair[0] != pair[1]:
            widths[pair] += link.bandwidth
    pairs = list(widths)
    index = {pair: i for i, pair in enumerate(pairs)}
    racks = _racks(len(hosts), pairs)
    nodes = [
        Node(f"host {host}", NodeKind.GPU, racks[i] if racks else None)
        for i, host in enumerate(hosts)
    ]
    nodes += [_together(topology, mine) for mine in alike]
    latency = min((x.latency for x in topology.links), default=Fraction(0))
    links = tuple(Link(a, b, widths[a, b], latency) for a, b in pairs)
    ranks: list[list[int]] = [[] for _ in hosts]
    for rank, host in enumerate(topology.host_of):
        assert host is not None
        ranks[place[host]].append(rank)
    made = Topology(topology.name, tuple(nodes), links)
    return FoldedMachine(
        made,
        node_of,
        tuple(index.get(pair, -1) for pair in ends),
        tuple(map(tuple, ranks)),
    )


def _alike(
    topology: Topology, between: Sequence[int], place: Mapping[int, int], first: int
) -> tuple[dict[int, int], list[list[int]]]:
    """Return a number for each node between hosts, from ``first`` on, and the nodes of each number:
    those that join the same hosts and switches, such as the rails of a cluster, have one."""
    near: dict[int, set[tuple[str, int]]] = {i: set() for i in between}
    for x in topology.links:
        for a, b in ((x.src, x.dst), (x.dst, x.src)):
            if a in near:
                host = topology.nodes[b].host
                joined = (
                    ("host", place[host]) if host is not None and host in place else ("node", b)
                )
                near[a].add(joined)
    kinds: dict[frozenset[tuple[str, int]], list[int]] = defaultdict(list)
    for i in between:
        kinds[frozenset(near[i])].append(i)
    alike = list(kinds.values())
    return {i: first + k for k, mine in enumerate(alike) for i in mine}, alike


def _together(topology: Topology, mine: Sequence[int]) -> Node:
    """Return the node that stands for several: ``rail0…rail7``."""
    one, last = topology.nodes[mine[0]], topology.nodes[mine[-1]]
    if len(mine) == 1:
        return Node(one.name, one.kind, None, names=one.names)
    return Node(f"{one.name}…{last.name}", one.kind, None)


def _racks(hosts: int, pairs: Sequence[tuple[int, int]]) -> list[int]:
    """Return the rack of each host, by the switches that it is linked with; empty if there is one
    rack, or each host is one."""
    near: list[set[int]] = [set() for _ in range(hosts)]
    for a, b in pairs:
        if a < hosts <= b:
            near[a].add(b)
        elif b < hosts <= a:
            near[b].add(a)
    kinds = {switches: i for i, switches in enumerate(dict.fromkeys(map(frozenset, near)))}
    if not 1 < len(kinds) < hosts:
        return []
    return [kinds[frozenset(mine)] for mine in near]


def ranks_words(ranks: Sequence[int]) -> str:
    """Return ranks in words: ``8…15`` where they follow each other."""
    if len(ranks) > 1 and list(ranks) == list(range(ranks[0], ranks[-1] + 1)):
        return f"{ranks[0]}…{ranks[-1]}"
    shown = ", ".join(map(str, ranks[:8]))
    return shown if len(ranks) <= 8 else f"{shown}, …"
