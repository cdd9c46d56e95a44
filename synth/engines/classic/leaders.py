"""Algorithms with one leader per group: only leaders exchange data between groups.

* **two-level allreduce** (Jia et al. 2018): reduce to the leader of each group, a ring among the
  leaders, broadcast in each group;
* **multi-level broadcast and reduce**: a tree over the leaders of the outermost level, then over
  those of the next one, down to the GPUs of a host.

Groups may be of any sizes. With groups of g, m leaders and a star in each group, an allreduce of
the message M takes

    2 (α_in + (g-1) M/B_in) + 2(m-1) (α_out + M/m/B_out)

against 2(n-1) steps of the flat ring; a link between groups carries what a ring of m ranks would.
The paper reduces and broadcasts over chains of g pieces, 4(g-1) + 2(m-1) steps in all: that is
``shapes=("chain",)``.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.dsl.author.builder import Builder
from weft.dsl.base.errors import UserError
from weft.dsl.base.lazy_dataclass import dataclass

from .phases import (
    TREES,
    LaneBuilder,
    broadcast,
    reduce,
    ring_allgather,
    ring_reduce_scatter,
)

Partition = tuple[tuple[int, ...], ...]
"""Groups of ranks; the first of each is its leader."""


@dataclass(frozen=True, slots=True)
class NestedPartitions:
    """Nested partitions of the ranks, the innermost first; the whole is not listed.

    Raises:
        UserError: a partition that leaves a rank out, or cuts a group of the level below.
    """

    ranks: int
    partitions: tuple[Partition, ...]

    def __post_init__(self) -> None:
        below = {rank: rank for rank in range(self.ranks)}
        for partition in self.partitions:
            if sorted(r for group in partition for r in group) != list(range(self.ranks)):
                raise UserError(
                    "the groups of a level must hold every rank once",
                    hint=f"the ranks are 0 … {self.ranks - 1}",
                )
            now = {rank: number for number, group in enumerate(partition) for rank in group}
            if len({(below[r], now[r]) for r in now}) > len(set(below.values())):
                raise UserError("a level cuts a group of the level below it in two")
            below = now

    def talking(self, root: int = 0) -> list[list[tuple[int, ...]]]:
        """For each level, innermost first, who talks to whom: groups of leaders of what is below.

        The first of each group leads it; ``root`` leads everything that it is in.
        """
        leader = {rank: rank for rank in range(self.ranks)}  # of the group that each rank is in
        found = []
        for partition in (*self.partitions, (tuple(range(self.ranks)),)):
            groups = []
            for group in partition:
                heads = list(dict.fromkeys(leader[rank] for rank in group))
                if root in heads:
                    start = heads.index(root)
                    heads = heads[start:] + heads[:start]
                groups.append(tuple(heads))
                leader |= dict.fromkeys(group, heads[0])
            found.append(groups)
        return found


def write_broadcast(p: Builder, levels: NestedPartitions, shapes: Sequence[str] = ()) -> None:
    """From the root over the leaders of each level, the outermost first; chunk after chunk."""
    talking = levels.talking(p.collective.roots[0])
    names = _shapes(talking, shapes)
    for groups, shape in zip(reversed(talking), reversed(names), strict=True):
        for group in groups:
            broadcast(p, group, [[k] for k in range(p.chunks)], shape)


def write_reduce(p: Builder, levels: NestedPartitions, shapes: Sequence[str] = ()) -> None:
    """The mirror: sums to the leaders of each level, the innermost first, at last to the root."""
    talking = levels.talking(p.collective.roots[0])
    for groups, shape in zip(talking, _shapes(talking, shapes), strict=True):
        for group in groups:
            reduce(p, group, [[k] for k in range(p.chunks)], shape)


def write_allreduce(
    p: Builder, levels: NestedPartitions, shapes: Sequence[str] = ("star",)
) -> None:
    """Reduce to the leaders, a ring among those of the outermost level, broadcast (Jia et al.).

    m leaders need m chunks; k times as many are k pieces that follow each other.

    Raises:
        UserError: the chunks cannot be shared by the leaders.
    """
    *inner, (ring,) = levels.talking()
    names = _shapes([*inner, ring], shapes)
    if p.chunks % len(ring):
        raise UserError(
            f"{p.chunks} chunks cannot be shared by {len(ring)} leaders",
            hint=f"a multiple of {len(ring)}",
        )
    w = LaneBuilder(p)
    for first in range(0, p.chunks, len(ring)):
        piece = range(first, first + len(ring))
        blocks = [[k] for k in piece]
        for groups, shape in zip(inner, names[:-1], strict=True):
            for group in groups:
                reduce(w, group, [piece], shape)
        ring_reduce_scatter(w, ring, blocks)
        ring_allgather(w, ring, blocks)
        for groups, shape in zip(reversed(inner), reversed(names[:-1]), strict=True):
            for group in groups:
                broadcast(w, group, [piece], shape)


def _shapes(talking: Sequence[object], shapes: Sequence[str]) -> tuple[str, ...]:
    """One tree per level, innermost first; the last one given holds for all further levels."""
    given = tuple(shapes) or ("chain",)
    for name in given:
        if name not in TREES:
            raise UserError(f"unknown tree {name!r}", hint=", ".join(TREES))
    return tuple(given[min(level, len(given) - 1)] for level in range(len(talking)))
