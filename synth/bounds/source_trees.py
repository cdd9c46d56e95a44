"""Cheapest-path trees of the sources of a unicast demand, and prices by multiplicative weights.

Resources and sources count once per orbit of the machine's symmetries; without symmetry every one
is an orbit. All sources of a call are searched together, in array operations.

The weights: resources that the flow so far uses much become dear, some sources at a time move a
part of their flow to the trees that are then cheapest, and the mean of the late prices proves the
bound (Plotkin, Shmoys and Tardos, "Fast approximation algorithms for fractional packing and
covering problems", 1995; a step as long as it helps, as Leong, Shor and Stein 1993). After some
fifty rounds the bound is within some per cent; a linear program over the trees closes the rest.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from weft.dsl.base.arrays import AnyArray, Floats, Ints, Ints32
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.topology import Topology
from weft.dsl.symmetry.structure import structure_of
from weft.dsl.symmetry.symmetry import orbits

from ..fabric.fabric import fabric_of
from .effort import BoundEffort


@dataclass(frozen=True, eq=False)
class SourceTrees:
    """Resources (links, then shared ones) and sources by orbit, and what sources send.

    ``row``: orbit of each resource; ``width``: GB/s of every orbit, summed; ``source``: one rank of
    every orbit of ranks, and ``size`` the number of ranks in it; ``need``: chunks of each source
    for every node, shape (sources, nodes).
    """

    topology: Topology
    row: Ints
    width: tuple[Fraction, ...]
    source: Ints
    size: Ints
    need: Ints

    @staticmethod
    def of_orbits(topology: Topology, orbit: Ints, chunks: int) -> SourceTrees:
        """So many chunks for every pair of ranks; ``orbit``: the smallest rank of each orbit."""
        made, nodes = structure_of(topology), len(topology.nodes)
        found = (made.act(np.array(image)) for image in topology.symmetries)
        moves = [x[nodes:].astype(np.int64) - nodes for x in found if x is not None]
        _, row = np.unique(orbits(moves, sum(made.sizes[1:])), return_inverse=True)
        width = [Fraction(0)] * (int(row.max()) + 1)
        for at, bandwidth in zip(row.tolist(), topology.capacities(), strict=True):
            width[at] += bandwidth
        source, size = np.unique(orbit, return_counts=True)
        need = np.zeros((len(source), nodes), np.int64)
        need[:, : topology.ranks] = chunks
        need[np.arange(len(source)), source] = 0
        return SourceTrees(topology, row, tuple(width), source, size, need)

    @staticmethod
    def of_pairs(topology: Topology, pairs: Ints) -> SourceTrees:
        """The chunks of ``pairs[source, destination]``, without any symmetry."""
        source = np.flatnonzero(pairs.sum(axis=1))
        need = np.zeros((len(source), len(topology.nodes)), np.int64)
        need[:, : topology.ranks] = pairs[source]
        width = topology.capacities()
        one = np.ones(len(source), np.int64)
        return SourceTrees(topology, np.arange(len(width)), width, source, one, need)

    @property
    def GBps(self) -> Floats:
        """Bandwidth of every orbit of resources, summed, as floats."""
        return np.array([float(w) for w in self.width])

    def link_prices(self, price: AnyArray) -> AnyArray:
        """Price of one crossing of each link, its resources included, from prices per orbit."""
        row, link = fabric_of(self.topology).pairs
        total = np.zeros(len(self.topology.links), price.dtype)
        np.add.at(total, link, price[self.row[row]])
        return total

    def cheapest(self, price: Floats, some: Ints | None = None) -> CheapestTrees:
        """Return a tree of cheapest paths from each of some sources (by default: all)."""
        from scipy.sparse.csgraph import dijkstra

        at = np.arange(len(self.source)) if some is None else some
        weight = self.link_prices(price)
        graph, key, link_of = cheapest_links(self.topology, weight + weight.mean() * 1e-9)
        _, before = dijkstra(graph, indices=self.source[at], return_predecessors=True)
        parent, behind = _gathered(before.astype(np.int64), self.need[at])
        k, node = np.nonzero((behind > 0) & (before >= 0))
        n = len(self.topology.nodes)
        link = link_of[np.searchsorted(key, parent[k, node] * n + node)]
        into = np.full(behind.shape, -1, np.int32)
        into[k, node] = link
        first, resource = fabric_of(self.topology).first, fabric_of(self.topology).resource
        count = first[link + 1] - first[link]
        inside = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)
        orbit = self.row[resource[np.repeat(first[link], count) + inside]]
        uses = np.repeat(behind[k, node] * self.size[at[k]], count)
        load = np.zeros((len(at), len(self.width)), np.int64)
        np.add.at(load, (np.repeat(k, count), orbit), uses)
        return CheapestTrees(load, np.asarray(load @ price), into)


@dataclass(frozen=True, eq=False)
class CheapestTrees:
    """A tree of cheapest paths from each of some sources.

    ``load``: uses of each orbit of resources, for all ranks of the source's orbit, shape (sources,
    orbits); ``paid``: the price of these uses; ``into``: the link over which data comes to each
    node, -1 where none has to, shape (sources, nodes).
    """

    load: Ints
    paid: Floats
    into: Ints32


def cheapest_links(topology: Topology, weight: AnyArray) -> tuple[Any, Ints, Ints]:
    """A sparse graph of the cheapest of parallel links; their keys (source · nodes + destination),
    ascending, and which link each is."""
    from scipy.sparse import csr_array

    n, fabric = len(topology.nodes), fabric_of(topology)
    key = fabric.src * n + fabric.dst
    order = np.lexsort((np.arange(len(key)), weight, key))
    key, first = np.unique(key[order], return_index=True)
    link = order[first]
    cells = weight[link].astype(float)
    return csr_array((cells, (key // n, key % n)), shape=(n, n)), key, link


def _gathered(before: Ints, need: Ints) -> tuple[Ints, Ints]:
    """The parent of every node in each tree (a root's: itself), and the chunks that go through."""
    rows, n = before.shape
    parent = np.where(before < 0, np.arange(n), before)
    flat = (parent + np.arange(rows)[:, None] * n).ravel()
    depth, jump = (flat != np.arange(rows * n)).astype(np.int64), flat
    while True:  # ever longer jumps towards the root
        more = depth[jump]
        if not more.any():
            break
        depth, jump = depth + more, jump[jump]
    behind = need.ravel().copy()
    for level in range(int(depth.max(initial=0)), 0, -1):
        here = np.flatnonzero(depth == level)
        np.add.at(behind, flat[here], behind[here])
    return parent, behind.reshape(rows, n)


@dataclass(frozen=True, eq=False)
class WeightedPrices:
    """Prices per orbit, the time that they prove (up to rounding), and the trees that were seen."""

    price: Floats
    proved: float
    trees: list[CheapestTrees]


def prices_by_weights(machine: SourceTrees, effort: BoundEffort) -> WeightedPrices:
    """Prices after some phases of multiplicative weights, and the trees of the last phases."""
    width, sources = machine.GBps, len(machine.source)
    trees = [machine.cheapest(1.0 / width)]
    flow = trees[0].load.astype(float)
    best, mean = WeightedPrices(1.0 / width, 0.0, trees), np.zeros(len(width))
    steepness, rng = effort.weight_steepness, np.random.default_rng(0)
    for phase in range(effort.weight_phases):
        price, paid = np.zeros(len(width)), np.zeros(sources)
        load, into = np.zeros_like(trees[0].load), np.zeros_like(trees[0].into)
        parts = np.array_split(rng.permutation(sources), min(effort.weight_blocks, sources))
        for some in parts:
            use = flow.sum(axis=0) / width
            worst = float(use.max())
            now = np.exp(steepness * (use / worst - 1.0)) / width
            price += now / float(width @ now) / len(parts)
            found = machine.cheapest(now, some)
            load[some], into[some], paid[some] = found.load, found.into, found.paid
            change = found.load - flow[some]
            flow[some] += _step(use, change.sum(axis=0) / width, steepness / worst) * change
        recent = max(effort.weight_memory, 1.0 / (phase + 1))
        mean = (1.0 - recent) * mean + recent * price
        also = machine.cheapest(mean)
        trees += [CheapestTrees(load, paid, into), also]
        proved = float(also.paid.sum()) / float(width @ mean)
        if proved > best.proved:
            best = WeightedPrices(mean.copy(), proved, trees)
        gap = float((flow.sum(axis=0) / width).max()) / best.proved - 1.0
        steepness = max(steepness, 2.0 * np.log(len(width) + 1) / max(gap, effort.price_gap))
    return WeightedPrices(best.price, best.proved, trees[-effort.weight_trees :])


def _step(use: Floats, change: Floats, steepness: float) -> float:
    """The part of a change of the loads that makes the sum of exp(steepness · load) least."""
    low, high = 0.0, 1.0
    for _ in range(10):  # to a thousandth
        middle = (low + high) / 2
        slope = steepness * (use + middle * change)
        if float(np.exp(slope - slope.max()) @ change) > 0:
            high = middle
        else:
            low = middle
    return low
