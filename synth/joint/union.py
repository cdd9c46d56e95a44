"""A custom collective as the union of standard ones, and the joint solution of all of them.

A chunk that is the same wherever it starts or ends is copied: from one rank to another, or along a
tree. One that starts as contributions of single ranks, all of them wanted, is summed: for one rank,
or for those that contribute. Chunks of equal needs are one part of an operation, whose bytes are
the grains of the collective. All ranks may forward.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from weft.dsl.base.kept import kept
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.collective import Collective, Kind
from weft.dsl.nouns.topology import Topology
from weft.dsl.nouns.workload import Forwarders, Shard, WorkKind, Workload, WorkloadOperation

from .bound import JointBound, joint_bound
from .carried import Carrier
from .carriers import is_trees, path_carriers, tree_carriers
from .demands import FlowPart, SumPart, demands_of
from .pricing import UNION_EFFORT


@dataclass(frozen=True, slots=True)
class CopyNeed:
    """Ranks that hold equal data, and others that want it, both ascending."""

    holders: tuple[int, ...]
    receivers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SumNeed:
    """Contributions of ``others`` (and perhaps of the root) that are added up for the root.

    ``root`` None: for all of them.
    """

    others: tuple[int, ...]
    root: int | None = None


ChunkNeed = CopyNeed | SumNeed


@dataclass(frozen=True, eq=False)
class CollectiveUnion:
    """The operations of a collective, and the need of each chunk; None: it does not move."""

    operations: tuple[WorkloadOperation, ...]
    needs: tuple[ChunkNeed | None, ...]


@dataclass(frozen=True, eq=False)
class UnionSolution:
    """The union and its joint solution, in grains for bytes."""

    union: CollectiveUnion
    joint: JointBound


def has_union(topology: Topology, collective: Collective) -> bool:
    """Return True if :func:`joint_union` has a solution.

    Switches that copy or sum save what trees pay for, so there is none where some do.
    """
    rows = len(collective.pre) + len(collective.post)
    if topology.ranks > UNION_EFFORT.union_ranks or rows > UNION_EFFORT.union_rows:
        return False
    if any(node.computes for node in topology.nodes):
        return False
    union = union_of(collective)
    return union is not None and bool(union.operations)


@kept(most=8)
def joint_union(topology: Topology, collective: Collective) -> UnionSolution | None:
    """Return the joint solution of a collective; None: it has none, or is too large.

    Raises:
        UserError: a rank is not reached.
    """
    union = union_of(collective) if has_union(topology, collective) else None
    if union is None:
        return None
    workload = Workload(str(collective), union.operations, size=topology.ranks)
    demands = demands_of(workload, topology.ranks)
    return UnionSolution(union, joint_bound(topology, demands, UNION_EFFORT))


def union_carriers(topology: Topology, found: UnionSolution) -> list[list[Carrier]]:
    """Return how each chunk is carried in the joint solution; one that does not move: not at all.

    Weights are parts of 1 for trees, grains for flows.
    """
    served: dict[ChunkNeed, list[Carrier]] = {}
    for k, demand in enumerate(found.joint.demands):
        if not is_trees(demand):
            for (source, target), some in path_carriers(topology, found.joint, k).items():
                served[CopyNeed((source,), (target,))] = some
            continue
        for part, some in zip(demand.parts, tree_carriers(topology, found.joint, k), strict=True):
            assert not isinstance(part, FlowPart)
            if isinstance(part, SumPart):
                need: ChunkNeed = SumNeed(tuple(sorted(part.members)))
            elif part.backwards:
                need = SumNeed(tuple(sorted(part.receivers)), part.holders[0])
            else:
                need = CopyNeed(tuple(sorted(part.holders)), tuple(sorted(part.receivers)))
            served[need] = some
    return [[] if one is None else served[one] for one in found.union.needs]


# --- the needs of chunks --------------------------------------------------------------------------


@kept()
def union_of(collective: Collective) -> CollectiveUnion | None:
    """Return the standard collectives that a collective is made of; None: it is not."""
    if collective.local_reduce:
        return None
    held: list[dict[int, int]] = [{} for _ in range(collective.chunks)]
    wanted: list[dict[int, int]] = [{} for _ in range(collective.chunks)]
    for sets, p in ((held, collective.pre), (wanted, collective.post)):  # of each chunk by rank
        columns = (p.ranks.tolist(), p.chunks.tolist(), p.sets.tolist())
        for rank, chunk, who in zip(*columns, strict=True):
            sets[chunk][rank] = who
    needs: list[ChunkNeed | None] = []
    totals: dict[ChunkNeed, int] = {}
    for has, wants, grains in zip(held, wanted, collective.grains.tolist(), strict=True):
        need = _need(collective.contributions, has, wants)
        if need == _OTHER:
            return None
        needs.append(need)
        if need is not None:
            totals[need] = totals.get(need, 0) + grains
    return CollectiveUnion(tuple(_operations(totals)), tuple(needs))


_OTHER = SumNeed(())


def _need(
    sets: Sequence[frozenset[int]], held: dict[int, int], wanted: dict[int, int]
) -> ChunkNeed | None:
    """Return the need of a chunk; ``_OTHER`` where it is neither copied nor summed whole."""
    starts = {rank: sets[who] for rank, who in held.items()}
    ends = {rank: sets[who] for rank, who in wanted.items()}
    if not ends or all(starts.get(rank) == who for rank, who in ends.items()):
        return None
    if len({*starts.values(), *ends.values()}) == 1:
        return CopyNeed(tuple(sorted(starts)), tuple(sorted(set(ends) - set(starts))))
    whole = frozenset[int]().union(*starts.values())
    disjoint = sum(map(len, starts.values())) == len(whole)
    if not disjoint or set(ends.values()) != {whole}:
        return _OTHER
    if len(ends) == 1:
        (root,) = ends
        return SumNeed(tuple(sorted(set(starts) - {root})), root)
    return SumNeed(tuple(sorted(starts))) if set(starts) == set(ends) else _OTHER


# --- operations -----------------------------------------------------------------------------------


def _operations(totals: dict[ChunkNeed, int]) -> Iterator[WorkloadOperation]:
    flows: dict[tuple[int, int], int] = {}
    trees: dict[tuple[bool, tuple[int, ...]], dict[int, int]] = {}
    shards: list[Shard] = []
    for need, grains in totals.items():
        if isinstance(need, CopyNeed):
            if len(need.holders) > 1:
                shards.append(Shard(need.holders, need.receivers, grains))
            elif len(need.receivers) == 1:
                flows[need.holders[0], need.receivers[0]] = grains
            else:
                group = tuple(sorted((*need.holders, *need.receivers)))
                trees.setdefault((False, group), {})[need.holders[0]] = grains
        elif need.root is None:
            yield _operation(Kind.ALLREDUCE, need.others, grains)
        else:
            group = tuple(sorted({need.root, *need.others}))
            trees.setdefault((True, group), {})[need.root] = grains
    for (backwards, group), roots in trees.items():
        if len(roots) == len(group) and len(set(roots.values())) == 1:
            kind = Kind.REDUCE_SCATTER if backwards else Kind.ALLGATHER
            yield _operation(kind, group, sum(roots.values()))
        elif backwards:
            for root, grains in roots.items():
                yield _operation(Kind.REDUCE, group, grains, root)
        else:
            shards += [
                Shard((root,), tuple(v for v in group if v != root), grains)
                for root, grains in roots.items()
            ]
    if shards:
        yield WorkloadOperation(
            "multicast", WorkKind.MULTICAST, shards=tuple(shards), relays=Forwarders.ALL
        )
    if flows:
        yield _flows(flows)


def _operation(
    kind: Kind, group: tuple[int, ...], grains: int, root: int | None = None
) -> WorkloadOperation:
    where = "" if root is None else f" at {root}"
    name = f"{kind} of {','.join(map(str, group))}{where}"
    return WorkloadOperation(
        name, kind, group=group, bytes=grains, root=root, relays=Forwarders.ALL
    )


def _flows(flows: dict[tuple[int, int], int]) -> WorkloadOperation:
    group = tuple(sorted({rank for pair in flows for rank in pair}))
    n = len(group)
    if len(flows) == n * (n - 1) and len(set(flows.values())) == 1:
        return _operation(Kind.ALLTOALL, group, n * next(iter(flows.values())))
    matrix = tuple(tuple(flows.get((v, w), 0) for w in group) for v in group)
    return WorkloadOperation(
        "flows", WorkKind.ALLTOALLV, group=group, matrix=matrix, relays=Forwarders.ALL
    )
