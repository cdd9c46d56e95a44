"""Alltoall and other unicast demands: prices on links.

Put a price on every link and shared resource. Each chunk travels at least its cheapest distance,
and all that is carried in time T costs at most T times the price of everything at full bandwidth:

    T >= sum over pairs (chunks * cheapest distance) / sum over resources (price * bandwidth)

Any prices prove a bound; the best ones are the dual of the multi-commodity flow program, which
has a flow per source (Shahrokhi and Matula 1990, for the duality; algorithms.md §7). Distances
and sums are integers, so no bound depends on the solver being right.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from weft.dsl.base.arrays import AnyArray, Bools, Ints
from weft.dsl.base.errors import WeftError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.matrix import SparseMatrix
from weft.dsl.base.tables import rounded
from weft.dsl.base.unique_rows import rows_of
from weft.dsl.nouns.topology import Topology

from ..fabric.fabric import as_small_integers, fabric_of, grouped
from ..lp.certified import Certified, LinearProgram, certified_minimum
from .demand import ClassDemand
from .effort import BoundEffort
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
    from scipy.sparse.csgraph import dijkstra

    worth = sum(
        (int(p) * b for p, b in zip(prices, topology.capacities(), strict=True) if p), Fraction(0)
    )
    if not worth:
        return None
    graph, _, _ = cheapest_links(topology, link_prices(topology, prices))
    reach = dijkstra(graph, indices=np.arange(topology.ranks))[:, : topology.ranks]
    distance = np.where(pairs > 0, reach, 0.0).astype(np.int64)
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
    prices = priced(topology, pairs, _resource_prices(answer, len(topology.capacities())))
    if prices is None:
        return None
    return prices, answer.attained / unit if exact and answer.attained is not None else None


def _resource_prices(answer: Certified, resources: int) -> Ints:
    """Capacity duals as small integers; below 2^30, so that distances are exact in floats."""
    prices = -answer.dual_ub[:resources]
    prices //= max(1, int(np.gcd.reduce(prices)))
    excess = int(prices.max(initial=0)) >> 30
    return prices if not excess else prices // (excess + 1)


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
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import dijkstra

    n, free = len(topology.nodes), link_prices(topology, prices.values) == 0
    at = topology.link_ends()[free]
    graph = csr_array((np.ones(len(at)), (at[:, 0], at[:, 1])), shape=(n, n))
    starts = np.arange(min(topology.ranks, sources))
    reach = np.isfinite(dijkstra(graph, indices=starts, unweighted=True))
    return list(np.unique(reach, axis=0))
