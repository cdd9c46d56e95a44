"""Whole paths: every pair in K equal parts, each on one path, by rip-up and re-route.

Where the demand fits the target in whole parts, this finds it without a linear program, with
short paths and the least common denominator. Pairs that do not fit are left to :mod:`.columns`.

A target rate where the optimum is unknown: prices by multiplicative weights.

The prices of resources that many cheapest paths use rise, phase after phase; every phase's prices
prove a bound (Plotkin, Shmoys and Tardos, "Fast approximation algorithms for fractional packing and
covering problems", 1995). One search per source and phase, so that any number of pairs is cheap.

Whole paths from a fractional flow: the flow that proves the best rate says where data goes.

Every chunk takes the path of one tree of its source, drawn by the trees' shares (Raghavan and
Thompson, "Randomized rounding", 1987). The draws of a source are spread evenly, so that each tree
gets its share of the destinations up to one. Then chunks move, in turn, to the tree that is the
cheapest, at prices that grow ever steeper with the use of a resource; re-routing (:mod:`.route`)
mends the rest.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np

from weft.dsl.base.arrays import Bools, Floats, Ints, Ints32
from weft.dsl.base.lazy_dataclass import dataclass

from ....base.meter import Meter
from ....bounds.flow import TreeFlow
from .net import PATH_EFFORT, PathEffort, PathNet, PathPool, entries

_UNIT = float(1 << 30)


@dataclass(frozen=True, eq=False)
class PathPrices:
    """Float prices of resource orbits, and the time (chunks per GB/s) that they prove necessary."""

    resources: Floats
    time: float


def prices_by_weights(job: PathJob, *, kept: bool) -> PathPrices:
    """Return the best prices of some phases; their time is a bound up to float rounding.

    With ``kept`` the paths of the last phases, which are spread well, come into the pool.
    """
    net, effort = job.net, job.effort
    width = np.array([float(w) for w in net.width])
    total = np.zeros(net.resource_orbits)
    best = PathPrices(1.0 / width, 0.0)
    phases, (first, last) = effort.phases, effort.steepness
    for phase in range(phases):
        steep = first * (last / first) ** (phase / phases)
        use = total / width
        toll = np.exp(steep * (use / max(float(use.max()), 1e-300) - 1.0)) / width
        links, length, paid = _all_cheapest(job, toll)
        if paid / float(width @ toll) > best.time:
            best = PathPrices(toll, paid / float(width @ toll))
        total += load_of(net, links, length, job.count)
        if kept and phase >= phases - effort.kept_phases:
            job.pool.add(np.arange(len(job.src)), links, length)
        if job.meter.over():
            break
    return best


def _all_cheapest(job: PathJob, toll: Floats) -> tuple[Ints32, Ints, float]:
    """Return a cheapest path per pair, and their total price."""
    from .kernels import search_steps, trees

    net = job.net
    resource_start, resources = net.graph[3], net.graph[4]
    full = np.add.reduceat(toll[resources], resource_start[:-1])
    soft = np.rint(full * (_UNIT / float(full.max()))).astype(np.int64) + 1
    none, free = np.zeros(len(net.tail), np.int64), np.zeros(net.resource_orbits, np.int64)
    ends = job.src, job.dst
    links, length, work = trees(net.graph, net.tail, none, soft, free, *ends, net.longest)
    job.meter.spend(search_steps(work) + len(job.src))
    column, at = entries(links, np.maximum(length, 0))
    return links, length, float(full[at] @ job.count[column])


def load_of(net: PathNet, links: Ints32, length: Ints, count: Ints) -> Floats:
    """Return the uses of the resources by paths that carry ``count`` chunks each."""
    column, at = entries(links, np.maximum(length, 0))
    uses = np.bincount(at, count[column].astype(float), len(net.tail))
    resource_start, resources = net.graph[3], net.graph[4]
    load = np.bincount(resources, np.repeat(uses, np.diff(resource_start)), net.resource_orbits)
    return load.astype(np.float64)


@dataclass(frozen=True, eq=False)
class PathJob:
    """Pairs to be routed, the paths of them that were found so far, and how long to search.

    ``count`` chunks go from ``src`` to ``dst``, shape (pairs,); pairs of one source are adjacent.
    """

    net: PathNet
    src: Ints
    dst: Ints
    count: Ints
    pool: PathPool
    seed: int
    meter: Meter
    effort: PathEffort = PATH_EFFORT

    def among(self, free: Bools) -> PathJob:
        """The job of the marked pairs alone."""
        src, dst, count = self.src[free], self.dst[free], self.count[free]
        return replace(self, src=src, dst=dst, count=count, pool=self.pool.among(free))

    def shortest(self, target: Fraction) -> Routing:
        """Route every chunk on a path of least α; loads are balanced among equal ones."""
        pair = np.repeat(np.arange(len(self.src)), self.count)
        empty = Routing(
            1,
            pair,
            np.zeros((len(pair), self.net.longest), np.int32),
            np.zeros(len(pair), np.int64),
            np.zeros(self.net.resource_orbits, np.int64),
        )
        nothing = np.zeros(len(self.net.tail), np.int64)
        return self._round(empty, self.net.delay, nothing, room_of(self.net, target, 1), None, 4.0)

    def negotiate(
        self, begin: Routing, target: Fraction, latency_weight: float | None
    ) -> tuple[Routing, bool]:
        """Re-route paths over overloaded resources until all fit within ``target``, or progress
        stops.

        ``latency_weight`` is what mean α costs in terms of a full resource; None: nothing is worth
        a longer path. All paths that are tried come into the pool. Returns the routing with the
        least overload, and whether it fits.
        """
        from .kernels import ONE

        net, room = self.net, room_of(self.net, target, begin.parts)
        strict, soft = net.delay, np.zeros(len(net.tail), np.int64)
        if latency_weight is not None:  # a path of mean α costs so much of a full resource
            each = np.where(np.arange(begin.links.shape[1]) < begin.length[:, None], 1, 0)
            total = float((net.delay[begin.links] * each).sum())
            price = latency_weight * ONE / max(1.0, total / max(1, len(begin.pair)))
            strict, soft = soft, np.maximum(1, np.rint(net.delay * price)).astype(np.int64)
        past = np.zeros(net.resource_orbits)
        rng = np.random.default_rng(self.seed)
        now = best = begin
        least, since = begin.overload(room), 0
        for _ in range(self.effort.reroutes):
            if not least or since == self.effort.stale or self.meter.over():
                break
            over = np.maximum(now.load - room, 0)
            past += np.where(over > 0, 0.5 + over / np.maximum(room, 1), 0.0)
            before = now
            now = self._round(now, strict, soft, room, past, 12.0, rng)
            new = (now.links != before.links).any(axis=1)
            self.pool.add(now.pair[new], now.links[new], now.length[new])
            overload = now.overload(room)
            since = 0 if overload < least else since + 1
            if overload < least:
                least, best = overload, now
        return best, not least

    def _round(
        self,
        now: Routing,
        strict: Ints,
        soft: Ints,
        room: Ints,
        past: Floats | None,
        eta: float,
        rng: np.random.Generator | None = None,
    ) -> Routing:
        """Return a copy of a routing after one round; without ``past`` all paths are searched."""
        from .kernels import reroute, search_steps

        links, length, load = now.links.copy(), now.length.copy(), now.load.copy()
        order = np.arange(len(now.pair)) if rng is None else rng.permutation(len(now.pair))
        work = reroute(
            self.net.graph,
            self.net.tail,
            strict,
            soft,
            self.src[now.pair],
            self.dst[now.pair],
            links,
            length,
            load,
            room.astype(np.float64),
            np.zeros(self.net.resource_orbits) if past is None else past,
            order,
            eta,
            past is None,
        )
        self.meter.spend(search_steps(work) + len(order) // 4)
        return Routing(now.parts, now.pair, links, length, load)


@dataclass(frozen=True, eq=False)
class Split:
    """Weights of paths: ``weight[i]`` chunks of pair ``pair[i]`` go along the path
    ``links[i, : length[i]]``."""

    pair: Ints
    links: Ints32
    length: Ints
    weight: tuple[Fraction, ...]


@dataclass(frozen=True, eq=False)
class Routing:
    """One path for every part of every pair, as links.

    ``pair`` (paths,) ascends; each path carries ``1 / parts`` of a chunk. ``links`` is
    (paths, longest), of which the first ``length`` count. ``load`` (resource orbits,) counts uses.
    """

    parts: int
    pair: Ints
    links: Ints32
    length: Ints
    load: Ints

    def time(self, net: PathNet) -> Fraction:
        """Time of the busiest resource in chunks per GB/s."""
        busy = zip(self.load.tolist(), net.width, strict=True)
        return max((Fraction(x, self.parts) / w for x, w in busy), default=Fraction(0))

    def overload(self, room: Ints) -> int:
        """Uses beyond the room of resources."""
        return int(np.maximum(self.load - room, 0).sum())

    def split(self) -> Split:
        """The same as shares of chunks."""
        weight = (Fraction(1, self.parts),) * len(self.pair)
        return Split(self.pair, self.links, self.length, weight)

    def in_parts(self, parts: int) -> Routing:
        """The same paths, each in ``parts`` equal parts."""
        return Routing(
            self.parts * parts,
            np.repeat(self.pair, parts),
            np.repeat(self.links, parts, axis=0),
            np.repeat(self.length, parts),
            self.load * parts,
        )


def get_ready() -> None:
    """Load the compiled kernels (the first time on a machine: compile them, some seconds)."""
    from .kernels import ready

    ready()


def room_of(net: PathNet, target: Fraction, parts: int) -> Ints:
    """Uses that fit into every resource orbit within ``target`` chunks per GB/s."""
    return np.array([min(math.floor(target * w * parts), 1 << 52) for w in net.width], np.int64)


def rounded(job: PathJob, flow: TreeFlow) -> Routing:
    """Return a path for every chunk of the pairs, along the trees of a flow without symmetry."""
    from .kernels import search_steps, settle

    net, effort = job.net, job.effort
    pair = np.repeat(np.arange(len(job.src)), job.count)
    begin, end = job.src[pair], job.dst[pair]
    source = np.searchsorted(flow.machine.source, begin)
    tree = _drawn(flow, source, job.seed)
    best = _along(net, pair, begin, end, source, tree, flow)
    width = np.array([float(w) for w in net.width])
    load, rng = best.load.copy(), np.random.default_rng(job.seed)
    for turn, steep in enumerate(effort.settling):
        if turn >= effort.least_settling and job.meter.over():
            break
        full = width * float((load / width).max())
        order = rng.permutation(len(pair))
        looked = settle(
            net.graph, net.tail, flow.into, source, begin, end, tree, load, full, order, steep
        )
        job.meter.spend(search_steps(looked) + len(pair) // 4)
        if (load / width).max() < (best.load / width).max():
            best = _along(net, pair, begin, end, source, tree, flow)
    return best


def _along(
    net: PathNet, pair: Ints, src: Ints, dst: Ints, source: Ints, tree: Ints, flow: TreeFlow
) -> Routing:
    """The paths of chunks along their trees."""
    back = np.zeros((len(pair), net.longest), np.int32)
    length = np.zeros(len(pair), np.int64)
    node, left = dst.copy(), np.arange(len(pair))
    while len(left):  # from the destinations towards the sources
        link = flow.into[tree[left], source[left], node[left]]
        back[left, length[left]] = link
        length[left] += 1
        node[left] = net.tail[link]
        left = left[node[left] != src[left]]
    at = length[:, None] - 1 - np.arange(back.shape[1])  # from their beginnings
    links = np.where(at >= 0, np.take_along_axis(back, np.maximum(at, 0), axis=1), 0)
    load = load_of(net, links, length, np.ones(len(pair), np.int64))
    return Routing(1, pair, links, length, load.astype(np.int64))


def _drawn(flow: TreeFlow, source: Ints, seed: int) -> Ints:
    """The tree that each chunk takes, by its source (ascending)."""
    rng = np.random.default_rng(seed)
    total: Floats = np.cumsum(np.maximum(flow.share, 0.0), axis=0)
    share = total / total[-1]
    order = np.lexsort((rng.random(len(source)), source))
    size = np.bincount(source, minlength=share.shape[1])
    place = np.empty(len(source), np.int64)
    place[order] = np.arange(len(source)) - np.repeat(np.cumsum(size) - size, size)
    even = (place + rng.random(share.shape[1])[source]) / size[source]
    # The sums of floats may end below the last draw.
    return np.asarray(np.minimum((share[:, source] < even).sum(axis=0), len(share) - 1))
