"""Alltoall and other unicast demands: prices on links.

Put a price on every link and shared resource. Each chunk travels at least its cheapest distance,
and all that is carried in time T costs at most T times the price of everything at full bandwidth:

    T >= sum over pairs (chunks * cheapest distance) / sum over resources (price * bandwidth)

Any prices prove a bound; the best ones are the dual of the multi-commodity flow program, which
has a flow per source (Shahrokhi and Matula 1990, for the duality; algorithms.md §7). Distances
and sums are integers, so no bound depends on the solver being right.

Alltoall where the flow program is large: prices by trees of cheapest paths.

The flow program has a flow for every source. Where the machine's symmetries move
the ranks into few orbits, averaging a solution over the group changes neither its time nor its
feasibility, so that prices may be constant on orbits of links and one source of every orbit of
ranks represents all (packing.md §1). The program over shortest-path trees of those sources is
solved by column generation: prices, cheapest trees, better prices. With many sources,
multiplicative weights make the first trees, and a small gap is enough. The
prices are rounded to integers and evaluated exactly (:func:`judge`), so the bound does not depend
on the solver.

The weights: resources that the flow so far uses much become dear, some sources at a time move a
part of their flow to the trees that are then cheapest, and the mean of the late prices proves the
bound (Plotkin, Shmoys and Tardos, "Fast approximation algorithms for fractional packing and
covering problems", 1995; a step as long as it helps, as Leong, Shor and Stein 1993). After some
fifty rounds the bound is within some per cent; a linear program over the trees closes the rest.
"""

from __future__ import annotations

from fractions import Fraction
from math import lcm
from typing import Any

import numpy as np

from weft.dsl.base.arrays import AnyArray, Bools, Floats, Ints, Ints32, distinct_values
from weft.dsl.base.errors import NothingFound, WeftError
from weft.dsl.base.kept import kept
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.matrix import SparseMatrix
from weft.dsl.base.shortest import distances
from weft.dsl.base.tables import rounded
from weft.dsl.base.unique_rows import rows_of
from weft.dsl.nouns.topology import Topology
from weft.dsl.symmetry.structure import structure_of
from weft.dsl.symmetry.symmetry import orbits

from ..fabric.fabric import as_small_integers, fabric_of, grouped
from ..lp.certified import LinearProgram, certified_minimum
from ..lp.congestion import Congestion
from .demand import ClassDemand, alike
from .effort import BOUND_EFFORT, BoundEffort
from .words import BandwidthBound, carried, price_words, prices_of


@dataclass(frozen=True, eq=False)
class ResourcePrices:
    """Integer prices per resource (links, then shared resources), and the bound that they prove.

    ``values``: the prices; ``spent``: chunks times cheapest distance, summed; ``worth``: price
    times GB/s, summed.
    """

    values: Ints
    spent: int
    worth: Fraction

    @property
    def time(self) -> Fraction:
        """Chunks per GB/s: times bytes per chunk / 1000 it is µs."""
        return self.spent / self.worth

    def bound(self, topology: Topology, message_chunks: int) -> BandwidthBound:
        """The bound of the prices, and its certificate."""
        priced = prices_of(self.values.tolist())
        text = (
            f"Price {price_words(topology, priced)}. The chunks of all pairs travel priced "
            f"distances that add up to {self.spent} (M is {message_chunks} chunks); price times "
            f"bandwidth adds up to {rounded(self.worth)} GB/s"
        )
        data = {"prices": priced, "spent": self.spent, "worth_GBps": str(self.worth)}
        return carried("prices", text, self.spent, self.worth, message_chunks, data)


def link_prices(topology: Topology, prices: AnyArray) -> AnyArray:
    """Price of one crossing of each link, the resources that it holds included."""
    resource, link = fabric_of(topology).pairs
    total = np.zeros(len(topology.links), prices.dtype)
    np.add.at(total, link, prices[resource])
    return total


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


def priced(topology: Topology, pairs: Ints, prices: Ints) -> ResourcePrices | None:
    """Bound that prices prove for chunks ``pairs[source, destination]``; None if all are 0."""
    worth = sum(
        (int(p) * b for p, b in zip(prices, topology.capacities(), strict=True) if p), Fraction(0)
    )
    if not worth:
        return None
    fabric, ranks = fabric_of(topology), topology.ranks
    cost = link_prices(topology, prices)
    reach = distances(len(topology.nodes), fabric.src, fabric.dst, cost, np.arange(ranks))
    distance = np.where(pairs > 0, reach[:, :ranks], 0.0).astype(np.int64)
    spent = int((pairs.astype(object) * distance).sum())
    return ResourcePrices(prices, spent, worth)


def best_prices(
    topology: Topology, demand: ClassDemand, effort: BoundEffort
) -> tuple[ResourcePrices, Fraction | None] | None:
    """The best prices by the flow program, and the time that a rational flow attains, if found.

    None where the program is too large, or was not solved.
    """
    pairs = demand.pairs
    from_sources = (pairs.sum(axis=1) > 0).sum() <= (pairs.sum(axis=0) > 0).sum()
    one_way, machine = (pairs, topology) if from_sources else (pairs.T, topology.reversed())
    if int((one_way.sum(axis=1) > 0).sum()) * len(topology.links) > effort.flow_columns:
        return None
    size, unit, exact = as_small_integers(topology.capacities())
    program = _flow_program(machine, one_way, size)
    try:
        answer = certified_minimum(
            program, meter=effort.program_meter(), most_columns=effort.flow_kept
        )
    except WeftError:
        return None
    # Capacity duals as small integers; below 2^30, so that distances are exact in floats.
    duals = -answer.dual_ub[: len(size)]
    duals //= max(1, int(np.gcd.reduce(duals)))
    prices = priced(topology, pairs, duals // ((int(duals.max(initial=0)) >> 30) + 1))
    if prices is None:
        return None
    return prices, answer.attained / unit if exact and answer.attained is not None else None


def _flow_program(topology: Topology, pairs: Ints, size: Ints) -> LinearProgram:
    """Least T with a flow per source; T is in chunks per unit of ``size``, the capacities.

    Columns: flow of source s on each link that does not return to it, then T. Rows: capacity of
    every link and resource; conservation for every source at every other node.
    """
    sources = np.flatnonzero(pairs.sum(axis=1))
    links, n = topology.links, len(topology.nodes)
    ends = topology.link_ends().T
    kept = ends[1][None, :] != sources[:, None]
    at, link = np.nonzero(kept)
    column = np.arange(len(at))
    last = len(at)
    cap_row, cap_link = fabric_of(topology).pairs
    # Every (resource, link) pair, once per source that may use the link.
    start, order = grouped(link, len(links))
    each, inner = rows_of(start, cap_link)
    load_col, load_row = column[order[inner]], np.repeat(cap_row, np.diff(each))
    a_ub = SparseMatrix.of(
        (len(size), last + 1),
        np.concatenate([load_row, np.arange(len(size))]),
        np.concatenate([load_col, np.full(len(size), last)]),
        np.concatenate([np.ones(len(load_col), np.int64), -size]),
    )
    values = np.concatenate([np.ones(last, np.int64), -np.ones(last, np.int64)])
    row = np.concatenate([at * n + ends[1][link], at * n + ends[0][link]])
    a_eq = SparseMatrix.of(
        (len(sources) * n, last + 1), row, np.concatenate([column, column]), values
    )
    need = np.zeros((len(sources), n), np.int64)
    need[:, : topology.ranks] = pairs[sources]
    others = np.ones((len(sources), n), bool)
    others[np.arange(len(sources)), sources] = False
    rows = np.flatnonzero(others.ravel())
    cost = np.zeros(last + 1, np.int64)
    cost[last] = 1
    return LinearProgram(cost, a_ub, np.zeros(len(size), np.int64), a_eq[rows], need.ravel()[rows])


def level_sets(topology: Topology, prices: ResourcePrices, sources: int) -> list[Bools]:
    """Sets of nodes that one of the first ranks (``sources`` of them) reaches at price 0.

    An optimal cut is often one of them.
    """
    free = link_prices(topology, prices.values) == 0
    src, dst = topology.link_ends()[free].T
    starts = np.arange(min(topology.ranks, sources))
    none = np.zeros(len(src), np.int64)
    reach = np.isfinite(distances(len(topology.nodes), src, dst, none, starts))
    return list(np.unique(reach, axis=0))


@dataclass(frozen=True, eq=False)
class SourceTrees:
    """Resources (links, then shared ones) and sources by orbit, and the data of sources.

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
        """``chunks`` for every pair of ranks; ``orbit``: the smallest rank of each orbit."""
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
        return link_prices(self.topology, price[self.row])

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
        position, resource = fabric_of(self.topology).resources_of(link)
        uses = (behind[k, node] * self.size[at[k]])[position]
        load = np.zeros((len(at), len(self.width)), np.int64)
        np.add.at(load, (k[position], self.row[resource]), uses)
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


def prices_by_weights(
    machine: SourceTrees, effort: BoundEffort
) -> tuple[Floats, float, list[CheapestTrees]]:
    """Prices per orbit after some phases of multiplicative weights, the time that they prove (up to
    rounding), and the trees of the last phases."""
    width, sources = machine.GBps, len(machine.source)
    trees = [machine.cheapest(1.0 / width)]
    flow = trees[0].load.astype(float)
    best, mean = (1.0 / width, 0.0), np.zeros(len(width))
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
        if proved > best[1]:
            best = mean.copy(), proved
        gap = float((flow.sum(axis=0) / width).max()) / best[1] - 1.0
        steepness = max(steepness, 2.0 * np.log(len(width) + 1) / max(gap, effort.price_gap))
    return *best, trees[-effort.weight_trees :]


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


_GRIDS = (1, 2, 3, 4, 6, 12, 60, 840, 1 << 20)  # denominators tried for the prices
_CLOSE = 1e-9


@dataclass(frozen=True, eq=False)
class TreeFlow:
    """A fractional flow over trees of paths: where the data of each source goes.

    ``into[k, i]`` are the links of tree k of source i (:class:`CheapestTrees`), over
    which it sends the part ``share[k, i]``; shape (trees, sources, nodes) and (trees, sources).
    """

    machine: SourceTrees
    into: Ints32
    share: Floats


@dataclass(frozen=True, eq=False)
class OrbitPrices:
    """The best prices found, and a flow whose time in chunks per GB/s is ``attained``."""

    prices: ResourcePrices
    attained: Fraction
    flow: TreeFlow


@kept(most=8)
def orbit_prices(
    topology: Topology, demand: ClassDemand, effort: BoundEffort = BOUND_EFFORT
) -> OrbitPrices | None:
    """The best prices found, and a fractional flow; results for one demand are kept.

    None where there are more sources than ``effort.price_sources``.
    """
    machine = _machine(topology, demand, effort)
    if machine is None:
        return None
    width, many = machine.GBps, len(machine.source) > effort.weight_sources
    best, proved, seen = 1.0 / width, 0.0, list[CheapestTrees]()
    attained, close = Fraction(0), effort.price_gap if many else _CLOSE
    if many:
        best, proved, seen = prices_by_weights(machine, effort)
    price, shares = best, np.zeros((0, len(machine.source)))
    for _ in range(effort.price_rounds):
        # Halfway to the best prices, where there are many: the program's own jump about.
        for tried in (price, price / (price @ width) + best / (best @ width))[: 1 + many]:
            seen = [*seen, machine.cheapest(tried)]
            value = float(seen[-1].paid.sum()) / float(tried @ width)
            if value > proved:
                best, proved = tried, value
        if attained and proved >= float(attained) * (1 - close):
            break
        pool = np.stack([trees.load for trees in seen])
        try:
            shares, price = _master(pool, width, many)
        except WeftError:
            return None
        attained = _attained(machine, pool, shares)
        if proved >= float(attained) * (1 - close) or not price.any():
            break
    found = max((judge(machine, p) for p in _rounded(best)), key=lambda p: p.time)
    into = np.stack([trees.into for trees in seen[: len(shares)]])
    return OrbitPrices(found, attained, TreeFlow(machine, into, shares))


def _machine(topology: Topology, demand: ClassDemand, effort: BoundEffort) -> SourceTrees | None:
    """Orbits of sources where the demand is the same for all pairs, else every source."""
    if not demand.unicast:
        return None
    if demand.uniform and topology.symmetries:
        orbit = alike(topology, effort.few_ranks)
        if len(distinct_values(orbit)) <= effort.price_sources:
            return SourceTrees.of_orbits(topology, orbit, demand.uniform)
        return None
    if len(demand.sources()) > effort.price_sources:
        return None
    return SourceTrees.of_pairs(topology, demand.pairs)


def judge(machine: SourceTrees, price: Ints) -> ResourcePrices:
    """Bound that integer prices per orbit of resources prove."""
    topology = machine.topology
    per_link = machine.link_prices(price)
    # The price of a path, then its number of arcs: no arc is free, and sums stay below 2^53.
    base = len(topology.nodes) + 1
    fabric, cost = fabric_of(topology), per_link * base + 1
    far = distances(len(topology.nodes), fabric.src, fabric.dst, cost, machine.source)
    reach = np.floor(far / base)
    paid = np.where(machine.need > 0, reach, 0.0).astype(np.int64) * machine.need
    spent = int((paid.sum(axis=1) * machine.size).sum())
    worth = sum((int(p) * w for p, w in zip(price, machine.width, strict=True)), Fraction(0))
    return ResourcePrices(price[machine.row], spent, worth)


def _rounded(price: Floats) -> list[Ints]:
    least = price[price > price.max() * 1e-9].min()
    found = [np.rint(price / least * grid).astype(np.int64) for grid in _GRIDS]
    found.append(np.rint(price / price.max() * (1 << 20)).astype(np.int64))
    return [p for p in found if 0 < p.max() < 1 << 24]


def _master(pool: Ints, width: Floats, many: bool) -> tuple[Floats, Floats]:
    """Fractions of the trees of every source, shape (trees, sources), and prices of resources."""
    trees, sources, resources = pool.shape
    columns = pool.reshape(trees * sources, resources)
    scale = float(columns.max(initial=0)) or 1.0
    program = Congestion(
        columns.T / scale,
        np.tile(np.arange(sources), trees),
        np.ones(sources),
        width=width / width.max(),
    )
    # Of thousands of columns the interior point method is several times quicker.
    found = program.least(method="highs-ipm" if many else "highs")
    if found.x is None:
        raise NothingFound(f"prices: {found.message}")
    return found.x[:-1].reshape(trees, sources), np.maximum(-found.ub_prices, 0.0)


def _attained(machine: SourceTrees, pool: Ints, shares: Floats) -> Fraction:
    """The exact time of the flow with these fractions, made rational with sum one."""
    total: dict[int, Ints] = {}
    for source in range(len(machine.source)):
        parts, whole = _in_parts(shares[:, source])
        used = np.flatnonzero(parts)
        load = parts[used] @ pool[used, source]
        total[whole] = total.get(whole, np.zeros_like(load)) + load
    common = lcm(*total)
    summed = sum(load.astype(object) * (common // whole) for whole, load in total.items())
    return max(
        Fraction(int(x), common) / w for x, w in zip(np.asarray(summed), machine.width, strict=True)
    )


def _in_parts(shares: Floats) -> tuple[Ints, int]:
    """Fractions as integers, and their sum: simple ones where that is small."""
    simple = [max(Fraction(float(s)).limit_denominator(5040), Fraction(0)) for s in shares]
    common = lcm(*(s.denominator for s in simple))
    if common <= _GRIDS[-1]:
        parts = np.array([int(s * common) for s in simple], np.int64)
    else:
        parts = np.rint(np.maximum(shares, 0.0) * _GRIDS[-1]).astype(np.int64)
        parts[np.argmax(parts)] += _GRIDS[-1] - parts.sum()
    return parts, int(parts.sum())
