"""The collective of a demand: shards that some ranks hold and others need."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np

from ..base.arrays import Ints
from ..base.errors import NothingFound
from .collective import Collective, Kind
from .placement import LARGEST_OFFSET, Placement
from .workload import Shard


def shard_collective(
    ranks: int, shards: Sequence[Shard], grains: Sequence[Sequence[int]], name: str = "demand"
) -> Collective:
    """Return the collective of a demand; shard s is cut into chunks of ``grains[s]``.

    A rank's input has the shards that it holds, its output those that it receives, each side by
    side in the order of the shards. All holders of a shard hold the same contribution: that of the
    lowest one.

    Raises:
        NothingFound: a buffer has more grains than can be counted.
    """
    pieces = np.array([*chain.from_iterable(grains)], np.int64)
    count = np.array([len(cut) for cut in grains], np.int64)
    totals = np.add.reduceat(pieces, np.cumsum(count) - count)
    owners = [min(one.holders) for one in shards]
    sets = sorted(set(owners))
    number = {rank: i for i, rank in enumerate(sets)}
    names = np.array([number[rank] for rank in owners])
    sides = [
        _placed([getattr(one, side) for one in shards], names, pieces, count, totals)
        for side in ("holders", "receivers")
    ]
    return Collective(
        Kind.CUSTOM,
        ranks,
        len(pieces),
        tuple(frozenset([rank]) for rank in sets),
        sides[0],
        sides[1],
        name=name,
        sizes=() if (pieces == 1).all() else tuple(pieces.tolist()),
    )


def _placed(
    places: Sequence[Sequence[int]], names: Ints, pieces: Ints, count: Ints, totals: Ints
) -> Placement:
    shard = np.repeat(np.arange(len(places)), [len(some) for some in places])
    rank = np.array([*chain.from_iterable(places)], np.int64)
    order = np.argsort(rank, kind="stable")
    shard, rank = shard[order], rank[order]
    ends = np.cumsum(totals[shard])
    start = ends - totals[shard]
    opens = np.flatnonzero(np.diff(rank, prepend=-1))
    start -= np.repeat(start[opens], np.diff(np.append(opens, len(rank))))
    if int((start + totals[shard]).max()) > LARGEST_OFFSET:
        raise NothingFound(
            "the sizes of the demand have no common grain that is coarse enough",
            hint="round them to multiples of, say, 1 KiB",
        )
    repeats = count[shard]
    chunk_of = np.cumsum(count) - count
    within = np.cumsum(pieces) - pieces
    at = np.arange(int(repeats.sum())) - np.repeat(np.cumsum(repeats) - repeats, repeats)
    chunk = np.repeat(chunk_of[shard], repeats) + at
    offset = np.repeat(start - within[chunk_of[shard]], repeats) + within[chunk]
    rows = (np.repeat(rank, repeats), chunk, np.repeat(names[shard], repeats), offset)
    return Placement(*(x.astype(np.int32) for x in rows))
