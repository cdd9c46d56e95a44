"""What cannot be executed: a listing that addresses what is not there, or corrupts a FIFO.

The interpreter's own guard, so that NumPy never clips a slice in silence; independent of the
program checker, which says the same and much more.
"""

from __future__ import annotations

import numpy as np

from weft.dsl.base.arrays import Ints

from ..program.listing import BUFFERS, NOP, READS_SRC, RECEIVES, SENDS, WRITES_DST, Listing
from .layout import Layout


def unfit(listing: Listing, place: Layout) -> str | None:
    """Why a listing would address what is not there, or corrupt a FIFO; None if it does not."""
    if listing.ranks != place.collective.ranks:
        return f"{listing.ranks} ranks, but the collective has {place.collective.ranks}"
    peers = np.concatenate([listing.block_send, listing.block_recv])
    if ((peers < -1) | (peers >= listing.ranks)).any():
        return "a block has a peer that does not exist"
    block = listing.block_of_transfer()
    lonely = SENDS[listing.op] & (listing.block_send[block] < 0)
    lonely |= RECEIVES[listing.op] & (listing.block_recv[block] < 0)
    if lonely.any():
        return f"{listing.describe(int(np.argmax(lonely)))} has no peer"
    for peer, name in ((listing.block_send, "sends to"), (listing.block_recv, "receives from")):
        ends = np.stack([listing.block_rank, peer, listing.block_channel])[:, peer >= 0]
        if np.unique(ends, axis=1).shape[1] < ends.shape[1]:
            return f"two blocks of a rank share a connection: both {name} one peer on one channel"
    if (listing.wait_block < 0).any():
        waiter = int(np.argmax(listing.wait_start[1:] > int(np.argmax(listing.wait_block < 0))))
        return f"{listing.describe(waiter)} waits for a block that does not exist"
    return _out_of_bounds(listing, place, block) or _unequal(listing, block)


def _out_of_bounds(listing: Listing, place: Layout, block: Ints) -> str | None:
    rank = listing.block_rank[block]
    busy = (listing.count > 0) & (listing.op != NOP)
    owner = np.repeat(np.arange(listing.transfers), np.diff(listing.more_start))
    sides = (
        (READS_SRC[listing.op] & busy, listing.src_buffer, listing.src_offset, None),
        (WRITES_DST[listing.op] & busy, listing.dst_buffer, listing.dst_offset, None),
        (busy[owner], listing.src_buffer[owner], listing.more_offset, owner),
    )
    for used, buffer, offset, index in sides:
        where = rank if index is None else rank[index]
        count = listing.count if index is None else listing.count[index]
        bad = used & ((offset < 0) | (offset + count > place.size[where, buffer]))
        if bad.any():
            k = int(np.argmax(bad))
            t = k if index is None else int(index[k])
            return (
                f"{listing.describe(t)} addresses {BUFFERS[buffer[k]]}[{offset[k]} … "
                f"{offset[k] + count[k] - 1}]; the buffer has "
                f"{place.size[where[k], buffer[k]]} chunks"
            )
    return None


def _unequal(listing: Listing, block: Ints) -> str | None:
    """The k-th message of a connection must be as long for the sender as for the receiver."""
    counts: dict[tuple[int, int, int], list[list[int]]] = {}
    for b in range(listing.blocks):
        among = slice(int(listing.block_start[b]), int(listing.block_start[b + 1]))
        rank, channel = int(listing.block_rank[b]), int(listing.block_channel[b])
        ops, count = listing.op[among], listing.count[among]
        send, recv = int(listing.block_send[b]), int(listing.block_recv[b])
        if send >= 0:
            counts.setdefault((rank, send, channel), [[], []])[0] = count[SENDS[ops]].tolist()
        if recv >= 0:
            counts.setdefault((recv, rank, channel), [[], []])[1] = count[RECEIVES[ops]].tolist()
    for (source, target, channel), (sent, received) in counts.items():
        k = next((k for k, (a, b) in enumerate(zip(sent, received, strict=False)) if a != b), None)
        if k is not None:
            return (
                f"message {k} from rank {source} to rank {target} on channel {channel} has "
                f"{sent[k]} chunks for the sender and {received[k]} for the receiver"
            )
    return None
