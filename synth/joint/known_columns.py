"""Columns known in closed form, with which the joint bound begins: often they are the solution.

An alltoallv on hosts joined by rails is balanced over all rails (:mod:`.rails`), which is its
optimum wherever it was tried. The master is free to choose otherwise, so nothing rests on that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from weft.dsl.nouns.topology import Topology
from weft.dsl.nouns.workload import WorkKind

from .demands import CollectiveDemand, FlowPart
from .pricing import PricedColumn
from .rails import matrix_of, rail_planner


def known_columns(
    topology: Topology, demand: CollectiveDemand, parts: Sequence[int]
) -> Iterator[PricedColumn]:
    """Yield how some parts of a demand are served by the plans that need no search."""
    everyone = len(demand.forwarders) == topology.ranks
    if demand.operation.kind != WorkKind.ALLTOALLV or not everyone:
        return
    planner = rail_planner(topology)
    if planner is None:
        return
    loads = planner.loads(matrix_of(demand.operation, topology.ranks))
    for at in parts:
        part = demand.parts[at]
        assert isinstance(part, FlowPart)
        load = loads[part.source]
        links = np.flatnonzero(load)
        yield PricedColumn(at, 0.0, links, load[links])
