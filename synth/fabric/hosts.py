"""Boxes: which GPUs belong together, and the graphs of groups that the search works on.

A machine is seen twice. From the *fabric* every box is one group that is whole as soon as one of
its GPUs is reached. *Inside* a box every GPU is a group, and only nodes of the box forward.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from weft.dsl.base.arrays import Bools, Ints
from weft.dsl.nouns.hops import islands
from weft.dsl.nouns.topology import Topology

from ....fabric.occupancy import LinkTable

WIDTH = 6
"""Links of a route, at most, unless something is out of reach then."""


@dataclass(frozen=True, eq=False)
class Boxes:
    """A machine and the box of every node, -1 for those of none (the fabric's)."""

    topology: Topology
    box: Ints

    @cached_property
    def members(self) -> tuple[Ints, ...]:
        """The ranks of each box."""
        of = self.box[: self.topology.ranks]
        return tuple(np.flatnonzero(of == b) for b in range(int(of.max()) + 1))

    @cached_property
    def table(self) -> LinkTable:
        """The links in columns."""
        return LinkTable.of(self.topology)

    @cached_property
    def bandwidth(self) -> tuple[Fraction, ...]:
        """GB/s of every row."""
        return self.topology.capacities()

    @cached_property
    def within(self) -> Bools:
        """Whether both ends of a link are in one box, per link."""
        a, b = self.box[self.table.src], self.box[self.table.dst]
        same: Bools = (a == b) & (a >= 0)
        return same

    def fabric(self, *, turned: bool, width: int = WIDTH) -> Any:
        """The machine from outside: groups are boxes."""
        ranks = self.topology.ranks
        group = np.where(np.arange(len(self.box)) < ranks, self.box, -1)
        a, b = self.table.src, self.table.dst
        useless = self.within & (a < ranks) & (b < ranks)
        return self._field(np.flatnonzero(~useless), group, turned, width)

    def inside(self, b: int, *, turned: bool) -> Any:
        """One box from inside: its group k is its k-th GPU; nodes and rows keep their numbers."""
        group = np.full(len(self.box), -1)
        group[self.members[b]] = np.arange(len(self.members[b]))
        return self._field(self.links_of[b], group, turned, WIDTH)

    @cached_property
    def links_of(self) -> tuple[Ints, ...]:
        """The links within each box."""
        mine = np.flatnonzero(self.within)
        mine = mine[np.argsort(self.box[self.table.src[mine]], kind="stable")]
        cuts = np.searchsorted(self.box[self.table.src[mine]], np.arange(1, len(self.members)))
        return tuple(np.split(mine, cuts))

    def rows_of(self, b: int) -> Ints:
        """The rows that links within a box load, sorted."""
        return np.unique(self.table.rows_of(self.links_of[b])[1])

    def shape(self, b: int) -> bytes:
        """A box inside, in terms of its own numbering: equal for boxes that are alike."""
        links, rows = self.links_of[b], self.rows_of(b)
        nodes = np.unique(
            np.concatenate([self.members[b], self.table.src[links], self.table.dst[links]])
        )
        at, row = self.table.rows_of(links)
        parts = [
            np.searchsorted(nodes, self.table.src[links]),
            np.searchsorted(nodes, self.table.dst[links]),
            at,
            np.searchsorted(rows, row),
        ]
        capacity = ",".join(str(self.bandwidth[i]) for i in rows)
        sizes = f"{len(self.members[b])} {len(nodes)} {capacity} "
        return sizes.encode() + b"".join(p.astype(np.int32).tobytes() for p in parts)

    def _field(self, links: Ints, group: Ints, turned: bool, width: int) -> Any:
        from ..hosts.kernels import Field

        table = self.table
        src, dst = (table.dst, table.src) if turned else (table.src, table.dst)
        by_source = links[np.argsort(src[links], kind="stable")]
        start = np.searchsorted(src[by_source], np.arange(len(group) + 1))
        member = np.flatnonzero(group >= 0)
        member = member[np.argsort(group[member], kind="stable")]
        groups = int(group.max()) + 1
        return Field(
            width,
            src,
            dst,
            start,
            by_source,
            table.start,
            table.rows,
            group,
            np.searchsorted(group[member], np.arange(groups + 1)),
            member,
        )


def boxes_of(topology: Topology) -> Boxes | None:
    """The boxes of a machine: its hosts, or what wide links join; None where there are none.

    Every box has two GPUs or more and there are two or more of them.
    """
    hosts = [node.host for node in topology.nodes]
    known = sorted({h for h in hosts[: topology.ranks] if h is not None})
    if len(known) > 1 and None not in hosts[: topology.ranks]:
        place = {h: i for i, h in enumerate(known)}
        box = np.array([-1 if h is None else place.get(h, -1) for h in hosts])
    else:
        found = _islands(topology)
        if found is None:
            return None
        box = found
    sizes = np.bincount(box[: topology.ranks])
    return Boxes(topology, box) if sizes.min() > 1 and len(sizes) > 1 else None


def _islands(topology: Topology) -> Ints | None:
    """What links above some bandwidth join, the coarsest way that leaves no GPU alone."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    width = np.array([float(x.bandwidth) for x in topology.links])
    ends, n = topology.link_ends(), len(topology.nodes)
    for least in np.unique(width)[1:].tolist():
        fast = width >= least
        if len(islands(topology.without_links(np.flatnonzero(~fast).tolist()))) < 2:
            continue
        a, b = ends[fast].T
        graph = coo_array((np.ones(len(a)), (a, b)), shape=(n, n))
        labels = connected_components(graph, directed=False)[1]
        used = np.unique(labels[: topology.ranks])
        box = np.where(np.isin(labels, used), np.searchsorted(used, labels), -1)
        sizes = np.bincount(box[: topology.ranks])
        if 1 < len(sizes) and sizes.min() > 1:
            return box.astype(np.int64)
    return None
