"""Collective of a file, in chunks of its ``nchunksperloop``."""

from __future__ import annotations

from collections.abc import Iterator

from weft.dsl.base.errors import UserError
from weft.dsl.nouns.collective import Collective, Kind, make
from weft.dsl.nouns.runtime import ADDRESSABLE_CHUNKS

from .model import XmlAlgo

NAMES = {
    "allreduce": Kind.ALLREDUCE,
    "allgather": Kind.ALLGATHER,
    "alltoall": Kind.ALLTOALL,
    "reduce_scatter": Kind.REDUCE_SCATTER,
    "reducescatter": Kind.REDUCE_SCATTER,
    "broadcast": Kind.BROADCAST,
    "reduce": Kind.REDUCE,
}
_PER_RANK = frozenset({Kind.ALLGATHER, Kind.ALLTOALL, Kind.REDUCE_SCATTER})


def collective_of(algo: XmlAlgo) -> Collective:
    """Return the collective that the ``coll`` attribute names.

    The file does not say the root of a broadcast or reduce: it is the only rank that never
    receives, or never sends.

    Raises:
        UserError: ``coll`` lacks a fixed meaning (custom …), or the root is ambiguous.
    """
    found = list(candidates(algo))
    if len(found) != 1:
        raise UserError(
            f"the root of the {algo.coll} cannot be told from the file",
            where=algo.where,
            hint="name the collective with its root",
        )
    return found[0]


def candidates(algo: XmlAlgo) -> Iterator[Collective]:
    """Return the collectives a file may be for: one, or one for each rank that may be the root.

    Raises:
        UserError: ``coll`` lacks a fixed meaning; ``nchunksperloop`` does not fit the ranks.
    """
    kind = NAMES.get(algo.coll)
    if kind is None:
        raise UserError(
            f"coll {algo.coll!r} does not say what the file must achieve",
            where=algo.where,
            hint="name the collective: -c gather --root 2, or -c FILE.py for one of your own",
        )
    pieces = _pieces(algo, algo.ngpus if kind in _PER_RANK else 1)
    if kind not in (Kind.BROADCAST, Kind.REDUCE):
        yield make(kind, algo.ngpus, chunks=pieces)
        return
    direction = "recv" if kind is Kind.BROADCAST else "send"
    for rank in range(algo.ngpus):
        if not _moves(algo, rank, direction):
            yield make(kind, algo.ngpus, chunks=pieces, roots=(rank,))


def fit(collective: Collective, algo: XmlAlgo) -> Collective:
    """Return the collective cut into as many pieces as the file has chunks.

    Raises:
        UserError: other ranks, or a number of chunks that is not a multiple.
    """
    if collective.ranks != algo.ngpus:
        raise UserError(
            f"the collective has {collective.ranks} ranks, the file {algo.ngpus}", where=algo.where
        )
    return collective.split(_pieces(algo, collective.message_chunks))


def _pieces(algo: XmlAlgo, unit: int) -> int:
    chunks = algo.message_chunks
    if not 1 <= chunks <= ADDRESSABLE_CHUNKS or chunks % unit:
        raise UserError(
            f"nchunksperloop {chunks} is not a multiple of {unit} that offsets can address",
            where=algo.where,
        )
    return chunks // unit


def _moves(algo: XmlAlgo, rank: int, direction: str) -> bool:
    ops = (t.op for b in algo.ranks[rank].blocks for t in b.transfers)
    return any(op.receives if direction == "recv" else op.sends for op in ops)
