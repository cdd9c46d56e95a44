"""Combine trees over hosts with trees inside them; in arrays, since there are a million hops.

A *share* is a fraction of a chunk that has one tree over hosts. The shares that enter a GPU are
laid out side by side on an interval; the trees of that GPU inside its host cut the interval, and
possibly a share: a *piece* of a share takes the same tree inside every host.
"""

from __future__ import annotations

from fractions import Fraction
from math import lcm

import numpy as np

from weft.dsl.base.arrays import Bools, Floats, Ints
from weft.dsl.base.lazy_dataclass import dataclass

from ....fabric.hosts import Hosts
from ..trees.model import PackedTree
from .inner import Inside
from .search import TreeSet

FINEST = 1 << 40
"""Weights are multiples of one over this, at the finest."""


@dataclass(frozen=True, eq=False)
class ChunkShares:
    """Fractions of the chunks: ``weights`` of chunk ``chunk``, from rank ``root``, along tree i of
    ``tree_sets`` (per direction: reversed or not).
    """

    chunk: Ints
    root: Ints
    weights: tuple[Fraction, ...]
    tree_sets: dict[bool, TreeSet]

    def __len__(self) -> int:
        return len(self.chunk)


def entries(hosts: Hosts, shares: ChunkShares, turned: bool) -> Ints:
    """The GPU at which each share enters each host (the root's: the root): (shares, hosts)."""
    tree_set = shares.tree_sets[turned]
    ends = hosts.machine.src if turned else hosts.machine.dst
    last = (tree_set.links >= 0).sum(axis=2) - 1
    links = np.take_along_axis(tree_set.links, last[:, :, None], axis=2)[:, :, 0]
    found = np.empty((len(shares), len(hosts.members)), np.int64)
    np.put_along_axis(found, tree_set.order.astype(np.int64), ends[links], axis=1)
    found[np.arange(len(shares)), hosts.host[shares.root]] = shares.root
    return found


def entering(hosts: Hosts, shares: ChunkShares, turned: bool) -> Floats:
    """Return the data that enters each rank, its own data included, in chunks."""
    at = entries(hosts, shares, turned)
    weight = np.repeat([float(w) for w in shares.weights], at.shape[1])
    return np.bincount(at.ravel(), weight, hosts.topology.ranks).astype(np.float64)


def trees_of(
    hosts: Hosts, shares: ChunkShares, insides: dict[bool, Inside], most: int
) -> tuple[PackedTree, ...]:
    """The whole trees: of every piece the part that reduces (turned), then the one that copies.

    Shares are not cut into more than ``most`` pieces, or twice as many as there are shares.
    """
    parts = [
        _DirectionHops.of(hosts, shares, turned, insides[turned])
        for turned in sorted(insides)[::-1]
    ]
    unit, share, low, high = _pieces(shares, parts, most)
    chosen = [part.choose(unit, share, low, high) for part in parts]
    found = []
    for k, (s, a, b) in enumerate(zip(share.tolist(), low.tolist(), high.tolist(), strict=True)):
        hops = [part.hops(s, choice[k]) for part, choice in zip(parts, chosen, strict=True)]
        found.append(_tree(int(shares.chunk[s]), Fraction(b - a, unit), hops))
    return tuple(found)


_Hops = tuple[Ints, Ints, Bools, Ints, Ints]


def _tree(chunk: int, weight: Fraction, parts: list[_Hops]) -> PackedTree:
    src, dst, reduce, lengths, links = (np.concatenate(p) for p in zip(*parts, strict=True))
    start = np.concatenate([[0], np.cumsum(lengths)])
    return PackedTree(
        chunk,
        weight,
        src.astype(np.int32),
        dst.astype(np.int32),
        reduce,
        start.astype(np.int32),
        links.astype(np.int32),
    )


def _pieces(
    shares: ChunkShares, parts: list[_DirectionHops], most: int
) -> tuple[int, Ints, Ints, Ints]:
    """The unit of weight; share, first and last unit of each piece.

    Cuts fall where trees inside hosts end, unless that makes more than ``most`` pieces, or twice
    as many as there are shares.
    """
    unit = lcm(*(w.denominator for w in shares.weights))
    unit *= max(1, min(lcm(*(e.denominator for p in parts for e in p.inside.until)), 1 << 20))
    unit = min(unit, FINEST)
    whole = _units(shares, unit)
    for part in parts:
        part.lay(whole)
    cuts: list[tuple[int, int]] = [c for part in parts for c in part.cuts()]
    if len(cuts) + len(shares) > max(most, 2 * len(shares)):
        cuts = []
    of = [set[int]() for _ in range(len(shares))]
    for s, at in cuts:
        of[s].add(at)
    share, low, high = [], [], []
    for s, size in enumerate(whole.tolist()):
        ends = sorted(of[s] | {0, size})
        share += [s] * (len(ends) - 1)
        low += ends[:-1]
        high += ends[1:]
    return unit, np.array(share), np.array(low), np.array(high)


def _units(shares: ChunkShares, unit: int) -> Ints:
    """The weights in units, those of a chunk adding up to one chunk."""
    whole = np.array([int(w * unit) for w in shares.weights])
    total: dict[int, Fraction] = {}
    sizes: dict[int, int] = {}
    for c, w, n in zip(shares.chunk.tolist(), shares.weights, whole.tolist(), strict=True):
        total[c] = total.get(c, Fraction(0)) + w
        sizes[c] = sizes.get(c, 0) + n
    for s in np.argsort(-whole, kind="stable").tolist():
        c = int(shares.chunk[s])
        whole[s] += int(total.get(c, 0) * unit) - sizes.get(c, 0)
        sizes[c] = int(total[c] * unit)
    return whole


@dataclass(eq=False)
class _DirectionHops:
    """One direction: every hop in one table, first those inside the hosts, then the fabric's."""

    turned: bool
    inside: Inside
    at: Ints
    root_host: Ints
    order: Ints
    first: Ints
    src: Ints
    dst: Ints
    lengths: Ints
    links: Ints

    @staticmethod
    def of(hosts: Hosts, shares: ChunkShares, turned: bool, inside: Inside) -> _DirectionHops:
        tree_set = shares.tree_sets[turned]
        src, dst, lengths, links, counts = [], [], [], [], []
        width = max(tree_set.links.shape[2], *(g.links.shape[2] for g in inside.tree_sets))
        tail, head = hosts.machine.src, hosts.machine.dst
        if turned:
            tail, head = head, tail
        for one in (*inside.tree_sets, tree_set):
            routes = one.links.reshape(-1, one.links.shape[2]).astype(np.int64)
            size = (routes >= 0).sum(axis=1)
            src.append(tail[routes[:, 0]])
            dst.append(head[np.take_along_axis(routes, size[:, None] - 1, axis=1)[:, 0]])
            lengths.append(size)
            links.append(np.pad(routes, ((0, 0), (0, width - routes.shape[1])), constant_values=-1))
            hops = 1 if one is tree_set else one.links.shape[1]
            counts.append(np.full(len(routes) // max(hops, 1), hops))
        first = np.concatenate([[0], np.cumsum(np.concatenate(counts))])
        return _DirectionHops(
            turned,
            inside,
            entries(hosts, shares, turned),
            hosts.host[shares.root],
            tree_set.order.astype(np.int64),
            first,
            np.concatenate(src),
            np.concatenate(dst),
            np.concatenate(lengths),
            np.concatenate(links),
        )

    def lay(self, whole: Ints) -> None:
        """Put what enters each rank side by side, in the order of the shares."""
        shares, hosts = self.at.shape
        key = self.at.T.ravel()  # no two hosts share a rank
        size = np.tile(whole, hosts)
        order = np.argsort(key, kind="stable")
        ends = np.cumsum(size[order])
        begin = np.searchsorted(key[order], key[order])
        before = np.concatenate([[0], ends])[begin]
        place = np.empty(len(key), np.int64)
        place[order] = ends - size[order] - before
        self.place = place.reshape(hosts, shares).T
        self.total = np.bincount(key, minlength=len(self.inside.span)).astype(np.int64)
        self.total[:] = 0
        np.add.at(self.total, key, size)
        self.size = whole
        self.limits = self._limits()

    def _limits(self) -> Ints:
        """Return the end of each tree of a rank but the last, shape (ranks, most - 1)."""
        found = np.full((len(self.inside.span), self.inside.most - 1), np.iinfo(np.int64).max)
        for r, (a, b) in enumerate(self.inside.span.tolist()):
            for k in range(a, b - 1):
                found[r, k - a] = round(self.inside.until[k] * int(self.total[r]))
        return found

    def cuts(self) -> list[tuple[int, int]]:
        """Shares and where in them trees inside some host end."""
        found = []
        for k in range(self.limits.shape[1]):
            at = self.limits[self.at, k] - self.place
            inner = (at > 0) & (at < self.size[:, None])
            found += list(zip(np.nonzero(inner)[0].tolist(), at[inner].tolist(), strict=True))
        return found

    def choose(self, unit: int, share: Ints, low: Ints, high: Ints) -> Ints:
        """The tree that each piece takes in each host, shape (pieces, hosts)."""
        middle = self.place[share] + ((low + high) // 2)[:, None]
        tree: Ints = self.inside.span[self.at[share], 0]
        for k in range(self.limits.shape[1]):
            tree += middle >= self.limits[self.at[share], k]
        return tree

    def hops(self, share: int, choice: Ints) -> _Hops:
        """The hops of one piece: its own host first, then each host after the hop into it."""
        trees = len(self.inside.of)
        hosts = self.order.shape[1]
        atoms = np.empty(2 * hosts + 1, np.int64)
        atoms[0] = choice[self.root_host[share]]
        atoms[1::2] = trees + share * hosts + np.arange(hosts)
        atoms[2::2] = choice[self.order[share]]
        begin, counts = self.first[atoms], self.first[atoms + 1] - self.first[atoms]
        ends = np.cumsum(counts)
        at = np.repeat(begin - (ends - counts), counts) + np.arange(ends[-1])
        src, dst, size, routes = self.src[at], self.dst[at], self.lengths[at], self.links[at]
        reduce = np.full(len(at), self.turned)
        if self.turned:
            src, dst, size, routes = dst[::-1], src[::-1], size[::-1], routes[::-1, ::-1]
        return src, dst, reduce, size, routes[routes >= 0]
