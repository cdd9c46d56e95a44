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

from weft.dsl.author.builder import Builder
from weft.dsl.base.errors import UserError
from weft.dsl.base.lazy_dataclass import dataclass

from .parcels import exchange_sums, runs
from .phases import ALLGATHER, REDUCE_SCATTER, LaneBuilder, Phase, allreduce_by, reference_to


@dataclass(frozen=True, slots=True)
class RankGrid:
    """Ranks at coordinates; axis 0 is the innermost level and runs fastest.

    ``ranks[c_0 + p_0·(c_1 + p_1·(…))]`` stands at (c_0, c_1, …); along an axis, ranks of
    consecutive coordinates are neighbours. ``names`` says what the axes are (``local``, ``boxes``).

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


@dataclass(frozen=True, slots=True)
class GridShare:
    """One share of the data: the order of the axes, whose blocks are whose, and which way round.

    ``owned[rank]`` are the chunks that the rank has to itself between the two halves.
    """

    axes: tuple[int, ...]
    owned: Mapping[int, Sequence[int]]
    backwards: bool = False


def reduce_scatter(w: LaneBuilder, grid: RankGrid, plan: GridShare, methods: Sequence[str]) -> None:
    """Along each axis in turn; every rank ends with the sum of its own chunks."""
    for done in range(len(plan.axes)):
        _along(w, grid, plan, done, REDUCE_SCATTER[methods[plan.axes[done]]])


def allgather(w: LaneBuilder, grid: RankGrid, plan: GridShare, methods: Sequence[str]) -> None:
    """Allgather along each axis, the last first; every rank ends with all chunks."""
    for done in reversed(range(len(plan.axes))):
        _along(w, grid, plan, done, ALLGATHER[methods[plan.axes[done]]])


def allreduce(w: LaneBuilder, grid: RankGrid, plan: GridShare, methods: Sequence[str]) -> None:
    """Reduce_scatter along all axes but the last, allreduce along that, allgather back."""
    *inner, last = range(len(plan.axes))
    for done in inner:
        _along(w, grid, plan, done, REDUCE_SCATTER[methods[plan.axes[done]]])
    _along(w, grid, plan, last, allreduce_by(methods[plan.axes[last]]))
    for done in reversed(inner):
        _along(w, grid, plan, done, ALLGATHER[methods[plan.axes[done]]])


def _along(w: LaneBuilder, grid: RankGrid, plan: GridShare, done: int, phase: Phase) -> None:
    """One phase on all lines of an axis; ``done`` axes of the plan were reduced before it."""
    axis = plan.axes[done]
    if grid.shape[axis] == 1:
        return
    place = grid.coordinates()
    fixed = plan.axes[: done + 1]
    shared: dict[tuple[int, ...], list[int]] = {}
    for rank, at in place.items():
        shared.setdefault(tuple(at[a] for a in fixed), []).extend(plan.owned[rank])
    for line in grid.lines(axis):
        order = line[::-1] if plan.backwards else line
        blocks = [w.sorted(shared[tuple(place[rank][a] for a in fixed)]) for rank in order]
        phase(w, order, blocks)


# --- the algorithms -------------------------------------------------------------------------------


def write_reduce_scatter(
    p: Builder, grid: RankGrid, methods: Sequence[str] = (), parts: int = 1
) -> None:
    """Reduce_scatter, the innermost level first: the outer ones carry sums of whole hosts.

    A level's block is the blocks of many ranks, so the input is first laid out level by level.
    """
    names = _methods(grid, methods)
    plans = block_shares(p, grid, parts)
    place = laid_out(grid, plans)
    if place is not None:
        for rank in grid.ranks:
            for chunk in range(p.chunks):
                p.chunk(rank, chunk).copy_to(buffer="scratch", index=place[chunk])
    for lane, plan in enumerate(plans):
        reduce_scatter(LaneBuilder(p, place, lane), grid, plan, names)
        if place is not None:
            for rank, own in plan.owned.items():
                LaneBuilder(p, place).reference_to(rank, own).copy_to()


def write_allgather(
    p: Builder, grid: RankGrid, methods: Sequence[str] = (), parts: int = 1
) -> None:
    """Allgather, the outermost level first: only own data crosses it, once.

    A level's block is the blocks of many ranks, so all is collected level by level, and put in
    order at the end.
    """
    names = _methods(grid, methods)
    plans = block_shares(p, grid, parts)
    place = laid_out(grid, plans)
    for lane, plan in enumerate(plans):
        if place is not None:
            for rank, own in plan.owned.items():
                reference_to(p, rank, own).copy_to(buffer="scratch", index=place[own[0]])
        allgather(LaneBuilder(p, place, lane), grid, plan, names)
    if place is not None:
        for rank in grid.ranks:
            for chunk in range(p.chunks):
                p.chunk(rank, place[chunk], buffer="scratch").copy_to()


def laid_out(grid: RankGrid, plans: Sequence[GridShare]) -> dict[int, int] | None:
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
    p: Builder, grid: RankGrid, methods: Sequence[str] = (), parts: int = 1
) -> None:
    """Reduce_scatter and allgather along the axes (BlueConnect; Mikami's torus).

    The buffer is cut in ``parts`` shares: share j begins with axis j, and from the d-th on rings
    turn the other way, so that with 2d shares every cable of a d-dimensional torus carries the
    same. The chunks are divided by ranks times parts.

    Raises:
        UserError: they cannot be.
    """
    names = _methods(grid, methods)
    plans = shares(p.chunks, grid, parts)
    for lane, plan in enumerate(plans):
        allreduce(LaneBuilder(p, lane=lane), grid, plan, names)


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
            exchange_sums(p, [(line[i], line[j], chunks) for line in lines for i, j in turns])


def block_shares(p: Builder, grid: RankGrid, parts: int) -> list[GridShare]:
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
    size = block // parts
    return [
        GridShare(
            _axes_of_part(grid, part),
            {r: range(r * block + part * size, r * block + (part + 1) * size) for r in grid.ranks},
            _backwards(grid, part),
        )
        for part in range(parts)
    ]


def _axes_of_part(grid: RankGrid, part: int) -> tuple[int, ...]:
    """The axes, beginning with another one for each part."""
    return tuple((axis + part) % len(grid.shape) for axis in grid.axes)


def _backwards(grid: RankGrid, part: int) -> bool:
    """Every second time round the axes."""
    return part // len(grid.shape) % 2 == 1


def shares(chunks: int, grid: RankGrid, parts: int = 1) -> list[GridShare]:
    """The plans of an allreduce of so many chunks.

    Blocks are numbered so that what an axis splits lies side by side, the first axis coarsest.
    """
    n = len(grid.ranks)
    if parts < 1 or chunks % (n * parts):
        raise UserError(
            f"{chunks} chunks cannot be shared by {n} ranks in {parts} part{'s' * (parts > 1)}",
            hint=f"a multiple of {n * max(1, parts)}",
        )
    size = chunks // (n * parts)
    place = grid.coordinates()
    plans = []
    for part in range(parts):
        axes = _axes_of_part(grid, part)
        owned = {}
        for rank, at in place.items():
            block = 0
            for axis in axes:
                block = block * grid.shape[axis] + at[axis]
            first = (part * n + block) * size
            owned[rank] = range(first, first + size)
        plans.append(GridShare(axes, owned, _backwards(grid, part)))
    return plans


def _methods(grid: RankGrid, methods: Sequence[str]) -> tuple[str, ...]:
    """One per axis; the last one given holds for all further axes; rings where none is.

    Raises:
        UserError: an unknown one.
    """
    given = tuple(methods) or ("ring",)
    for name in given:
        if name not in REDUCE_SCATTER:
            raise UserError(
                f"unknown algorithm {name!r} for a level", hint=", ".join(REDUCE_SCATTER)
            )
    return tuple(given[min(axis, len(given) - 1)] for axis in grid.axes)
