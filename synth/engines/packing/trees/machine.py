"""Limit on peers: select the hops of trees so that no rank has too many senders or receivers.

A runtime uses one thread block per peer of a rank, and their number is limited. Where every GPU
can reach every other through switches, trees of height two use all of them: a thousand GPUs are a
thousand peers. But a tree can also pass through a few hosts, and with peers at distances one, two,
four, … the height of trees is logarithmic.

Choice of far peers: always one that is farthest by the hops chosen so far (greedy k-centre rule,
Gonzalez, Clustering to minimize the maximum intercluster distance, TCS 38 (1985), on a graph that
grows by it). On a ring of hosts that gives the opposite, then the quarters, then the eighths.
Whole hop orbits are taken, so that symmetry stays; a group that is free on the ranks gives each of
them one peer for every hop of its representative.

Machine arrays for the kernels: arcs from GPU to GPU, per orbit of the symmetry group.

One packing problem: the families of trees, the resources they load, the bound on their rate.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from weft.dsl.base.arrays import Bools, Floats, Ints, distinct_values
from weft.dsl.base.errors import BadTopology, UserError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.units import BYTES_PER_US_PER_GBPS
from weft.dsl.nouns.collective import Collective, Kind
from weft.dsl.nouns.topology import Topology
from weft.dsl.symmetry.orbits import Orbits, orbits_of, without_symmetry

from ....base.effort import Effort, setting, share
from ....base.engine import Certificate
from ....bounds.bounds import bandwidth_bound, fewest_steps
from ....bounds.effort import BOUND_EFFORT
from ....fabric.fabric import ResourceOrbits, fabric_of
from ....fabric.hosts import hosts_of
from .model import Packing


@dataclass(frozen=True, slots=True)
class TreeEffort(Effort):
    """Limits of the search for trees; a step of work looks at one arc, link or rank."""

    phases: int = setting(
        15,
        "times that multiplicative weights serve the demand at first; time grows with it",
    )
    steps: int = setting(
        16,
        "trees of all roots together that serve it once, at least: few roots take small steps",
    )
    detour: int = setting(
        4, "links that a route may have more than the shortest one between the farthest GPUs"
    )
    first_work: int = setting(
        200_000_000,
        "steps of growing the first trees, about; fewer phases where it would be more",
    )
    first_part: float = share(
        0.25,
        "the part of the first trees after which it is seen whether they suffice",
    )
    steepness: float = setting(
        8.0,
        "how fast the price of a resource grows with its congestion meanwhile",
    )
    rounds: int = setting(60, "pricing rounds, at most; each solves a linear program")
    variants: int = setting(
        24,
        "trees that a pricing round grows, about; few roots are priced with noise, several times",
    )
    hopeless: float = setting(
        2.0,
        "trees so low that they take this many times the bound are not improved",
    )
    reweightings: int = setting(10, "programs solved to find a sparse answer")
    large: int = setting(
        300_000,
        "entries (trees times resource orbits) of a program that is not solved again and again",
    )
    run: int = setting(
        1_500_000,
        "steps of one run of ripping up equal trees, about: rounds are cut to fit",
    )
    least_rounds: int = setting(
        6,
        "rounds of ripping up, at least: machines that cannot afford them get no equal trees",
    )
    most_rounds: int = setting(60, "rounds of ripping up, at most")
    first_steepness: tuple[float, ...] = setting(
        (3.0, 10.0, 20.0),
        "steepness of the prices in the first round of each run; which one works depends on the "
        "machine",
    )
    last_steepness: tuple[float, ...] = setting(
        (15.0, 60.0, 200.0),
        "steepness of the prices in the last round of each run",
    )
    slacks: tuple[float, ...] = setting(
        (0.002, 0.015, 0.03),
        "parts of the rate given up for fewer trees",
    )
    useful: float = setting(3.0, "lower trees are kept up to this many times the best time")
    equal: int = setting(
        4,
        "equal trees per root are tried up to this number, and at the number that fits the bound",
    )
    most_equal: int = setting(8, "the largest number of equal trees per root that is tried")
    fits: float = setting(
        0.003,
        "part of the time that more than equal trees per root, up to most_equal, must promise to "
        "save to be tried",
    )
    taller: tuple[int, ...] = setting(
        (0, 1, 4),
        "hops that equal trees may have more than those of the best rate",
    )
    one_way: int = setting(
        256,
        "ranks from which trees of an allgather, climbed by the sums first, are tried for "
        "an allreduce before trees of both directions together, if no symmetry makes all ranks "
        "equal",
    )
    alone_ranks: int = setting(64, "ranks up to which limits are also kept without symmetry")
    alone_trees: int = setting(
        2,
        "equal trees per root up to which limits are also kept without symmetry",
    )
    alone_rounds: int = setting(120, "rounds of ripping up where limits are kept without symmetry")


TREE_EFFORT = TreeEffort()
"""Default limits."""


@dataclass(frozen=True, eq=False)
class TreeMachine:
    """A topology with a group of symmetries, ready for the kernels.

    ``turned``: links are walked backwards (index kept), for trees that reduce. ``net`` is a
    :class:`.TreeNet`. ``steps``: links of the shortest route of its cells.
    """

    topology: Topology
    orbits: Orbits
    turned: bool
    net: Any
    steps: Ints

    @staticmethod
    def of(
        topology: Topology,
        orbits: Orbits,
        *,
        turned: bool = False,
        allowed: Bools | None = None,
        detour: int = TREE_EFFORT.detour,
    ) -> TreeMachine:
        """Return the arrays of a machine; ``turned``: with every link reversed.

        ``allowed``: which ranks the representatives may send to, shape (representatives, ranks).
        ``detour``: as in :class:`.TreeEffort`.

        Raises:
            BadTopology: some rank cannot send to any other.
        """
        machine = topology.reversed() if turned else topology
        if turned and allowed is not None:
            allowed = _allowed_senders(allowed, orbits)
        return TreeMachine(topology, orbits, turned, *_net(machine, orbits, allowed, detour))

    @cached_property
    def eccentricity(self) -> Ints:
        """Hops to the farthest rank, per representative; -1: some rank is out of reach."""
        from .kernels import eccentricities

        found: Ints = eccentricities(self.net)
        return found


def _allowed_senders(allowed: Bools, orbits: Orbits) -> Bools:
    """Senders allowed to each representative: the same hops, indexed by their heads."""
    k, head = np.nonzero(allowed)
    # The element that brings the head to its representative brings the source along.
    back = orbits.inverses()[orbits.element_of[head]]
    found = np.zeros_like(allowed)
    found[orbits.rank_orbit[head], orbits.images[back, orbits.representatives[k]]] = True
    return found


def _net(machine: Topology, orbits: Orbits, allowed: Bools | None, detour: int) -> tuple[Any, Ints]:
    from .kernels import TreeNet, reached

    fabric = fabric_of(machine)
    ranks, nodes = fabric.ranks, fabric.nodes
    out_start, out_link = fabric.leaving
    sources = orbits.representatives.astype(np.int64)
    source, head, steps = reached(ranks, sources, out_start, out_link, fabric.dst)
    if not len(head):
        raise BadTopology(f"{machine.name}: no rank can send to another")
    if allowed is not None:
        kept = allowed[source, head]
        source, head, steps = source[kept], head[kept], steps[kept]
    width = min(int(steps.max()) + detour, nodes - ranks + 1)
    cell_start = np.searchsorted(source, np.arange(len(sources) + 1))
    tail, arc_head, cell = _arcs(orbits, cell_start, head)
    by_head = np.argsort(arc_head, kind="stable")
    net = TreeNet(
        ranks,
        width,
        fabric.src,
        fabric.dst,
        out_start,
        out_link,
        fabric.first,
        orbits.row_orbit.astype(np.int64)[fabric.resource],
        sources,
        cell_start,
        source,
        head,
        np.searchsorted(tail, np.arange(ranks + 1)),
        tail,
        arc_head,
        cell,
        np.searchsorted(arc_head[by_head], np.arange(ranks + 1)),
        by_head,
    )
    return net, steps


def _arcs(orbits: Orbits, cell_start: Ints, head: Ints) -> tuple[Ints, Ints, Ints]:
    """Images of the cells, sorted by tail: tails, heads, cells."""
    tails, heads, cells = [], [], []
    for k in range(len(orbits.representatives)):
        mine = np.arange(cell_start[k], cell_start[k + 1])
        members = np.flatnonzero(orbits.rank_orbit == k)
        images = orbits.images[np.ix_(orbits.element_of[members], head[mine])]
        tails.append(np.repeat(members, len(mine)))
        heads.append(images.ravel())
        cells.append(np.tile(mine, len(members)))
    tail = np.concatenate(tails).astype(np.int64)
    order = np.argsort(tail, kind="stable")
    head_of, cell = np.concatenate(heads).astype(np.int64), np.concatenate(cells)
    return tail[order], head_of[order], cell[order]


def few_peers(
    topology: Topology, orbits: Orbits, peers: int, detour: int = TREE_EFFORT.detour
) -> Bools | None:
    """Return the ranks each representative may send to, shape (representatives, ranks); None: all.

    Every rank has at most ``peers`` receivers and ``peers`` senders. GPUs of one host are taken
    first, else the nearest ones, if the limit admits all of them.

    Raises:
        BadTopology: some rank cannot send to any other.
        UserError: with so few some rank is out of reach.
    """
    machine = TreeMachine.of(topology, orbits, detour=detour)
    net = machine.net
    source, head = net.cell_source, net.cell_head
    reps = len(net.sources)
    into = orbits.rank_orbit[head]
    if _most_peers(source, into, reps) <= peers:
        return None
    hosts = hosts_of(topology)
    if hosts is not None:
        near: Bools = hosts.host[net.sources][source] == hosts.host[head]
    else:  # those of fewest links
        near = machine.steps == machine.steps.min()
    if _most_peers(source[near], into[near], reps) > peers:
        near = np.zeros(len(head), np.bool_)
    from .peers_kernel import farthest_first

    allowed = near.copy()
    farthest_first(
        net,
        orbits.images.astype(np.int64),
        orbits.rank_orbit.astype(np.int64),
        orbits.element_of.astype(np.int64),
        machine.steps,
        near,
        peers,
        allowed,
    )
    found = np.zeros((reps, topology.ranks), np.bool_)
    found[source[allowed], head[allowed]] = True
    kept = TreeMachine.of(topology, orbits, allowed=found, detour=detour)
    if kept.eccentricity.min() < 0:
        raise UserError(
            f"packing: with peers={peers} some rank is out of reach", hint="allow more peers"
        )
    return found


def peers_of(packing: Packing) -> int:
    """Return the largest number of peers of a rank, per direction, over all images of all trees."""
    n = packing.topology.ranks
    if not packing.trees:
        return 0
    pairs = distinct_values(
        np.concatenate([t.src.astype(np.int64) * n + t.dst for t in packing.trees])
    )
    src, dst = packing.images[:, pairs // n], packing.images[:, pairs % n]
    every = distinct_values(src.astype(np.int64).ravel() * n + dst.ravel())
    return int(max(np.bincount(every // n).max(), np.bincount(every % n).max()))


def _most_peers(source: Ints, into: Ints, reps: int) -> int:
    """Return the largest number of peers of a rank in one direction, from representatives' hops."""
    counts = [np.bincount(x, minlength=reps).max(initial=0) for x in (source, into)]
    return int(max(counts))


REDUCING = frozenset({Kind.REDUCE, Kind.REDUCE_SCATTER})
SYMMETRIC = frozenset({Kind.ALLGATHER, Kind.REDUCE_SCATTER, Kind.ALLREDUCE})
TREES = REDUCING | SYMMETRIC | {Kind.BROADCAST, Kind.MULTIROOT_BROADCAST}
"""Collectives that are packed as trees; pairwise collectives are packed as paths."""


@dataclass(frozen=True, eq=False)
class Under:
    """Restrictions of a sketch: a group of symmetries, and the allowed (sender, receiver) pairs,
    shape (ranks, ranks).
    """

    orbits: Orbits
    pairs: Bools

    @property
    def allowed(self) -> Bools:
        """Ranks that each representative may send to."""
        found: Bools = self.pairs[self.orbits.representatives]
        return found


@dataclass(frozen=True, eq=False)
class TreeTask:
    """Trees to pack."""

    # topology, collective: as given; the collective is plain
    topology: Topology
    collective: Collective
    orbits: Orbits  # the group under which templates are multiplied
    machines: tuple[TreeMachine, ...]  # forwards, or turned for reductions, or both for allreduce
    resources: ResourceOrbits  # the resource orbits
    families: Ints  # those that trees are wanted for; see search
    chunks: Ints  # the chunk of each of families (those of the representatives)
    joint: bool  # allreduce: the shares of the roots are free, both directions have the same
    bound: Fraction  # chunks per GB/s that no packing beats; certificate says why
    certificate: Certificate
    # Trees may not use every hop, so what their prices say holds for such trees only
    narrowed: bool = False

    @staticmethod
    def of(
        topology: Topology,
        collective: Collective,
        peers: int = 0,
        *,
        alike: bool = True,
        under: Under | None = None,
        effort: TreeEffort = TREE_EFFORT,
    ) -> TreeTask:
        """The task of a plain collective, with its proved bound; ``peers`` as in :func:`few_peers`.

        ``alike``: roots that a symmetry maps to each other have trees that it maps to each other.
        ``under``: the hops that a sketch leaves.

        Raises:
            BadTopology: ranks that cannot reach each other.
            UserError: too few peers.
        """

        kind = collective.kind
        fewest_steps(topology, collective)  # raises where ranks cannot reach each other
        found = bandwidth_bound(topology, collective, BOUND_EFFORT)
        per_chunk = collective.message_chunks * BYTES_PER_US_PER_GBPS
        symmetric = alike and kind in SYMMETRIC
        orbits = orbits_of(topology) if symmetric else without_symmetry(topology)
        if under is not None:
            orbits = under.orbits
        joint = kind is Kind.ALLREDUCE
        turned = (False, True) if joint else (kind in REDUCING,)
        allowed = None if under is None else under.allowed
        if peers:
            allowed = few_peers(topology, orbits, peers, effort.detour)
        machines = tuple(
            TreeMachine.of(topology, orbits, turned=t, allowed=allowed, detour=effort.detour)
            for t in turned
        )
        if joint:
            families = np.arange(2 * len(orbits.representatives))
            chunks = np.zeros(len(families), np.int64)
        else:
            families, chunks = _roots(collective, orbits)
        return TreeTask(
            topology,
            collective,
            orbits,
            machines,
            ResourceOrbits.of(topology, orbits),
            families,
            chunks,
            joint,
            found.us_per_byte * per_chunk,
            found.certificate,
            allowed is not None,
        )

    @property
    def copies(self) -> int:
        """Images of one template that load the machine, per unit of a family's weight."""
        return 1 if self.joint else self.orbits.order

    @property
    def room(self) -> tuple[Fraction, ...]:
        """Uses of each resource orbit per unit of weight and of time (chunks per GB/s)."""
        each = zip(self.resources.size, self.resources.bandwidth, strict=True)
        return tuple(int(size) * bandwidth / self.copies for size, bandwidth in each)

    @property
    def increments(self) -> Floats:
        """Congestion that one use of a resource orbit adds, per unit of weight; 1 is the bound."""
        return self.copies / (self.resources.room * float(self.bound))

    @property
    def anchor(self) -> int:
        """The single root, or -1."""
        roots = distinct_values(self.families)
        return int(self.machines[0].net.sources[roots[0]]) if len(roots) == 1 else -1

    def us_per_byte(self, time: Fraction) -> Fraction:
        """From chunks per GB/s to µs per byte of M."""
        return time / (self.collective.message_chunks * BYTES_PER_US_PER_GBPS)

    def roots_of(self, families: Ints) -> Ints:
        """The ranks that the trees of these families grow from."""
        sources: Ints = self.machines[0].net.sources
        return sources[families % len(sources)]


def _roots(collective: Collective, orbits: Orbits) -> tuple[Ints, Ints]:
    """Families and chunks: chunk c grows from its owner, or is summed up there."""
    ends = collective.post if collective.kind in REDUCING else collective.pre
    owner = np.zeros(collective.chunks, np.int64)
    owner[ends.chunks] = ends.ranks
    place = {int(rank): k for k, rank in enumerate(orbits.representatives)}
    chunks = [c for c in range(collective.chunks) if int(owner[c]) in place]
    return np.array([place[int(owner[c])] for c in chunks]), np.array(chunks)
