"""Trees between hosts: the fraction of each chunk that enters a host, per entry GPU and source."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np

from weft.dsl.base.arrays import Bools, Ints, distinct_values
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.collective import Collective, Kind

from ....base.meter import Meter
from ....fabric.hosts import Hosts
from ..trees.templates import overlay
from .search import (
    HOST_EFFORT,
    Choice,
    HostEffort,
    RoutedTrees,
    TreeDemand,
    TreeSet,
    choose,
    loads_of,
    search,
)
from .trees import ChunkShares

REDUCING = frozenset({Kind.REDUCE_SCATTER, Kind.REDUCE})


@dataclass(frozen=True, eq=False)
class _Roots:
    """Shares before they have trees: chunk, root and weight of each."""

    chunk: Ints
    root: Ints
    parts: Ints

    @property
    def weights(self) -> tuple[Fraction, ...]:
        return tuple(Fraction(1, p) for p in self.parts.tolist())


def shares_of(
    hosts: Hosts,
    collective: Collective,
    time: float,
    seed: int,
    meter: Meter,
    effort: HostEffort = HOST_EFFORT,
) -> ChunkShares | None:
    """Trees over hosts for all chunks; ``time`` (chunks per GB/s) is what they aim at.

    None where some host cannot reach another.
    """
    if collective.kind is Kind.ALLREDUCE:
        return _allreduce(hosts, time, seed, meter, effort)
    turned = collective.kind in REDUCING
    ends = collective.post if turned else collective.pre
    owner = np.zeros(collective.chunks, np.int64)
    owner[ends.chunks] = ends.ranks
    parts = max([p for p in effort.parts if p * len(owner) <= effort.trees], default=1)
    roots = _split_roots(owner, np.full(len(owner), parts))
    wanted = replace(_tree_demand(hosts, roots, turned, time, meter), effort=effort)
    found = _route(wanted, seed)
    if found is None:
        return None
    if found.congestion > effort.enough and len(hosts.members) <= effort.few:
        demand = tuple(map(Fraction, np.bincount(hosts.host[owner]).tolist()))
        better = choose(found.tried, found.tried.roots, demand, wanted)
        if better is not None and better.congestion < found.congestion:
            return _laid(hosts, better, owner, turned)
    if found.congestion > effort.enough and len(hosts.members) > effort.few:
        roots, found = _finer(hosts, owner, roots, found, wanted, seed)
    return _merge_equal(
        ChunkShares(roots.chunk, roots.root, roots.weights, {turned: found.tree_set})
    )


def _split_roots(owner: Ints, parts: Ints) -> _Roots:
    chunk = np.repeat(np.arange(len(owner)), parts)
    return _Roots(chunk, owner[chunk], parts[chunk])


def _tree_demand(
    hosts: Hosts, roots: _Roots, turned: bool, time: float, meter: Meter
) -> TreeDemand:
    room = hosts.machine.GBps * time
    n = len(roots.chunk)
    return TreeDemand(
        (hosts.fabric(turned=False), hosts.fabric(turned=True)),
        np.full(n, int(turned)),
        hosts.host[roots.root],
        np.full(n, -1),
        1 / roots.parts,
        room,
        np.zeros(len(room)),
        meter,
    )


def _route(wanted: TreeDemand, seed: int) -> RoutedTrees | None:
    """Direct trees first, from the given roots if many; hosts that send on if that is not
    enough."""
    tries: list[RoutedTrees] = []
    effort = wanted.effort
    close = effort.close_free if wanted.free else effort.close
    stages = [(0, 1, 0.0)] if wanted.free and wanted.groups > effort.few else []
    for free, relay, level in [*stages, (wanted.free, 1, 0.0), (wanted.free, wanted.groups, 0.1)]:
        passes = effort.passes if free == wanted.free else effort.fixed_root_passes
        this = replace(wanted, free=free)
        found = search(this, relay=relay, level=level, seed=seed, passes=passes)
        if found is not None and found.congestion > effort.enough and wanted.groups > effort.few:
            waves = _waves(wanted, found)
            if waves.max() > 1:
                finer = replace(wanted, waves=waves, free=free)
                again = search(finer, relay=relay, level=level, seed=seed)
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
    busy = (loads.T @ wanted.weights + wanted.base) / wanted.room > wanted.effort.enough
    if not busy.any():
        return np.zeros(0, np.int64)
    part = loads[:, np.flatnonzero(busy)].max(axis=1).toarray().ravel() * wanted.weights
    much = part > wanted.effort.coarse * wanted.room[busy].min()
    return distinct_values(found.tree_set.roots[much])


def _waves(wanted: TreeDemand, found: RoutedTrees) -> Ints:
    """Trees from narrow hosts grow in turns: one turn loads a resource less.

    Where many hosts are narrow, or roots can move away, whole trees are fine enough.
    """
    narrow = _narrow(wanted, found)
    if wanted.free or len(narrow) > wanted.effort.many:
        narrow = narrow[:0]
    return np.where(np.isin(found.tree_set.roots, narrow), wanted.effort.waves, 1)


def _finer(
    hosts: Hosts, owner: Ints, roots: _Roots, found: RoutedTrees, wanted: TreeDemand, seed: int
) -> tuple[_Roots, RoutedTrees]:
    """Return the same with a few chunks cut finely: one of every narrow host, two of others."""
    narrow = _narrow(wanted, found)
    of = hosts.host[owner]
    first = np.unique(of, return_index=True)[1]
    fine = first[np.isin(of[first], narrow[: wanted.effort.many])]
    fine = np.concatenate([fine, np.setdiff1d(first, fine)[-2:]])
    parts = np.full(len(owner), roots.parts.max())
    parts[fine] *= wanted.effort.change
    more = _split_roots(owner, parts)
    time = float(wanted.room[0] / hosts.machine.bandwidth[0])
    again = _tree_demand(hosts, more, bool(wanted.turned[0]), time, wanted.meter)
    again = replace(again, effort=wanted.effort)
    coarse = np.isin(hosts.host[more.root], narrow)
    if len(narrow) <= wanted.effort.many:
        again = replace(again, waves=np.where(coarse, wanted.effort.waves, 1))
    better = search(again, relay=1, level=0.0, seed=seed)
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
    """Equal trees of one root as one share."""
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


def _allreduce(
    hosts: Hosts, time: float, seed: int, meter: Meter, effort: HostEffort
) -> ChunkShares | None:
    """Pairs of trees; the program over all that were tried where hosts are few."""
    few = len(hosts.members) <= effort.few
    wide = _widest(hosts)
    pairs = len(wide) * max(1, (effort.trees // 4 if few else effort.trees) // len(wide))
    rank = wide[np.arange(pairs) % len(wide)]
    room = hosts.machine.GBps * time
    wanted = TreeDemand(
        (hosts.fabric(turned=False), hosts.fabric(turned=True)),
        np.arange(2 * pairs) % 2,
        np.repeat(hosts.host[rank], 2),
        np.full(2 * pairs, -1),
        np.full(2 * pairs, 1 / pairs),
        room,
        np.zeros(len(room)),
        meter,
        free=effort.other_roots,
        effort=effort,
    )
    found = _route(wanted, seed)
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
