"""Bounds from prices where every rank wants every chunk: each chunk costs a minimum arborescence.

Put a non-negative price y on every link and shared resource. In any schedule take, for each byte
of a chunk and each rank, the transfer that first brought it there: these transfers form a tree
that spans all ranks from the holder, because a rank sends only what it has. A transfer from
rank i to rank j costs at least the cheapest route between them over nodes that do not store, each
copy anew where switches do not multicast; so the byte costs at least the minimum arborescence from
its holder. All that is carried until T costs at most T times the price of everything at full
bandwidth:

    T >= sum over chunks (cost of the least tree from its holder) / sum of price · bandwidth

Nothing is assumed about the schedule or about where the prices come from (packing.md §1; they are
best where they are the duals of the packing of trees). Reductions run backwards on the reversed
machine. All in integers.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from weft.dsl.base.errors import UserError
from weft.dsl.base.units import BYTES_PER_US_PER_GBPS
from weft.dsl.nouns.collective import Collective
from weft.dsl.nouns.topology import Topology

from ..base.engine import Certificate
from ..fabric.fabric import fabric_of
from ..prices.arborescence import TreePrices, tree_costs
from ..prices.route_costs import route_costs
from .demand import ClassDemand, copying_demand
from .report import tree_certificate


def tree_prices(
    topology: Topology, collective: Collective, prices: Sequence[int]
) -> tuple[Fraction, Certificate]:
    """Return a lower bound on T/M, in µs per byte of M, from integer prices, and its certificate.

    ``prices`` has one non-negative integer per entry of :meth:`Topology.capacities`: links, then
    shared resources. Cost O(N²) for the trees, N shortest paths for the routes.

    Raises:
        UserError: prices that do not fit; a collective whose chunks do not all go from one rank
            each to all ranks (or the reverse); a switch that copies or adds for it.
    """
    demand = _demand(topology, collective)
    checked = _checked(topology, prices)
    machine = topology.reversed() if demand.backwards else topology
    costs = tree_costs(route_costs(machine, checked))
    weight = np.zeros(topology.ranks, np.int64)
    np.add.at(weight, demand.holders, demand.weight)
    held = np.flatnonzero(weight).tolist()
    spent = sum(int(weight[v]) * costs[v] for v in held)
    worth = sum((p * b for p, b in zip(checked, topology.capacities(), strict=True)), Fraction(0))
    of = collective.message_chunks
    value = spent / worth / (BYTES_PER_US_PER_GBPS * of)
    found = TreePrices(checked, tuple((v, costs[v]) for v in held), spent, worth)
    return value, tree_certificate(topology, found, of, value)


def _demand(topology: Topology, collective: Collective) -> ClassDemand:
    demand = copying_demand(collective)
    if (
        demand is None
        or not demand.spread
        or len(demand.holders) > demand.classes
        or not demand.everybody()
    ):
        raise UserError(
            f"{collective}: tree prices need chunks that go from one rank each to all ranks",
            hint="broadcast, reduce, allgather, reduce_scatter",
        )
    for node in topology.nodes:
        if node.reduces if demand.backwards else node.multicast:
            raise UserError(
                f"{node.name} {'adds' if demand.backwards else 'copies'} in the network: "
                "a tree may use its links once for several ranks"
            )
    return demand


def _checked(topology: Topology, prices: Sequence[int]) -> tuple[int, ...]:
    found = tuple(int(p) for p in prices)
    count = fabric_of(topology).resources
    if len(found) != count:
        raise UserError(f"{len(found)} prices for {count} links and shared resources")
    if min(found, default=0) < 0 or not any(found):
        raise UserError("prices must be non-negative integers, and not all of them 0")
    return found
