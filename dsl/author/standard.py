"""The standard collectives by name, as a program's author writes them.

>>> Allgather(4, chunks=2).message_chunks
8
"""

from __future__ import annotations

from ..nouns.collective import Collective, Kind, make


def Allreduce(ranks: int, chunks: int = 1) -> Collective:
    """Everybody ends with the sum of all buffers, each cut into ``chunks``."""
    return make(Kind.ALLREDUCE, ranks, chunks=chunks)


def Allgather(ranks: int, chunks: int = 1) -> Collective:
    """Everybody ends with everybody's input of ``chunks`` chunks."""
    return make(Kind.ALLGATHER, ranks, chunks=chunks)


def ReduceScatter(ranks: int, chunks: int = 1) -> Collective:
    """Rank r ends with the sum of everybody's block r, ``chunks`` chunks."""
    return make(Kind.REDUCE_SCATTER, ranks, chunks=chunks)


def Alltoall(ranks: int, chunks: int = 1) -> Collective:
    """Rank d ends with block d of everybody; a block is ``chunks`` chunks."""
    return make(Kind.ALLTOALL, ranks, chunks=chunks)


def Broadcast(ranks: int, chunks: int = 1, root: int = 0) -> Collective:
    """Everybody ends with the root's buffer of ``chunks`` chunks."""
    return make(Kind.BROADCAST, ranks, chunks=chunks, roots=(root,))


def Reduce(ranks: int, chunks: int = 1, root: int = 0) -> Collective:
    """The root ends with the sum of all buffers."""
    return make(Kind.REDUCE, ranks, chunks=chunks, roots=(root,))


def Gather(ranks: int, chunks: int = 1, root: int = 0) -> Collective:
    """The root ends with everybody's input, one after another."""
    return make(Kind.GATHER, ranks, chunks=chunks, roots=(root,))


def Scatter(ranks: int, chunks: int = 1, root: int = 0) -> Collective:
    """Rank r ends with block r of the root's input."""
    return make(Kind.SCATTER, ranks, chunks=chunks, roots=(root,))
