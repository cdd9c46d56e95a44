"""Phases on one group of ranks, of which hierarchical algorithms are put together.

``order`` are the members of the group in the order in which they are neighbours; ``blocks[i]`` are
the chunk numbers that belong to member i. A reduce_scatter leaves member i with block i summed
over the group; an allgather starts from there. Every phase takes whatever the members hold when
it begins, so the sum of a group goes into the phase of a larger group.

Steps and the share of the group's data that a member sends (n members, blocks of equal size):

=============  ====================  ==================  ==============================
phase          steps                 bytes               source
=============  ====================  ==================  ==============================
``ring``       n-1                   (n-1)/n             Patarasuk & Yuan 2009
``direct``     1 (n-1 messages)      (n-1)/n             Thakur et al. 2005
``halving``    ⌈log2 n⌉              (n-1)/n             Rabenseifner 2004
=============  ====================  ==================  ==============================

Halving (and its mirror, doubling) takes any n: where n is no power of two, n - 2^k members hand
their data to a neighbour first and get the result from it at the end: two more steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import TypedDict

from weft.dsl.author.builder import Builder, Chunk
from weft.dsl.base.lazy_dataclass import dataclass

Order = Sequence[int]
Blocks = Sequence[Sequence[int]]


class MoveHints(TypedDict, total=False):
    """Optional channel and thread blocks of a move: keyword arguments of
    :meth:`weft.dsl.author.builder.Chunk.copy_to`.
    """

    channel: int
    send_block: int
    recv_block: int


@dataclass(frozen=True, slots=True)
class LaneBuilder:
    """Settings with which the phases of one algorithm move chunks.

    Attributes:
        p: the builder that records the moves.
        place: position of each chunk in the scratch of every rank, if chunks are moved from
            scratch to scratch instead of by number: chunks of one message are then contiguous.
        lane: number of this lane, of the parallel lanes of one algorithm. Every lane has its own
            thread blocks and channels.
    """

    p: Builder
    place: Mapping[int, int] | None = None
    lane: int = 0

    def reference_to(self, rank: int, chunks: Sequence[int]) -> Chunk:
        """A reference to chunks of one rank."""
        if self.place is not None:
            at = self.place[chunks[0]]
            return self.p.chunk(rank, at, count=len(chunks), buffer="scratch")
        return reference_to(self.p, rank, chunks)

    def sorted(self, chunks: Sequence[int]) -> list[int]:
        """Chunks in the order in which they lie."""
        return sorted(chunks, key=self.place.__getitem__ if self.place is not None else None)

    def send(self, src: int, chunks: Sequence[int], dst: int) -> None:
        """Copy chunks to another rank."""
        buffer, index = self._there(chunks)
        self.reference_to(src, chunks).copy_to(dst, buffer, index, **self._hints(src, dst))

    def add(self, src: int, chunks: Sequence[int], dst: int) -> None:
        """Add chunks to those of another rank."""
        buffer, index = self._there(chunks)
        self.reference_to(src, chunks).reduce_into(dst, buffer, index, **self._hints(src, dst))

    def _there(self, chunks: Sequence[int]) -> tuple[str | None, int | None]:
        return (None, None) if self.place is None else ("scratch", self.place[chunks[0]])

    def _hints(self, src: int, dst: int) -> MoveHints:
        first = 2 * self.p.ranks * self.lane
        return {
            "send_block": first + 2 * dst,
            "recv_block": first + 2 * src + 1,
            "channel": self.lane,
        }


Phase = Callable[[Builder | LaneBuilder, Order, Blocks], None]


def send(p: Builder | LaneBuilder, src: int, chunks: Sequence[int], dst: int) -> None:
    """Copy chunks, by number, from one rank to another; as one message if they lie side by side."""
    if not chunks:
        return
    if isinstance(p, LaneBuilder):
        p.send(src, chunks, dst)
    else:
        reference_to(p, src, chunks).copy_to(rank=dst, **separate_blocks(src, dst, len(chunks)))


def add(p: Builder | LaneBuilder, src: int, chunks: Sequence[int], dst: int) -> None:
    """Add chunks, by number, of one rank to those of another; as one message likewise."""
    if not chunks:
        return
    if isinstance(p, LaneBuilder):
        p.add(src, chunks, dst)
    else:
        reference_to(p, src, chunks).reduce_into(rank=dst, **separate_blocks(src, dst, len(chunks)))


def consecutive(chunks: Sequence[int]) -> bool:
    """Return True if each chunk number is one more than the number before it."""
    return all(b == a + 1 for a, b in pairwise(chunks))


def reference_to(p: Builder, rank: int, chunks: Sequence[int]) -> Chunk:
    """A reference to chunks, by number, of one rank."""
    if consecutive(chunks):
        return p.chunk(rank, chunks[0], count=len(chunks))
    first, *others = (p.chunk(rank, k) for k in chunks)
    return first.group(*others)


def separate_blocks(src: int, dst: int, chunks: int = 2) -> MoveHints:
    """The wish for thread blocks that only send or only receive, where several chunks are sent.

    A block that does both takes large messages piece by piece, so that it cannot wait for itself.
    """
    return {"send_block": 2 * dst, "recv_block": 2 * src + 1} if chunks > 1 else {}


# --- reduce_scatter and allgather -----------------------------------------------------------------


def ring_reduce_scatter(p: Builder | LaneBuilder, order: Order, blocks: Blocks) -> None:
    """Each block goes once round the ring, from its owner's successor to its owner."""
    n = len(order)
    for step in range(n - 1):
        for i in range(n):
            add(p, order[i], blocks[(i - 1 - step) % n], order[(i + 1) % n])


def ring_allgather(p: Builder | LaneBuilder, order: Order, blocks: Blocks) -> None:
    """Each block goes once round the ring, from its owner on."""
    n = len(order)
    for step in range(n - 1):
        for i in range(n):
            send(p, order[i], blocks[(i - step) % n], order[(i + 1) % n])


def direct_reduce_scatter(p: Builder | LaneBuilder, order: Order, blocks: Blocks) -> None:
    """Every member sends each block directly to its owner, beginning with the next member."""
    n = len(order)
    for shift in range(1, n):
        for i in range(n):
            j = (i + shift) % n
            add(p, order[i], blocks[j], order[j])


def direct_allgather(p: Builder | LaneBuilder, order: Order, blocks: Blocks) -> None:
    """Every member sends its block directly to all others."""
    n = len(order)
    for shift in range(1, n):
        for i in range(n):
            send(p, order[i], blocks[i], order[(i + shift) % n])


def halving_reduce_scatter(p: Builder | LaneBuilder, order: Order, blocks: Blocks) -> None:
    """Halve the data with a partner at half the distance, until the own block is left."""
    groups = couples(len(order))
    _fold(p, order, blocks, groups)
    _halve(p, order, blocks, groups)
    for head, *guests in groups:
        for guest in guests:
            send(p, order[head], blocks[guest], order[guest])


def doubling_allgather(p: Builder | LaneBuilder, order: Order, blocks: Blocks) -> None:
    """Reverse of halving: exchange all held data with a partner, at doubling distance."""
    groups = couples(len(order))
    for head, *guests in groups:
        for guest in guests:
            send(p, order[guest], blocks[guest], order[head])
    _double(p, order, blocks, groups)
    _unfold(p, order, blocks, groups)


def halving_allreduce(p: Builder | LaneBuilder, order: Order, blocks: Blocks) -> None:
    """Halving, then doubling; folded members receive the result at the end (Rabenseifner)."""
    groups = couples(len(order))
    _fold(p, order, blocks, groups)
    _halve(p, order, blocks, groups)
    _double(p, order, blocks, groups)
    _unfold(p, order, blocks, groups)


Groups = Sequence[tuple[int, ...]]


def _fold(p: Builder | LaneBuilder, order: Order, blocks: Blocks, groups: Groups) -> None:
    everything = _merge_blocks(p, blocks)
    for head, *guests in groups:
        for guest in guests:
            add(p, order[guest], everything, order[head])


def _unfold(p: Builder | LaneBuilder, order: Order, blocks: Blocks, groups: Groups) -> None:
    everything = _merge_blocks(p, blocks)
    for head, *guests in groups:
        for guest in guests:
            send(p, order[head], everything, order[guest])


def _halve(p: Builder | LaneBuilder, order: Order, blocks: Blocks, groups: Groups) -> None:
    distance = len(groups) // 2
    while distance:
        for i, (head, *_) in enumerate(groups):
            # The partner's half: those who agree with it in this bit and all higher ones.
            partner = i ^ distance
            theirs = _of_groups(p, blocks, groups, partner // distance * distance, distance)
            add(p, order[head], theirs, order[groups[partner][0]])
        distance //= 2


def _double(p: Builder | LaneBuilder, order: Order, blocks: Blocks, groups: Groups) -> None:
    distance = 1
    while distance < len(groups):
        for i, (head, *_) in enumerate(groups):
            ours = _of_groups(p, blocks, groups, i // distance * distance, distance)
            send(p, order[head], ours, order[groups[i ^ distance][0]])
        distance *= 2


def couples(n: int) -> list[tuple[int, ...]]:
    """Positions 0 … n-1 in 2^⌊log2 n⌋ groups: the first ones by twos, the others alone."""
    core = 1 << (n.bit_length() - 1)
    extra = n - core
    return [(2 * i, 2 * i + 1) if i < extra else (i + extra,) for i in range(core)]


def _of_groups(
    p: Builder | LaneBuilder, blocks: Blocks, groups: Groups, first: int, count: int
) -> list[int]:
    """The chunks of some groups."""
    return _merge_blocks(p, [blocks[i] for group in groups[first : first + count] for i in group])


def _merge_blocks(p: Builder | LaneBuilder, blocks: Blocks) -> list[int]:
    """Chunks of several blocks, in the order in which they lie."""
    chunks = [k for block in blocks for k in block]
    return p.sorted(chunks) if isinstance(p, LaneBuilder) else sorted(chunks)


REDUCE_SCATTER: dict[str, Phase] = {
    "ring": ring_reduce_scatter,
    "direct": direct_reduce_scatter,
    "halving": halving_reduce_scatter,
}
ALLGATHER: dict[str, Phase] = {
    "ring": ring_allgather,
    "direct": direct_allgather,
    "halving": doubling_allgather,
}
"""Both by the name of the per-level algorithm."""


def allreduce_by(name: str) -> Phase:
    """The allreduce of a per-level algorithm: a reduce_scatter and an allgather."""
    if name == "halving":
        return halving_allreduce

    def both(p: Builder | LaneBuilder, order: Order, blocks: Blocks) -> None:
        REDUCE_SCATTER[name](p, order, blocks)
        ALLGATHER[name](p, order, blocks)

    return both


def half_cost(name: str, n: int) -> tuple[int, Fraction]:
    """Steps of one reduce_scatter or allgather among n members, and the share of the group's data
    that its busiest member sends (or gets) in them."""
    if n == 1:
        return 0, Fraction(0)
    if name == "halving":
        steps, blocks = _halving_cost(n)
        folds = n & (n - 1) > 0  # hand over everything, and get a block
        return steps + 2 * folds, Fraction(blocks + (n + 1) * folds, n)
    return n - 1 if name == "ring" else 1, Fraction(n - 1, n)


def both_cost(name: str, n: int) -> tuple[int, Fraction]:
    """As :func:`half_cost`, of the allreduce."""
    if name == "halving":
        steps, blocks = _halving_cost(n)
        folds = n & (n - 1) > 0  # hand over everything, and get everything
        return 2 * (steps + folds), Fraction(2 * (blocks + n * folds), n)
    steps, volume = half_cost(name, n)
    return 2 * steps, 2 * volume


def _halving_cost(n: int) -> tuple[int, int]:
    """Exchanges, and blocks in them: each is over when its larger half has gone."""
    sizes = [len(group) for group in couples(n)]
    steps, blocks, distance = 0, 0, len(sizes) // 2
    while distance:
        blocks += max(sum(sizes[i : i + distance]) for i in range(0, len(sizes), distance))
        steps, distance = steps + 1, distance // 2
    return steps, blocks


# --- reduce and broadcast -------------------------------------------------------------------------


def tree_edges(shape: str, n: int) -> list[tuple[int, int]]:
    """(parent, child) among 0 … n-1 with root 0, parents before their children send.

    ``chain``: each to the next. ``binomial``: the farthest first, ⌈log2 n⌉ deep. ``star``: the
    root to all.
    """
    if shape == "chain":
        return list(pairwise(range(n)))
    if shape == "star":
        return [(0, i) for i in range(1, n)]
    edges = []
    distance = 1 << max(0, n - 1).bit_length()
    while distance := distance // 2:
        edges += [(i, i + distance) for i in range(0, n - distance, 2 * distance)]
    return edges


def tree_depth(shape: str, n: int) -> int:
    """Edges from the root to the last leaf."""
    if n == 1:
        return 0
    return {"chain": n - 1, "star": 1}.get(shape, (n - 1).bit_length())


def broadcast(p: Builder | LaneBuilder, order: Order, pieces: Blocks, shape: str = "chain") -> None:
    """From the first member to all others over a tree; pieces follow each other down it."""
    for piece in pieces:
        for parent, child in tree_edges(shape, len(order)):
            send(p, order[parent], piece, order[child])


def reduce(p: Builder | LaneBuilder, order: Order, pieces: Blocks, shape: str = "chain") -> None:
    """The mirror: the sum of the group to its first member."""
    for piece in pieces:
        for parent, child in reversed(tree_edges(shape, len(order))):
            add(p, order[child], piece, order[parent])


TREES = ("chain", "binomial", "star")
