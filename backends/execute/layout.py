"""Layout of a collective's data in memory: before the call, and as it must be after it.

All ranks' buffers are rows of one array, a row being one chunk. In place, input and output of a
rank share rows as :meth:`Collective.in_place_shift` says. Values come from the collective's pre-
and postcondition alone: a contribution (rank, chunk) is a random vector, a chunk that holds a set
of contributions is their sum, and entries of the postcondition that share a place are summed
(``local_reduce``).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from weft.dsl.base.arrays import AnyArray, Ints
from weft.dsl.base.errors import UserError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.collective import Collective
from weft.dsl.nouns.placement import Placement
from weft.dsl.nouns.program import BUFFERS, NOP, READS_SRC, RECEIVES, SENDS, WRITES_DST, Code

from ..judge.values import keys, members


@dataclass(frozen=True)
class BufferLayout:
    """The rows of all buffers.

    Attributes:
        base: shape (ranks, 3), first row of i, o, s of each rank.
        size: shape (ranks, 3), their true sizes in chunks: what the caller allocates for i and o.
        rows: all of them.
        in_place: whether i and o share rows.
    """

    collective: Collective
    base: Ints
    size: Ints
    rows: int
    in_place: bool

    def name(self, row: int) -> str:
        """Return ``rank 1 o[3]`` for a row; where i and o share it, the output."""
        inside = (self.base <= row) & (row < self.base + self.size)
        rank, buffer = (int(i) for i in np.argwhere(inside)[-1])
        return f"rank {rank} {BUFFERS[buffer]}[{row - int(self.base[rank, buffer])}]"


def layout(
    collective: Collective, scratch: npt.ArrayLike, *, in_place: bool, padded: int = 0
) -> BufferLayout:
    """Place the buffers of all ranks; ``scratch`` are chunks per rank.

    ``padded``: least number of chunks in the caller's buffers (a custom collective has
    ``nchunksperloop`` in both).

    """
    n = collective.ranks
    inputs = max(collective.input_chunks, padded)
    outputs = max(collective.output_chunks, padded)
    size = np.empty((n, 3), np.int64)
    size[:] = inputs, outputs, 0
    size[:, 2] = np.maximum(scratch, 0)
    if in_place:
        shift = np.array([collective.in_place_shift(r) for r in range(n)], np.int64)
    else:
        shift = np.full(n, -inputs, np.int64)
    base = np.empty((n, 3), np.int64)
    base[:, 0] = np.maximum(shift, 0)
    base[:, 1] = np.maximum(-shift, 0)
    base[:, 2] = np.maximum(base[:, 0] + inputs, base[:, 1] + outputs)
    total = base[:, 2] + size[:, 2]
    base += (np.cumsum(total) - total)[:, None]
    return BufferLayout(collective, base, size, int(total.sum()), in_place)


@dataclass(frozen=True)
class Data:
    """One experiment's values: memory before, and the values of some rows after.

    Attributes:
        before: shape (rows, elements); everything but inputs is poison.
        rows: the rows that the postcondition names; ``expected`` their contents,
            shape (len(rows), elements).
        kept: rows that must not change (the input of an out-of-place call).
    """

    before: AnyArray
    rows: Ints
    expected: AnyArray
    kept: Ints


def data(
    place: BufferLayout, dtype: np.dtype[Any], elements: int, rng: np.random.Generator
) -> Data:
    """Random inputs of a layout, and the outputs they must give.

    Floats are small integers, so that sums in any order are exact; integers wrap. Poison is NaN,
    or a value far from all others.
    """
    c = place.collective
    floating = np.issubdtype(dtype, np.floating)
    before = np.empty((place.rows, elements), dtype)
    before.fill(np.nan if floating else poison(dtype))
    sums, owner, rank = members(c)
    contribution = rank * c.chunks + sums[owner] // len(c.contributions)
    names, index = np.unique(contribution, return_inverse=True)
    shape = (len(names), elements)
    if floating:
        parts = rng.integers(-64, 65, shape).astype(dtype)
    else:
        parts = rng.integers(np.iinfo(dtype).min // 2, np.iinfo(dtype).max // 2, shape, dtype)
    values = np.add.reduceat(
        parts[index], np.searchsorted(owner, np.arange(len(sums))), axis=0, dtype=dtype
    )

    def of(p: Placement) -> AnyArray:
        return np.asarray(values[np.searchsorted(sums, keys(c, p))])

    before[place.base[c.pre.ranks, 0] + c.pre.offsets] = of(c.pre)
    rows, slot = np.unique(place.base[c.post.ranks, 1] + c.post.offsets, return_inverse=True)
    expected = np.zeros((len(rows), elements), dtype)
    np.add.at(expected, slot, of(c.post))
    kept = np.zeros(0, np.int64)
    if not place.in_place:
        kept = (place.base[:, :1] + np.arange(place.size[0, 0])).ravel()
    return Data(before, rows, expected, kept)


def poison(dtype: np.dtype[Any]) -> int:
    """Return the filler of memory of integers before a run: it is not an input."""
    return int(np.iinfo(dtype).max) - (0x5EAD if dtype.itemsize > 1 else 0x2D)


def number_type(name: str) -> np.dtype[Any]:
    """Return the number type of a name.

    Raises:
        UserError: unknown number type.
    """
    try:
        dtype = np.dtype(name)
    except TypeError:
        dtype = np.dtype(object)
    if dtype.kind not in "iuf" or not dtype.isnative or dtype.itemsize > 8:
        raise UserError(f"{name!r} is not a number type", hint="int32, float32, float16 …")
    return dtype


def unfit(code: Code, place: BufferLayout) -> str | None:
    """Return why a code addresses missing memory or corrupts a FIFO; None if it does not.

    The interpreter's own guard, so that NumPy never clips a slice in silence; independent of the
    program checker, which says the same and much more.
    """
    if code.rank_count != place.collective.ranks:
        return f"{code.rank_count} ranks, but the collective has {place.collective.ranks}"
    peers = np.concatenate([code.block_send, code.block_recv])
    if ((peers < -1) | (peers >= code.rank_count)).any():
        return "a block has a peer that does not exist"
    block = code.block
    lonely = SENDS[code.op] & (code.block_send[block] < 0)
    lonely |= RECEIVES[code.op] & (code.block_recv[block] < 0)
    if lonely.any():
        return f"{code.describe(int(np.argmax(lonely)))} lacks a peer"
    for peer, name in ((code.block_send, "sends to"), (code.block_recv, "receives from")):
        ends = np.stack([code.block_rank, peer, code.block_channel])[:, peer >= 0]
        if np.unique(ends, axis=1).shape[1] < ends.shape[1]:
            return f"two blocks of a rank share a connection: both {name} one peer on one channel"
    if (code.wait_block < 0).any():
        waiter = int(np.argmax(code.wait_start[1:] > int(np.argmax(code.wait_block < 0))))
        return f"{code.describe(waiter)} waits for a block that does not exist"
    return _out_of_bounds(code, place, block) or _unequal(code, block)


def _out_of_bounds(code: Code, place: BufferLayout, block: Ints) -> str | None:
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
