"""Phases on one group of ranks, of which algorithms are put together, and how they move chunks.

``order`` are the members of the group in the order in which they are neighbours; ``blocks[i]`` are
the chunk numbers that belong to member i. A reduce_scatter leaves member i with block i summed
over the group; an allgather starts from there. Every phase takes all that the members hold when
it begins, so the sum of a group goes into the phase of a larger group.

Steps and the share of the group's data that a member sends (n members, blocks of equal size):

=============  ====================  ==================  ==============================
phase          steps                 bytes               source
=============  ====================  ==================  ==============================
``ring``       n-1                   (n-1)/n             Patarasuk & Yuan 2009
``direct``     1 (n-1 messages)      (n-1)/n             Thakur et al. 2005
``halving``    ⌈log2 n⌉              (n-1)/n             Rabenseifner 2004
=============  ====================  ==================  ==============================

Halving (and its mirror, doubling) takes any n: where n is not a power of two, n - 2^k members hand
their data to a neighbour first and get the result from it at the end: two more steps.

The runtime sends contiguous memory. Scattered chunks are **packed**: copied into fresh scratch in
the order of their numbers, sent, and copied or added to their destination slots, as Bruck's and
NCCL's algorithms do. A thread block that sends and receives takes large messages piece by piece, so
that it cannot wait for itself; so messages of several chunks need blocks that do one of both.
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


Hints = Callable[[int, int, int], MoveHints]
"""The hints of a message: of its source, its destination, and the number of its chunks."""


def apart(src: int, dst: int, chunks: int = 1) -> MoveHints:
    """Blocks for sends have even numbers, those for receives odd ones, one for each peer."""
    return {"send_block": 2 * dst, "recv_block": 2 * src + 1}


def apart_if_several(src: int, dst: int, chunks: int) -> MoveHints:
    """As :func:`apart`; a message of one chunk leaves it to the compiler."""
    return apart(src, dst) if chunks > 1 else {}


def in_lane(lane: int, ranks: int) -> Hints:
    """Thread blocks and a channel of their own for one of the parallel lanes of an algorithm."""
    first = 2 * ranks * lane

    def hints(src: int, dst: int, chunks: int) -> MoveHints:
        return {
            "send_block": first + 2 * dst,
            "recv_block": first + 2 * src + 1,
            "channel": lane,
        }

    return hints


@dataclass(frozen=True, slots=True)
class Writer:
    """Records the messages of the phases of one algorithm."""

    p: Builder  # the builder that records the moves
    hints: Hints = apart_if_several  # channel and thread blocks of each message
    # Position of each chunk in the scratch of every rank, if chunks are moved from scratch to
    # scratch instead of by number: chunks of one message are then contiguous
    place: Mapping[int, int] | None = None

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
        """Copy chunks, by number, to another rank; as one message if they lie side by side."""
        if chunks:
            hints = self.hints(src, dst, len(chunks))
            self.reference_to(src, chunks).copy_to(dst, *self._there(chunks), **hints)

    def add(self, src: int, chunks: Sequence[int], dst: int) -> None:
        """Add chunks, by number, to those of another rank; as one message likewise."""
        if chunks:
            hints = self.hints(src, dst, len(chunks))
            self.reference_to(src, chunks).reduce_into(dst, *self._there(chunks), **hints)

    def add_all(self, messages: Sequence[tuple[int, int, Sequence[int]]]) -> None:
        """Add the chunks of messages (source, destination, chunks), one after another."""
        for src, dst, chunks in messages:
            self.add(src, chunks, dst)

    def _there(self, chunks: Sequence[int]) -> tuple[str | None, int | None]:
        return (None, None) if self.place is None else ("scratch", self.place[chunks[0]])


@dataclass(frozen=True, slots=True)
class PackingWriter(Writer):
    """Packs chunks not side by side; sums land in scratch before any of them is added."""

    def send(self, src: int, chunks: Sequence[int], dst: int) -> None:
        """Copy chunks that belong side by side over there if they have consecutive numbers."""
        chunks = sorted(chunks)
        if consecutive(chunks) and reference_to(self.p, src, chunks).contiguous:
            post(reference_to(self.p, src, chunks), dst)
        elif chunks:
            send_to_scratch(self.p, src, chunks, dst).copy_to()

    def add_all(self, messages: Sequence[tuple[int, int, Sequence[int]]]) -> None:
        """Add the chunks of messages that all read the state before any of them is added."""
        full = [(src, chunks, dst) for src, dst, chunks in messages if chunks]
        for parcel in [send_to_scratch(self.p, *message) for message in full]:
            parcel.reduce_into()


def consecutive(chunks: Sequence[int]) -> bool:
    """Return True if each chunk number is one more than the number before it."""
    return all(b == a + 1 for a, b in pairwise(chunks))


def reference_to(p: Builder, rank: int, chunks: Sequence[int]) -> Chunk:
    """A reference to chunks, by number, of one rank."""
    if consecutive(chunks):
        return p.chunk(rank, chunks[0], count=len(chunks))
    first, *others = (p.chunk(rank, k) for k in chunks)
    return first.group(*others)


def post(parcel: Chunk, dst: int, buffer: str | None = None, index: int | None = None) -> Chunk:
    """Send a reference to another rank, in thread blocks of their own."""
    return parcel.copy_to(dst, buffer, index, **apart(parcel.rank, dst))


def send_to_scratch(p: Builder, src: int, chunks: Sequence[int], dst: int) -> Chunk:
    """Send chunks as one message into fresh scratch over there; the reference to them."""
    return post(make_contiguous(reference_to(p, src, sorted(chunks))), dst, "scratch")


def make_contiguous(parcel: Chunk) -> Chunk:
    """The same chunks side by side."""
    return parcel if parcel.contiguous else parcel.copy_to(buffer="scratch")


def settle(p: Builder) -> None:
    """Copy data that every rank has and must end with to its place in the output.

    Chunks that lie side by side there then travel as one message. In place: nothing to do.
    """
    before, after = p.collective.pre, p.collective.post
    ends = set(zip(after.ranks.tolist(), after.chunks.tolist(), strict=True))
    for rank, chunk in zip(before.ranks.tolist(), before.chunks.tolist(), strict=True):
        if (rank, chunk) in ends:
            p.chunk(rank, chunk).copy_to()


def runs(p: Builder, count: int) -> list[range]:
    """All chunks of the collective in ``count`` equal runs."""
    size = p.chunks // count
    return [range(i * size, (i + 1) * size) for i in range(count)]


def blocks_in_order(p: Builder, order: Order) -> list[range]:
    """The block of each member: that of its rank (allgather, reduce_scatter, gather, scatter)."""
    blocks = runs(p, p.ranks)
    return [blocks[rank] for rank in order]


def pieces(chunks: Sequence[int], count: int) -> list[Sequence[int]]:
    """Chunks in ``count`` equal pieces."""
    size = len(chunks) // count
    return [chunks[i * size : (i + 1) * size] for i in range(count)]


def chunks_of(blocks: Blocks, members: Sequence[int]) -> list[int]:
    """The chunks of some members, in that order."""
    return [k for i in members for k in blocks[i]]


# --- reduce_scatter and allgather -----------------------------------------------------------------

Phase = Callable[[Writer, Order, Blocks], None]


def ring_reduce_scatter(w: Writer, order: Order, blocks: Blocks) -> None:
    """Each block goes once round the ring, from its owner's successor to its owner."""
    n = len(order)
    for step in range(n - 1):
        for i in range(n):
            w.add(order[i], blocks[(i - 1 - step) % n], order[(i + 1) % n])


def ring_allgather(w: Writer, order: Order, blocks: Blocks) -> None:
    """Each block goes once round the ring, from its owner on."""
    n = len(order)
    for step in range(n - 1):
        for i in range(n):
            w.send(order[i], blocks[(i - step) % n], order[(i + 1) % n])


def direct_reduce_scatter(w: Writer, order: Order, blocks: Blocks) -> None:
    """Every member sends each block directly to its owner, beginning with the next member."""
    n = len(order)
    for shift in range(1, n):
        for i in range(n):
            j = (i + shift) % n
            w.add(order[i], blocks[j], order[j])


def direct_allgather(w: Writer, order: Order, blocks: Blocks) -> None:
    """Every member sends its block directly to all others."""
    n = len(order)
    for shift in range(1, n):
        for i in range(n):
            w.send(order[i], blocks[i], order[(i + shift) % n])


def halving_reduce_scatter(w: Writer, order: Order, blocks: Blocks) -> None:
    """Halve the data with a partner at half the distance, until the own block is left."""
    groups = couples(len(order))
    fold(w, order, chunks_of(blocks, range(len(order))))
    _halve(w, order, blocks)
    for head, *guests in groups:
        for guest in guests:
            w.send(order[head], blocks[guest], order[guest])


def doubling_allgather(w: Writer, order: Order, blocks: Blocks) -> None:
    """Reverse of halving: exchange all held data with a partner, at doubling distance."""
    for head, *guests in couples(len(order)):
        for guest in guests:
            w.send(order[guest], blocks[guest], order[head])
    _double(w, order, blocks)
    unfold(w, order, chunks_of(blocks, range(len(order))))


def halving_allreduce(w: Writer, order: Order, blocks: Blocks) -> None:
    """Halving, then doubling; folded members receive the result at the end (Rabenseifner)."""
    everything = chunks_of(blocks, range(len(order)))
    fold(w, order, everything)
    _halve(w, order, blocks)
    _double(w, order, blocks)
    unfold(w, order, everything)


def fold(w: Writer, order: Order, chunks: Sequence[int]) -> list[int]:
    """Add the second of each couple (:func:`couples`) to the first; return those left."""
    groups = [[order[i] for i in group] for group in couples(len(order))]
    lying = w.sorted(chunks)
    w.add_all([(guest, head, lying) for head, *guests in groups for guest in guests])
    return [head for head, *_ in groups]


def unfold(w: Writer, order: Order, chunks: Sequence[int]) -> None:
    """Send the result to the ranks that were folded."""
    lying = w.sorted(chunks)
    for head, *guests in couples(len(order)):
        for guest in guests:
            w.send(order[head], lying, order[guest])


def _halve(w: Writer, order: Order, blocks: Blocks) -> None:
    groups = couples(len(order))
    distance = len(groups) // 2
    while distance:
        messages = []
        for i, (head, *_) in enumerate(groups):
            # The partner's half: those that agree with it in this bit and all higher ones.
            partner = i ^ distance
            theirs = chunks_of(blocks, _run(groups, partner, distance))
            messages.append((order[head], order[groups[partner][0]], w.sorted(theirs)))
        w.add_all(messages)
        distance //= 2


def _double(w: Writer, order: Order, blocks: Blocks) -> None:
    groups = couples(len(order))
    distance = 1
    while distance < len(groups):
        for i, (head, *_) in enumerate(groups):
            ours = chunks_of(blocks, _run(groups, i, distance))
            w.send(order[head], w.sorted(ours), order[groups[i ^ distance][0]])
        distance *= 2


def _run(groups: Sequence[tuple[int, ...]], group: int, length: int) -> list[int]:
    """The members of the run of ``length`` groups, from a multiple of it on, that one lies in."""
    first = group // length * length
    return [i for members in groups[first : first + length] for i in members]


def couples(n: int) -> list[tuple[int, ...]]:
    """Positions 0 … n-1 in 2^⌊log2 n⌋ groups: the first ones by twos, the others alone."""
    core = 1 << (n.bit_length() - 1)
    extra = n - core
    return [(2 * i, 2 * i + 1) if i < extra else (i + extra,) for i in range(core)]


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

    def both(w: Writer, order: Order, blocks: Blocks) -> None:
        REDUCE_SCATTER[name](w, order, blocks)
        ALLGATHER[name](w, order, blocks)

    return both


def half_cost(name: str, n: int) -> tuple[int, Fraction]:
    """Steps of one reduce_scatter or allgather among n members, and the share of the group's data
    that its busiest member sends (or gets) in them."""
    if n == 1:
        return 0, Fraction(0)
    if name == "halving":
        steps, blocks = halving_cost(n)
        folds = n & (n - 1) > 0  # hand over everything, and get a block
        return steps + 2 * folds, Fraction(blocks + (n + 1) * folds, n)
    return n - 1 if name == "ring" else 1, Fraction(n - 1, n)


def both_cost(name: str, n: int) -> tuple[int, Fraction]:
    """As :func:`half_cost`, of the allreduce."""
    if name == "halving":
        steps, blocks = halving_cost(n)
        folds = n & (n - 1) > 0  # hand over everything, and get everything
        return 2 * (steps + folds), Fraction(2 * (blocks + n * folds), n)
    steps, volume = half_cost(name, n)
    return 2 * steps, 2 * volume


def halving_cost(n: int) -> tuple[int, int]:
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


def broadcast(w: Writer, order: Order, pieces: Blocks, shape: str = "chain") -> None:
    """From the first member to all others over a tree; pieces follow each other down it."""
    for piece in pieces:
        for parent, child in tree_edges(shape, len(order)):
            w.send(order[parent], piece, order[child])


def reduce(w: Writer, order: Order, pieces: Blocks, shape: str = "chain") -> None:
    """The mirror: the sum of the group to its first member."""
    for piece in pieces:
        for parent, child in reversed(tree_edges(shape, len(order))):
            w.add(order[child], piece, order[parent])


TREES = ("chain", "binomial", "star")
