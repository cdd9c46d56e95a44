"""Placements of chunks: rank, set of contributions, buffer offset."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ..base.arrays import Ints, Ints32
from ..base.errors import UserError
from ..base.lazy_dataclass import Frozen

LARGEST_OFFSET = 1 << 30


class Placement(Frozen):
    """Placement of chunks on ranks, with contributions and buffer offsets.

    Columns of one length: ``ranks``, ``chunks``, ``sets`` (index into the collective's
    ``contributions``), ``offsets`` (in grains, that is in chunks where all have one size; in the
    input buffer for a precondition and in the output buffer for a postcondition).
    """

    ranks: Ints32
    chunks: Ints32
    sets: Ints32
    offsets: Ints32

    def __post_init__(self) -> None:
        for column in (self.ranks, self.chunks, self.sets, self.offsets):
            column.setflags(write=False)

    @staticmethod
    def of(rows: Iterable[tuple[int, int, int, int]] | Ints32 | Placement) -> Placement:
        """Return a placement from rows (rank, chunk, set, offset)."""
        if isinstance(rows, Placement):
            return rows
        known = rows if isinstance(rows, np.ndarray) else np.array(list(rows), np.int32)
        table = known.reshape(-1, 4)
        return Placement(*(np.ascontiguousarray(table[:, i]) for i in range(4)))

    def __len__(self) -> int:
        return len(self.ranks)

    def some(self, which: Ints) -> Placement:
        """Return the placement of some entries."""
        columns = (self.ranks, self.chunks, self.sets, self.offsets)
        return Placement(*(column[which] for column in columns))

    def rows(self) -> Ints32:
        """Return the columns side by side, shape (entries, 4)."""
        return np.stack([self.ranks, self.chunks, self.sets, self.offsets], axis=1)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Placement) and np.array_equal(self.rows(), other.rows())

    def __hash__(self) -> int:
        return hash(self.rows().tobytes())


def one_by_one(p: Placement, grains: Ints, start: Ints) -> Placement:
    """Replace every chunk c by ``grains[c]`` chunks of one grain, numbered from ``start[c]``."""
    repeats = grains[p.chunks]
    ends = np.cumsum(repeats)
    inside = np.arange(ends[-1]) - np.repeat(ends - repeats, repeats)
    chunk, offset = np.repeat(start[p.chunks], repeats), np.repeat(p.offsets, repeats)
    return Placement(
        np.repeat(p.ranks, repeats),
        (chunk + inside).astype(np.int32),
        np.repeat(p.sets, repeats),
        (offset + inside).astype(np.int32),
    )


def uneven(p: Placement, pieces: Ints, count: Ints, factor: int) -> Placement:
    """Replace every chunk c by ``count[c]`` pieces; a grain becomes ``factor`` of the new ones.

    ``pieces`` has the new grains of each piece, chunk after chunk.
    """
    first = np.cumsum(count) - count
    # Offset of each piece inside its chunk, in grains.
    before = np.cumsum(pieces) - pieces
    before -= np.repeat(before[first], count)
    repeats = count[p.chunks]
    ends = np.cumsum(repeats)
    inside = np.arange(ends[-1]) - np.repeat(ends - repeats, repeats)
    chunk = np.repeat(first[p.chunks], repeats) + inside
    offsets = np.repeat(p.offsets.astype(np.int64) * factor, repeats) + before[chunk]
    if len(offsets) and offsets.max() >= LARGEST_OFFSET:
        raise UserError(f"buffers of more than {LARGEST_OFFSET} grains", hint="use coarser shares")
    return Placement(
        np.repeat(p.ranks, repeats),
        chunk.astype(np.int32),
        np.repeat(p.sets, repeats),
        offsets.astype(np.int32),
    )


def split(placement: Placement, k: int) -> Placement:
    """Replace every chunk by k equal ones."""
    piece = np.tile(np.arange(k, dtype=np.int32), len(placement))

    def spread(column: Ints32, step: int) -> Ints32:
        return (np.repeat(column, k) * step + (piece if step > 1 else 0)).astype(np.int32)

    return Placement(
        spread(placement.ranks, 1),
        spread(placement.chunks, k),
        spread(placement.sets, 1),
        spread(placement.offsets, k),
    )
