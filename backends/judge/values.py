"""Values as sets of contributions, exact and in columns, and those that a collective wants.

A **contribution** is (chunk, rank). Chunks that some output sums belong to one **group**; a value
is the group's number and one bit per contribution of the group.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from weft.dsl.base.arrays import Bools, Ints, Words, distinct_values
from weft.dsl.base.components import components
from weft.dsl.base.layers import Successors, layers, ranges
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.collective import Collective
from weft.dsl.nouns.placement import Placement

UNWRITTEN = -1
"""Group of a value that comes from memory that was never written."""
ODD = -2
"""The group of a value that no sum can make right: mixed groups, a contribution twice."""


@dataclass(frozen=True)
class Values:
    """Columns: ``group``, shape (n,), and ``bits``, shape (n, words)."""

    group: Ints
    bits: Words

    @property
    def words(self) -> int:
        """64-bit words of a value."""
        return int(self.bits.shape[1])

    @staticmethod
    def unwritten(number: int, words: int) -> Values:
        """Return the values of memory that was never written."""
        return Values(np.full(number, UNWRITTEN), np.zeros((number, words), np.uint64))

    def take(self, rows: Ints) -> Values:
        """Some rows."""
        return Values(self.group[rows], self.bits[rows])

    def put(self, rows: Ints, other: Values) -> None:
        """Replace some rows."""
        self.group[rows] = other.group
        self.bits[rows] = other.bits

    def same(self, other: Values) -> Bools:
        """Row by row, whether both are written, regular and equal."""
        equal = (self.group == other.group) & (self.group >= 0)
        return np.asarray(equal & (self.bits == other.bits).all(axis=1))

    def at(self, where: Ints, places: Ints) -> Values:
        """Return the values at ``places``, if rows lie at ``where``; unwritten elsewhere."""
        found = Values.unwritten(len(places), self.words)
        order = np.argsort(where, kind="stable")
        index = np.searchsorted(where[order], places)
        index = np.minimum(index, max(len(where) - 1, 0))
        if len(where):
            here = np.flatnonzero(where[order][index] == places)
            found.put(here, self.take(order[index[here]]))
        return found

    def sums(self, terms: Ints, number: Ints) -> Values:
        """Sums of rows; ``number`` of consecutive ``terms`` make one (at least one each)."""
        start = np.cumsum(number) - number
        group, bits = self.group[terms], self.bits[terms]
        if (number == 1).all():
            return Values(group, bits)
        least = np.minimum.reduceat(group, start)
        most = np.maximum.reduceat(group, start)
        union = np.bitwise_or.reduceat(bits, start, axis=0)
        count = np.bitwise_count(bits).sum(axis=1, dtype=np.int64)
        once = np.bitwise_count(union).sum(axis=1, dtype=np.int64)
        regular = (least == most) & (np.add.reduceat(count, start) == once)
        return Values(np.where(regular | (least < 0), least, ODD), union)


@dataclass(frozen=True)
class WantedValues:
    """A collective as values in places.

    Attributes:
        pre_rank, pre_offset, before: what the input buffers hold.
        rank, offset, values: what the output buffers must hold; one entry per place.
    """

    collective: Collective
    pre_rank: Ints
    pre_offset: Ints
    before: Values
    rank: Ints
    offset: Ints
    values: Values

    def contributions(self, k: int) -> list[tuple[int, int]]:
        """Return the contributions that entry ``k`` of the postcondition wants."""
        p = self.collective.post
        rows = np.flatnonzero((p.ranks == self.rank[k]) & (p.offsets == self.offset[k]))
        return [key for row in rows.tolist() for key in self._of(p, row)]

    def entry(self, k: int) -> list[tuple[int, int]]:
        """Return the contributions that entry ``k`` of the precondition holds."""
        return self._of(self.collective.pre, k)

    def _of(self, p: Placement, row: int) -> list[tuple[int, int]]:
        who = sorted(self.collective.contributions[int(p.sets[row])])
        return [(int(p.chunks[row]), rank) for rank in who]

    def name(self, chunk: int, rank: int) -> str:
        """``rank 2's i[3]``; where the input holds sums already, by chunk and contribution."""
        pre = self.collective.pre
        for row in np.flatnonzero((pre.chunks == chunk) & (pre.ranks == rank)).tolist():
            if self.collective.contributions[int(pre.sets[row])] == {rank}:
                return f"rank {rank}'s i[{pre.offsets[row]}]"
        return f"rank {rank}'s share of chunk {chunk}"


def wanted_of(collective: Collective) -> WantedValues:
    """Return the pre- and postcondition as values. O(entries + distinct sums × ranks)."""
    c = collective
    group = _groups(c)
    pairs, owner, rank = members(c)
    chunk = pairs // len(c.contributions)
    contribution = chunk[owner] * c.ranks + rank
    names, index = np.unique(contribution, return_inverse=True)
    # The bit of a contribution: its place among those of its group.
    of_name = group[names // c.ranks]
    order = np.argsort(of_name, kind="stable")
    first = np.searchsorted(of_name[order], of_name[order])
    bit = np.empty(len(names), np.int64)
    bit[order] = np.arange(len(names)) - first
    bits = np.zeros((len(pairs), int(bit.max(initial=0)) // 64 + 1), np.uint64)
    word, shift = np.divmod(bit[index], 64)
    np.bitwise_or.at(bits, (owner, word), np.left_shift(np.uint64(1), shift.astype(np.uint64)))
    table = Values(group[chunk], bits)

    def of(p: Placement) -> Values:
        return table.take(np.searchsorted(pairs, keys(c, p)))

    place = c.post.ranks.astype(np.int64) << 32 | c.post.offsets
    order = np.argsort(place, kind="stable")
    where, number = np.unique(place, return_counts=True)
    values = of(c.post)
    sums = values.sums(order, number) if len(where) else values
    return WantedValues(
        c,
        c.pre.ranks.astype(np.int64),
        c.pre.offsets.astype(np.int64),
        of(c.pre),
        where >> 32,
        where & 0xFFFFFFFF,
        sums,
    )


def keys(c: Collective, p: Placement) -> Ints:
    """Return the number of the sum, a chunk's and a set's, that each entry holds."""
    return p.chunks.astype(np.int64) * len(c.contributions) + p.sets


def members(c: Collective) -> tuple[Ints, Ints, Ints]:
    """Return the sums in use, ascending, and their parts: the position of the sum, and a rank."""
    pairs = distinct_values(np.concatenate([keys(c, c.pre), keys(c, c.post)]))
    which = pairs % len(c.contributions)
    sets = [np.array(sorted(s), np.int64) for s in c.contributions]
    sizes = np.array([len(s) for s in sets], np.int64)[which]
    rank = np.concatenate([sets[i] for i in which.tolist()] or [np.zeros(0, np.int64)])
    return pairs, np.repeat(np.arange(len(pairs)), sizes), rank


def waves(start: Ints, term: Ints) -> Iterator[tuple[Ints, Ints, Ints]]:
    """Yield nodes whose terms are known, those terms, and how many each has, as deep as it goes.

    ``term[start[i]:start[i + 1]]``: what node i sums, nodes or (beyond their number) given values.
    """
    size, number = len(start) - 1, np.diff(start)
    owner = np.repeat(np.arange(size), number)
    inner = term < size
    for layer in layers(Successors.of(size, term[inner], owner[inner])):
        some = layer[number[layer] > 0]
        if len(some):
            yield some, term[ranges(start[some], number[some])], number[some]


def _groups(c: Collective) -> Ints:
    """Return the group of each chunk: connected through outputs that sum several chunks."""
    place = c.post.ranks.astype(np.int64) << 32 | c.post.offsets
    order = np.argsort(place, kind="stable")
    same = np.flatnonzero(place[order][1:] == place[order][:-1])
    a, b = c.post.chunks[order[same]], c.post.chunks[order[same + 1]]
    return components(c.chunks, a, b)
