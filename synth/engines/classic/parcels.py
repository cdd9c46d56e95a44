"""Send several chunks from one rank to another as one message.

The runtime sends contiguous memory. Scattered chunks are packed: copied into fresh scratch in the
order of their numbers, sent, and copied or added to their destination slots, as Bruck's and NCCL's
algorithms do. Sends and receives ask for separate thread blocks: a block that does both handles
large messages piece by piece, which avoids a deadlock of the block with itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.dsl.author.builder import Builder, Chunk

from .phases import Blocks, Order, consecutive, reference_to


def post(parcel: Chunk, dst: int, buffer: str | None = None, index: int | None = None) -> Chunk:
    """Send a reference to another rank, in thread blocks of their own."""
    send, recv = _separate_blocks(parcel.rank, dst)
    return parcel.copy_to(dst, buffer, index, send_block=send, recv_block=recv)


def send_whole(p: Builder, src: int, chunks: Sequence[int], dst: int) -> None:
    """Copy chunks that lie side by side on both ranks."""
    if chunks:
        post(reference_to(p, src, chunks), dst)


def add_whole(p: Builder, src: int, chunks: Sequence[int], dst: int) -> None:
    """Add chunks that lie side by side on both ranks."""
    if chunks:
        send, recv = _separate_blocks(src, dst)
        reference_to(p, src, chunks).reduce_into(dst, send_block=send, recv_block=recv)


def send_to_scratch(p: Builder, src: int, chunks: Sequence[int], dst: int) -> Chunk | None:
    """Send chunks as one message into fresh scratch over there; the reference to them."""
    if not chunks:
        return None
    return post(make_contiguous(reference_to(p, src, sorted(chunks))), dst, "scratch")


def make_contiguous(parcel: Chunk) -> Chunk:
    """The same chunks side by side."""
    return parcel if parcel.contiguous else parcel.copy_to(buffer="scratch")


def send_packed(p: Builder, src: int, chunks: Sequence[int], dst: int) -> None:
    """Copy chunks that belong side by side over there if they have consecutive numbers."""
    chunks = sorted(chunks)
    if consecutive(chunks) and reference_to(p, src, chunks).contiguous:
        send_whole(p, src, chunks, dst)
    else:
        send_parcel(p, src, chunks, dst)


def send_parcel(p: Builder, src: int, chunks: Sequence[int], dst: int) -> None:
    """Copy chunks that belong to different places over there."""
    parcel = send_to_scratch(p, src, chunks, dst)
    if parcel is not None:
        parcel.copy_to()


def exchange_sums(p: Builder, messages: Sequence[tuple[int, int, Sequence[int]]]) -> None:
    """Messages (source, destination, chunks) that all read what held before any of them is added.

    A rank that sends what it also adds to must not send the sum: everything lands in scratch first.
    """
    parcels = [send_to_scratch(p, src, chunks, dst) for src, dst, chunks in messages]
    for parcel in parcels:
        if parcel is not None:
            parcel.reduce_into()


def settle(p: Builder) -> None:
    """Copy what every rank has and must end with to its place in the output.

    Chunks that lie side by side there then travel as one message. In place: nothing to do.
    """
    before, after = p.collective.pre, p.collective.post
    ends = set(zip(after.ranks.tolist(), after.chunks.tolist(), strict=True))
    for rank, chunk in zip(before.ranks.tolist(), before.chunks.tolist(), strict=True):
        if (rank, chunk) in ends:
            p.chunk(rank, chunk).copy_to()


def runs(p: Builder, count: int) -> list[range]:
    """All chunks of the collective in ``count`` equal runs."""
    size = p.chunks // count
    return [range(i * size, (i + 1) * size) for i in range(count)]


def blocks_in_order(p: Builder, order: Order) -> list[range]:
    """The block of each member: that of its rank (allgather, reduce_scatter, gather, scatter)."""
    blocks = runs(p, p.ranks)
    return [blocks[rank] for rank in order]


def pieces(chunks: Sequence[int], count: int) -> list[Sequence[int]]:
    """Chunks in ``count`` equal pieces."""
    size = len(chunks) // count
    return [chunks[i * size : (i + 1) * size] for i in range(count)]


def chunks_of(blocks: Blocks, members: Sequence[int]) -> list[int]:
    """The chunks of some members, in that order."""
    return [k for i in members for k in blocks[i]]


def _separate_blocks(src: int, dst: int) -> tuple[int, int]:
    """Blocks for sends have even numbers, those for receives odd ones, one for each peer."""
    return 2 * dst, 2 * src + 1
