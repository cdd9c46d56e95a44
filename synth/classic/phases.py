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

Halving (and its mirror, doubling) takes any n: where n is no power of two, the last n - 2^k
members hand their data to a partner first and get their block at the end: two more steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import pairwise

from weft.dsl.builder import Builder

Order = Sequence[int]
Blocks = Sequence[Sequence[int]]
Phase = Callable[[Builder, Order, Blocks], None]


def send(p: Builder, src: int, chunks: Sequence[int], dst: int) -> None:
    """Copy chunks, by number, from one rank to another."""
    for k in chunks:
        p.chunk(src, k).copy_to(rank=dst)


def add(p: Builder, src: int, chunks: Sequence[int], dst: int) -> None:
    """Add chunks, by number, of one rank to those of another."""
    for k in chunks:
        p.chunk(src, k).reduce_into(rank=dst)


# --- reduce_scatter and allgather -----------------------------------------------------------------


def ring_reduce_scatter(p: Builder, order: Order, blocks: Blocks) -> None:
    """Each block goes once round the ring, from its owner's successor to its owner."""
    n = len(order)
    for step in range(n - 1):
        for i in range(n):
            add(p, order[i], blocks[(i - 1 - step) % n], order[(i + 1) % n])


def ring_allgather(p: Builder, order: Order, blocks: Blocks) -> None:
    """Each block goes once round the ring, from its owner on."""
    n = len(order)
    for step in range(n - 1):
        for i in range(n):
            send(p, order[i], blocks[(i - step) % n], order[(i + 1) % n])


def direct_reduce_scatter(p: Builder, order: Order, blocks: Blocks) -> None:
    """Everybody sends each block straight to its owner, beginning with the next member."""
    n = len(order)
    for shift in range(1, n):
        for i in range(n):
            j = (i + shift) % n
            add(p, order[i], blocks[j], order[j])


def direct_allgather(p: Builder, order: Order, blocks: Blocks) -> None:
    """Everybody sends its block straight to everybody."""
    n = len(order)
    for shift in range(1, n):
        for i in range(n):
            send(p, order[i], blocks[i], order[(i + shift) % n])


def halving_reduce_scatter(p: Builder, order: Order, blocks: Blocks) -> None:
    """Halve the data with a partner at half the distance, until one's own block is left."""
    core, extra = _core(order)
    everything = [k for block in blocks for k in block]
    for i, rank in enumerate(extra):
        add(p, rank, everything, order[i])
    own = _folded(blocks, core)
    distance = core // 2
    while distance:
        for i in range(core):
            # The partner's half: those who agree with it in this bit and all higher ones.
            partner = i ^ distance
            for j in range(core):
                if j // distance == partner // distance:
                    add(p, order[i], own[j], order[partner])
        distance //= 2
    for i, rank in enumerate(extra):
        send(p, order[i], blocks[core + i], rank)


def doubling_allgather(p: Builder, order: Order, blocks: Blocks) -> None:
    """The mirror: exchange all one has with a partner, at twice the distance each time."""
    core, extra = _core(order)
    for i, rank in enumerate(extra):
        send(p, rank, blocks[core + i], order[i])
    own = _folded(blocks, core)
    distance = 1
    while distance < core:
        for i in range(core):
            for j in range(core):
                if j // distance == i // distance:
                    send(p, order[i], own[j], order[i ^ distance])
        distance *= 2
    for i, rank in enumerate(extra):
        others = [k for j, block in enumerate(blocks) if j != core + i for k in block]
        send(p, order[i], others, rank)


def _core(order: Order) -> tuple[int, Order]:
    """The largest power of two of members, and those beyond."""
    core = 1 << (len(order).bit_length() - 1)
    return core, order[core:]


def _folded(blocks: Blocks, core: int) -> list[list[int]]:
    """Each member of the core with its own block and that of the one that joined it."""
    return [[k for block in blocks[i::core] for k in block] for i in range(core)]


REDUCE_SCATTER: dict[str, Phase] = {
    "ring": ring_reduce_scatter, "direct": direct_reduce_scatter, "halving": halving_reduce_scatter,
}  # fmt: skip
ALLGATHER: dict[str, Phase] = {
    "ring": ring_allgather, "direct": direct_allgather, "halving": doubling_allgather,
}  # fmt: skip
"""Both by the name of the per-level algorithm."""


def phase_cost(name: str, n: int) -> tuple[int, Fraction]:
    """Steps of one reduce_scatter or allgather among n members, and the share of the group's data
    that its busiest member sends (or gets) in them."""
    if n == 1:
        return 0, Fraction(0)
    if name == "halving":
        return _halving_cost(n)
    return n - 1 if name == "ring" else 1, Fraction(n - 1, n)


def _halving_cost(n: int) -> tuple[int, Fraction]:
    """Each exchange is over when its larger half has gone: of uneven n, some blocks are double."""
    core = 1 << (n.bit_length() - 1)
    sizes = [2 if i < n - core else 1 for i in range(core)]
    steps, blocks = (2, n + 1) if n > core else (0, 0)  # what the members beyond hand over and get
    distance = core // 2
    while distance:
        blocks += max(sum(sizes[i : i + distance]) for i in range(0, core, distance))
        steps, distance = steps + 1, distance // 2
    return steps, Fraction(blocks, n)


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


def broadcast(p: Builder, order: Order, chunks: Sequence[int], shape: str = "chain") -> None:
    """From the first member to all others over a tree; chunks follow each other down it."""
    for k in chunks:
        for parent, child in tree_edges(shape, len(order)):
            send(p, order[parent], [k], order[child])


def reduce(p: Builder, order: Order, chunks: Sequence[int], shape: str = "chain") -> None:
    """The mirror: the sum of the group to its first member."""
    for k in chunks:
        for parent, child in reversed(tree_edges(shape, len(order))):
            add(p, order[child], [k], order[parent])


TREES = ("chain", "binomial", "star")
