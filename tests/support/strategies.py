"""Hypothesis strategies: random machines, collectives, and valid schedules for them.

The schedules come from shortest-path trees built here, in plain Python, so that they are a source
independent of all engines (and of the code that verifies them).
"""

import random
from collections import defaultdict, deque
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise

import numpy as np
from hypothesis import strategies as st

from weft.dsl.nouns.collective import Collective, Kind, custom, make, one_shot_allreduce
from weft.dsl.nouns.schedule import Schedule, Transfer
from weft.dsl.nouns.topology import Link, Node, NodeKind, Resource, Topology, both_ways, gpu, switch

BANDWIDTHS = tuple(map(Fraction, ("1", "2", "12.5", "25", "50")))
LATENCIES = tuple(map(Fraction, ("0", "0.35", "0.7", "1.3")))
STANDARD = tuple(k for k in Kind if k is not Kind.CUSTOM)


# --- machines ---------------------------------------------------------------------------------


def ring(ranks: int, bandwidth: str = "25", latency: str = "0.7") -> Topology:
    """One-way ring; link i leads from rank i to its successor."""
    links = [Link(i, (i + 1) % ranks, Fraction(bandwidth), Fraction(latency)) for i in range(ranks)]
    return Topology(f"ring{ranks}", tuple(map(gpu, range(ranks))), tuple(links))


def hub(ranks: int, bandwidth: str = "300", latency: str = "0.35") -> Topology:
    """Every rank on one switch: link 2r leads from rank r to it, link 2r + 1 back."""
    links = [x for r in range(ranks) for x in both_ways(r, ranks, bandwidth, latency)]
    return Topology(f"hub{ranks}", (*map(gpu, range(ranks)), switch("hub")), tuple(links))


@st.composite
def topologies(
    draw: st.DrawFn, *, max_ranks: int = 6, switches: bool = True, resources: bool = True
) -> Topology:
    """Strongly connected machines: random links, parallel links, switches, shared resources."""
    n = draw(st.integers(2, max_ranks))
    hosts = draw(st.sampled_from([1, 1, 2]))
    nodes: list[Node] = [gpu(r, host=r * hosts // n if hosts > 1 else None) for r in range(n)]
    count = draw(st.integers(0, 2)) if switches else 0
    nodes += [switch(f"sw{i}") for i in range(count)]
    gpus, inner = range(n), range(n, n + count)
    ends: list[tuple[int, int]] = []
    order = draw(st.permutations(range(n)))
    for a, b in zip(order, [*order[1:], order[0]], strict=True):
        via = draw(st.sampled_from([None, *inner]))
        ends += [(a, b)] if via is None else [(a, via), (via, b)]
    pairs = st.tuples(st.integers(0, n + count - 1), st.integers(0, n + count - 1))
    ends += [(a, b) for a, b in draw(st.lists(pairs, max_size=8)) if a != b]
    assert set(gpus) <= {a for a, _ in ends}
    links = [
        Link(a, b, draw(st.sampled_from(BANDWIDTHS)), draw(st.sampled_from(LATENCIES)))
        for a, b in ends
    ]
    shared = []
    for i in range(draw(st.integers(0, 2)) if resources else 0):
        members = draw(st.sets(st.integers(0, len(links) - 1), min_size=1, max_size=4))
        bandwidth = draw(st.sampled_from(BANDWIDTHS))
        shared.append(Resource(f"res{i}", tuple(sorted(members)), bandwidth))
    return Topology("random", tuple(nodes), tuple(links), tuple(shared))


# --- collectives ------------------------------------------------------------------------------


@st.composite
def collectives(draw: st.DrawFn, ranks: int, kinds: tuple[Kind, ...] = STANDARD) -> Collective:
    """Standard collectives on a group of this size, with any root, cut in 1 … 3 chunks."""
    kind = draw(st.sampled_from(kinds))
    roots: list[int] = []
    if kind in (Kind.BROADCAST, Kind.REDUCE, Kind.SCATTER, Kind.GATHER):
        roots = [draw(st.integers(0, ranks - 1))]
    elif kind.name.startswith("MULTIROOT"):
        roots = draw(st.lists(st.integers(0, ranks - 1), min_size=1, unique=True))
    chunks = draw(st.integers(1, 3))
    if kind is Kind.ALLREDUCE and draw(st.booleans()):
        return one_shot_allreduce(ranks, chunks=chunks)
    return make(kind, ranks, chunks=chunks, roots=roots)


@st.composite
def custom_collectives(draw: st.DrawFn, ranks: int) -> Collective:
    """Chunks of all sorts: copied from several sources, summed from some ranks to one or more."""
    pre: list[tuple[int, int, list[int], int]] = []
    post: list[tuple[int, int, list[int], int]] = []
    some = st.sets(st.integers(0, ranks - 1), min_size=1)
    for chunk in range(draw(st.integers(1, 4))):
        starts, ends = sorted(draw(some)), sorted(draw(some))
        if draw(st.booleans()):
            who = [draw(st.integers(0, ranks - 1))]
            pre += [(r, chunk, who, chunk) for r in starts]
            post += [(r, chunk, who, chunk) for r in ends]
        else:
            pre += [(r, chunk, [r], chunk) for r in starts]
            post += [(r, chunk, starts, chunk) for r in ends]
    return custom("random", ranks, pre, post)


@st.composite
def uneven_collectives(draw: st.DrawFn, ranks: int) -> Collective:
    """Standard collectives whose chunks are cut into pieces of several grains."""
    plain = make(draw(st.sampled_from([k for k in STANDARD if k not in (Kind.ALLTONEXT,)])), ranks)
    total = draw(st.integers(1, 6))
    cuts = st.sets(st.integers(1, total - 1)) if total > 1 else st.just(set[int]())
    sizes = []
    for _ in range(plain.chunks):
        ends = [0, *sorted(draw(cuts)), total]
        sizes.append([b - a for a, b in pairwise(ends)])
    return plain.cut(sizes)


# --- schedules --------------------------------------------------------------------------------


@dataclass
class _Planner:
    """Trees over hops, chosen by a seeded generator."""

    topology: Topology
    rng: random.Random

    def __post_init__(self) -> None:
        self.routes = gpu_routes(self.topology)

    def tree(self, roots: set[int], *, outward: bool) -> dict[int, int]:
        """Parent of every other rank in a shortest-path forest, away from or towards the roots."""
        parent: dict[int, int] = {}
        queue = deque(sorted(roots))
        while queue:
            u = queue.popleft()
            near = [
                v
                for v in range(self.topology.ranks)
                if ((u, v) if outward else (v, u)) in self.routes
            ]
            self.rng.shuffle(near)
            for v in near:
                if v not in parent and v not in roots:
                    parent[v] = u
                    queue.append(v)
        return parent

    def send(self, chunk: int, src: int, dst: int, step: int, reduce: bool) -> Transfer:
        route = self.rng.choice(self.routes[src, dst])
        return Transfer(chunk, src, dst, route, step, reduce)

    def copy(self, chunk: int, sources: set[int], wanted: set[int], first: int) -> list[Transfer]:
        """From the nearest source to every rank that wants it; steps grow along the tree."""
        parent = self.tree(sources, outward=True)
        needed: set[int] = set()
        for v in wanted:
            while v not in sources and v not in needed:
                needed.add(v)
                v = parent[v]
        arrives = dict.fromkeys(sources, first - 1)
        sends = []
        for v in [v for v in parent if v in needed]:  # in order of distance
            step = arrives[parent[v]] + 1 + self.rng.choice((0, 0, 0, 1))
            arrives[v] = step
            sends.append(self.send(chunk, parent[v], v, step, reduce=False))
        return sends

    def gather_up(self, chunk: int, parts: set[int], root: int) -> list[Transfer]:
        """All parts summed into the root: a rank sends on when all below it have sent."""
        parent = self.tree({root}, outward=False)
        needed: set[int] = set()
        for v in parts:
            while v != root and v not in needed:
                needed.add(v)
                v = parent[v]
        ready: defaultdict[int, int] = defaultdict(int)
        sends = []
        for v in [v for v in reversed(parent) if v in needed]:  # the farthest first
            step = ready[v] + self.rng.choice((0, 0, 0, 1))
            sends.append(self.send(chunk, v, parent[v], step, reduce=True))
            ready[parent[v]] = max(ready[parent[v]], step + 1)
        return sends

    def plan(self, c: Collective, chunk: int) -> list[Transfer]:
        """All transfers of one chunk."""
        starts, ends = _where(c, chunk, before=True), _where(c, chunk, before=False)
        if not ends:
            return []
        if len(set(starts.values())) == 1:
            return self.copy(chunk, set(starts), set(ends), 0)
        root = self.rng.choice(sorted(ends))
        up = self.gather_up(chunk, set(starts), root)
        done = 1 + max((t.step for t in up), default=-1)
        # The sum is whole before the root where one subtree holds all parts: no copy goes there.
        return up + self.copy(chunk, _hold_all(set(starts), up) | {root}, set(ends), done)


def _hold_all(parts: set[int], up: list[Transfer]) -> set[int]:
    """Ranks that hold the sum of all parts after transfers that sum them up a tree."""
    held: defaultdict[int, set[int]] = defaultdict(set, {rank: {rank} for rank in parts})
    for t in up:  # children first
        held[t.dst] |= held[t.src]
    return {rank for rank, got in held.items() if got == parts}


def _where(c: Collective, chunk: int, *, before: bool) -> dict[int, frozenset[int]]:
    p = c.pre if before else c.post
    return {
        int(r): c.contributions[int(s)]
        for r, k, s in zip(p.ranks, p.chunks, p.sets, strict=True)
        if k == chunk
    }


def gpu_routes(topology: Topology) -> dict[tuple[int, int], list[tuple[int, ...]]]:
    """All simple routes between GPUs over nodes that do not store, by (source, destination)."""
    found: defaultdict[tuple[int, int], list[tuple[int, ...]]] = defaultdict(list)
    for src in range(topology.ranks):
        stack: list[tuple[int, tuple[int, ...], tuple[int, ...]]] = [(src, (), (src,))]
        while stack:
            node, route, seen = stack.pop()
            for i, link in enumerate(topology.links):
                if link.src != node or link.dst in seen:
                    continue
                if topology.nodes[link.dst].kind is NodeKind.GPU:
                    found[src, link.dst].append((*route, i))
                else:
                    stack.append((link.dst, (*route, i), (*seen, link.dst)))
    return dict(found)


def tree_schedule(topology: Topology, collective: Collective, seed: int = 0) -> Schedule:
    """A valid schedule without a needless transfer, with the least rounds that its steps allow."""
    planner = _Planner(topology, random.Random(seed))
    transfers = [t for chunk in range(collective.chunks) for t in planner.plan(collective, chunk)]
    first = min((t.step for t in transfers), default=0)  # no idle step at the beginning
    transfers = [replace(t, step=t.step - first) for t in transfers]
    planner.rng.shuffle(transfers)
    rounds = least_rounds(topology, transfers, collective.sizes)
    return Schedule.of(topology, collective, transfers, rounds=rounds)


def least_rounds(
    topology: Topology, transfers: list[Transfer], sizes: tuple[int, ...] = ()
) -> tuple[int, ...]:
    """The rounds each step needs for its loads, at least one."""
    steps = 1 + max((t.step for t in transfers), default=-1)
    unit = topology.round_bandwidth()
    rounds = [1] * steps
    for members, bandwidth in [
        *(((i,), x.bandwidth) for i, x in enumerate(topology.links)),
        *((r.links, r.bandwidth) for r in topology.resources),
    ]:
        load = [0] * steps
        for t in transfers:
            grains = sizes[t.chunk] if sizes else 1
            load[t.step] += grains * sum(i in members for i in t.route)
        rounds = [max(r, -(-x * unit // bandwidth)) for r, x in zip(rounds, load, strict=True)]
    return tuple(map(int, rounds))


@st.composite
def schedules(
    draw: st.DrawFn,
    *,
    max_ranks: int = 5,
    switches: bool = True,
    resources: bool = True,
    kinds: tuple[Kind, ...] = STANDARD,
    customs: bool = True,
) -> Schedule:
    """Valid schedules of random collectives on random machines."""
    topology = draw(topologies(max_ranks=max_ranks, switches=switches, resources=resources))
    if customs and draw(st.integers(0, 3)) == 0:
        collective = draw(custom_collectives(topology.ranks))
    else:
        collective = draw(collectives(topology.ranks, kinds))
    return tree_schedule(topology, collective, draw(st.integers(0, 2**16)))


@st.composite
def planned_schedules(draw: st.DrawFn, *, max_ranks: int = 5) -> Schedule:
    """Valid schedules in slices, of chunks of any sizes, with a planned order or without."""
    if draw(st.booleans()):
        s = draw(schedules(max_ranks=max_ranks))
    else:
        topology = draw(topologies(max_ranks=max_ranks))
        uneven = draw(uneven_collectives(topology.ranks))
        s = tree_schedule(topology, uneven, draw(st.integers(0, 2**16)))
    s = replace(s, segments=draw(st.integers(1, 3)))
    if draw(st.booleans()):
        return s
    rng = random.Random(draw(st.integers(0, 2**16)))
    priority = np.array([rng.randrange(len(s)) for _ in range(len(s))], np.int32)
    return replace(s, priority=priority, stride=draw(st.integers(0, 2 * len(s))))
