"""Trees inside a host: data that enters at a GPU goes to all others; equal hosts solved once."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np

from weft.dsl.base.arrays import Floats, Ints
from weft.dsl.base.lazy_dataclass import dataclass

from ....base.meets import MET
from ....base.meter import Meter
from ....fabric.hosts import Hosts
from .search import HOST_EFFORT, HostEffort, RoutedTrees, TreeDemand, TreeSet, choose, search


@dataclass(frozen=True, eq=False)
class Inside:
    """Trees within the hosts, in one direction.

    Attributes:
        span: the first tree of each rank and the one after its last, shape (ranks, 2).
        until: trees of a rank lie side by side on [0, 1]; where each ends, shape (trees,).
        tree_set: in which groups are numbered as in the host, links as in the machine; by host.
        of: host and tree in its tree_set, shape (trees, 2).
    """

    span: Ints
    until: tuple[Fraction, ...]
    tree_sets: tuple[TreeSet, ...]
    of: Ints

    @property
    def most(self) -> int:
        """Largest number of trees of a rank."""
        return int(np.diff(self.span).max())


@dataclass(frozen=True, eq=False)
class HostKind:
    """Solution of one host: weighted trees and their congestion."""

    like: int
    tree_set: TreeSet
    weights: tuple[Fraction, ...]
    congestion: float


def solve_inside(
    hosts: Hosts,
    enters: dict[bool, Floats],
    base: Floats,
    time: float,
    *,
    seed: int,
    meter: Meter,
    effort: HostEffort = HOST_EFFORT,
) -> tuple[dict[bool, Inside], float]:
    """Trees for what enters each rank (per direction: turned or not), and the worst congestion.

    ``base`` is what the fabric's trees load each resource with, ``time`` what it takes them.
    """
    known: dict[bytes, HostKind] = {}
    chosen = []
    shapes = [hosts.shape(b) for b in range(len(hosts.members))]
    for b, shape in enumerate(shapes):
        key = shape + _profile(hosts, b, enters, base, effort.alike)
        if key not in known:
            known[key] = _solve(hosts, b, enters, base, time, seed, meter, effort)
        chosen.append(known[key])
    worst = max(kind.congestion for kind in chosen)
    return {t: _copy_to_hosts(hosts, chosen, t) for t in enters}, worst


def _profile(hosts: Hosts, b: int, enters: dict[bool, Floats], base: Floats, steps: int) -> bytes:
    """Return a key of a host's demand, rounded to ``steps`` fractions of the largest rank's."""
    asked = [load[hosts.members[b]] for load in enters.values()]
    unit = max(float(load.max()) for load in enters.values()) / steps
    return np.rint(np.concatenate([*asked, base[hosts.rows_of(b)]]) / unit).astype(int).tobytes()


def _solve(
    hosts: Hosts,
    b: int,
    enters: dict[bool, Floats],
    base: Floats,
    time: float,
    seed: int,
    meter: Meter,
    effort: HostEffort,
) -> HostKind:
    """Few equal trees for each GPU if they do not slow the fabric down, else weighted ones."""
    tried: list[TreeSet] = []
    best: tuple[TreeDemand, RoutedTrees, int] | None = None
    for count in effort.counts:
        wanted = replace(_tree_demand(hosts, b, enters, base, time, count, meter), effort=effort)
        if count > 8 and len(wanted.roots) > effort.most_inside:
            break
        found = search(wanted, relay=wanted.groups, level=0.1, seed=seed)
        if found is None:
            return HostKind(b, tried[0] if tried else _none(wanted), (), np.inf)
        tried.append(found.tried)
        if best is None or found.congestion < best[1].congestion - 1e-6:
            best = wanted, found, count
        if best[1].congestion <= 1 + MET or meter.over():
            break
    assert best is not None
    wanted, found, count = best
    if found.congestion > 1 + MET:
        everything = TreeSet.concatenate(tried)
        family = everything.turned * wanted.groups + everything.roots
        demand = _demand(hosts, b, enters)
        weighed = choose(everything, family, demand, wanted)
        if weighed is not None and weighed.congestion < found.congestion * (1 - 1e-4):
            return HostKind(b, weighed.tree_set, weighed.weights, weighed.congestion)
    return HostKind(
        b, found.tree_set, tuple(Fraction(1, count) for _ in found.tree_set.roots), found.congestion
    )


def _none(wanted: TreeDemand) -> TreeSet:
    hops = np.zeros((0, wanted.groups - 1), np.int32)
    return TreeSet(
        wanted.turned[:0],
        wanted.roots[:0],
        wanted.starts[:0],
        hops,
        np.zeros((*hops.shape, 1), np.int32),
    )


def _demand(hosts: Hosts, b: int, enters: dict[bool, Floats]) -> tuple[Fraction, ...]:
    """Return the data that enters each GPU of a host: forward trees, then reversed trees."""
    n = len(hosts.members[b])
    return tuple(
        Fraction(float(enters[t][r])).limit_denominator(1 << 20) if t in enters else Fraction(0)
        for t in (False, True)
        for r in hosts.members[b][:n]
    )


def _tree_demand(
    hosts: Hosts,
    b: int,
    enters: dict[bool, Floats],
    base: Floats,
    time: float,
    count: int,
    meter: Meter,
) -> TreeDemand:
    turned, roots, weights = [], [], []
    for t, load in enters.items():
        asked = load[hosts.members[b]]
        groups = np.flatnonzero(asked > 0)
        roots.append(np.repeat(groups, count))
        turned.append(np.full(len(groups) * count, int(t)))
        weights.append(np.repeat(asked[groups] / count, count))
    mine = hosts.rows_of(b)
    room = np.full(hosts.machine.resources, 1e300)
    room[mine] = hosts.machine.GBps[mine] * time
    kept = np.zeros(len(room))
    kept[mine] = base[mine]
    root = np.concatenate(roots)
    return TreeDemand(
        (hosts.inside(b, turned=False), hosts.inside(b, turned=True)),
        np.concatenate(turned),
        root,
        np.full(len(root), -1),
        np.concatenate(weights),
        room,
        kept,
        meter,
    )


def _copy_to_hosts(hosts: Hosts, chosen: list[HostKind], turned: bool) -> Inside:
    """Return the trees of every host, copied from the equal host that was solved."""
    first, until, tree_sets, of = [0], [], [], []
    order_of: dict[int, tuple[TreeSet, list[Fraction]]] = {}
    to = np.arange(len(hosts.machine.src) + 1)
    to[-1] = -1
    for b, kind in enumerate(chosen):
        if id(kind) not in order_of:
            mine = np.flatnonzero(kind.tree_set.turned == int(turned))
            mine = mine[np.argsort(kind.tree_set.roots[mine], kind="stable")]
            order_of[id(kind)] = kind.tree_set.take(mine), [kind.weights[i] for i in mine]
        tree_set, weights = order_of[id(kind)]
        to[hosts.links_of[kind.like]] = hosts.links_of[b]
        tree_sets.append(
            TreeSet(
                tree_set.turned,
                tree_set.roots,
                tree_set.starts,
                tree_set.order,
                to[tree_set.links].astype(np.int32),
            )
        )
        to[hosts.links_of[kind.like]] = hosts.links_of[kind.like]
        counts = np.bincount(tree_set.roots, minlength=len(hosts.members[b]))
        first += (first[-1] + np.cumsum(counts)).tolist()
        of += [(b, i) for i in range(len(tree_set))]
        until += _ends(tree_set.roots.tolist(), weights)
    return Inside(_by_rank(hosts, np.array(first)), tuple(until), tuple(tree_sets), np.array(of))


def _by_rank(hosts: Hosts, first: Ints) -> Ints:
    """First and last tree of each rank, shape (ranks, 2); hosts list ranks in their own order."""
    found = np.zeros((hosts.topology.ranks, 2), np.int64)
    ranks = np.concatenate(hosts.members)
    found[ranks, 0], found[ranks, 1] = first[:-1], first[1:]
    return found


def _ends(roots: list[int], weights: list[Fraction]) -> list[Fraction]:
    """Return the end of each tree on [0, 1]: cumulative fractions per root."""
    total: dict[int, Fraction] = {}
    for r, w in zip(roots, weights, strict=True):
        total[r] = total.get(r, Fraction(0)) + w
    at: dict[int, Fraction] = {}
    ends = []
    for r, w in zip(roots, weights, strict=True):
        at[r] = at.get(r, Fraction(0)) + w
        ends.append(at[r] / total[r])
    return ends
