"""Hosts: which GPUs belong together, and the graphs of groups that trees over them grow in.

There are two views of a machine. In the *fabric* every host is one group, which is reached as soon
as one of its GPUs is. *Inside* a host every GPU is a group, and only nodes of the host forward.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np

from weft.dsl.base.arrays import Bools, Ints, distinct_values
from weft.dsl.base.components import components
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.hops import islands
from weft.dsl.nouns.topology import Topology

from .fabric import Fabric, fabric_of

WIDTH = 6
"""Links of a route, at most, unless something is out of reach then."""


class GroupGraph(NamedTuple):
    """A graph of groups in arrays (all int64), as compiled loops take it."""

    width: int  # most links of a route
    link_src: Ints  # node, by link of the machine
    link_dst: Ints  # node, by link of the machine
    out_start: Ints  # (nodes + 1,): of out_link, the links that leave node v
    out_link: Ints  # links of this graph, by the node that they leave
    row_start: Ints  # (links + 1,): of rows, the resources that link i loads
    rows: Ints  # links and shared resources, by link
    group: Ints  # of each node; -1: it does not store, or is in none
    member_start: Ints  # (groups + 1,): of member, the GPUs of group g
    member: Ints  # GPUs, by group


@dataclass(frozen=True, eq=False)
class Hosts:
    """A machine and the host of every node, -1 for those of none (the fabric's)."""

    topology: Topology
    host: Ints

    @cached_property
    def members(self) -> tuple[Ints, ...]:
        """The ranks of each host."""
        of = self.host[: self.topology.ranks]
        return tuple(np.flatnonzero(of == b) for b in range(int(of.max()) + 1))

    @property
    def machine(self) -> Fabric:
        """Its links and resources."""
        return fabric_of(self.topology)

    @cached_property
    def within(self) -> Bools:
        """Per link: True if both ends are in one host."""
        a, b = self.host[self.machine.src], self.host[self.machine.dst]
        same: Bools = (a == b) & (a >= 0)
        return same

    def fabric(self, *, turned: bool) -> GroupGraph:
        """The machine as a graph of groups: the hosts."""
        ranks = self.topology.ranks
        group = np.where(np.arange(len(self.host)) < ranks, self.host, -1)
        a, b = self.machine.src, self.machine.dst
        useless = self.within & (a < ranks) & (b < ranks)
        return self._graph(np.flatnonzero(~useless), group, turned, WIDTH)

    def inside(self, b: int, *, turned: bool) -> GroupGraph:
        """Graph inside a host: group k is its k-th GPU; nodes and resources keep their numbers."""
        group = np.full(len(self.host), -1)
        group[self.members[b]] = np.arange(len(self.members[b]))
        return self._graph(self.links_of[b], group, turned, WIDTH)

    @cached_property
    def links_of(self) -> tuple[Ints, ...]:
        """The links within each host."""
        mine = np.flatnonzero(self.within)
        mine = mine[np.argsort(self.host[self.machine.src[mine]], kind="stable")]
        cuts = np.searchsorted(self.host[self.machine.src[mine]], np.arange(1, len(self.members)))
        return tuple(np.split(mine, cuts))

    def rows_of(self, b: int) -> Ints:
        """The resources that links within a host load, sorted."""
        return distinct_values(self.machine.resources_of(self.links_of[b])[1])

    def shape(self, b: int) -> bytes:
        """Key of a host's inner structure in its own numbering: equal for equal hosts."""
        links, rows = self.links_of[b], self.rows_of(b)
        nodes = distinct_values(
            np.concatenate([self.members[b], self.machine.src[links], self.machine.dst[links]])
        )
        at, row = self.machine.resources_of(links)
        parts = [
            np.searchsorted(nodes, self.machine.src[links]),
            np.searchsorted(nodes, self.machine.dst[links]),
            at,
            np.searchsorted(rows, row),
        ]
        capacity = ",".join(str(self.machine.bandwidth[i]) for i in rows)
        sizes = f"{len(self.members[b])} {len(nodes)} {capacity} "
        return sizes.encode() + b"".join(p.astype(np.int32).tobytes() for p in parts)

    def _graph(self, links: Ints, group: Ints, turned: bool, width: int) -> GroupGraph:
        machine = self.machine
        src, dst = (machine.dst, machine.src) if turned else (machine.src, machine.dst)
        by_source = links[np.argsort(src[links], kind="stable")]
        start = np.searchsorted(src[by_source], np.arange(len(group) + 1))
        member = np.flatnonzero(group >= 0)
        member = member[np.argsort(group[member], kind="stable")]
        groups = int(group.max()) + 1
        return GroupGraph(
            width,
            src,
            dst,
            start,
            by_source,
            machine.first,
            machine.resource,
            group,
            np.searchsorted(group[member], np.arange(groups + 1)),
            member,
        )


def hosts_of(topology: Topology) -> Hosts | None:
    """Return the named hosts of a machine, or the components of wide links; None if there are none.

    Every host has two GPUs or more and there are two or more of them.
    """
    named = [node.host for node in topology.nodes]
    known = sorted({h for h in named[: topology.ranks] if h is not None})
    if len(known) > 1 and None not in named[: topology.ranks]:
        place = {h: i for i, h in enumerate(known)}
        host = np.array([-1 if h is None else place.get(h, -1) for h in named])
    else:
        found = _islands(topology)
        if found is None:
            return None
        host = found
    sizes = np.bincount(host[: topology.ranks])
    return Hosts(topology, host) if sizes.min() > 1 and len(sizes) > 1 else None


def _islands(topology: Topology) -> Ints | None:
    """Components of the links above a bandwidth: the coarsest ones that leave no GPU alone."""
    width = np.array([float(x.bandwidth) for x in topology.links])
    ends, n = topology.link_ends(), len(topology.nodes)
    for least in distinct_values(width)[1:].tolist():
        fast = width >= least
        if len(islands(topology.without_links(np.flatnonzero(~fast).tolist()))) < 2:
            continue
        labels = components(n, *ends[fast].T)
        used = distinct_values(labels[: topology.ranks])
        host = np.where(np.isin(labels, used), np.searchsorted(used, labels), -1)
        sizes = np.bincount(host[: topology.ranks])
        if 1 < len(sizes) and sizes.min() > 1:
            return host.astype(np.int64)
    return None
