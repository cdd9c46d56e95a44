"""The machine as the groups of one phase see it: each its own links, and its share of what they
have in common.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from weft.dsl.base.arrays import Ints
from weft.dsl.nouns.hops import find_hops
from weft.dsl.nouns.topology import Link, Node, Resource, Topology


@dataclass(frozen=True, eq=False)
class GroupMachine:
    """The machine of one group: ``nodes[v]`` and ``links[i]`` are what its node v and its link i
    are in the whole machine.

    Names are those of places, so that groups that are wired alike have equal machines.
    """

    topology: Topology
    nodes: tuple[int, ...]
    links: Ints

    @property
    def likeness(self) -> tuple[object, ...]:
        """Equal for machines that are alike."""
        one = self.topology
        return one.nodes, one.links, one.resources


def group_machines(
    topology: Topology, groups: Sequence[tuple[int, ...]], name: str
) -> list[GroupMachine]:
    """The machines of groups that are at work at once.

    A link or resource that k of them can use has the k-th part of its bandwidth in each: so a
    schedule takes as long alone there as all of them take together.
    """
    used = [_between(topology, group) for group in groups]
    users = np.zeros(len(topology.links), np.int64)
    for links in used:
        users[sorted(links)] += 1
    sharers = [sum(not links.isdisjoint(r.links) for links in used) for r in topology.resources]
    return [
        _machine(topology, group, sorted(links), users.tolist(), sharers, name)
        for group, links in zip(groups, used, strict=True)
    ]


def _between(topology: Topology, group: tuple[int, ...]) -> set[int]:
    """The links on the ways from member to member through nodes that do not store."""
    kept = {*group, *range(topology.ranks, len(topology.nodes))}
    links = [i for i, x in enumerate(topology.links) if x.src in kept and x.dst in kept]
    hops = find_hops(topology.restricted_to(group)).hops
    return {links[i] for hop in hops for i in hop.route}


def _machine(
    topology: Topology,
    group: tuple[int, ...],
    links: list[int],
    users: list[int],
    sharers: list[int],
    name: str,
) -> GroupMachine:
    ends = {v for i in links for v in (topology.links[i].src, topology.links[i].dst)}
    nodes = (*group, *sorted(ends - set(group)))
    place = {node: i for i, node in enumerate(nodes)}
    new = {old: i for i, old in enumerate(links)}

    def link(i: int) -> Link:
        one = topology.links[i]
        src, dst = place[one.src], place[one.dst]
        return replace(one, src=src, dst=dst, bandwidth=one.bandwidth / users[i])

    shared: list[Resource] = []
    for r, sharing in zip(topology.resources, sharers, strict=True):
        members = tuple(new[i] for i in r.links if i in new)
        if members:
            shared.append(Resource(f"shared{len(shared)}", members, r.bandwidth / sharing))
    local = Topology(name, _named(topology, nodes), tuple(map(link, links)), tuple(shared))
    return GroupMachine(local, nodes, np.array(links, np.int64))


def _named(topology: Topology, nodes: tuple[int, ...]) -> tuple[Node, ...]:
    """The nodes with the names of their places; hosts are numbered as they come."""
    hosts: dict[int, int] = {}
    found = []
    for place, v in enumerate(nodes):
        node = topology.nodes[v]
        host = None if node.host is None else hosts.setdefault(node.host, len(hosts))
        found.append(replace(node, name=f"{node.kind}{place}", host=host))
    return tuple(found)
