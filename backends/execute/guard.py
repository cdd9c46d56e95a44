"""What cannot be executed: a code that addresses what is not there, or corrupts a FIFO.

The interpreter's own guard, so that NumPy never clips a slice in silence; independent of the
program checker, which says the same and much more.
"""

from __future__ import annotations

import numpy as np

from weft.dsl.base.arrays import Ints
from weft.dsl.nouns.program import BUFFERS, NOP, READS_SRC, RECEIVES, SENDS, WRITES_DST, Code

from .layout import Layout


def unfit(code: Code, place: Layout) -> str | None:
    """Why a code would address what is not there, or corrupt a FIFO; None if it does not."""
    if code.rank_count != place.collective.ranks:
        return f"{code.rank_count} ranks, but the collective has {place.collective.ranks}"
    peers = np.concatenate([code.block_send, code.block_recv])
    if ((peers < -1) | (peers >= code.rank_count)).any():
        return "a block has a peer that does not exist"
    block = code.block
    lonely = SENDS[code.op] & (code.block_send[block] < 0)
    lonely |= RECEIVES[code.op] & (code.block_recv[block] < 0)
    if lonely.any():
        return f"{code.describe(int(np.argmax(lonely)))} has no peer"
    for peer, name in ((code.block_send, "sends to"), (code.block_recv, "receives from")):
        ends = np.stack([code.block_rank, peer, code.block_channel])[:, peer >= 0]
        if np.unique(ends, axis=1).shape[1] < ends.shape[1]:
            return f"two blocks of a rank share a connection: both {name} one peer on one channel"
    if (code.wait_block < 0).any():
        waiter = int(np.argmax(code.wait_start[1:] > int(np.argmax(code.wait_block < 0))))
        return f"{code.describe(waiter)} waits for a block that does not exist"
    return _out_of_bounds(code, place, block) or _unequal(code, block)


def _out_of_bounds(code: Code, place: Layout, block: Ints) -> str | None:
    rank = code.block_rank[block]
    busy = (code.count > 0) & (code.op != NOP)
    owner = np.repeat(np.arange(code.instructions), np.diff(code.more_start))
    sides = (
        (READS_SRC[code.op] & busy, code.src_buffer, code.src_offset, None),
        (WRITES_DST[code.op] & busy, code.dst_buffer, code.dst_offset, None),
        (busy[owner], code.src_buffer[owner], code.more_offset, owner),
    )
    for used, buffer, offset, index in sides:
        where = rank if index is None else rank[index]
        count = code.count if index is None else code.count[index]
        bad = used & ((offset < 0) | (offset + count > place.size[where, buffer]))
        if bad.any():
            k = int(np.argmax(bad))
            t = k if index is None else int(index[k])
            return (
                f"{code.describe(t)} addresses {BUFFERS[buffer[k]]}[{offset[k]} … "
                f"{offset[k] + count[k] - 1}]; the buffer has "
                f"{place.size[where[k], buffer[k]]} chunks"
            )
    return None


def _unequal(code: Code, block: Ints) -> str | None:
    """The k-th message of a connection must be as long for the sender as for the receiver."""
    counts: dict[tuple[int, int, int], list[list[int]]] = {}
    for b in range(code.blocks):
        among = slice(int(code.block_start[b]), int(code.block_start[b + 1]))
        rank, channel = int(code.block_rank[b]), int(code.block_channel[b])
        ops, count = code.op[among], code.count[among]
        send, recv = int(code.block_send[b]), int(code.block_recv[b])
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
