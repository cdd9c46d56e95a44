"""The best mixture of trees with casts for an allreduce, by column generation.

Share w of the buffer is reduced to a root along trees that lead to it, and spread along trees that
lead away; roots are ranks, and switches that turn sums round. All trees share the links:

    min U:  sum of x over the trees to (and from) root r = w_r,  sum of w = 1,
            loads x <= U · bandwidth of every link and shared resource

Symmetries of the machine move trees to trees, so it is solved over orbits: of roots that are images
of each other one is enough, and loads are averages over orbits of links (packing.md §1). Prices of
the program find cheaper trees (:class:`.graph.SwitchSets`) until there is none. The end is exact:
the weights are rational and checked in integers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from fractions import Fraction

import numpy as np

from weft.dsl.base.arrays import AnyArray, Floats, Ints
from weft.dsl.base.errors import WeftError
from weft.dsl.base.kept import kept
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.matrix import SparseMatrix, vstack
from weft.dsl.base.units import BYTES_PER_US_PER_GBPS
from weft.dsl.nouns.topology import Topology
from weft.dsl.symmetry.orbits import Orbits, orbits_of

from ..base.meter import STEPS, Meter
from ..fabric.fabric import fabric_of
from ..lp.certified import Certified, LinearProgram, certified_minimum
from ..lp.congestion import Congestion
from ..lp.exact_finish import overlay
from .graph import STEINER_EFFORT, Arcs, SteinerGraph, SwitchSets, Tree, groups_alike


@dataclass(frozen=True, slots=True)
class RoutedArc:
    """An arc of a tree between nodes, with its links in the order in which data passes them.

    ``back``: the link over which the issuer's own copy returns, -1: none.
    """

    tail: int
    head: int
    links: tuple[int, ...]
    back: int = -1


@dataclass(frozen=True, slots=True)
class RoutedTree:
    """A tree of nodes; arcs lead from the root to leaves, or, ``inward``, from leaves to the root.

    ``arcs`` are listed from the root on, whichever way data goes.
    """

    root: int
    inward: bool
    arcs: tuple[RoutedArc, ...]

    def links(self) -> list[int]:
        """Return every link that it uses, as often as it does."""
        return [i for arc in self.arcs for i in (*arc.links, *([arc.back] * (arc.back >= 0)))]


@dataclass(frozen=True, eq=False)
class CastPacking:
    """Pairs of trees to and from a root, with exact weights that add up to 1."""

    topology: Topology
    orbits: Orbits  # the symmetries; each pair stands for its images under all of them
    # (weight, tree to the root, tree from it)
    pairs: tuple[tuple[Fraction, RoutedTree, RoutedTree], ...]
    us_per_byte: Fraction  # the time of the busiest resource per byte of the buffer, exactly
    # Prices under which all pairs of trees cost so much that, of all schedules that bring every
    # byte to one place and spread it from there, none is quicker; None: not proved
    proof: PairPrices | None
    steps: int = 0  # the work that it took


@dataclass(frozen=True, eq=False)
class PairPrices:
    """Prices of links and shared resources, integers, and their bound.

    A tree to a root and one from it, for the same byte, cost ``least`` or more together, whichever
    the root and the switches on them; ``worth``: price times GB/s, summed.
    """

    prices: tuple[int, ...]
    least: int
    worth: Fraction

    @property
    def us_per_byte(self) -> Fraction:
        """T/M for schedules that bring every byte to one place and spread it from there."""
        return self.least / self.worth / BYTES_PER_US_PER_GBPS


@kept(most=8)
def cast_packing(topology: Topology) -> CastPacking | None:
    """Return the best packing found for an allreduce; None if no tree spans all ranks."""
    search = _TreeColumns.of(topology, Meter(round(STEINER_EFFORT.packing * STEPS)))
    return search.run()


def quick_pairs(topology: Topology, rows: Floats) -> list[tuple[RoutedTree, RoutedTree]]:
    """Return for one root of each kind the cheapest trees to and from it.

    ``rows``: prices of links and shared resources; of α in µs plus a byte's time for small ones.
    """
    search = _TreeColumns.of(topology, Meter(round(STEINER_EFFORT.packing * STEPS)))
    arcs = [graph.arcs(rows) for graph in search.graphs]
    found = []
    for root in search.roots:
        trees = []
        for way, graph in enumerate(search.graphs):
            tree = search.tree(way, arcs[way], root)
            if tree is not None:
                trees.append(routed(graph, arcs[way], tree, inward=way == 0))
        if len(trees) == len(search.graphs):
            found.append((trees[0], trees[1]))
    return found


def rooted_tree(topology: Topology, rows: Floats, root: int, *, inward: bool) -> RoutedTree | None:
    """Return the cheapest tree to a rank, or from it, under prices of links and resources."""
    graph = SteinerGraph.of(topology, outward=not inward)
    arcs = graph.arcs(rows)
    labels = [0] * len(graph.switches)
    sets = SwitchSets(graph.ranks, groups_alike(labels, graph.ranks))
    tree = sets.least(arcs.cost, root, Meter(round(STEINER_EFFORT.packing * STEPS)))
    return None if tree is None else routed(graph, arcs, tree, inward=inward)


def time_of(topology: Topology, shares: Sequence[tuple[Fraction, Sequence[int]]]) -> Fraction:
    """Return µs per byte of the busiest resource; each share loads links, as often as listed."""
    fabric = fabric_of(topology)
    load = [Fraction(0)] * fabric.resources
    for share, links in shares:
        _, rows = fabric.resources_of(np.array(links, np.int64))
        for row in rows.tolist():
            load[row] += share
    busy = (x / b for x, b in zip(load, fabric.bandwidth, strict=True))
    return max(busy, default=Fraction(0)) / BYTES_PER_US_PER_GBPS


@dataclass(eq=False)
class _TreeColumn:
    family: int  # 2 · root + (0: inward, 1: outward)
    tree: RoutedTree
    load: Floats  # per orbit of rows, average


@dataclass(eq=False)
class _TreeColumns:
    topology: Topology
    orbits: Orbits
    meter: Meter
    graphs: tuple[SteinerGraph, SteinerGraph]  # inward (reversed), outward
    sets: tuple[SwitchSets, SwitchSets]
    roots: tuple[int, ...]  # nodes
    size: Floats  # rows of each orbit
    width: tuple[Fraction, ...]  # GB/s of a row of each orbit
    columns: list[_TreeColumn] = field(default_factory=list)
    seen: set[RoutedTree] = field(default_factory=set)
    _grew: bool = False

    @staticmethod
    def of(topology: Topology, meter: Meter) -> _TreeColumns:
        orbits = orbits_of(topology)
        least = orbits.images.min(axis=0)
        graphs = tuple(SteinerGraph.of(topology, outward=way) for way in (False, True))
        sets = tuple(
            SwitchSets(g.ranks, groups_alike(least[list(g.switches)].tolist(), g.ranks))
            for g in graphs
        )
        nodes = topology.nodes
        turning = [
            v
            for v in sorted({int(least[v]) for v in range(topology.ranks, len(nodes))})
            if nodes[v].turns and nodes[v].multicast
        ]
        size = np.bincount(orbits.row_orbit).astype(float)
        first = np.unique(orbits.row_orbit, return_index=True)[1]
        bandwidth = fabric_of(topology).bandwidth
        return _TreeColumns(
            topology,
            orbits,
            meter,
            (graphs[0], graphs[1]),
            (sets[0], sets[1]),
            (*orbits.representatives.tolist(), *turning),
            size,
            tuple(bandwidth[i] for i in first.tolist()),
        )

    def run(self) -> CastPacking | None:
        width = np.array(self.width, float)
        for price in (1.0 / width, np.ones(len(width))):
            self._price(price / self.size, None)
        grown = {c.family for c in self.columns}
        if not any({2 * k, 2 * k + 1} <= grown for k in range(len(self.roots))):
            return None
        self._price(1.0 / width / self.size, None, plain=True)
        best, bound = None, 0.0
        for _ in range(STEINER_EFFORT.rounds):
            value, price, families = self._master()
            self._grew, tried = False, price if best is None else (price + best) / 2
            for one in (tried, price):
                found = self._price(one / self.size, families)
                lower = found / float(one @ width) if one.any() else 0.0
                if lower > bound:
                    bound, best = lower, one
            if bound >= value * (1 - STEINER_EFFORT.close) or not self._grew:
                # The search for switches may have missed a set: look at all of them.
                ended = self._exact()
                if ended is None or ended.proof is not None or not self._grew:
                    return ended
                bound = 0.0
            if self.meter.over():
                break
        return self._exact()

    def _price(
        self, row: Floats, families: Floats | None, *, plain: bool = False, every: bool = False
    ) -> float:
        """Add trees under prices per orbit; return the least cost of a pair over all roots.

        ``families``: the value of each family, which a tree must undercut to be added. ``every``:
        look at all sets of switches; where there are too many, the answer is 0.
        """
        rows, least = row[self.orbits.row_orbit], np.inf
        arcs = [graph.arcs(rows) for graph in self.graphs]
        for k, root in enumerate(self.roots):
            total = 0.0
            for way, graph in enumerate(self.graphs):
                tree = self.tree(way, arcs[way], root, plain=plain, every=every)
                if tree is None:
                    total = -np.inf if every else np.inf
                    continue
                total += tree.cost
                if families is None or tree.cost < families[2 * k + way] * (
                    1 - STEINER_EFFORT.close
                ):
                    self._add(2 * k + way, routed(graph, arcs[way], tree, inward=way == 0))
            least = min(least, total)
        return float(max(least, 0.0))

    def tree(
        self, way: int, arcs: Arcs, root: int, *, plain: bool = False, every: bool = False
    ) -> Tree | None:
        """Return the cheapest tree to (``way`` 0) or from a root, as far as it is found."""
        graph, sets = self.graphs[way], self.sets[way]
        if root >= graph.ranks and root not in graph.switches:
            return None
        vertex = root if root < graph.ranks else graph.ranks + graph.switches.index(root)
        if plain:
            return (
                None
                if vertex != root
                else SwitchSets(graph.ranks, ()).least(arcs.cost, vertex, self.meter)
            )
        search = sets.every if every else sets.least
        return search(arcs.cost, vertex, self.meter)

    def _add(self, family: int, tree: RoutedTree) -> None:
        if tree in self.seen:
            return
        self.seen.add(tree)
        self._grew = True
        fabric = fabric_of(self.topology)
        _, rows = fabric.resources_of(np.array(tree.links(), np.int64))
        load = np.bincount(self.orbits.row_orbit[rows], minlength=len(self.size)) / self.size
        self.columns.append(_TreeColumn(family, tree, load))

    def _master(self) -> tuple[float, Floats, Floats]:
        loads = np.array([c.load for c in self.columns]).T
        found = self._program(loads, np.array(self.width, float)).least()
        self.meter.spend(20 * len(self.columns))
        if found.x is None:
            raise WeftError(f"trees with casts: {found.message}")
        return found.value, np.maximum(-found.ub_prices, 0.0), found.eq_prices[:-1]

    def _program(self, loads: AnyArray, width: AnyArray) -> Congestion:
        """Of loads (orbits, trees); both families of a root carry its share."""
        family = np.array([c.family for c in self.columns])
        both = np.arange(2 * len(self.roots))
        return Congestion(loads, family, np.zeros(len(both)), width=width, share=both // 2)

    def _exact(self) -> CastPacking | None:
        """Solve the last program in rational numbers, pair the trees of each root, and prove it."""
        program, units = self._whole_program()
        try:
            solved = certified_minimum(program, method="highs-ds")
        except WeftError:
            return None
        if solved.attained is None or solved.x_numerators is None:
            return None
        time = solved.attained / max(self.width) / BYTES_PER_US_PER_GBPS
        pairs = tuple(self._paired(self._lightest(program, solved)))
        proof = self._proof(-solved.dual_ub * units)
        return CastPacking(
            self.topology,
            self.orbits,
            pairs,
            time,
            proof if proof is not None and proof.us_per_byte == time else None,
            self.meter.done,
        )

    def _whole_program(self) -> tuple[LinearProgram, Ints]:
        """Return the last program in integers, and the factors of its rows."""
        # In units of the widest row, so that the time is not a tiny number.
        widest = max(self.width)
        counted = np.rint(np.array([c.load for c in self.columns]) * self.size).astype(np.int64)
        room = [s * w / widest for s, w in zip(map(int, self.size), self.width, strict=True)]
        units = np.array([w.denominator for w in room], np.int64)
        sized = np.array([w.numerator for w in room], np.int64)
        return self._program((counted * units).T, sized).exactly(), units

    def _lightest(self, program: LinearProgram, solved: Certified) -> list[Fraction]:
        """Return the weights of the trees that take the least time and, of these, fewest links.

        Few links are casts in place of transfers, which wait for each other less.
        """
        assert solved.attained is not None
        assert solved.x_numerators is not None
        n = len(self.columns)
        cost = np.zeros(len(program.cost), np.int64)
        cost[:n] = [len(c.tree.links()) for c in self.columns]
        ended = SparseMatrix.of((1, len(cost)), [0], [len(cost) - 1], [solved.attained.denominator])
        limited = vstack(program.a_ub, ended)
        limit = np.append(program.b_ub, solved.attained.numerator)
        best = solved
        try:
            found = certified_minimum(
                LinearProgram(cost, limited, limit, program.a_eq, program.b_eq), method="highs-ds"
            )
            best = solved if found.x_numerators is None else found
        except WeftError:
            pass
        assert best.x_numerators is not None
        return [Fraction(int(x), best.x_denominator) for x in best.x_numerators[:n]]

    def _proof(self, price: Ints) -> PairPrices | None:
        """Return the bound by integer prices of orbits, over all sets of switches; None: nothing.

        Routes are searched with a part of the mean price added to each link; prices must be so
        small that all of this on two trees is less than one.
        """
        common = int(np.gcd.reduce(price))
        if not common:
            return None
        price = price // common
        longest = 2 * len(self.topology.nodes) ** 2
        if STEINER_EFFORT.close * longest * float(price.max()) >= 0.5:
            return None
        least = int(self._price(price.astype(float), None, every=True) + 1e-6)
        rows = tuple(price[self.orbits.row_orbit].tolist())
        worth = sum(
            (p * b for p, b in zip(rows, fabric_of(self.topology).bandwidth, strict=True)),
            Fraction(0),
        )
        return PairPrices(rows, least, worth) if least > 0 else None

    def _paired(self, weights: list[Fraction]) -> list[tuple[Fraction, RoutedTree, RoutedTree]]:
        """Pair trees to and from each root, in their order, so that weights agree."""
        used = [(c, w) for c, w in zip(self.columns, weights, strict=True) if w > 0]
        return [
            (part, forth, back)
            for root in range(len(self.roots))
            for forth, back, part in overlay(
                *([(c.tree, w) for c, w in used if c.family == 2 * root + way] for way in (0, 1))
            )
        ]


def routed(graph: SteinerGraph, arcs: Arcs, tree: Tree, *, inward: bool) -> RoutedTree:
    """Return a tree with the links of its arcs, in the direction of the data."""
    children: dict[int, list[int]] = {}
    for above, v in tree.arcs:
        children.setdefault(above, []).append(v)
    found, queue = [], [tree.root]
    while queue:
        above = queue.pop(0)
        for v in children.get(above, ()):
            links = arcs.route(above, v)
            switch = v - graph.ranks
            own = -1
            if above < graph.ranks and switch >= 0 and graph.in_group[switch]:
                own = int(arcs.back[switch, above])
            ordered = tuple(reversed(links)) if inward else links
            found.append(RoutedArc(graph.node[above], graph.node[v], ordered, own))
            queue.append(v)
    return RoutedTree(graph.node[tree.root], inward, tuple(found))
