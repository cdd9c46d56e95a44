"""Algorithms of switches that sum and copy: NVLS in the box, SHARP trees, and their combinations.

n ranks, M the message; costs are those of one switch whose groups contain the issuer, or of boxes
with a rail for each of their ranks:

=================  =============================================================================
``nvls_one_shot``  every rank loads the sum of everything: one step, and every port sends n M
``nvls``           allreduce (two-shot): a rank loads the sum of its 1/n, then stores it to all.
                   With the issuer's own copy a port sends and receives (1 + 1/n) M, without
                   switches 2 (n-1)/n M: even at n = 3. Reduce_scatter is the first half,
                   allgather the second; broadcast one store, reduce one load
``nvls_ring``      the load in every box, a ring along each rail on what it left, the store
``nvls_tree``      the same with two binary trees along each rail (NCCL's NVLSTree)
``nvls_sharp``     the same with the sum of each rail in the switches of the network
``direct_sharp``   without NVLS: direct exchanges in the box (NCCL's CollNet direct)
``sharp``          allreduce: the sum of all ranks goes up a tree of switches, turns round at its
                   root and comes down, M per port each way; equal trees have equal shares
``switchml``       as ``sharp``, through switches that turn, each with a pool of slots: a rank sends
                   slots · packet ÷ round-trip time at most (:class:`SlotPool`)
``atp``            allreduce in shares, each summed on its way to one rank (its parameter server)
                   and copied on the way back
=================  =============================================================================

Each is a tree to a root and a tree from it for every chunk
(:mod:`weft.synth.steiner.switch_trees`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field, replace
from fractions import Fraction
from itertools import count
from typing import Any

from weft.dsl.base.errors import UserError, WeftError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.units import BYTES_PER_US_PER_GBPS
from weft.dsl.nouns.casts import Cast
from weft.dsl.nouns.collective import ROOTED, Kind, make
from weft.dsl.nouns.schedule import Schedule
from weft.dsl.nouns.topology import Topology

from ...judge.casts import cast_problems
from ...steiner.packing import RoutedTree
from ...steiner.switch_trees import NodeTree, SwitchRoutes, chain, star
from ..packing.casts.schedule import TreeWriter
from .double_tree import pair
from .grid import RankGrid
from .model import HockneyCost

Shape = tuple[int, ...]

Costs = tuple[HockneyCost, ...]
"""One for each level, innermost first."""


@dataclass(frozen=True, slots=True)
class SlotPool:
    """A switch's memory for incomplete sums: slots of one packet, which bound the rate.

    A host has at most as many packets on their way as the switch has slots: it sends the next one
    into a slot when the sum of the last one in it has come back, a round trip later. So it sends
    slots · packet ÷ round-trip time at most, whatever its port carries (SwitchML, NSDI 2021).
    """

    slots: int = 512  # of each switch
    packet: int = 1024  # bytes of a slot
    # µs from a packet to its sum; 0: the α of the way to the root of the tree and back
    rtt: Fraction = Fraction(0)

    def __post_init__(self) -> None:
        for name, value in (("slots", self.slots), ("packet", self.packet)):
            if value < 1:
                raise UserError(f"classic: {name} is {value}", hint="1 or more")
        if self.rtt < 0:
            raise UserError(f"classic: rtt is {self.rtt}", hint="µs; 0 takes the machine's α")

    def GBps(self, topology: Topology, trees: Sequence[tuple[RoutedTree, RoutedTree]]) -> Fraction:
        """Return the largest GB/s of each tree; those through one switch share its slots.

        Raises:
            UserError: a way without α, and no rtt.
        """
        # Without a given one: the α of the longest way from a rank to the root of a tree and back.
        ways = [[_alpha_from_root(topology, tree) for tree in both] for both in trees]
        rtt = self.rtt or max(up[r] + down[r] for up, down in ways for r in range(topology.ranks))
        if not rtt:
            raise UserError(
                f"links of {topology.name} have no α, so slots bound nothing",
                hint="classic{algorithm=switchml,rtt=10} says µs from a packet to its sum",
            )
        ranks, through = topology.ranks, Counter[int]()
        for forth, _ in trees:
            through.update({v for a in forth.arcs for v in (a.tail, a.head) if v >= ranks})
        shared = max(through.values(), default=1)
        return Fraction(self.slots * self.packet, shared) / (rtt * BYTES_PER_US_PER_GBPS)


def _alpha_from_root(topology: Topology, tree: RoutedTree) -> dict[int, Fraction]:
    found, queue = {tree.root: Fraction(0)}, [tree.root]
    for node in queue:
        for arc in (a for a in tree.arcs if a.tail == node):
            found[arc.head] = found[node] + sum(topology.links[k].latency for k in arc.links)
            queue.append(arc.head)
    return found


@dataclass(frozen=True, eq=False)
class CastSite:
    """A machine whose switches compute, its ways, and its boxes and rails where it has them; the
    slots of its switches, for algorithms that need them."""

    routes: SwitchRoutes
    boxes: Callable[[], RankGrid]
    pool: SlotPool = field(default_factory=SlotPool)

    @property
    def topology(self) -> Topology:
        """Return the machine."""
        return self.routes.topology

    def planes(self, kind: Kind, ranks: Sequence[int]) -> tuple[int, ...]:
        """Return the switches of a group of ranks that have the capabilities for a collective.

        Raises:
            UserError: there are none.
        """
        sums = kind not in (Kind.ALLGATHER, Kind.BROADCAST)
        copies = kind not in (Kind.REDUCE_SCATTER, Kind.REDUCE)
        found = self.routes.planes(ranks, sums=sums, copies=copies)
        if not found:
            does = " and ".join(word for word, so in (("sums", sums), ("copies", copies)) if so)
            raise UserError(
                f"no switch that {does} has ranks {ranks[0]} … {ranks[-1]} attached",
                hint="nvls=on, sharp=fabric or --capable 'SWITCH=multicast+reduces'",
            )
        return found

    def grid(self) -> RankGrid:
        """Return boxes of equal size, (local rank, box).

        Raises:
            UserError: there are none, or only one.
        """
        try:
            grid = self.boxes()
        except WeftError:
            grid = None
        if grid is None or len(grid.shape) != 2 or min(grid.shape) < 2:
            raise UserError("it needs two or more boxes of equal size, of several ranks each")
        return grid

    def fabric_trees(self, ranks: Sequence[int]) -> list[NodeTree]:
        """Return the flattest trees of computing switches that span ranks.

        Raises:
            UserError: there are none.
        """
        found = self.routes.fabric_trees(ranks)
        if not found:
            raise UserError(
                f"no tree of switches that sum and copy joins ranks {ranks[0]} … {ranks[-1]}",
                hint="sharp=fabric or --capable 'SWITCH=multicast+reduces+turns'",
            )
        return found


@dataclass(frozen=True, slots=True)
class TreeShare:
    """Trees of one chunk: one to a root, and one from it; None: nothing to do."""

    chunk: int
    forth: NodeTree | None
    back: NodeTree | None


Shares = Iterator[TreeShare]
Writer = Callable[[CastSite, Kind, int], Shares]
"""The shares of an algorithm: of a site, the collective and the root."""


def _halves(kind: Kind, chunk: int, tree: NodeTree) -> TreeShare:
    """Return the share of a chunk whose tree is used both ways, or as the collective does."""
    forth = None if kind in (Kind.ALLGATHER, Kind.BROADCAST) else tree
    back = None if kind in (Kind.REDUCE_SCATTER, Kind.REDUCE) else tree
    return TreeShare(chunk, forth, back)


def _nvls(site: CastSite, kind: Kind, root: int) -> Shares:
    """A share for each rank and plane; of rooted collectives, for each plane."""
    ranks = range(site.topology.ranks)
    planes = site.planes(kind, ranks)
    holders = (root,) if kind in ROOTED else ranks
    chunk = count()
    for holder in holders:
        for plane in planes:
            yield _halves(kind, next(chunk), star(holder, ranks, plane))


def _one_shot(site: CastSite, kind: Kind, root: int) -> Shares:
    ranks = range(site.topology.ranks)
    for chunk, plane in enumerate(site.planes(kind, ranks)):
        for holder in ranks:
            yield TreeShare(chunk, star(holder, ranks, plane), None)


Ways = Iterator[tuple[NodeTree, NodeTree]]
"""Trees along a rail to a root and from it, for each share of the rail."""


def _across(along: Callable[[CastSite, Kind, Sequence[int]], Ways]) -> Writer:
    """Shares of trees along the rails, with the planes of each box hung on."""

    def shares(site: CastSite, kind: Kind, root: int) -> Shares:
        grid = site.grid()
        lines = [(line, site.planes(kind, line)) for line in grid.lines(0)]
        home = {rank: line for line in lines for rank in line[0]}
        parts, chunk = min(len(planes) for _, planes in lines), count()
        for rail in grid.lines(1):
            for forth, back in along(site, kind, rail):
                for part in range(parts):
                    boxes = [star(r, home[r][0], home[r][1][part]) for r in rail]
                    number = forth.root * parts + part if kind is not _AR else next(chunk)
                    yield TreeShare(
                        number,
                        None if kind is Kind.ALLGATHER else forth.joined(boxes),
                        None if kind is Kind.REDUCE_SCATTER else back.joined(boxes),
                    )

    return shares


def _rail_rings(site: CastSite, kind: Kind, rail: Sequence[int]) -> Ways:
    for i in range(len(rail)):
        onwards = [*rail[i:], *rail[:i]]
        yield chain([onwards[0], *reversed(onwards[1:])]), chain(onwards)


def _rail_trees(site: CastSite, kind: Kind, rail: Sequence[int]) -> Ways:
    for one in pair(len(rail)):
        top, *others = one.down
        tree = NodeTree(rail[top], tuple((rail[one.parent[i]], rail[i]) for i in others))
        yield tree, tree


def _rail_sums(site: CastSite, kind: Kind, rail: Sequence[int]) -> Ways:
    found = site.fabric_trees(rail)
    turns = kind is _AR and site.topology.nodes[found[0].root].turns
    for tree in found if turns else (found[0].rooted_at(holder) for holder in rail):
        yield tree, tree


def _direct_sharp(site: CastSite, kind: Kind, root: int) -> Shares:
    grid, chunk = site.grid(), count()
    home = {rank: line for line in grid.lines(0) for rank in line}
    for rail in grid.lines(1):
        for tree in _turned(site, rail):
            both = tree.joined(star(r, home[r]) for r in rail)
            yield TreeShare(next(chunk), both, both)


def _turned(site: CastSite, ranks: Sequence[int]) -> list[NodeTree]:
    """Return fabric trees with their root in a switch if it turns sums, else in each rank."""
    found = site.fabric_trees(ranks)
    if site.topology.nodes[found[0].root].turns:
        return found
    return [found[i % len(found)].rooted_at(rank) for i, rank in enumerate(ranks)]


def _sharp(site: CastSite, kind: Kind, root: int) -> Shares:
    ranks = range(site.topology.ranks)
    if kind is _AR:
        for number, tree in enumerate(_turned(site, ranks)):
            yield TreeShare(number, tree, tree)
        return
    found, chunk = site.fabric_trees(ranks), count()
    for holder in (root,) if kind in ROOTED else ranks:
        for tree in found:
            yield _halves(kind, next(chunk), tree.rooted_at(holder))


def _switchml(site: CastSite, kind: Kind, root: int) -> Shares:
    for number, tree in enumerate(_turned(site, range(site.topology.ranks))):
        if tree.root < site.topology.ranks:
            raise UserError(
                "the switch itself sends sums back in SwitchML, and none here turns them round",
                hint="--capable 'SWITCH=multicast+reduces+turns', or algorithm=atp",
            )
        yield TreeShare(number, tree, tree)


def _atp(site: CastSite, kind: Kind, root: int) -> Shares:
    found = site.fabric_trees(range(site.topology.ranks))
    for rank in range(site.topology.ranks):
        tree = found[rank % len(found)].rooted_at(rank)
        yield TreeShare(rank, tree, tree)


# --- costs ----------------------------------------------------------------------------------------


def _flat(steps: int, volume: Callable[[int], Fraction]) -> Callable[[Shape], Costs]:
    return lambda shape: (HockneyCost(steps, volume(shape[0])),)


def _boxed(
    box: Callable[[int], HockneyCost],
    steps: Callable[[int], int],
    volume: Callable[[int], Fraction],
) -> Callable[[Shape], Costs]:
    """Costs in a box of g ranks, and along rails of m; ``volume``: of the g-th part."""

    def cost(shape: Shape) -> Costs:
        g, m = shape
        return (box(g), HockneyCost(steps(m), volume(m) / g))

    return cost


def nvls_volume(ranks: int) -> Fraction:
    """Data that a port sends, and receives, in a two-shot allreduce: 1 + 1/n of the message."""
    return 1 + Fraction(1, ranks)


def _two_shot(ranks: int) -> HockneyCost:
    return HockneyCost(2, nvls_volume(ranks))


def _one_way(ranks: int) -> HockneyCost:
    return HockneyCost(1, Fraction(1))


def _tree_volume(m: int) -> Fraction:
    """A rank has as much to send, and to receive, as its edges in all trees: at most 2 M/g."""
    trees = pair(m)
    edges = [sum(tree.parent.count(i) + (tree.parent[i] >= 0) for tree in trees) for i in range(m)]
    return Fraction(max(edges), len(trees))


def _one(ranks: int) -> Fraction:
    return Fraction(1)


def _less_own(ranks: int) -> Fraction:
    return Fraction(ranks - 1, ranks)


# --- the table ------------------------------------------------------------------------------------

NVLS = "NVIDIA, NCCL 2.17 (NVLS)"
NVLS_TREE = "NVIDIA, NCCL 2.18 (NVLSTree)"
SHOTS = "Shah et al., MSCCL++, arXiv:2504.09014 (2025)"
COLLNET = "NVIDIA, NCCL 2.6 (CollNet)"
SHARP = "Graham et al., SHARP, COMHPC 2016"
ATP = "Lao et al., ATP, NSDI 2021"
SWITCHML = "Sapio et al., SwitchML, NSDI 2021"

ONE_SWITCH, BOXES = "one switch", "boxes, rails"
_AR, _AG, _RS = Kind.ALLREDUCE, Kind.ALLGATHER, Kind.REDUCE_SCATTER
_BC, _RE = Kind.BROADCAST, Kind.REDUCE


@dataclass(frozen=True, slots=True)
class InNetwork:
    """One algorithm for one collective whose sums and copies are made in switches."""

    # name, kind: such as nvls for allreduce
    name: str
    kind: Kind
    shares: Writer  # of a site, the kind and the root: trees of each chunk
    cost: Callable[[Shape], Costs]  # of a shape, innermost first: one entry per level
    source: str  # its publication
    needs: str = ONE_SWITCH  # requirement of the machine, in two words
    levels: int = 1  # 1, or 2 where boxes and rails differ
    pipelined: bool = False  # no pieces; slices make the pipeline
    # Switches have a pool of slots. Only by name: without it nothing is slower.
    pooled: bool = False

    def schedule(self, site: CastSite, pieces: int = 1, root: int = 0) -> Schedule:
        """Return the schedule of an algorithm, each of its chunks in ``pieces``.

        Raises:
            UserError: the machine lacks the switches, or they have too few groups.
        """
        machine, writer = site.topology, TreeWriter(site.topology)
        units = machine.ranks if self.kind in (_AG, _RS) else 1
        most, both = 0, []
        for share in self.shares(site, self.kind, root):
            trees = [
                None if tree is None else site.routes.tree(tree, inward=inward)
                for tree, inward in ((share.forth, True), (share.back, False))
            ]
            most = max(most, share.chunk + 1)
            both.append((trees[0], trees[1]))
            for piece in range(pieces):
                writer.write(share.chunk * pieces + piece, *trees)
        roots = (root,) if self.kind in ROOTED else ()
        collective = make(self.kind, machine.ranks, chunks=most // units * pieces, roots=roots)
        made = Schedule.of(
            machine,
            collective,
            writer.transfers,
            casts=self._limited(site, both, writer.casts, pieces),
            provenance={"algorithm": f"{self.name}_{self.kind}"},
        )
        for problem in cast_problems(made):
            raise UserError(f"{self.name} does not fit {machine.name}: {problem}")
        return made

    def _limited(
        self,
        site: CastSite,
        trees: Sequence[tuple[RoutedTree | None, RoutedTree | None]],
        casts: Sequence[Cast],
        pieces: int,
    ) -> Sequence[Cast]:
        both = [(forth, back) for forth, back in trees if forth is not None and back is not None]
        if not self.pooled or not both:
            return casts
        limit = site.pool.GBps(site.topology, both) / pieces
        return [replace(one, GBps=limit) for one in casts]


_nvls_ring, _nvls_tree, _nvls_sharp = map(_across, (_rail_rings, _rail_trees, _rail_sums))
_ring_cost = _boxed(_two_shot, lambda m: 2 * (m - 1), lambda m: 2 * _less_own(m))
_half_ring_cost = _boxed(_one_way, lambda m: m - 1, _less_own)
_half_sharp_cost = _boxed(_one_way, lambda m: 1, _less_own)
_direct_cost = _boxed(lambda g: HockneyCost(2, 2 * _less_own(g)), lambda m: 1, _one)


def _rows(name: str, kinds: tuple[Kind, ...], *rest: Any) -> list[InNetwork]:
    return [InNetwork(name, kind, *rest) for kind in kinds]


IN_NETWORK = (
    InNetwork("nvls_one_shot", _AR, _one_shot, _flat(1, Fraction), SHOTS),
    InNetwork("nvls", _AR, _nvls, _flat(2, nvls_volume), NVLS),
    *_rows("nvls", (_AG, _RS, _BC, _RE), _nvls, _flat(1, _one), NVLS),
    InNetwork("nvls_ring", _AR, _nvls_ring, _ring_cost, NVLS, BOXES, 2),
    *_rows("nvls_ring", (_AG, _RS), _nvls_ring, _half_ring_cost, NVLS, BOXES, 2),
    InNetwork(
        "nvls_tree",
        _AR,
        _nvls_tree,
        _boxed(_two_shot, lambda m: 2 * max(tree.height for tree in pair(m)), _tree_volume),
        NVLS_TREE,
        BOXES,
        2,
    ),
    InNetwork("nvls_sharp", _AR, _nvls_sharp, _boxed(_two_shot, lambda m: 1, _one), NVLS, BOXES, 2),
    *_rows("nvls_sharp", (_AG, _RS), _nvls_sharp, _half_sharp_cost, NVLS, BOXES, 2),
    InNetwork("direct_sharp", _AR, _direct_sharp, _direct_cost, COLLNET, BOXES, 2),
    *_rows("sharp", (_AR, _BC, _RE), _sharp, _flat(1, _one), SHARP, "a tree"),
    *_rows("sharp", (_AG, _RS), _sharp, _flat(1, _less_own), SHARP, "a tree"),
    InNetwork("switchml", _AR, _switchml, _flat(1, _one), SWITCHML, "a tree", pooled=True),
    InNetwork("atp", _AR, _atp, _flat(2, _one), ATP, "a tree"),
)
"""All of them, by name, then collective."""
