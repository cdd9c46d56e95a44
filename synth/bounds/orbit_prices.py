"""Alltoall on large symmetric machines: one price per orbit of links.

The flow program of :mod:`.flow` has a flow for every source; where the machine's symmetries move
the ranks into few orbits, averaging a solution over the group changes neither its time nor its
feasibility, so that prices may be constant on orbits of links and one source of every orbit of
ranks represents all (packing.md §1). The program over shortest-path trees of those sources is
solved by column generation: prices, cheapest trees, better prices. The prices are rounded
to integers and evaluated exactly (:func:`judge`), so the bound does not depend on the solver.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from weft.dsl.base.arrays import AnyArray, Floats, Ints
from weft.dsl.base.errors import NothingFound, WeftError
from weft.dsl.nouns.topology import Topology
from weft.dsl.symmetry.structure import structure_of
from weft.dsl.symmetry.symmetry import orbits

from ..fabric.fabric import fabric_of
from ..lp.congestion import Congestion
from .demand import ClassDemand
from .effort import BoundEffort
from .flow import ResourcePrices
from .rank_orbits import alike

_GRIDS = (1, 2, 3, 4, 6, 12, 60, 840, 1 << 20)  # denominators tried for the prices
_CLOSE = 1e-9


@dataclass(frozen=True, eq=False)
class _PriceOrbits:
    """Resources (links, then shared ones) and ranks by orbit.

    ``row``: orbit of each resource; ``width``: GB/s of every orbit, summed; ``source``: one rank of
    every orbit of ranks, and ``size`` the number of ranks in it.
    """

    topology: Topology
    row: Ints
    width: tuple[Fraction, ...]
    source: Ints
    size: Ints
    use: tuple[Ints, Ints]

    @staticmethod
    def of(topology: Topology, orbit: Ints) -> _PriceOrbits:
        """``orbit``: the smallest rank of the orbit of each rank."""
        made, nodes = structure_of(topology), len(topology.nodes)
        found = (made.act(np.array(image)) for image in topology.symmetries)
        moves = [x[nodes:].astype(np.int64) - nodes for x in found if x is not None]
        _, row = np.unique(orbits(moves, sum(made.sizes[1:])), return_inverse=True)
        width = [Fraction(0)] * (int(row.max()) + 1)
        for at, bandwidth in zip(row.tolist(), topology.capacities(), strict=True):
            width[at] += bandwidth
        source, size = np.unique(orbit, return_counts=True)
        return _PriceOrbits(topology, row, tuple(width), source, size, fabric_of(topology).pairs)

    def link_prices(self, price: AnyArray) -> AnyArray:
        """Price of one crossing of each link, its resources included, from prices per orbit."""
        row, link = self.use
        total = np.zeros(len(self.topology.links), price.dtype)
        np.add.at(total, link, price[self.row[row]])
        return total

    def loads(self, trees: list[Ints]) -> list[Ints]:
        """Uses of each orbit of resources by the paths of each tree, for all ranks of its orbit."""
        row, link = self.use
        found = []
        for count, times in zip(trees, self.size.tolist(), strict=True):
            load = np.zeros(len(self.width), np.int64)
            np.add.at(load, self.row[row], count[link] * times)
            found.append(load)
        return found


def orbit_prices(
    topology: Topology, demand: ClassDemand, effort: BoundEffort
) -> tuple[ResourcePrices, Fraction] | None:
    """The best prices found, and the time of a fractional flow, in chunks per GB/s.

    None where the demand is not the same for all pairs or the machine is not symmetric enough.
    """
    if not demand.unicast or not demand.uniform or not topology.symmetries:
        return None
    orbit = alike(topology, effort.few_ranks)
    if len(np.unique(orbit)) > effort.price_sources:
        return None
    classes = _PriceOrbits.of(topology, orbit)
    width = np.array([float(w) for w in classes.width])
    price = 1.0 / width
    pool: list[list[Ints]] = [[] for _ in classes.source]
    best, proved = price, 0.0
    for _ in range(effort.price_rounds):
        trees, spent = _cheapest(classes, price)
        value = spent / float(price @ width)
        if value > proved:
            best, proved = price, value
        for kept, load in zip(pool, classes.loads(trees), strict=True):
            kept.append(load)
        try:
            shares, price = _master(pool, width)
        except WeftError:
            return None
        attained = _attained(classes, pool, shares)
        if proved >= float(attained) * (1 - _CLOSE) or not price.any():
            break
    found = max((judge(classes, demand.uniform, p) for p in _rounded(best)), key=lambda p: p.time)
    return found, attained * demand.uniform


def judge(classes: _PriceOrbits, chunks: int, price: Ints) -> ResourcePrices:
    """Bound that integer prices per orbit prove where every pair of ranks has ``chunks`` chunks."""
    from scipy.sparse.csgraph import dijkstra

    topology = classes.topology
    per_link = classes.link_prices(price)
    # The price of a path, then its number of arcs: no arc is free, and sums stay below 2^53.
    base = len(topology.nodes) + 1
    graph, _ = _graph(topology, per_link * base + 1)
    reach = np.floor(dijkstra(graph, indices=classes.source)[:, : topology.ranks] / base)
    spent = chunks * int((reach.sum(axis=1).astype(np.int64) * classes.size).sum())
    worth = sum((int(p) * w for p, w in zip(price, classes.width, strict=True)), Fraction(0))
    return ResourcePrices(price[classes.row], spent, worth)


def _rounded(price: Floats) -> list[Ints]:
    """The prices as small integers, in several ways."""
    least = price[price > price.max() * 1e-9].min()
    found = [np.rint(price / least * grid).astype(np.int64) for grid in _GRIDS]
    found.append(np.rint(price / price.max() * (1 << 20)).astype(np.int64))
    return [p for p in found if 0 < p.max() < 1 << 24]


def _graph(topology: Topology, weight: AnyArray) -> tuple[Any, dict[tuple[int, int], int]]:
    """A sparse graph of the cheapest parallel links, and which link that is."""
    from scipy.sparse import csr_array

    n = len(topology.nodes)
    ends = topology.link_ends()
    order = np.argsort(-weight, kind="stable")
    link_of = dict(zip(map(tuple, ends[order].tolist()), order.tolist(), strict=True))
    at = np.array(list(link_of), np.int64).reshape(-1, 2)
    cells = weight[list(link_of.values())].astype(float)
    return csr_array((cells, (at[:, 0], at[:, 1])), shape=(n, n)), link_of


def _cheapest(classes: _PriceOrbits, price: Floats) -> tuple[list[Ints], float]:
    """For each source how many destinations lie behind each link of its cheapest paths."""
    from scipy.sparse.csgraph import dijkstra

    topology = classes.topology
    per_link = classes.link_prices(price)
    graph, link_of = _graph(topology, per_link + per_link.mean() * 1e-9)
    reach, before = dijkstra(graph, indices=classes.source, return_predecessors=True)
    trees, spent = [], 0.0
    for row, times in enumerate(classes.size.tolist()):
        behind = np.zeros(len(topology.nodes), np.int64)
        behind[: topology.ranks] = 1
        count = np.zeros(len(topology.links), np.int64)
        parent = before[row].tolist()
        for node in np.argsort(-reach[row], kind="stable").tolist():
            if parent[node] >= 0:
                behind[parent[node]] += behind[node]
                count[link_of[parent[node], node]] = behind[node]
        trees.append(count)
        spent += times * float(per_link @ count)
    return trees, spent


def _master(pool: list[list[Ints]], width: Floats) -> tuple[Floats, Floats]:
    """Fractions of the trees of every source, and the prices of the orbits of resources."""
    from scipy.sparse import csr_array  # takes 100 ms to load

    columns = np.array([load for kept in pool for load in kept], float).T
    owner = np.repeat(np.arange(len(pool)), [len(kept) for kept in pool])
    scale = columns.max() or 1.0
    program = Congestion(
        csr_array(columns / scale), owner, np.ones(len(pool)), width=width / width.max()
    )
    found = program.least()
    if found.x is None:
        raise NothingFound(f"prices: {found.message}")
    return found.x[:-1], np.maximum(-found.ub_prices, 0.0)


def _attained(classes: _PriceOrbits, pool: list[list[Ints]], shares: Floats) -> Fraction:
    """The exact time of the flow with these fractions, made rational with sum one."""
    total = [Fraction(0)] * len(classes.width)
    at = 0
    for kept in pool:
        mine = [Fraction(float(s)).limit_denominator(5040) for s in shares[at : at + len(kept)]]
        mine = [max(s, Fraction(0)) for s in mine]
        whole = sum(mine, Fraction(0))
        at += len(kept)
        for share, load in zip(mine, kept, strict=True):
            if share:
                for row, times in enumerate(load.tolist()):
                    total[row] += share * times / whole
    return max(t / w for t, w in zip(total, classes.width, strict=True))
