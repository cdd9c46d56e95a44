"""What must move: classes of chunks with the same holders and the same destinations.

Copying and reducing collectives become one thing. Reducing a chunk from many ranks to one is
copying it from that one to the many, run backwards on the reversed machine, so reduce and
reduce_scatter are described as their duals (``backwards``).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from weft.dsl.collective import Collective

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
_Column = npt.NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Demand:
    """Classes of chunks; class k has ``weight[k]`` chunks.

    ``holders`` and ``dests`` are rank lists one after the other, cut at ``holder_start`` and
    ``dest_start`` (length classes + 1). A rank that holds a class is not among its dests.
    ``backwards``: to be read on the reversed machine.
    """

    ranks: int
    weight: Ints
    holders: Ints
    holder_start: Ints
    dests: Ints
    dest_start: Ints
    backwards: bool = False

    @property
    def classes(self) -> int:
        """Number of classes."""
        return len(self.weight)

    @cached_property
    def unicast(self) -> bool:
        """Whether every chunk has one holder and one destination."""
        sizes = (np.diff(self.holder_start), np.diff(self.dest_start))
        return all(bool((size == 1).all()) for size in sizes)

    @cached_property
    def spread(self) -> bool:
        """Whether all chunks are wanted by the same ranks, holders aside."""
        return len(np.unique(self.reach_keys())) == 1

    def reach_keys(self) -> npt.NDArray[np.uint64]:
        """A hash, per class, of who has the chunks in the end: destinations and holders."""
        key = _set_hash(self.holders, self.holder_start, self.ranks)
        return key + _set_hash(self.dests, self.dest_start, self.ranks)

    def sinks(self) -> Ints:
        """Ranks that want something, ascending."""
        return np.unique(self.dests)

    def wanted_by(self, rank: int) -> Bools:
        """Which classes a rank wants."""
        found = np.zeros(self.classes, bool)
        found[np.searchsorted(self.dest_start, np.flatnonzero(self.dests == rank), "right") - 1] = 1
        return found

    def across(self, inside: Bools) -> int:
        """Chunks that must leave the set of ranks ``inside``: held only there, wanted outside."""
        if self.unicast:
            return int(self.pairs[inside][:, ~inside].sum())
        held = np.logical_and.reduceat(inside[self.holders], self.holder_start[:-1])
        wanted = np.logical_or.reduceat(~inside[self.dests], self.dest_start[:-1])
        return int(self.weight[held & wanted].sum())

    @cached_property
    def pairs(self) -> Ints:
        """For unicast demands: chunks by (source, destination), shape (ranks, ranks)."""
        table = np.zeros((self.ranks, self.ranks), np.int64)
        np.add.at(table, (self.holders, self.dests), self.weight)
        return table

    def reversed(self) -> Demand:
        """Sources and destinations exchanged: the same problem seen from the other end.

        Only where every chunk has one holder; chunks with several destinations then ask for less
        than here, because one of the new holders is enough.
        """
        return Demand(
            self.ranks, self.weight, self.dests, self.dest_start,
            self.holders, self.holder_start, not self.backwards,
        )  # fmt: skip


def copying_demand(collective: Collective) -> Demand | None:
    """The demand of a copying collective, or of the dual of a reducing one; else None.

    None: chunks whose contributions meet at several ranks (allreduce), or partly.
    """
    pre, post = collective.pre, collective.post
    if _one_set_per_chunk(collective):
        return _classes(collective, pre.chunks, pre.ranks, post.chunks, post.ranks, False)
    if _reduces_to_one(collective):
        return _classes(collective, post.chunks, post.ranks, pre.chunks, pre.ranks, True)
    return None


def is_allreduce(collective: Collective) -> bool:
    """Whether every chunk starts in disjoint shares on all ranks and ends summed on all."""
    n = collective.ranks
    if len(collective.pre) != n * collective.chunks or len(collective.post) != len(collective.pre):
        return False
    sizes = np.array([len(s) for s in collective.contributions])
    shares = np.bincount(collective.pre.chunks, sizes[collective.pre.sets], collective.chunks)
    return _disjoint(collective, shares)


def wanted_items(collective: Collective) -> tuple[Ints, Ints, Ints, Ints]:
    """Who needs what: rows (chunk, contribution, holder, destination), one-holder items only.

    A contribution that starts on several ranks is left out, because no single one must send it.
    """
    pre = _items(collective, collective.pre.chunks, collective.pre.sets)
    post = _items(collective, collective.post.chunks, collective.post.sets)
    held, place, copies = np.unique(pre[0], return_index=True, return_counts=True)
    holder = collective.pre.ranks[pre[1][place]].astype(np.int64)
    at = np.searchsorted(held, post[0])
    dest = collective.post.ranks[post[1]].astype(np.int64)
    keep = (copies[at] == 1) & (holder[at] != dest)
    key, at, dest = post[0][keep], at[keep], dest[keep]
    return key // collective.ranks, key % collective.ranks, holder[at], dest


def _items(c: Collective, chunks: _Column, sets: _Column) -> tuple[Ints, Ints]:
    """Keys chunk * ranks + contribution, and the placement row of each."""
    members = [sorted(s) for s in c.contributions]
    sizes = np.array([len(m) for m in members], np.int64)
    start = np.concatenate([[0], np.cumsum(sizes)])
    flat = np.array([r for m in members for r in m], np.int64)
    count = sizes[sets]
    row = np.repeat(np.arange(len(sets)), count)
    within = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
    who = flat[start[sets][row] + within]
    return chunks.astype(np.int64)[row] * c.ranks + who, row


def _one_set_per_chunk(c: Collective) -> bool:
    chunks = np.concatenate([c.pre.chunks, c.post.chunks]).astype(np.int64)
    sets = np.concatenate([c.pre.sets, c.post.sets])
    pairs = np.unique(chunks * len(c.contributions) + sets)
    return len(pairs) == len(np.unique(chunks))


def _reduces_to_one(c: Collective) -> bool:
    """One destination a chunk, which wants the disjoint union of all that the holders have."""
    sizes = np.array([len(s) for s in c.contributions])
    places = np.bincount(c.post.chunks, minlength=c.chunks)
    if places.max() > 1 or (places[c.pre.chunks] == 0).any():
        return False
    return _disjoint(c, np.bincount(c.pre.chunks, sizes[c.pre.sets], c.chunks))


def _disjoint(c: Collective, shares: npt.NDArray[Any]) -> bool:
    """Whether each wanted set is as large as all shares of its chunk together.

    What is wanted starts somewhere, so equal sizes mean: disjoint shares, and all of them.
    """
    sizes = np.array([len(s) for s in c.contributions])
    return bool((shares[c.post.chunks] == sizes[c.post.sets]).all())


def _classes(
    c: Collective, from_chunk: _Column, from_rank: _Column, to_chunk: _Column, to_rank: _Column,
    backwards: bool,
) -> Demand:  # fmt: skip
    n = c.ranks
    held = np.sort(from_chunk.astype(np.int64) * n + from_rank)
    wanted = np.setdiff1d(to_chunk.astype(np.int64) * n + to_rank, held)
    chunks = np.unique(wanted // n)
    held = held[np.isin(held // n, chunks)]
    holder_start = np.searchsorted(held, np.append(chunks, c.chunks) * n)
    dest_start = np.searchsorted(wanted, np.append(chunks, c.chunks) * n)
    keys = np.stack(
        [_set_hash(held % n, holder_start, n), _set_hash(wanted % n, dest_start, n)], axis=1
    )
    _, first, weight = np.unique(keys, axis=0, return_index=True, return_counts=True)
    order = np.argsort(first)
    first, weight = first[order], weight[order]
    holders, holder_start = _take(held % n, holder_start, first)
    dests, dest_start = _take(wanted % n, dest_start, first)
    return Demand(n, weight, holders, holder_start, dests, dest_start, backwards)


def _take(flat: Ints, start: Ints, rows: Ints) -> tuple[Ints, Ints]:
    """The chosen rows of a ragged array."""
    count = start[rows + 1] - start[rows]
    ends = np.concatenate([[0], np.cumsum(count)]).astype(np.int64)
    index = np.repeat(start[rows] - ends[:-1], count) + np.arange(ends[-1])
    return flat[index], ends


def _set_hash(flat: Ints, start: Ints, ranks: int) -> npt.NDArray[np.uint64]:
    """One 64-bit sum of random words per row: equal for equal sets."""
    words = np.random.default_rng(0x5E7).integers(1, 1 << 63, ranks, np.uint64)
    total = np.concatenate([np.zeros(1, np.uint64), np.cumsum(words[flat], dtype=np.uint64)])
    return np.asarray(total[start[1:]] - total[start[:-1]])
