"""Trees over groups, found by re-routing and, on small instances, by a linear program.

Trees inside a host: data that enters at a GPU goes to all others; equal hosts solved once.
"""

from __future__ import annotations

from dataclasses import field, replace
from fractions import Fraction
from typing import Any

import numpy as np

from weft.dsl.base.arrays import Floats, Ints, Ints32
from weft.dsl.base.errors import NothingFound
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.matrix import SparseMatrix
from weft.dsl.base.unique_rows import rows_of

from ....base.effort import Effort, setting
from ....base.meets import MET
from ....base.meter import Meter
from ....fabric.hosts import Hosts
from ....lp.congestion import Congestion
from ....lp.exact_finish import near
from ....lp.highs import OPTIMAL


@dataclass(frozen=True, slots=True)
class HostEffort(Effort):
    """Limits of the search for trees over hosts and inside them."""

    passes: int = setting(14, "passes of re-routing all trees, at most; time grows with it")
    least_passes: int = setting(3, "passes that are made though no work is left")
    steepness: tuple[float, float] = setting(
        (4.0, 300.0),
        "how fast prices grow with congestion, in the first pass and in the last",
    )
    largest_program: int = setting(12_000, "trees that the linear program chooses from, at most")
    trees: int = setting(
        1024, "trees over hosts that a chunk is cut into, unless there are more chunks"
    )
    parts: tuple[int, ...] = setting(
        (1, 2, 3, 4, 6, 8, 12, 24, 48, 96, 192),
        "numbers of equal shares that a chunk may be cut into, ascending",
    )
    change: int = setting(
        28,
        "shares of the few chunks that are cut fine, so that loads come out even",
    )
    enough: float = setting(1.0002, "a congestion below this is not improved (1 is the bound)")
    close: float = setting(1.02, "a congestion below this is not worth trying hosts that send on")
    close_free: float = setting(
        1.05,
        "the same for pairs with free roots, each of which costs several trees",
    )
    coarse: float = setting(
        0.1,
        "a tree that takes a larger part of a busy resource than this is grown in waves",
    )
    waves: int = setting(64, "turns in which the hosts join such a tree")
    many: int = setting(8, "more narrow hosts than this get no finer trees")
    few: int = setting(24, "hosts up to which a program chooses among the trees that were tried")
    fixed_root_passes: int = setting(
        28,
        "passes for pairs of trees with given roots, where only the rails are to be chosen",
    )
    other_roots: int = setting(2, "other roots that a tree of an allreduce tries in every pass")
    counts: tuple[int, ...] = setting(
        (1, 2, 3, 4, 6, 8, 12, 24, 48),
        "numbers of equal trees for each GPU of a host that are tried, ascending",
    )
    most_inside: int = setting(
        128,
        "trees within a host, at most, unless there are few for each GPU (up to 8)",
    )
    alike: int = setting(
        32,
        "what enters hosts is compared in steps of one over this of the most that enters any",
    )
    pieces: int = setting(
        2048,
        "shares are not cut into more pieces than this, or twice as many as there are shares",
    )


HOST_EFFORT = HostEffort()
"""Default limits."""


@dataclass(frozen=True, eq=False)
class HostTask:
    """A machine of hosts, the time (chunks per GB/s) that trees aim at, and how long to search."""

    hosts: Hosts
    time: float
    seed: int
    meter: Meter
    effort: HostEffort = HOST_EFFORT


@dataclass(frozen=True, eq=False)
class TreeDemand:
    """Trees to be found."""

    task: HostTask
    # The graph of groups, and the same with every link turned round if that is wanted
    graphs: tuple[Any, Any]
    turned: Ints  # which of the two each tree grows on, shape (trees,)
    roots: Ints  # its first group, of which any GPU may send
    weights: Floats  # load of a resource by each tree
    # room, base: capacity of a resource, and its fixed load
    room: Floats
    base: Floats
    # In how many turns groups join each tree; empty: at once
    waves: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    # Trees 2p and 2p + 1 choose their common root; number of candidates in every pass
    free: int = 0

    @property
    def groups(self) -> int:
        """Number of groups."""
        return len(self.graphs[0].member_start) - 1


@dataclass(frozen=True, eq=False)
class TreeSet:
    """Trees over groups: ``roots`` (trees,), ``order`` (trees, groups - 1) in which groups are
    reached, ``links`` (trees, groups - 1, width) of the hop into each, -1 after its end."""

    turned: Ints
    roots: Ints
    order: Ints32
    links: Ints32

    def __len__(self) -> int:
        return len(self.roots)

    def take(self, index: Any) -> TreeSet:
        """Return a subset of the trees."""
        return TreeSet(self.turned[index], self.roots[index], self.order[index], self.links[index])

    @staticmethod
    def concatenate(tree_sets: list[TreeSet]) -> TreeSet:
        """All trees of several tree_sets of one field."""
        parts = [(g.turned, g.roots, g.order, g.links) for g in tree_sets]
        return TreeSet(*(np.concatenate(p) for p in zip(*parts, strict=True)))


@dataclass(frozen=True, eq=False)
class RoutedTrees:
    """A tree_set with its congestion, and all that was tried on the way."""

    tree_set: TreeSet
    congestion: float
    tried: TreeSet


def search(wanted: TreeDemand, *, relay: int, level: float, passes: int = 0) -> RoutedTrees | None:
    """The best of some passes of re-routing (0: as many as the effort says); None: a group is
    out of reach."""
    from .kernels import TreeJobs, route_all

    meter, effort = wanted.task.meter, wanted.task.effort
    passes = passes or effort.passes
    trees, hops, width = len(wanted.roots), wanted.groups - 1, wanted.graphs[0].width
    order = np.full((passes, trees, hops), -1, np.int32)
    links = np.full((passes, trees, hops, width), -1, np.int32)
    roots = np.tile(wanted.roots, (passes, 1))
    # Resources without a price take no part in the mean one, which a level costs.
    level *= len(wanted.room) / max(1, int((wanted.room < 1e200).sum()))
    waves = wanted.waves if len(wanted.waves) else np.ones(trees, np.int64)
    looks = len(wanted.graphs[0].link_src) + wanted.groups**2
    # The work of growing every tree once, a turn for each of its waves.
    each = 1 + int(waves.sum()) * (1 + wanted.free) * looks // LOOKS_PER_STEP
    affordable = max(effort.least_passes, meter.left // each)
    found = route_all(
        TreeJobs(wanted.graphs, wanted.turned, wanted.weights, waves),
        wanted.room,
        wanted.base,
        np.geomspace(*effort.steepness, passes)[:affordable],
        level,
        relay,
        wanted.free,
        wanted.task.seed,
        roots,
        order,
        links,
    )
    meter.spend(each * max(1, int((found < 1e200).sum())))
    best = int(found.argmin())
    if found[best] >= 1e200:
        return None
    if affordable < passes and found[best] > 1 + MET:
        meter.cut_short()
    made = np.flatnonzero(found < 1e200)
    tree_sets = [TreeSet(wanted.turned, roots[p], order[p], links[p]) for p in made]
    return RoutedTrees(
        tree_sets[int(np.searchsorted(made, best))],
        float(found[best]),
        TreeSet.concatenate(tree_sets),
    )


LOOKS_PER_STEP = 30
"""Links and groups that the growing of a tree looks at in a step of work."""


def loads_of(tree_set: TreeSet, graph: Any, rows: int) -> SparseMatrix:
    """Return how often each tree uses each resource: shape (trees, resources)."""
    tree = np.repeat(np.arange(len(tree_set)), tree_set.links[0].size)
    links = tree_set.links.reshape(-1).astype(np.int64)
    tree, links = tree[links >= 0], links[links >= 0]
    start, at = rows_of(graph.row_start, links)
    trees = np.repeat(tree, np.diff(start))
    return SparseMatrix.of((len(tree_set), rows), trees, graph.rows[at], np.ones(len(at)))


@dataclass(frozen=True, eq=False)
class Choice:
    """Some trees with exact weights, and the congestion that they have."""

    tree_set: TreeSet
    weights: tuple[Fraction, ...]
    congestion: float


def choose(
    tried: TreeSet, family: Ints, demand: tuple[Fraction, ...] | None, wanted: TreeDemand
) -> Choice | None:
    """The best weights for trees that were tried, those of family f adding up to ``demand[f]``.

    Without ``demand`` families 2p and 2p + 1 have equal free shares that add up to 1. None where
    the program is too large or was not solved.
    """
    loads = loads_of(tried, wanted.graphs[0], len(wanted.room))
    # The first of all trees of one family that load the resources alike.
    marks = np.random.default_rng(0).random((loads.shape[1], 2)).T
    keys = np.column_stack([family, *(np.round(loads @ mark, 9) for mark in marks)])
    first = np.sort(np.unique(keys, axis=0, return_index=True)[1])
    if len(first) > wanted.task.effort.largest_program:
        return None
    tried, family, loads = tried.take(first), family[first], loads[first]
    try:
        x = _solve(loads, family, demand, wanted)
    except NothingFound:
        return None
    weights = near(x, family, demand)
    used = np.flatnonzero([w > 0 for w in weights])
    values = np.array([float(w) for w in weights])
    congestion = float(((loads.T @ values + wanted.base) / wanted.room).max())
    return Choice(tried.take(used), tuple(weights[i] for i in used), congestion)


def _solve(
    loads: SparseMatrix, family: Ints, demand: tuple[Fraction, ...] | None, wanted: TreeDemand
) -> Floats:
    families = int(family.max()) + 1
    used = np.bincount(loads.column, minlength=loads.shape[1]) > 0
    rows = np.flatnonzero(used | (wanted.base > 0))
    scale = 1 / wanted.room[rows]
    program = Congestion(
        loads.T[rows].scaled(scale),
        family,
        np.array([float(d) for d in demand]) if demand else np.zeros(families),
        room=-wanted.base[rows] * scale,
        share=None if demand else np.arange(families) // 2,
    )
    found = program.least(method="highs-ds", meter=wanted.task.meter)
    if found.status != OPTIMAL or found.x is None:
        raise NothingFound(f"boxes: the linear program was not solved: {found.message}")
    return np.maximum(found.x[: len(family)], 0)


@dataclass(frozen=True, eq=False)
class Inside:
    """Trees within the hosts, in one direction.

    Attributes:
        span: the first tree of each rank and the one after its last, shape (ranks, 2).
        until: trees of a rank lie side by side on [0, 1]; where each ends, shape (trees,).
        tree_set: in which groups are numbered as in the host, links as in the machine; by host.
    """

    span: Ints
    until: tuple[Fraction, ...]
    tree_sets: tuple[TreeSet, ...]

    @property
    def most(self) -> int:
        """Largest number of trees of a rank."""
        return int(np.diff(self.span).max())


def solve_inside(
    task: HostTask, enters: dict[bool, Floats], base: Floats
) -> tuple[dict[bool, Inside], float]:
    """Trees for the data that enters each rank (each direction), and the worst congestion.

    ``base`` is the load of each resource by the fabric's trees.
    """
    hosts = task.hosts
    known: dict[bytes, tuple[int, Choice]] = {}
    chosen = []
    shapes = [hosts.shape(b) for b in range(len(hosts.members))]
    for b, shape in enumerate(shapes):
        key = shape + _profile(hosts, b, enters, base, task.effort.alike)
        if key not in known:
            known[key] = b, _solve_host(task, b, enters, base)
        chosen.append(known[key])
    worst = max(choice.congestion for _, choice in chosen)
    return {t: _copy_to_hosts(hosts, chosen, t) for t in enters}, worst


def _profile(hosts: Hosts, b: int, enters: dict[bool, Floats], base: Floats, steps: int) -> bytes:
    """Return a key of a host's demand, rounded to ``steps`` fractions of the largest rank's."""
    asked = [load[hosts.members[b]] for load in enters.values()]
    unit = max(float(load.max()) for load in enters.values()) / steps
    return np.rint(np.concatenate([*asked, base[hosts.rows_of(b)]]) / unit).astype(int).tobytes()


def _solve_host(task: HostTask, b: int, enters: dict[bool, Floats], base: Floats) -> Choice:
    """Few equal trees for each GPU if they do not slow the fabric down, else weighted ones."""
    tried: list[TreeSet] = []
    best: tuple[TreeDemand, RoutedTrees, int] | None = None
    for count in task.effort.counts:
        wanted = _tree_demand(task, b, enters, base, count)
        if count > 8 and len(wanted.roots) > task.effort.most_inside:
            break
        found = search(wanted, relay=wanted.groups, level=0.1)
        if found is None:
            hops = np.zeros((0, wanted.groups - 1), np.int32)
            none = TreeSet(wanted.turned[:0], wanted.roots[:0], hops, hops[:, :, None])
            return Choice(tried[0] if tried else none, (), np.inf)
        tried.append(found.tried)
        if best is None or found.congestion < best[1].congestion - 1e-6:
            best = wanted, found, count
        if best[1].congestion <= 1 + MET or task.meter.over():
            break
    assert best is not None
    wanted, found, count = best
    if found.congestion > 1 + MET:
        everything = TreeSet.concatenate(tried)
        family = everything.turned * wanted.groups + everything.roots
        demand = _demand(task.hosts, b, enters)
        weighed = choose(everything, family, demand, wanted)
        if weighed is not None and weighed.congestion < found.congestion * (1 - 1e-4):
            return weighed
    return Choice(
        found.tree_set, tuple(Fraction(1, count) for _ in found.tree_set.roots), found.congestion
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
    task: HostTask, b: int, enters: dict[bool, Floats], base: Floats, count: int
) -> TreeDemand:
    hosts = task.hosts
    turned, roots, weights = [], [], []
    for t, load in enters.items():
        asked = load[hosts.members[b]]
        groups = np.flatnonzero(asked > 0)
        roots.append(np.repeat(groups, count))
        turned.append(np.full(len(groups) * count, int(t)))
        weights.append(np.repeat(asked[groups] / count, count))
    mine = hosts.rows_of(b)
    room = np.full(hosts.machine.resources, 1e300)
    room[mine] = hosts.machine.GBps[mine] * task.time
    kept = np.zeros(len(room))
    kept[mine] = base[mine]
    graphs = hosts.inside(b, turned=False), hosts.inside(b, turned=True)
    ways, first, each = (np.concatenate(x) for x in (turned, roots, weights))
    return TreeDemand(task, graphs, ways, first, each, room, kept)


def _copy_to_hosts(hosts: Hosts, chosen: list[tuple[int, Choice]], turned: bool) -> Inside:
    """Return the trees of every host, copied from the equal host that was solved."""
    first, until, tree_sets = [0], [], []
    order_of: dict[int, tuple[TreeSet, list[Fraction]]] = {}
    to = np.arange(len(hosts.machine.src) + 1)
    to[-1] = -1
    for b, (like, kind) in enumerate(chosen):
        if id(kind) not in order_of:
            mine = np.flatnonzero(kind.tree_set.turned == int(turned))
            mine = mine[np.argsort(kind.tree_set.roots[mine], kind="stable")]
            order_of[id(kind)] = kind.tree_set.take(mine), [kind.weights[i] for i in mine]
        tree_set, weights = order_of[id(kind)]
        to[hosts.links_of[like]] = hosts.links_of[b]
        tree_sets.append(replace(tree_set, links=to[tree_set.links].astype(np.int32)))
        to[hosts.links_of[like]] = hosts.links_of[like]
        counts = np.bincount(tree_set.roots, minlength=len(hosts.members[b]))
        first += (first[-1] + np.cumsum(counts)).tolist()
        until += _ends(tree_set.roots.tolist(), weights)
    span = np.zeros((hosts.topology.ranks, 2), np.int64)
    ranks = np.concatenate(hosts.members)  # hosts list ranks in their own order
    span[ranks, 0], span[ranks, 1] = first[:-1], first[1:]
    return Inside(span, tuple(until), tuple(tree_sets))


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
