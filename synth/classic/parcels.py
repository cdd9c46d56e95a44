"""What one rank sends another at once: chunks by number, as one message where they are scattered.

The runtime sends what lies side by side. Scattered chunks are packed: copied into fresh scratch,
sent as one message, and copied, or added, to where they belong over there, as Bruck's and NCCL's
algorithms do.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from weft.dsl.builder import Builder, Chunk

from .phases import Blocks, Order, send


def held(p: Builder, rank: int, chunks: Sequence[int]) -> Chunk:
    """A reference to chunks, by number, of one rank."""
    first, *others = (p.chunk(rank, k) for k in chunks)
    return first.group(*others)


def landed(p: Builder, src: int, chunks: Sequence[int], dst: int) -> Chunk | None:
    """Send chunks as one message into fresh scratch over there; the reference to them."""
    if not chunks:
        return None
    parcel = held(p, src, chunks)
    if not parcel.contiguous:
        parcel = parcel.copy_to(buffer="scratch")
    return parcel.copy_to(rank=dst, buffer="scratch")


def send_packed(p: Builder, src: int, chunks: Sequence[int], dst: int) -> None:
    """Copy chunks to another rank as one message."""
    if _consecutive(chunks) and held(p, src, chunks).contiguous:
        send(p, src, chunks, dst)
    elif (parcel := landed(p, src, chunks, dst)) is not None:
        parcel.copy_to()


def exchange_sums(p: Builder, pairs: Sequence[tuple[int, int, Sequence[int]]]) -> None:
    """Messages (source, chunks, destination) that all read what held before any of them is added.

    A rank that sends what it also adds to must not send the sum: everything lands in scratch first.
    """
    parcels = [landed(p, src, chunks, dst) for src, dst, chunks in pairs]
    for parcel in parcels:
        if parcel is not None:
            parcel.reduce_into()


def settle(p: Builder) -> None:
    """Copy what every rank has and must end with to its place in the output.

    Chunks that lie side by side there then travel as one message. In place: nothing to do.
    """
    pre, post = p.collective.pre, p.collective.post
    ends = set(zip(post.ranks.tolist(), post.chunks.tolist(), strict=True))
    for rank, chunk in zip(pre.ranks.tolist(), pre.chunks.tolist(), strict=True):
        if (rank, chunk) in ends:
            p.chunk(rank, chunk).copy_to()


def runs(p: Builder, count: int) -> list[range]:
    """All chunks of the collective in ``count`` equal runs."""
    size = p.chunks // count
    return [range(i * size, (i + 1) * size) for i in range(count)]


def owned(p: Builder, order: Order) -> list[range]:
    """The block of each member: that of its rank (allgather, reduce_scatter, gather, scatter)."""
    blocks = runs(p, p.ranks)
    return [blocks[rank] for rank in order]


def pieces(chunks: Sequence[int], count: int) -> list[Sequence[int]]:
    """Chunks in ``count`` equal pieces."""
    size = len(chunks) // count
    return [chunks[i * size : (i + 1) * size] for i in range(count)]


def joined(blocks: Blocks, members: Sequence[int]) -> list[int]:
    """The chunks of some members, in that order."""
    return [k for i in members for k in blocks[i]]


def _consecutive(chunks: Sequence[int]) -> bool:
    return all(b == a + 1 for a, b in itertools.pairwise(chunks))
