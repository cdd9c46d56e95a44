"""Hosts times fabric: trees over hosts on the fabric, trees over GPUs inside each host.

Inside a host every GPU gets all data, so any of them may forward it: for the fabric a host is one
node, and inside the host the data that enters at each GPU is broadcast to the others. The fabric
is solved first, then every host; equal hosts are solved once. Nothing is lost where hosts have
more bandwidth inside than outwards; the loss against the bound is computed from the trees and
reported.

Used where symmetry is missing or partial: a broken NIC in one of 128 hosts, irregular numbers of
NICs, hosts of several kinds.

Combine trees over hosts with trees inside them; in arrays, since there are a million hops.

A *share* is a fraction of a chunk that has one tree over hosts. The shares that enter a GPU are
laid out side by side on an interval; the trees of that GPU inside its host cut the interval, and
possibly a share: a *piece* of a share takes the same tree inside every host.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from math import lcm

import numpy as np

from weft.dsl.base.arrays import Bools, Floats, Ints, distinct_values
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.units import BYTES_PER_US_PER_GBPS
from weft.dsl.nouns.collective import Collective, Kind
from weft.dsl.nouns.topology import Topology

from ....base.meets import MET
from ....base.meter import STEPS, Meter
from ....bounds import bounds
from ....fabric.hosts import Hosts, hosts_of
from ....lp.exact_finish import overlay
from ..order.plan_quick import identity
from ..trees.machine import REDUCING, TREES
from ..trees.model import PackedTree, Packing
from .search import (
    HOST_EFFORT,
    Choice,
    HostEffort,
    HostTask,
    Inside,
    RoutedTrees,
    TreeDemand,
    TreeSet,
    choose,
    loads_of,
    search,
    solve_inside,
)


@dataclass(frozen=True, eq=False)
class _Roots:
    """Shares before they have trees: chunk, root and weight of each."""

    chunk: Ints
    root: Ints
    parts: Ints

    @property
    def weights(self) -> tuple[Fraction, ...]:
        return tuple(Fraction(1, p) for p in self.parts.tolist())


def shares_of(task: HostTask, collective: Collective) -> ChunkShares | None:
    """Trees over hosts for all chunks; None where some host cannot reach another."""
    if collective.kind is Kind.ALLREDUCE:
        return _allreduce(task)
    hosts, effort = task.hosts, task.effort
    turned = collective.kind in REDUCING
    ends = collective.post if turned else collective.pre
    owner = np.zeros(collective.chunks, np.int64)
    owner[ends.chunks] = ends.ranks
    parts = max([p for p in effort.parts if p * len(owner) <= effort.trees], default=1)
    roots = _split_roots(owner, np.full(len(owner), parts))
    wanted = _tree_demand(task, roots, turned)
    found = _route(wanted)
    if found is None:
        return None
    if found.congestion > effort.enough and len(hosts.members) <= effort.few:
        demand = tuple(map(Fraction, np.bincount(hosts.host[owner]).tolist()))
        better = choose(found.tried, found.tried.roots, demand, wanted)
        if better is not None and better.congestion < found.congestion:
            return _laid(hosts, better, owner, turned)
    if found.congestion > effort.enough and len(hosts.members) > effort.few:
        roots, found = _finer(owner, roots, found, wanted)
    return _merge_equal(
        ChunkShares(roots.chunk, roots.root, roots.weights, {turned: found.tree_set})
    )


def _split_roots(owner: Ints, parts: Ints) -> _Roots:
    chunk = np.repeat(np.arange(len(owner)), parts)
    return _Roots(chunk, owner[chunk], parts[chunk])


def _tree_demand(task: HostTask, roots: _Roots, turned: bool) -> TreeDemand:
    first = task.hosts.host[roots.root]
    return _on_fabric(task, np.full(len(first), int(turned)), first, 1 / roots.parts)


def _on_fabric(
    task: HostTask, turned: Ints, roots: Ints, weights: Floats, free: int = 0
) -> TreeDemand:
    hosts = task.hosts
    graphs, room = (hosts.fabric(turned=False), hosts.fabric(turned=True)), hosts.machine.GBps
    room, base = room * task.time, np.zeros(len(room))
    return TreeDemand(task, graphs, turned, roots, weights, room, base, free=free)


def _route(wanted: TreeDemand) -> RoutedTrees | None:
    """Direct trees first, from the given roots if many; hosts that send on if that is not
    enough."""
    tries: list[RoutedTrees] = []
    effort = wanted.task.effort
    close = effort.close_free if wanted.free else effort.close
    stages = [(0, 1, 0.0)] if wanted.free and wanted.groups > effort.few else []
    for free, relay, level in [*stages, (wanted.free, 1, 0.0), (wanted.free, wanted.groups, 0.1)]:
        passes = effort.passes if free == wanted.free else effort.fixed_root_passes
        this = replace(wanted, free=free)
        found = search(this, relay=relay, level=level, passes=passes)
        if found is not None and found.congestion > effort.enough and wanted.groups > effort.few:
            # Trees from few narrow hosts grow in turns: one turn loads a resource less. Where
            # roots can move away, whole trees are fine enough.
            narrow = _narrow(wanted, found)
            few = not wanted.free and len(narrow) <= effort.many
            waves = np.where(few & np.isin(found.tree_set.roots, narrow), effort.waves, 1)
            if waves.max() > 1:
                finer = replace(wanted, waves=waves, free=free)
                again = search(finer, relay=relay, level=level)
                found = min(found, again or found, key=_by)
        if found is not None:
            tries.append(found)
            if found.congestion <= (close if wanted.groups > effort.few else 1.0 + 1e-9):
                break
    if not tries:
        return None
    return replace(min(tries, key=_by), tried=TreeSet.concatenate([f.tried for f in tries]))


def _by(found: RoutedTrees) -> float:
    return found.congestion


def _narrow(wanted: TreeDemand, found: RoutedTrees) -> Ints:
    """Return the hosts whose single trees take much of an overloaded resource."""
    loads = loads_of(found.tree_set, wanted.graphs[0], len(wanted.room))
    busy = (loads.T @ wanted.weights + wanted.base) / wanted.room > wanted.task.effort.enough
    if not busy.any():
        return np.zeros(0, np.int64)
    most, entry = np.zeros(loads.shape[0]), busy[loads.column]
    np.maximum.at(most, loads.row[entry], loads.data[entry])
    much = most * wanted.weights > wanted.task.effort.coarse * wanted.room[busy].min()
    return distinct_values(found.tree_set.roots[much])


def _finer(
    owner: Ints, roots: _Roots, found: RoutedTrees, wanted: TreeDemand
) -> tuple[_Roots, RoutedTrees]:
    """Return the same with a few chunks cut finely: one of every narrow host, two of others."""
    narrow, task = _narrow(wanted, found), wanted.task
    of, effort = task.hosts.host[owner], task.effort
    first = np.unique(of, return_index=True)[1]
    fine = first[np.isin(of[first], narrow[: effort.many])]
    fine = np.concatenate([fine, np.setdiff1d(first, fine)[-2:]])
    parts = np.full(len(owner), roots.parts.max())
    parts[fine] *= effort.change
    more = _split_roots(owner, parts)
    # Rounded as the room was: the target is a float.
    time = float(wanted.room[0] / task.hosts.machine.bandwidth[0])
    again = _tree_demand(replace(task, time=time), more, bool(wanted.turned[0]))
    if len(narrow) <= effort.many:
        coarse = np.isin(again.roots, narrow)
        again = replace(again, waves=np.where(coarse, effort.waves, 1))
    better = search(again, relay=1, level=0.0)
    if better is not None and better.congestion < found.congestion:
        return more, better
    return roots, found


def _laid(hosts: Hosts, choice: Choice, owner: Ints, turned: bool) -> ChunkShares:
    """Chunks of a host side by side on the trees of the host."""
    laid: list[tuple[int, int, Fraction]] = []
    for b in range(len(hosts.members)):
        chunks = [(int(c), Fraction(1)) for c in np.flatnonzero(hosts.host[owner] == b)]
        laid += overlay(_weights_of(choice, choice.tree_set.roots == b), chunks)
    tree, chunk, weights = zip(*laid, strict=True)
    index = np.array(chunk)
    return ChunkShares(index, owner[index], weights, {turned: choice.tree_set.take(list(tree))})


def _weights_of(choice: Choice, mask: Bools) -> list[tuple[int, Fraction]]:
    return [(int(t), choice.weights[t]) for t in np.flatnonzero(mask)]


def _merge_equal(shares: ChunkShares) -> ChunkShares:
    first: dict[tuple[int | bytes, ...], int] = {}
    weights: dict[int, Fraction] = {}
    for s in range(len(shares)):
        trees = [(g.order[s].tobytes(), g.links[s].tobytes()) for g in shares.tree_sets.values()]
        key = (int(shares.chunk[s]), int(shares.root[s]), *(x for tree in trees for x in tree))
        at = first.setdefault(key, s)
        weights[at] = weights.get(at, Fraction(0)) + shares.weights[s]
    kept = np.array(list(weights))
    tree_sets = {turned: tree_set.take(kept) for turned, tree_set in shares.tree_sets.items()}
    return ChunkShares(shares.chunk[kept], shares.root[kept], tuple(weights.values()), tree_sets)


# --- allreduce: up one tree, down another, the shares of the roots free -------------------------


def _allreduce(task: HostTask) -> ChunkShares | None:
    """Pairs of trees; the program over all that were tried where hosts are few."""
    hosts, effort = task.hosts, task.effort
    few = len(hosts.members) <= effort.few
    wide = _widest(hosts)
    pairs = len(wide) * max(1, (effort.trees // 4 if few else effort.trees) // len(wide))
    rank = wide[np.arange(pairs) % len(wide)]
    both, first = np.arange(2 * pairs) % 2, np.repeat(hosts.host[rank], 2)
    each = np.full(2 * pairs, 1 / pairs)
    wanted = _on_fabric(task, both, first, each, effort.other_roots)
    found = _route(wanted)
    if found is None:
        return None
    if found.congestion > effort.enough and few:
        family = 2 * found.tried.roots + found.tried.turned
        better = choose(found.tried, family, None, wanted)
        if better is not None and better.congestion < found.congestion:
            return _pair_directions(hosts, better)
    out, into = found.tree_set.take(slice(0, None, 2)), found.tree_set.take(slice(1, None, 2))
    place = np.zeros(len(hosts.members), np.int64)
    root = np.empty(pairs, np.int64)
    for p, b in enumerate(out.roots.tolist()):
        root[p] = hosts.members[b][place[b] % len(hosts.members[b])]
        place[b] += 1
    weights = (Fraction(1, pairs),) * pairs
    return _merge_equal(
        ChunkShares(np.zeros(pairs, np.int64), root, weights, {True: into, False: out})
    )


def _widest(hosts: Hosts) -> Ints:
    """The ranks of the hosts with the widest way out: as many equal pairs for each of them."""
    a, b = hosts.host[hosts.machine.src], hosts.host[hosts.machine.dst]
    width = np.array([float(x.bandwidth) for x in hosts.topology.links])
    out = np.bincount(a[(a >= 0) & (a != b)], width[(a >= 0) & (a != b)], len(hosts.members))
    return np.concatenate([hosts.members[k] for k in np.flatnonzero(out > 0.999 * out.max())])


def _pair_directions(hosts: Hosts, choice: Choice) -> ChunkShares:
    """In-trees, out-trees and GPUs of each root host, side by side on its share."""
    pairs: list[tuple[int, int, int, Fraction]] = []
    for b, members in enumerate(hosts.members):
        here = choice.tree_set.roots == b
        out = _weights_of(choice, here & (choice.tree_set.turned == 0))
        into = _weights_of(choice, here & (choice.tree_set.turned == 1))
        both = overlay(into, out)
        share = sum((w for _, _, w in both), Fraction(0))
        roots = [(int(r), share / len(members)) for r in members]
        for k, r, w in overlay([(k, one[2]) for k, one in enumerate(both)], roots):
            pairs.append((both[k][0], both[k][1], r, w))
    up, down, root, weights = zip(*pairs, strict=True)
    tree_sets = {True: choice.tree_set.take(list(up)), False: choice.tree_set.take(list(down))}
    return ChunkShares(np.zeros(len(root), np.int64), np.array(root), weights, tree_sets)


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
        columns = (np.concatenate(x) for x in zip(*hops, strict=True))
        found.append(PackedTree.of(int(shares.chunk[s]), Fraction(b - a, unit), *columns))
    return tuple(found)


_Hops = tuple[Ints, Ints, Bools, Ints, Ints]


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
        """Put the data that enters each rank side by side, in the order of the shares."""
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
        total = np.zeros(len(self.inside.span), np.int64)
        np.add.at(total, key, size)
        self.size = whole
        # The end of each tree of a rank but the last, shape (ranks, most - 1).
        shape = len(self.inside.span), self.inside.most - 1
        self.limits = np.full(shape, np.iinfo(np.int64).max)
        for r, (a, b) in enumerate(self.inside.span.tolist()):
            for k in range(a, b - 1):
                self.limits[r, k - a] = round(self.inside.until[k] * int(total[r]))

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
        trees = len(self.inside.until)
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


def pack_hosts(
    topology: Topology,
    collective: Collective,
    *,
    meter: Meter | None = None,
    seed: int = 0,
    effort: HostEffort = HOST_EFFORT,
) -> Packing | None:
    """A packing of a plain collective from trees over hosts and trees inside hosts.

    None where the machine lacks hosts, one of them does not hang together, or the collective is
    of a kind that trees do not serve. Once ``meter`` is over every search
    makes a few passes only; None: 30 units of effort.

    Raises:
        BadTopology: ranks that cannot reach each other.
    """

    meter = meter or Meter(30 * STEPS)
    hosts = hosts_of(topology)
    if hosts is None or collective.kind not in TREES:
        return None
    known = bounds(topology, collective)
    per_chunk = collective.message_chunks * BYTES_PER_US_PER_GBPS
    task = HostTask(hosts, float(known.us_per_byte * per_chunk), seed, meter, effort)
    shares = shares_of(task, collective)
    made = None if shares is None else _whole(task, shares)
    if made is None:
        return None
    found = Packing(
        topology,
        collective,
        made,
        *identity(topology),
        Fraction(0),
        known.us_per_byte,
        known.certificate,
    ).rated()
    loss = float(100 * (found.us_per_byte / found.bound - 1))
    return replace(found, remark=f"boxes × fabric: {loss:.2g} % above the bound")


def _whole(task: HostTask, shares: ChunkShares) -> tuple[PackedTree, ...] | None:
    hosts = task.hosts
    resources = hosts.machine.resources
    weights = np.array([float(w) for w in shares.weights])
    base = np.zeros(resources)
    for turned, tree_set in shares.tree_sets.items():
        base += loads_of(tree_set, hosts.fabric(turned=turned), resources).T @ weights
    fabric = max(load / float(b) for load, b in zip(base, hosts.machine.bandwidth, strict=True))
    enters = {turned: entering(hosts, shares, turned) for turned in shares.tree_sets}
    goal = max(fabric, task.time) * (1 + MET)
    insides, worst = solve_inside(replace(task, time=goal), enters, base)
    return trees_of(hosts, shares, insides, task.effort.pieces) if np.isfinite(worst) else None
