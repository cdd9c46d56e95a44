"""Alltoall where the flow program is large: prices by trees of cheapest paths.

The flow program of :mod:`.flow` has a flow for every source. Where the machine's symmetries move
the ranks into few orbits, averaging a solution over the group changes neither its time nor its
feasibility, so that prices may be constant on orbits of links and one source of every orbit of
ranks represents all (packing.md §1). The program over shortest-path trees of those sources is
solved by column generation: prices, cheapest trees, better prices. With many sources,
multiplicative weights make the first trees (:mod:`.source_trees`), and a small gap is enough. The
prices are rounded to integers and evaluated exactly (:func:`judge`), so the bound does not depend
on the solver.
"""

from __future__ import annotations

from fractions import Fraction
from math import lcm

import numpy as np

from weft.dsl.base.arrays import Floats, Ints, Ints32, distinct_values
from weft.dsl.base.errors import NothingFound, WeftError
from weft.dsl.base.kept import kept
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.topology import Topology

from ..lp.congestion import Congestion
from .demand import ClassDemand
from .effort import BOUND_EFFORT, BoundEffort
from .flow import ResourcePrices
from .rank_orbits import alike
from .source_trees import CheapestTrees, SourceTrees, cheapest_links, prices_by_weights

_GRIDS = (1, 2, 3, 4, 6, 12, 60, 840, 1 << 20)  # denominators tried for the prices
_CLOSE = 1e-9


@dataclass(frozen=True, eq=False)
class TreeFlow:
    """A fractional flow over trees of paths: where the data of each source goes.

    ``into[k, i]`` are the links of tree k of source i (:class:`.source_trees.CheapestTrees`), over
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
    """The best prices found, and a fractional flow; what is computed for one demand is kept.

    None where there are more sources than ``effort.price_sources``.
    """
    machine = _machine(topology, demand, effort)
    if machine is None:
        return None
    width, many = machine.GBps, len(machine.source) > effort.weight_sources
    best, proved, seen = 1.0 / width, 0.0, list[CheapestTrees]()
    attained, close = Fraction(0), effort.price_gap if many else _CLOSE
    if many:
        start = prices_by_weights(machine, effort)
        best, proved, seen = start.price, start.proved, start.trees
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
    from scipy.sparse.csgraph import dijkstra

    topology = machine.topology
    per_link = machine.link_prices(price)
    # The price of a path, then its number of arcs: no arc is free, and sums stay below 2^53.
    base = len(topology.nodes) + 1
    graph, _, _ = cheapest_links(topology, per_link * base + 1)
    reach = np.floor(dijkstra(graph, indices=machine.source) / base)
    paid = np.where(machine.need > 0, reach, 0.0).astype(np.int64) * machine.need
    spent = int((paid.sum(axis=1) * machine.size).sum())
    worth = sum((int(p) * w for p, w in zip(price, machine.width, strict=True)), Fraction(0))
    return ResourcePrices(price[machine.row], spent, worth)


def _rounded(price: Floats) -> list[Ints]:
    """The prices as small integers, in several ways."""
    least = price[price > price.max() * 1e-9].min()
    found = [np.rint(price / least * grid).astype(np.int64) for grid in _GRIDS]
    found.append(np.rint(price / price.max() * (1 << 20)).astype(np.int64))
    return [p for p in found if 0 < p.max() < 1 << 24]


def _master(pool: Ints, width: Floats, many: bool) -> tuple[Floats, Floats]:
    """Fractions of the trees of every source, shape (trees, sources), and prices of resources."""
    from scipy.sparse import csr_array  # takes 100 ms to load

    trees, sources, resources = pool.shape
    columns = pool.reshape(trees * sources, resources)
    scale = float(columns.max(initial=0)) or 1.0
    program = Congestion(
        csr_array(columns.T / scale),
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
