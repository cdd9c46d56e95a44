"""The allreduce that trees attain: reduce to roots, broadcast from them, sharing the links.

Share w_v of the buffer is reduced to rank v and broadcast from it. By Edmonds' multi-root
branching theorem loads q allow broadcasting the shares iff every rank has, within q, a flow of
value 1 from a super-source that supplies w; the reduction is the same on reversed hops with loads
r; and q + r must fit every link and shared resource. (algorithms.md §3.4.) This is what can be
*attained*; it is a lower bound only for schedules of this shape, so it is reported beside the
bound and never as one. Non-copying switches are replaced by their GPU-to-GPU hops.

Bounds from prices where every rank wants every chunk: each chunk costs a minimum arborescence.

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
from typing import Any

import numpy as np

from weft.dsl.base.arrays import Ints
from weft.dsl.base.errors import UserError, WeftError
from weft.dsl.base.matrix import SparseMatrix
from weft.dsl.base.tables import rounded
from weft.dsl.nouns.collective import Collective
from weft.dsl.nouns.hops import find_hops
from weft.dsl.nouns.topology import Topology

from ..base.engine import Certificate
from ..fabric.fabric import as_small_integers, fabric_of
from ..lp.certified import LinearProgram, certified_minimum
from ..prices.arborescence import TreePrices, tree_costs
from ..prices.route_costs import route_costs
from .demand import ClassDemand, copying_demand
from .effort import BOUND_EFFORT, BoundEffort
from .words import carried, price_words, prices_of


def tree_time(topology: Topology, effort: BoundEffort = BOUND_EFFORT) -> Fraction | None:
    """Buffers per GB/s (times M / 1000 it is µs) of the best fractional packing of trees.

    A rational solution that was checked exactly; None where the program is too large, was
    not solved, or its solution could not be made rational.
    """
    n = topology.ranks
    if n < 2 or n * len(topology.links) > effort.tree_columns:
        return None
    hops = find_hops(topology).hops
    if 2 * n * len(hops) > effort.tree_columns:
        return None
    ends = np.array([(h.src, h.dst) for h in hops], np.int64).T
    size, unit, exact = as_small_integers(topology.capacities())
    if not exact:
        return None
    held = map(fabric_of(topology).times_held, (h.route for h in hops))
    # Loads of links and shared resources by hops: (resource, hop, times).
    cells = [(row, h, times) for h, one in enumerate(held) for row, times in one.items()]
    table = np.array(cells, np.int64).reshape(-1, 3)
    load = table[:, 0], table[:, 1], table[:, 2]
    try:
        solved = certified_minimum(_program(n, ends, load, size), meter=effort.program_meter())
    except WeftError:
        return None
    return None if solved.attained is None else solved.attained / unit


def _program(n: int, ends: Ints, load: tuple[Ints, Ints, Ints], size: Ints) -> LinearProgram:
    """Columns: g[v, h], then their reverses, q[h], r[h], w[v], T. See the module docstring."""
    hops = ends.shape[1]
    flows, q = n * hops, 2 * n * hops
    w, last = q + 2 * hops, q + 2 * hops + n
    cells: list[tuple[Any, Any, Any]] = []
    rows = 0
    sink, hop = np.divmod(np.arange(flows), hops)
    for phase, (tail, head) in enumerate((ends, ends[::-1])):
        first = phase * flows
        # Shares: what leaves u on the way to v, less what enters, is at most w_u; at v the flow
        # must make up for what v has not itself: in(v) - out(v) >= 1 - w_v.
        cells.append((rows + sink * n + tail[hop], first + np.arange(flows), 1))
        cells.append((rows + sink * n + head[hop], first + np.arange(flows), -1))
        pair = np.arange(n * n)
        cells.append((rows + pair, w + pair % n, -1))
        rows += n * n
        cells.append((rows + np.arange(flows), first + np.arange(flows), 1))
        cells.append((rows + np.arange(flows), q + phase * hops + hop, -1))
        rows += flows
    row, at, times = load
    for phase in (0, 1):
        cells.append((rows + row, q + phase * hops + at, times))
    cells.append((rows + np.arange(len(size)), np.full(len(size), last), -size))
    rows += len(size)
    right = np.zeros(rows, np.int64)
    for phase in (0, 1):
        right[phase * (n * n + flows) + np.arange(n) * (n + 1)] = -1
    parts = [np.broadcast_arrays(*(np.asarray(x, np.int64) for x in c)) for c in cells]
    i, j, a = (np.concatenate([p[k] for p in parts]) for k in range(3))
    a_ub = SparseMatrix.of((rows, last + 1), i, j, a)
    ones, zeros = np.ones(n, np.int64), np.zeros(n, np.int64)
    a_eq = SparseMatrix.of((1, last + 1), zeros, w + np.arange(n), ones)
    cost = np.zeros(last + 1, np.int64)
    cost[last] = 1
    return LinearProgram(cost, a_ub, right, a_eq, np.ones(1, np.int64))


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
    found = TreePrices(checked, tuple((v, costs[v]) for v in held), spent, worth)
    of, priced = collective.message_chunks, prices_of(found.prices)
    text = (
        f"Price {price_words(topology, priced)}. The cheapest tree from each of {len(found.costs)} "
        f"ranks to all others costs {min(cost for _, cost in found.costs)} or more, those of all "
        f"chunks {spent} (M is {of} chunks); price times bandwidth adds up to {rounded(worth)} GB/s"
    )
    data = {
        "prices": priced,
        "trees": [list(x) for x in found.costs],
        "spent": spent,
        "worth_GBps": str(worth),
    }
    bound = carried("trees", text, spent, worth, of, data)
    return bound.us_per_byte, bound.certificate


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
