"""Demands of a collective on a machine, for any routes: trees, sums and flows of bytes.

Of the kinds of collectives three forms are left (:class:`TreePart`, :class:`SumPart`,
:class:`FlowPart`), each over the ranks that may forward. Any schedule of the collective loads the
machine at least as some choice of trees and paths for these parts does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import pairwise

from weft.dsl.base.errors import UserError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.collective import Kind
from weft.dsl.nouns.workload import Forwarders, Shard, WorkKind, Workload, WorkloadOperation


@dataclass(frozen=True, slots=True)
class TreePart:
    """``amount`` bytes that one of the ``holders`` has and all ``receivers`` need.

    ``backwards``: the receivers' contributions are added up on the way to one holder instead.
    """

    holders: tuple[int, ...]
    receivers: tuple[int, ...]
    amount: Fraction
    backwards: bool = False


@dataclass(frozen=True, slots=True)
class SumPart:
    """``amount`` bytes of all ``members`` are added up, anywhere, and all of them need the sum."""

    members: tuple[int, ...]
    amount: Fraction


@dataclass(frozen=True, slots=True)
class FlowPart:
    """Bytes from ``source`` to each of ``targets``: ``amounts`` in their order, or one for all.

    Its own shard does not move.
    """

    source: int
    targets: tuple[int, ...]
    amounts: tuple[Fraction, ...]

    def pairs(self) -> Iterable[tuple[int, Fraction]]:
        """Yield each target with its bytes."""
        amounts = self.amounts
        if len(amounts) == 1:
            amounts *= len(self.targets)
        return zip(self.targets, amounts, strict=True)


Part = TreePart | SumPart | FlowPart


@dataclass(frozen=True, slots=True)
class CollectiveDemand:
    """The parts of one operation."""

    operation: WorkloadOperation  # where it comes from
    forwarders: tuple[int, ...]  # ranks that may forward for it, ascending; its members among them
    parts: tuple[Part, ...]  # data to move

    @property
    def name(self) -> str:
        """Return the name of the operation."""
        return self.operation.name

    @property
    def relayed(self) -> bool:
        """Return True if ranks outside its group may forward."""
        return len(self.forwarders) > len(self.operation.members)

    @property
    def key(self) -> tuple[object, ...]:
        """Return all that its traffic depends on but the ranks: equal for alike collectives."""
        one = self.operation
        return (one.kind, one.bytes, len(one.members), len(self.forwarders))


def demands_of(workload: Workload, ranks: int) -> tuple[CollectiveDemand, ...]:
    """Return the demands of a workload's collectives; loads and computations are left out.

    Raises:
        UserError: a rank outside 0 … ranks-1.
    """
    some = [one for one in workload.operations if one.needs_machine]
    busy = {v for one in some for v in one.members}
    idle = [v for v in range(ranks) if v not in busy]
    return tuple(demand_of(one, ranks, idle) for one in some)


def demand_of(one: WorkloadOperation, ranks: int, idle: Sequence[int] = ()) -> CollectiveDemand:
    """Return the demand of one collective; ``idle`` ranks are in no group.

    Raises:
        UserError: a rank outside 0 … ranks-1.
    """
    if max(one.members, default=-1) >= ranks:
        raise UserError(
            f"{one.name}: rank {max(one.members)} is outside 0 … {ranks - 1}",
            hint="-t names a machine with all ranks of the workload",
        )
    others = {Forwarders.NONE: (), Forwarders.IDLE: idle, Forwarders.ALL: range(ranks)}
    forwarders = tuple(sorted({*one.members, *others[one.relays]}))
    return CollectiveDemand(one, forwarders, tuple(_parts(one)))


def _parts(one: WorkloadOperation) -> Iterable[Part]:
    group, n = one.group, max(1, len(one.group))
    whole, share = Fraction(one.bytes), Fraction(one.bytes, n)
    root = (*group, -1)[0] if one.root is None else one.root
    others = tuple(v for v in group if v != root)
    if one.kind == WorkKind.MULTICAST:
        pieces: dict[tuple[tuple[int, ...], tuple[int, ...]], int] = {}
        for piece in one.deliveries:
            key = shard_key(piece)
            pieces[key] = pieces.get(key, 0) + piece.bytes
        for (holders, wanting), size in pieces.items():
            if wanting:
                yield TreePart(holders, wanting, Fraction(size))
    elif one.kind == WorkKind.ALLTOALLV:
        for source, row in zip(group, one.matrix, strict=True):
            there = [(v, x) for v, x in zip(group, row, strict=True) if x and v != source]
            if there:
                targets, sizes = zip(*there, strict=True)
                yield FlowPart(source, targets, tuple(map(Fraction, sizes)))
    elif not one.bytes or (n == 1 and one.kind != WorkKind.TRANSFER):
        return
    elif one.kind == Kind.ALLREDUCE:
        yield SumPart(group, whole)
    elif one.kind in (WorkKind.TRANSFER, Kind.ALLTONEXT):
        for source, target in pairwise(group):
            yield FlowPart(source, (target,), (whole,))
    elif one.kind in (Kind.BROADCAST, Kind.REDUCE):
        yield TreePart((root,), others, whole, one.kind == Kind.REDUCE)
    elif one.kind == Kind.SCATTER:
        yield FlowPart(root, others, (share,))
    elif one.kind == Kind.GATHER:
        for v in others:
            yield FlowPart(v, (root,), (share,))
    elif one.kind in (Kind.ALLTOALL, Kind.MULTIROOT_SCATTER, Kind.MULTIROOT_GATHER):
        for v in group:
            yield FlowPart(v, group, (share,))
    else:  # allgather, reduce_scatter, and broadcast from every rank, which is an allgather
        for v in group:
            rest = tuple(w for w in group if w != v)
            yield TreePart((v,), rest, share, one.kind == Kind.REDUCE_SCATTER)


def shard_key(one: Shard) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return its holders and those that lack it: shards alike in these are one part."""
    return tuple(sorted(one.holders)), tuple(sorted(set(one.receivers) - set(one.holders)))
