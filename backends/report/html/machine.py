"""Drawing of a machine for a page: nodes, links, hosts and shared resources."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from weft.dsl.base.arrays import Floats
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.machines.confined import plain_machine
from weft.dsl.nouns.topology import Link, Node, NodeKind, Topology

from ..layout import half_width, layout, link_paths, node_label
from ..sizes import LIMITS
from .page import figure


def machine_map(topology: Topology, share: Floats | None = None) -> dict[str, Any]:
    """Return the facts of the drawing.

    ``links`` are (source, destination, GB/s, path) of those that are drawn, ``index`` their
    numbers; ``share``: of its time, how much each link and resource is in use, by which the busiest
    are chosen where there are too many. A machine of many hosts is ``folded`` as well: drawn as
    hosts, each of which opens.
    """
    topology = plain_machine(topology).machine if share is None else topology
    small = folded(topology)
    facts = _drawn(topology, share, LIMITS.folded_links if small else LIMITS.links)
    return {**facts, "folded": _folded_facts(small)} if small else facts


def _folded_facts(one: FoldedMachine) -> dict[str, Any]:
    """Return the drawing of hosts, and the parts of the whole that each of its parts stands for."""
    facts = _drawn(one.topology, None, LIMITS.links)
    racks = {box[0]: f"rack {box[0].removeprefix('host ')}" for box in facts["boxes"]}
    hosts = len(one.ranks)
    return {
        **facts,
        "boxes": [[racks[box[0]], *box[1:]] for box in facts["boxes"]],
        "nodes": [
            [node[0], "host", *node[2:5], f"GPUs {ranks_words(one.ranks[i])}", node[6]]
            if i < hosts
            else node
            for i, node in enumerate(facts["nodes"])
        ],
        "of": list(one.link_of),
        "at": list(one.node_of),
        "hosts": [
            f"{node.name}: GPUs {ranks_words(one.ranks[i])}, {figure(one.out_GBps(i))} GB/s out"
            for i, node in enumerate(one.topology.nodes[:hosts])
        ],
    }


def _drawn(topology: Topology, share: Floats | None, most: int) -> dict[str, Any]:
    found = layout(topology)
    drawn = list(range(len(topology.links)))
    if len(drawn) > most:
        use = np.zeros(len(drawn)) if share is None else share[: len(drawn)]
        drawn = sorted(np.argsort(-use, kind="stable")[:most].tolist())
    paths = link_paths(topology, found, drawn)
    return {
        "name": topology.name,
        "grid": found.grid,
        "width": _short(found.width),
        "height": _short(found.height),
        "nodes": [
            [
                node.name,
                str(node.kind),
                _short(x),
                _short(y),
                _short(half_width(topology, i)),
                ", ".join(node.names),
                node_label(topology, i),
            ]
            for i, (node, (x, y)) in enumerate(zip(topology.nodes, found.spots, strict=True))
        ],
        "boxes": [[b.name, *map(_short, (b.x, b.y, b.width, b.height))] for b in found.frames],
        "links": [
            [x.src, x.dst, float(f"{float(x.bandwidth):.6g}"), paths[i]]
            for i, x in ((i, topology.links[i]) for i in drawn)
        ],
        "index": drawn,
        "wraps": [i for i in drawn if i in found.wraps],
        "own": {i: ", ".join(topology.links[i].names) for i in drawn if topology.links[i].names},
        "resources": [
            [r.name, float(f"{float(r.bandwidth):.6g}"), list(r.links)] for r in topology.resources
        ],
        "left_out": len(topology.links) - len(drawn),
    }


def _short(value: float) -> float:
    return round(value, 1)


# A machine of many hosts as one of hosts: what a drawing shows before a host is opened.
#
# Its nodes are hosts and the switches between them, its links all links of two of these together.
# Switches that join the same, such as rails, are one node; hosts behind the same switches are a
# rack, where there are several such.


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
    """Return a machine as one of hosts; None where it is small, or lacks hosts to fold."""
    hosts = sorted({host for host in topology.host_of if host is not None})
    if topology.ranks <= LIMITS.open_ranks or len(hosts) < 2 or None in topology.host_of:
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
