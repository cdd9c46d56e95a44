"""Demand of a collective: classes of chunks with the same holders and the same destinations.

Copying and reducing collectives have one form. Reducing a chunk from many ranks to one is
copying it from that one to the many, reversed in time on the reversed machine; so reduce and
reduce_scatter are described by their duals (``backwards``).
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from weft.dsl.base.arrays import AnyArray, Bools, Ints, Ints32, Words, distinct_values, random_words
from weft.dsl.base.kept import kept
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.unique_rows import in_blocks, placed, rows_of
from weft.dsl.nouns.collective import Collective
from weft.dsl.nouns.placement import Placement
from weft.dsl.nouns.topology import Topology
from weft.dsl.symmetry.symmetry import orbits, verified


@dataclass(frozen=True, eq=False)
class ClassDemand:
    """Classes of chunks; class k has ``weight[k]`` chunks.

    ``holders`` and ``dests`` are rank lists one after the other, cut at ``holder_start`` and
    ``dest_start`` (length classes + 1). A rank that holds a class is not among its dests. Every
    class has a holder and a destination, and no two have the same of both.
    ``backwards``: to be read on the reversed machine.
    """

    ranks: int
    weight: Ints
    holders: Ints
    holder_start: Ints
    dests: Ints
    dest_start: Ints
    backwards: bool = False

    @staticmethod
    def of_allgather(ranks: int) -> ClassDemand:
        """One chunk of every rank for all others."""
        rank = np.arange(ranks)
        others = (rank[:, None] + np.arange(1, ranks)) % ranks
        each = ranks - 1
        return ClassDemand(
            ranks,
            np.ones(ranks, np.int64),
            rank,
            np.arange(ranks + 1),
            np.sort(others, axis=1).ravel(),
            np.arange(ranks + 1) * each,
        )

    @property
    def classes(self) -> int:
        """Number of classes."""
        return len(self.weight)

    @cached_property
    def unicast(self) -> bool:
        """True if every chunk has one holder and one destination."""
        return len(self.holders) == len(self.dests) == self.classes

    @cached_property
    def uniform(self) -> int:
        """Chunks of every rank for all others, or for each other rank; 0 if they differ.

        If not 0, the demand is the same under every renaming of the ranks, so the machine's own
        symmetries are those of the problem: one rank of each orbit represents all.
        """
        n, each = self.ranks, int(self.weight[0]) if self.classes else 0
        if len(self.holders) != self.classes or self.weight.min(initial=each) != each:
            return 0
        if self.weight.max(initial=each) != each:
            return 0
        if self.unicast and self.classes == n * (n - 1):
            return each
        gathers = self.classes == n and (np.diff(self.dest_start) == n - 1).all()
        return each if gathers and (np.bincount(self.holders, minlength=n) == 1).all() else 0

    @cached_property
    def spread(self) -> bool:
        """True if all chunks are wanted by the same ranks, their holders excepted."""
        if self.unicast and self.classes > 2:
            return False  # two ranks have two pairs
        # A hash, per class, of the ranks that have the chunks at the end.
        keys = _set_hash(self.holders, self.holder_start, self.ranks)
        keys = keys + _set_hash(self.dests, self.dest_start, self.ranks)
        return bool(len(keys) and (keys == keys[0]).all())

    def sinks(self) -> Ints:
        """Ranks that want something, ascending."""
        return np.flatnonzero(np.bincount(self.dests, minlength=self.ranks))

    def sources(self) -> Ints:
        """Ranks that hold something that is wanted elsewhere, ascending."""
        return np.flatnonzero(np.bincount(self.holders, minlength=self.ranks))

    def wanted(self) -> Ints:
        """Return the chunks that each rank wants, shape (ranks,)."""
        if self.uniform:
            return np.full(self.ranks, self.uniform * (self.ranks - 1))
        weight = np.repeat(self.weight, np.diff(self.dest_start))
        return np.bincount(self.dests, weight, self.ranks).astype(np.int64)

    def everybody(self) -> bool:
        """True if every rank holds or wants some chunk."""
        taking_part = np.zeros(self.ranks, bool)
        taking_part[self.dests] = taking_part[self.holders] = True
        return bool(taking_part.all())

    def wanted_by(self, rank: int) -> Bools:
        """Mask of the classes that a rank wants."""
        found = np.zeros(self.classes, bool)
        found[np.searchsorted(self.dest_start, np.flatnonzero(self.dests == rank), "right") - 1] = 1
        return found

    def across(self, inside: Bools) -> int:
        """Chunks that must leave the set of ranks ``inside``: held only there, wanted outside."""
        if self.unicast:
            if self.uniform:
                count = int(inside.sum())
                return self.uniform * count * (self.ranks - count)
            return int(self.pairs[inside][:, ~inside].sum())
        held = np.logical_and.reduceat(inside[self.holders], self.holder_start[:-1])
        wanted = np.logical_or.reduceat(~inside[self.dests], self.dest_start[:-1])
        return int(self.weight[held & wanted].sum())

    def leaving(self, inside: Bools) -> Ints:
        """For each rank inside the chunks that it alone holds and that are wanted outside."""
        if self.unicast:
            if self.uniform:
                return np.where(inside, self.uniform * int((~inside).sum()), 0)
            return np.asarray(np.where(inside, self.pairs[:, ~inside].sum(axis=1), 0))
        lone = np.diff(self.holder_start) == 1
        holder = self.holders[self.holder_start[:-1]]
        wanted = np.logical_or.reduceat(~inside[self.dests], self.dest_start[:-1])
        count = np.where(lone & wanted & inside[holder], self.weight, 0)
        found = np.zeros(self.ranks, np.int64)
        np.add.at(found, holder, count)
        return found

    @cached_property
    def pairs(self) -> Ints:
        """For unicast demands: chunks by (source, destination), shape (ranks, ranks)."""
        n = self.ranks
        if self.uniform:
            full = np.full((n, n), self.uniform, np.int64)
            np.fill_diagonal(full, 0)
            return full
        table = np.zeros(n * n, np.int64)
        np.add.at(table, self.holders * n + self.dests, self.weight)
        return table.reshape(n, n)

    @cached_property
    def needs(self) -> Bools:
        """Required pairs: entry (s, d) if data that starts only on s must reach d; (ranks, ranks).

        In the direction in which the collective runs, also where the demand is its dual.
        """
        if self.unicast and self.uniform:
            return ~np.eye(self.ranks, dtype=bool)
        single = np.diff(self.holder_start) == 1
        count = np.diff(self.dest_start)
        holder = np.repeat(self.holders[self.holder_start[:-1]], np.where(single, count, 0))
        dest = self.dests[np.repeat(single, count)]
        needs = np.zeros((self.ranks, self.ranks), bool)
        needs[(dest, holder) if self.backwards else (holder, dest)] = True
        return needs

    def reversed(self) -> ClassDemand:
        """Sources and destinations exchanged: the same problem seen from the other end.

        Only where every chunk has one holder; chunks with several destinations then need less
        than here, because one of the new holders is enough.
        """
        return ClassDemand(
            self.ranks,
            self.weight,
            self.dests,
            self.dest_start,
            self.holders,
            self.holder_start,
            not self.backwards,
        )


@kept()
def copying_demand(collective: Collective) -> ClassDemand | None:
    """The demand of a copying collective, or of the dual of a reducing one; else None.

    None: chunks whose contributions meet at several ranks (allreduce), or partly.
    """
    pre, post = collective.pre, collective.post
    one = placed(collective.chunks, pre.chunks, pre.sets)
    same = (
        (one[p.chunks[block]] == p.sets[block]).all()
        for p in (pre, post)
        for block in in_blocks(len(p))
    )
    if all(same):  # a chunk is one set of contributions wherever it is
        return _classes(collective, pre, post, backwards=False)
    if _reduces_to_one(collective):
        return _classes(collective, post, pre, backwards=True)
    return None


def is_allreduce(collective: Collective) -> bool:
    """Return True if every chunk starts as disjoint parts on all ranks and ends summed on all."""
    n = collective.ranks
    if len(collective.pre) != n * collective.chunks or len(collective.post) != len(collective.pre):
        return False
    sizes = np.array([len(s) for s in collective.contributions])
    shares = np.bincount(collective.pre.chunks, sizes[collective.pre.sets], collective.chunks)
    return _disjoint(collective, shares)


def wanted_items(collective: Collective) -> tuple[Ints, Ints, Ints, Ints]:
    """Return the wanted items that have one holder: (chunk, contribution, holder, destination).

    Four columns of equal length. A contribution that starts on several ranks is left out, because
    none of them is the one that must send it.
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


def _items(c: Collective, chunks: Ints32, sets: Ints32) -> tuple[Ints, Ints]:
    """Keys chunk * ranks + contribution, and the placement row of each."""
    members = [sorted(s) for s in c.contributions]
    sizes = np.array([len(m) for m in members], np.int64)
    start = np.concatenate([[0], np.cumsum(sizes)])
    flat = np.array([r for m in members for r in m], np.int64)
    placed_at, at = rows_of(start, sets.astype(np.int64))
    row = np.repeat(np.arange(len(sets)), np.diff(placed_at))
    who = flat[at]
    return chunks.astype(np.int64)[row] * c.ranks + who, row


def _reduces_to_one(c: Collective) -> bool:
    """One destination a chunk, which wants the disjoint union of all that the holders have."""
    sizes = np.array([len(s) for s in c.contributions])
    places = np.bincount(c.post.chunks, minlength=c.chunks)
    if places.max() > 1 or (places[c.pre.chunks] == 0).any():
        return False
    return _disjoint(c, np.bincount(c.pre.chunks, sizes[c.pre.sets], c.chunks))


def _disjoint(c: Collective, shares: AnyArray) -> bool:
    """Return True if each wanted set is as large as all parts of its chunk together.

    Every wanted contribution starts somewhere, so equal sizes mean that the parts are disjoint and
    that all of them are wanted.
    """
    sizes = np.array([len(s) for s in c.contributions])
    return bool((shares[c.post.chunks] == sizes[c.post.sets]).all())


def _classes(c: Collective, start: Placement, end: Placement, *, backwards: bool) -> ClassDemand:
    n = c.ranks
    if len(start) == len(end) == c.chunks:
        sender, receiver = (placed(c.chunks, p.chunks, p.ranks) for p in (start, end))
        if sender.min() >= 0 and receiver.min() >= 0:
            return _pair_classes(n, sender, receiver, backwards)
    held, wanted = (np.sort(p.chunks.astype(np.int64) * n + p.ranks) for p in (start, end))
    at = np.minimum(np.searchsorted(held, wanted), len(held) - 1)
    wanted = wanted[held[at] != wanted]
    moves = np.bincount(wanted // n, minlength=c.chunks)
    chunks = np.flatnonzero(moves)
    held = held[moves[held // n] > 0]
    holder_start = np.searchsorted(held, np.append(chunks, c.chunks) * n)
    dest_start = np.append(0, np.cumsum(moves[chunks]))
    if len(chunks) == len(held) == len(wanted):
        keys = (held % n * n + wanted % n).astype(np.uint64)
    else:
        keys = _set_hash(held % n, holder_start, n) * np.uint64(0x9E3779B97F4A7C15)
        keys += _set_hash(wanted % n, dest_start, n)
    order = np.argsort(keys, kind="stable")
    leads = np.ones(len(order), bool)
    leads[1:] = keys[order[1:]] != keys[order[:-1]]
    led = np.flatnonzero(leads)
    first, weight = order[led], np.diff(np.append(led, len(order)))
    order = np.argsort(first)
    first, weight = first[order], weight[order]
    holder_start, holder = rows_of(holder_start, first)
    dest_start, dest = rows_of(dest_start, first)
    return ClassDemand(
        n, weight, held[holder] % n, holder_start, wanted[dest] % n, dest_start, backwards
    )


def _pair_classes(n: int, holder: Ints32, dest: Ints32, backwards: bool) -> ClassDemand:
    moves = holder != dest
    holders, dests = holder[moves].astype(np.int64), dest[moves].astype(np.int64)
    key = holders * n
    key += dests
    weight: Ints = np.broadcast_to(np.int64(1), len(key))
    if not (key[1:] > key[:-1]).all():
        _, first, count = np.unique(key, return_index=True, return_counts=True)
        order = np.argsort(first)  # where each occurs first, ascending
        weight, lead = count[order], first[order]
        holders, dests = holders[lead], dests[lead]
    start = np.arange(len(holders) + 1)
    return ClassDemand(n, weight, holders, start, dests, start, backwards)


def _set_hash(flat: Ints, start: Ints, ranks: int) -> Words:
    """One 64-bit sum of random words per row: equal for equal sets."""
    words = random_words(ranks)[flat]
    total = np.concatenate([np.zeros(1, np.uint64), np.cumsum(words, dtype=np.uint64)])
    return np.asarray(total[start[1:]] - total[start[:-1]])


def alike(topology: Topology, few: int) -> Ints:
    """Return for every rank the smallest one that a symmetry maps it to, shape (ranks,).

    Declared symmetries count as far as they hold; a broken link breaks them. Machines with fewer
    than ``few`` ranks are not compared: there each rank is an orbit.
    """
    if topology.ranks < few or not topology.symmetries:
        return np.arange(topology.ranks)
    return orbits(verified(topology), topology.ranks)


def representatives(topology: Topology, few: int) -> Ints:
    """The smallest rank of every orbit (:func:`alike`), ascending."""
    return distinct_values(alike(topology, few))
