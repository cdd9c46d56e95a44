"""Unicast demands: chunks per (source, destination) pair.

Alltoall, scatter, gather, their multiroot forms, alltonext, and every custom collective in which a
chunk starts on one rank, is wanted by one, and is not added to on the way.
"""

from __future__ import annotations

import numpy as np

from weft.dsl.base.arrays import Ints
from weft.dsl.base.errors import UserError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.unique_rows import rows_of
from weft.dsl.nouns.collective import Collective, Kind


@dataclass(frozen=True, eq=False)
class PairDemand:
    """Ordered pairs of ranks, and the chunks that each must carry.

    ``src`` and ``dst`` (pairs,) differ; the chunks of pair k are
    ``chunks[start[k]:start[k + 1]]``. Pairs ascend by source, then destination.
    """

    src: Ints
    dst: Ints
    start: Ints
    chunks: Ints

    def __len__(self) -> int:
        return len(self.src)

    @property
    def count(self) -> Ints:
        """Chunks of each pair."""
        return np.diff(self.start)

    def table(self, ranks: int) -> Ints:
        """Chunks by (source, destination), shape (ranks, ranks)."""
        full = np.zeros((ranks, ranks), np.int64)
        full[self.src, self.dst] = self.count
        return full

    def of_sources(self, sources: Ints) -> PairDemand:
        """Only the pairs that start at one of these ranks."""
        kept = np.flatnonzero(np.isin(self.src, sources))
        start, at = rows_of(self.start, kept)
        return PairDemand(self.src[kept], self.dst[kept], start, self.chunks[at])


def moves_pairs(collective: Collective) -> bool:
    """Return True if :func:`pairs_of` describes this collective."""
    try:
        pairs_of(collective)
    except UserError:
        return False
    return True


def symmetric(collective: Collective) -> bool:
    """Return True if every permutation of the ranks maps the demand to itself."""
    return collective.kind is Kind.ALLTOALL


def pairs_of(collective: Collective) -> PairDemand:
    """The pairs of a plain collective; chunks that are wanted where they start are left out.

    Raises:
        UserError: a chunk that several ranks hold or want, or whose contributions are added.
    """
    pre, post = collective.pre, collective.post
    held = np.full(collective.chunks, -1, np.int64)
    set_of = np.full(collective.chunks, -1, np.int64)
    held[pre.chunks] = pre.ranks
    set_of[pre.chunks] = pre.sets
    wanted = post.chunks.astype(np.int64)
    alone = np.bincount(pre.chunks, minlength=collective.chunks).max() <= 1
    once = np.bincount(wanted, minlength=collective.chunks).max() <= 1
    if not (alone and once and np.array_equal(set_of[wanted], post.sets)):
        raise UserError(
            f"{collective}: paths carry chunks from one rank to one other",
            hint="chunks that several ranks hold, want or add to need trees",
        )
    src, dst = held[wanted], post.ranks.astype(np.int64)
    moving = src != dst
    src, dst, wanted = src[moving], dst[moving], wanted[moving]
    order = np.lexsort((wanted, dst, src))
    keys = (src * collective.ranks + dst)[order]
    unique, first = np.unique(keys, return_index=True)
    start = np.append(first, len(keys)).astype(np.int64)
    return PairDemand(unique // collective.ranks, unique % collective.ranks, start, wanted[order])
