"""The schedule of a demand by the routes of a joint solution: its trees, or its paths."""

from __future__ import annotations

from collections.abc import Sequence

from weft.dsl.nouns.topology import Topology
from weft.dsl.nouns.workload import DEMANDS, WorkKind, WorkloadOperation

from .bound import JointBound
from .carried import Carrier, carried_piece, collective_of
from .demands import TreePart, shard_key
from .merge import MergePiece
from .paths import path_carriers
from .trees import is_trees, tree_carriers


def routed_piece(topology: Topology, bound: JointBound, k: int, multiple: int = 1) -> MergePiece:
    """Return the schedule of demand k along the trees or paths that the solution uses for it.

    ``multiple``: that to which the bytes of matrices and shards are rounded up.
    """
    demand = bound.demands[k]
    operation = demand.operation
    if operation.kind in DEMANDS:
        operation = operation.rounded_up(multiple)
    carriers: Sequence[Sequence[Carrier]]
    if not is_trees(demand):
        pairs = path_carriers(topology, bound, k)
        carriers = [pairs.get(pair, ()) for pair in _pairs(operation)]
    else:
        carriers = tree_carriers(topology, bound, k)
        if operation.kind == WorkKind.MULTICAST:
            parts = [one for one in demand.parts if isinstance(one, TreePart)]
            place = {(one.holders, one.receivers): p for p, one in enumerate(parts)}
            parts_of = [place.get(shard_key(one)) for one in operation.deliveries]
            carriers = [() if p is None else carriers[p] for p in parts_of]
    return carried_piece(topology, operation, carriers)


def _pairs(operation: WorkloadOperation) -> list[tuple[int, int]]:
    """Return source and target of each unit of an operation of flows."""
    if operation.kind in DEMANDS:
        return [(one.holders[0], one.receivers[0]) for one in operation.deliveries]
    plain, group = collective_of(operation), operation.group
    ends: list[tuple[int, int]] = [(-1, -1)] * plain.chunks
    source = dict(zip(plain.pre.chunks.tolist(), plain.pre.ranks.tolist(), strict=True))
    for chunk, rank in zip(plain.post.chunks.tolist(), plain.post.ranks.tolist(), strict=True):
        ends[chunk] = group[source[chunk]], group[rank]
    return ends
