"""Why a frontier never ends: a bound that pipelining approaches and no schedule reaches."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from weft.dsl.nouns.topology import Topology

from .demands import Demand, Reach, reach
from .frontier import Frontier, Search


def never_reached(
    topology: Topology, wanted: Sequence[Demand], near: Reach, static: Fraction
) -> str | None:
    """The argument that ``static`` rounds per chunk are not reached by any number of steps.

    Take a minimum cut between the sources and a target whose capacity is 1/static chunks per
    round. Reaching the bound means filling all its links in every round of every step. But in
    step 1, which has at least one round, a link whose tail holds nothing yet carries nothing.
    None where the argument does not apply (several demands, or no such cut).
    """
    if len(wanted) != 1:
        return None
    demand = wanted[0]
    depth = near.tail_depth(demand.sources)
    for target in demand.targets:
        value, cut = _minimum_cut(topology, demand.sources, target)
        if value == 0 or len(demand.chunks) / value != static:
            continue
        idle = [i for i in cut if depth[topology.links[i].src] >= 1]
        if idle:
            names = ", ".join(_name(topology, i) for i in idle[:4])
            return (
                f"it would need all {value} chunks per round of the cut around "
                f"{topology.nodes[target].name} in every round, but in step 1 "
                f"{names} {'has' if len(idle) == 1 else 'have'} nothing to carry"
            )
    return None


def pipelining_approaches(topology: Topology) -> bool:
    """Whether more steps come as close to the cut bound as one likes: on machines without
    switches and shared resources the bound is a packing of trees (Edmonds 1973), and pipelining
    them over more steps costs only their height."""
    return not topology.resources and all(node.stores for node in topology.nodes)


def _name(topology: Topology, link: int) -> str:
    one = topology.links[link]
    return f"{topology.nodes[one.src].name} -> {topology.nodes[one.dst].name}"


def _minimum_cut(
    topology: Topology, sources: Sequence[int], target: int
) -> tuple[Fraction, list[int]]:
    """Value in chunks per round and links of the minimum cut nearest to the target."""
    from scipy.sparse import coo_array, csr_array
    from scipy.sparse.csgraph import breadth_first_order, maximum_flow

    (grain, per_chunk), n = topology.round_units(), len(topology.nodes)
    rows = [x.src for x in topology.links] + [n] * len(sources)
    cols = [x.dst for x in topology.links] + list(sources)
    caps = [int(x.bandwidth / grain) for x in topology.links]
    caps += [sum(caps)] * len(sources)
    if max(caps) >= 1 << 31:
        return Fraction(0), []
    graph = csr_array(
        coo_array((np.array(caps, np.int32), (rows, cols)), shape=(n + 1, n + 1)).tocsr()
    )
    result = maximum_flow(graph, n, target)
    residual = (graph - result.flow).tocsr()
    residual.eliminate_zeros()
    # Nodes that still reach the target in the residual graph: the target's side.
    side = breadth_first_order(residual.T.tocsr(), target, return_predecessors=False)
    inside = np.zeros(n + 1, bool)
    inside[side] = True
    cut = [i for i, x in enumerate(topology.links) if inside[x.dst] and not inside[x.src]]
    return Fraction(int(result.flow_value), per_chunk), cut


def never_ends(search: Search, found: Frontier) -> bool:
    """Whether the frontier goes on for ever, so that it ends where the search does."""
    return bool(found.points) and _why_never(search) is not None


def _why_never(search: Search) -> str | None:
    return never_reached(search.topology, search.wanted, reach(search.topology), search.static)


def how_it_ended(search: Search, found: Frontier) -> tuple[str, ...]:
    """Why the search over steps ended where it did, in words."""
    static = search.static / search.collective.factor
    if not found.points:
        return ()
    if found.complete:
        return (f"the frontier is complete: {static} rounds per chunk is the least there is",)
    last = found.points[-1].steps
    why = _why_never(search)
    if why is None:
        return (f"the search over steps ended at {last}; the bound is {static}",)
    approach = (
        "approached, not reached" if pipelining_approaches(search.topology) else "not reached"
    )
    return (
        f"{static} rounds per chunk is {approach}, whatever the number of steps: {why}; "
        f"the search ended at {last} steps",
    )
