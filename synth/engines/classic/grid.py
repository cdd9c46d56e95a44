"""Algorithms on a grid of ranks: a torus, hosts of GPUs, or any hierarchy n = p_0 · p_1 · ….

A reduce_scatter along one axis after the other, then allgathers in the opposite order: after the
first axis a rank is left with 1/p_0 of the data, so the slower axes carry less. One text is

* **BlueConnect** (Cho et al., MLSys 2019): any number of levels, any algorithm on each;
* the **2-D torus allreduce** (Mikami et al. 2018): rings along rows, then columns, then rows;
* **two-level** reduce_scatter, allreduce among equal local ranks, allgather: two axes;
* the **hybrid** of ACCL (Dong et al., IEEE Micro 2021): rings in the hosts, halving and doubling
  between them, every local rank over its own NIC.

With axis i of p_i ranks, latency α_i and bandwidth B_i, and M the message, an allreduce takes

    2 Σ_i [ s_i α_i + (p_i - 1)/p_i · M / (Π_{j<i} p_j) / B_i ]

where s_i is the number of steps of the level's algorithm (p_i - 1 for a ring).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import prod

import numpy as np

from weft.dsl.author.builder import Builder
from weft.dsl.base.arrays import Ints, distinct_values
from weft.dsl.base.errors import UserError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.collective import Kind

from .phases import (
    ALLGATHER,
    REDUCE_SCATTER,
    PackingWriter,
    Phase,
    Writer,
    allreduce_by,
    in_lane,
    reference_to,
    runs,
)


@dataclass(frozen=True, slots=True)
class RankGrid:
    """Ranks at coordinates; axis 0 is the innermost level and runs fastest.

    ``ranks[c_0 + p_0·(c_1 + p_1·(…))]`` stands at (c_0, c_1, …); along an axis, ranks of
    consecutive coordinates are neighbours. ``names`` are those of the axes (``local``, ``boxes``).

    Raises:
        UserError: the ranks do not fill the shape.
    """

    shape: tuple[int, ...]
    ranks: tuple[int, ...]
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if prod(self.shape) != len(self.ranks) or not self.shape or min(self.shape) < 1:
            sides = "x".join(map(str, self.shape))
            raise UserError(
                f"{len(self.ranks)} ranks do not fill a grid of {sides}",
                hint="the sizes of all levels must multiply to the number of ranks",
            )

    @property
    def axes(self) -> range:
        """The numbers of the axes."""
        return range(len(self.shape))

    def lines(self, axis: int) -> Iterator[tuple[int, ...]]:
        """The groups of ranks that differ in one coordinate only, in order of that coordinate."""
        stride = prod(self.shape[:axis])
        size = self.shape[axis]
        for start in range(len(self.ranks)):
            if start // stride % size == 0:
                yield tuple(self.ranks[start + k * stride] for k in range(size))

    def coordinates(self) -> dict[int, tuple[int, ...]]:
        """Return the coordinates of each rank, one number per axis."""
        places = product(*(range(size) for size in reversed(self.shape)))
        return {rank: place[::-1] for rank, place in zip(self.ranks, places, strict=True)}


def plain_grid(shape: Sequence[int]) -> RankGrid:
    """Ranks 0, 1, … in order, the first axis fastest."""
    return RankGrid(tuple(shape), tuple(range(prod(shape))), ())


def grid_at(place: Ints, names: tuple[str, ...] = ()) -> RankGrid | None:
    """The grid of coordinates, shape (axes, ranks); None if they do not fill one."""
    shape = tuple(int(x) + 1 for x in place.max(axis=1))
    number = place.T @ [prod(shape[:axis]) for axis in range(len(shape))]
    ranks = place.shape[1]
    if prod(shape) != ranks or len(distinct_values(number)) != ranks:
        return None
    return RankGrid(shape, tuple(np.argsort(number).tolist()), names)


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
        """Groups that communicate on each level, innermost first: leaders of the groups below.

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


# --- the algorithms -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GridShare:
    """One share of the data: the order of the axes, whose blocks are whose, and which way round.

    ``owned[rank]`` are the chunks that the rank has to itself between the two halves.
    """

    axes: tuple[int, ...]
    owned: Mapping[int, Sequence[int]]
    backwards: bool

    @staticmethod
    def of(grid: RankGrid, part: int, block_of: Mapping[int, int], size: int) -> GridShare:
        """The share of a part, which begins with an axis of its own, and every second time round
        the axes goes backwards; with a block of ``size`` chunks for each rank.
        """
        many = len(grid.shape)
        owned = {r: range(k * size, (k + 1) * size) for r, k in block_of.items()}
        axes = tuple((axis + part) % many for axis in grid.axes)
        return GridShare(axes, owned, part // many % 2 == 1)

    def phases(self, methods: Sequence[str], kind: Kind) -> list[tuple[int, Phase]]:
        """The phases of a collective, with the number of axes that were reduced before each:
        reduce_scatters along all axes, then allgathers, the last axis first; in an allreduce that
        of the last axis is one phase."""
        names = [methods[min(axis, len(methods) - 1)] for axis in self.axes]
        inward = [(done, REDUCE_SCATTER[name]) for done, name in enumerate(names)]
        outward = [(done, ALLGATHER[name]) for done, name in enumerate(names)][::-1]
        if kind == Kind.ALLREDUCE:
            return [*inward[:-1], (len(names) - 1, allreduce_by(names[-1])), *outward[1:]]
        return outward if kind == Kind.ALLGATHER else inward

    def write(self, w: Writer, grid: RankGrid, methods: Sequence[str], kind: Kind) -> None:
        """Write the share of a collective on all lines of the grid."""
        place = grid.coordinates()
        for done, phase in self.phases(methods, kind):
            axis, fixed = self.axes[done], self.axes[: done + 1]
            if grid.shape[axis] == 1:
                continue
            shared: dict[tuple[int, ...], list[int]] = {}
            for rank, at in place.items():
                shared.setdefault(tuple(at[a] for a in fixed), []).extend(self.owned[rank])
            for line in grid.lines(axis):
                order = line[::-1] if self.backwards else line
                blocks = [w.sorted(shared[tuple(place[rank][a] for a in fixed)]) for rank in order]
                phase(w, order, blocks)


def write_reduce_scatter(
    p: Builder, grid: RankGrid, methods: Sequence[str] = ("ring",), parts: int = 1
) -> None:
    """Reduce_scatter, the innermost level first: the outer ones carry sums of whole hosts.

    A level's block is the blocks of many ranks, so the input is first laid out level by level.
    """
    _check_methods(methods)
    plans = _block_shares(p, grid, parts)
    place = _laid_out(grid, plans)
    if place is not None:
        for rank in grid.ranks:
            for chunk in range(p.chunks):
                p.chunk(rank, chunk).copy_to(buffer="scratch", index=place[chunk])
    for lane, plan in enumerate(plans):
        w = Writer(p, in_lane(lane, p.ranks), place)
        plan.write(w, grid, methods, Kind.REDUCE_SCATTER)
        if place is not None:
            for rank, own in plan.owned.items():
                w.reference_to(rank, own).copy_to()


def write_allgather(
    p: Builder, grid: RankGrid, methods: Sequence[str] = ("ring",), parts: int = 1
) -> None:
    """Allgather, the outermost level first: only own data crosses it, once.

    A level's block is the blocks of many ranks, so all is collected level by level, and put in
    order at the end.
    """
    _check_methods(methods)
    plans = _block_shares(p, grid, parts)
    place = _laid_out(grid, plans)
    for lane, plan in enumerate(plans):
        if place is not None:
            for rank, own in plan.owned.items():
                reference_to(p, rank, own).copy_to(buffer="scratch", index=place[own[0]])
        w = Writer(p, in_lane(lane, p.ranks), place)
        plan.write(w, grid, methods, Kind.ALLGATHER)
    if place is not None:
        for rank in grid.ranks:
            for chunk in range(p.chunks):
                p.chunk(rank, place[chunk], buffer="scratch").copy_to()


def _laid_out(grid: RankGrid, plans: Sequence[GridShare]) -> dict[int, int] | None:
    """Return the position of each chunk such that the blocks of every level are contiguous.

    Each part is ordered by the coordinates along its axes, the first axis coarsest. None if the
    chunk numbers have this order already.
    """
    at = grid.coordinates()
    place: dict[int, int] = {}
    for plan in plans:
        for rank in sorted(grid.ranks, key=lambda r: tuple(at[r][axis] for axis in plan.axes)):
            for chunk in plan.owned[rank]:
                place[chunk] = len(place)
    return None if all(chunk == where for chunk, where in place.items()) else place


def write_allreduce(
    p: Builder, grid: RankGrid, methods: Sequence[str] = ("ring",), parts: int = 1
) -> None:
    """Reduce_scatter and allgather along the axes (BlueConnect; Mikami's torus).

    The buffer is cut in ``parts`` shares: share j begins with axis j, and from the d-th on rings
    turn the other way, so that with 2d shares every cable of a d-dimensional torus carries the
    same. Blocks are numbered so that what an axis splits lies side by side, the first axis
    coarsest. The chunks are divided by ranks times parts.

    Raises:
        UserError: they cannot be.
    """
    _check_methods(methods)
    n, place = len(grid.ranks), grid.coordinates()
    if parts < 1 or p.chunks % (n * parts):
        raise UserError(
            f"{p.chunks} chunks cannot be shared by {n} ranks in {parts} part{'s' * (parts > 1)}",
            hint=f"a multiple of {n * max(1, parts)}",
        )
    for part in range(parts):
        block_of = dict.fromkeys(grid.ranks, part)
        for turn in grid.axes:
            axis = (turn + part) % len(grid.shape)
            for rank, at in place.items():
                block_of[rank] = block_of[rank] * grid.shape[axis] + at[axis]
        share = GridShare.of(grid, part, block_of, p.chunks // (n * parts))
        share.write(Writer(p, in_lane(part, p.ranks)), grid, methods, Kind.ALLREDUCE)


def write_exchanges(p: Builder, grid: RankGrid) -> None:
    """Allreduce by exchanges of whole sums along one axis after the other (recursive multiplying).

    The buffer is cut in one part for each axis, and part j begins with axis j: so at any time the
    cables of every axis carry a part, and each of them the whole buffer in the end. On axes of two
    this is recursive doubling. J. Ruefenacht, M. Bull, S. Booth: Generalisation of recursive
    doubling for AllReduce, Parallel Computing 69 (2017).
    """
    axes = [axis for axis in grid.axes if grid.shape[axis] > 1]
    for part, chunks in enumerate(runs(p, len(axes))):
        for axis in axes[part:] + axes[:part]:
            lines = list(grid.lines(axis))
            size = grid.shape[axis]
            turns = [(i, (i + k) % size) for k in range(1, size) for i in range(size)]
            PackingWriter(p).add_all(
                [(line[i], line[j], chunks) for line in lines for i, j in turns]
            )


def _block_shares(p: Builder, grid: RankGrid, parts: int) -> list[GridShare]:
    """The plans of an allgather or reduce_scatter: piece j of every block goes by plan j.

    Raises:
        UserError: the blocks cannot be cut so.
    """
    block = p.chunks // p.ranks
    if parts < 1 or block % parts:
        raise UserError(
            f"{block} chunks per rank cannot be shared in {parts} parts",
            hint=f"a multiple of {max(1, parts)}",
        )
    return [
        GridShare.of(grid, part, {r: r * parts + part for r in grid.ranks}, block // parts)
        for part in range(parts)
    ]


def _check_methods(methods: Sequence[str]) -> None:
    for name in methods:
        if name not in REDUCE_SCATTER:
            raise UserError(
                f"unknown algorithm {name!r} for a level", hint=", ".join(REDUCE_SCATTER)
            )
