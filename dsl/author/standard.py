"""Constructors of the standard collectives, for authors of algorithms.

>>> Allgather(4, chunks=2).message_chunks
8
"""

from __future__ import annotations

from ..nouns.collective import Collective, Kind, make


def Allreduce(ranks: int, chunks: int = 1) -> Collective:
    """Return allreduce: every rank ends with the sum of all buffers, each cut into ``chunks``."""
    return make(Kind.ALLREDUCE, ranks, chunks=chunks)


def Allgather(ranks: int, chunks: int = 1) -> Collective:
    """Return allgather: every rank ends with all inputs of ``chunks`` chunks each."""
    return make(Kind.ALLGATHER, ranks, chunks=chunks)


def ReduceScatter(ranks: int, chunks: int = 1) -> Collective:
    """Return reduce_scatter: rank r ends with the sum of all blocks r of ``chunks`` chunks."""
    return make(Kind.REDUCE_SCATTER, ranks, chunks=chunks)


def Alltoall(ranks: int, chunks: int = 1) -> Collective:
    """Return alltoall: rank d ends with block d of every rank; a block is ``chunks`` chunks."""
    return make(Kind.ALLTOALL, ranks, chunks=chunks)


def Broadcast(ranks: int, chunks: int = 1, root: int = 0) -> Collective:
    """Return broadcast: every rank ends with the root's buffer of ``chunks`` chunks."""
    return make(Kind.BROADCAST, ranks, chunks=chunks, roots=(root,))


def Reduce(ranks: int, chunks: int = 1, root: int = 0) -> Collective:
    """Return reduce: the root ends with the sum of all buffers."""
    return make(Kind.REDUCE, ranks, chunks=chunks, roots=(root,))


def Gather(ranks: int, chunks: int = 1, root: int = 0) -> Collective:
    """Return gather: the root ends with all inputs, concatenated by rank."""
    return make(Kind.GATHER, ranks, chunks=chunks, roots=(root,))


def Scatter(ranks: int, chunks: int = 1, root: int = 0) -> Collective:
    """Return scatter: rank r ends with block r of the root's input."""
    return make(Kind.SCATTER, ranks, chunks=chunks, roots=(root,))
