"""Two trees at once, each with half of the data: inner ranks of one are leaves of the other.

==========  ============  =================
algorithm   steps         share of M
==========  ============  =================
allreduce   2h + c - 1    (2h + c - 1) / 2c
broadcast   h + c - 1     (h + c - 1) / 2c
reduce      h + c - 1     (h + c - 1) / 2c
==========  ============  =================

h = the height of a tree, ⌈log2 n⌉ or one more; c chunks in a pipeline down each. That is the time
where every edge of the trees is a cable of its own. A port carries no more than 2 M each way in an
allreduce, M in a broadcast: one binary tree would keep the leaves' ports idle half of the time, and
carry the message twice through those of the inner ranks.

P. Sanders, J. Speck, J. L. Träff: Two-tree algorithms for full bandwidth broadcast, reduction and
scan, Parallel Computing 35 (2009); NCCL 2.4's double binary trees, whose numbering the first tree
has. The second one gives its leaves other parents than NCCL's image of the first, so that no cable
is in both. A rank forwards to two others: in thread blocks of their own, neither waits for the
other.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from weft.dsl.author.builder import Builder
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.collective import Kind

from .model import HockneyCost
from .phases import Order, Writer, apart, runs


@dataclass(frozen=True, slots=True)
class ParentTree:
    """``parent[i]`` of every position, -1 for the root; ``down``: parents before children."""

    parent: tuple[int, ...]

    @property
    def down(self) -> list[int]:
        """The positions, each after its parent, level by level."""
        return sorted(range(len(self.parent)), key=self.depth)

    def depth(self, position: int) -> int:
        """Hops to the root."""
        hops = 0
        while (position := self.parent[position]) >= 0:
            hops += 1
        return hops

    def edges(self) -> set[frozenset[int]]:
        """Which positions are joined."""
        return {frozenset((i, up)) for i, up in enumerate(self.parent) if up >= 0}

    @property
    def height(self) -> int:
        """The longest way."""
        return max(map(self.depth, range(len(self.parent))))


def in_order(n: int) -> ParentTree:
    """NCCL's binary tree: position 0 on top, the odd ones leaves."""

    def parent(i: int) -> int:
        if i == 0:
            return -1
        bit = i & -i
        up = (i ^ bit) | (bit << 1)
        return up if up < n else i ^ bit

    return ParentTree(tuple(map(parent, range(n))))


def pair(n: int) -> tuple[ParentTree, ParentTree]:
    """A tree, and another one of its shape whose inner positions are leaves of the first.

    Of an odd number of positions, 0 is the root of the first and inner in the second. The leaves of
    the second are rotated until the trees share no edge; below five positions they have.
    """
    first = in_order(n)
    inner, leaves = [*range(1, n, 2), *([0] if n % 2 else [])], [*range(0, n, 2)][n % 2 :]
    for turn in range(max(1, len(leaves))):
        turned = leaves[turn:] + leaves[:turn]
        image = [(turned if i % 2 else inner)[i // 2] for i in range(n)]
        parent = [-1] * n
        for i, up in enumerate(first.parent):
            parent[image[i]] = image[up] if up >= 0 else -1
        second = ParentTree(tuple(parent))
        if not first.edges() & second.edges():
            break
    return first, second


def _trees_below_root(n: int) -> list[ParentTree]:
    """Both trees of positions 1 … n-1, hung below position 0."""
    if n == 1:
        return [ParentTree((-1,))] * 2
    return [
        ParentTree((-1, *(0 if up < 0 else up + 1 for up in tree.parent))) for tree in pair(n - 1)
    ]


def _write(p: Builder, order: Order, trees: Sequence[ParentTree], kind: Kind) -> None:
    """Chunk after chunk, by turns on both trees: up one and down it, or one of both."""
    for chunks in zip(*runs(p, 2), strict=True):
        for tree, chunk in zip(trees, chunks, strict=True):
            edges = [(order[tree.parent[i]], order[i]) for i in tree.down if tree.parent[i] >= 0]
            for parent, child in reversed(edges) if kind != Kind.BROADCAST else ():
                Writer(p).add(child, [chunk], parent)
            for parent, child in edges if kind != Kind.REDUCE else ():
                Writer(p, apart).send(parent, [chunk], child)


def allreduce(p: Builder, order: Order) -> None:
    """Up and down, chunk after chunk."""
    _write(p, order, pair(len(order)), Kind.ALLREDUCE)


def broadcast(p: Builder, order: Order) -> None:
    """Down both trees."""
    _write(p, order, _trees_below_root(len(order)), Kind.BROADCAST)


def reduce(p: Builder, order: Order) -> None:
    """Up both trees."""
    _write(p, order, _trees_below_root(len(order)), Kind.REDUCE)


def allreduce_cost(n: int, chunks: int = 1) -> HockneyCost:
    """Up, then down, while the other chunks follow."""
    h = max(t.height for t in pair(n))
    return HockneyCost(
        2 * h + chunks - 1, Fraction(2 * h + chunks - 1, 2 * chunks), chained=chunks == 1
    )


def rooted_cost(n: int, chunks: int = 1) -> HockneyCost:
    """Down, or up, while the other chunks follow."""
    h = max(t.height for t in _trees_below_root(n))
    return HockneyCost(h + chunks - 1, Fraction(h + chunks - 1, 2 * chunks), chained=chunks == 1)


def disjoint(n: int) -> str:
    """Defined where the two trees share no cable."""
    first, second = pair(n)
    return "its two trees would share a cable" if first.edges() & second.edges() else ""


def disjoint_below_root(n: int) -> str:
    """The same for the trees of all but the root, in the one direction that is used."""
    first, second = _trees_below_root(n)
    arcs = [set(enumerate(tree.parent[1:], 1)) for tree in (first, second)]
    return "its two trees would share a cable" if arcs[0] & arcs[1] else ""
