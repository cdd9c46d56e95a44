"""Placements of axes of parallelism on the levels of a machine, and the time of each.

A placement is a matrix of how much of each axis lies at each level (hosts, GPUs of a host): rows
multiply to the sizes of the axes, columns to those of the levels. There is one matrix for each
orbit of permutations of the hosts, and of the GPUs of a host (Xie et al., P², MLSys 2022). Its
time is the least in which the machine serves all collectives together (:mod:`.bound`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import permutations
from math import gcd, inf, prod

import numpy as np

from weft.dsl.base.arrays import Ints
from weft.dsl.base.errors import UserError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.tables import count
from weft.dsl.nouns.collective import ROOTED, Kind
from weft.dsl.nouns.topology import Topology
from weft.dsl.nouns.workload import DEMANDS, Workload, WorkloadOperation
from weft.dsl.symmetry.groups import divisors
from weft.dsl.symmetry.orbits import orbits_of
from weft.dsl.symmetry.symmetry import extend

from ..base.effort import Effort, setting
from .bound import joint_bound
from .demands import demands_of
from .pricing import RELAYS_HINT, Unreached

Matrix = tuple[tuple[int, ...], ...]
"""``matrix[axis][level]``."""

Axes = Sequence[tuple[str, int]]
"""Names and sizes, the first one fastest, as :class:`Workload` numbers its ranks."""


@dataclass(frozen=True, slots=True)
class PlacementEffort(Effort):
    """Limits of the search among matrices of axes, and among the orders of one host."""

    exact_ranks: int = setting(8, "GPUs of a host of which all orders are looked at", most=9)
    solved: int = setting(600, "placements that are solved, and those of one kind alone, at most")
    matrices: int = setting(1 << 10, "placements by matrices, at most: with more none is ranked")


PLACEMENT_EFFORT = PlacementEffort()
"""Default limits."""


@dataclass(frozen=True, slots=True)
class MachineLevels:
    """Levels of a machine, the outermost first; ``gpus``: its ranks, host by host."""

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    gpus: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AxisPlacement:
    """A placement: rank i of the axes is GPU ``order[i]``.

    ``us``: the joint bound of it; None where ranks of a group do not reach each other, and
    ``reason`` says of which.
    """

    matrix: Matrix
    order: tuple[int, ...]
    us: Fraction | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class PlacementRanking:
    """All placements, the best first.

    ``best_us`` and ``worst_us`` (None where not all were solved) are of those that work,
    ``default_us`` of ``order[i] = i``, which
    is what jobs do; it may be better than all of them where it is none of them. ``notes``: what
    was taken to be alike and is not.
    """

    axes: tuple[tuple[str, int], ...]
    levels: MachineLevels
    placements: tuple[AxisPlacement, ...]
    best_us: Fraction
    worst_us: Fraction | None
    default_us: Fraction | None
    notes: tuple[str, ...] = ()


def machine_levels(topology: Topology) -> MachineLevels:
    """Return hosts and GPUs of a host; a single level if there is one host, or one GPU in each.

    Raises:
        UserError: hosts have unlike numbers of GPUs, or those of some GPUs are not known.
    """
    by_host: dict[int | None, list[int]] = {}
    for rank, host in enumerate(topology.host_of):
        by_host.setdefault(host, []).append(rank)
    if None in by_host and len(by_host) > 1:
        raise UserError(f"{topology.name}: the host of GPU {by_host[None][0]} is not known")
    sizes = {len(ranks) for ranks in by_host.values()}
    if len(sizes) > 1:
        told = " and ".join(map(str, sorted(sizes)))
        raise UserError(
            f"the hosts of {topology.name} have {told} GPUs",
            hint="placements need hosts of one size",
        )
    hosts, inside = len(by_host), sizes.pop()
    gpus = tuple(rank for ranks in by_host.values() for rank in ranks)
    if hosts == 1:
        return MachineLevels(("GPUs",), (inside,), gpus)
    if inside == 1:
        return MachineLevels(("hosts",), (hosts,), gpus)
    return MachineLevels(("hosts", "GPUs"), (hosts, inside), gpus)


def matrices(axes: Sequence[int], levels: Sequence[int]) -> Iterator[Matrix]:
    """Yield all matrices whose rows multiply to the axes, and whose columns to the levels.

    >>> list(matrices((8, 4), (4, 8)))
    [((4, 2), (1, 4)), ((2, 4), (2, 2)), ((1, 8), (4, 1))]
    """
    if not axes:
        if all(size == 1 for size in levels):
            yield ()
        return
    for row in _rows(axes[0], levels):
        left = [size // taken for size, taken in zip(levels, row, strict=True)]
        for rest in matrices(axes[1:], left):
            yield (row, *rest)


def _rows(size: int, levels: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield the ways to write a size as a product of divisors of the levels."""
    if not levels:
        if size == 1:
            yield ()
        return
    for taken in divisors(gcd(size, levels[0])):
        for rest in _rows(size // taken, levels[1:]):
            yield (taken, *rest)


def rank_order(matrix: Matrix, gpus: Sequence[int]) -> tuple[int, ...]:
    """Return the GPU of each rank of the axes, the first axis fastest.

    Neighbours on an axis share a host where they can; at each level the first axis is fastest, so
    that the order is that of the GPUs wherever the matrix allows it.

    >>> rank_order(((2, 1), (1, 2)), range(4))
    (0, 2, 1, 3)
    """
    axes, levels = len(matrix), len(matrix[0])
    shape = [matrix[a][level] for level in range(levels) for a in reversed(range(axes))]
    turned = [level * axes + axes - 1 - a for a in reversed(range(axes)) for level in range(levels)]
    order = np.array(gpus, np.int64).reshape(shape).transpose(turned)
    return tuple(order.ravel().tolist())


def ranked_placements(topology: Topology, workload: Workload, axes: Axes) -> PlacementRanking:
    """Return all placements of a workload's ranks, ranked by the joint bound.

    Of one host whose GPUs are not alike these are the orders of its GPUs, else matrices.

    The order of the workload's operations is left out: all collectives start together.

    Raises:
        UserError: the axes have another number of ranks than the machine, its hosts are unlike,
            the workload moves nothing, no placement lets all groups communicate, or there are
            more than ``PLACEMENT_EFFORT.matrices`` placements.
    """
    levels = machine_levels(topology)
    if prod(size for _, size in axes) != topology.ranks:
        told = " × ".join(f"{name} {size}" for name, size in axes)
        raise UserError(
            f"the axes {told} have {count(prod(size for _, size in axes), 'rank')}, "
            f"{topology.name} has {count(topology.ranks, 'GPU')}",
            hint=f"the sizes of the axes must multiply to {topology.ranks}",
        )
    differing = tuple(unlike(topology, levels))
    if differing and len(levels.sizes) == 1 and topology.ranks <= PLACEMENT_EFFORT.exact_ranks:
        return _ranked_orders(topology, workload, axes, levels, PLACEMENT_EFFORT)
    found: list[tuple[Matrix, tuple[int, ...]]] = []
    for matrix in matrices([size for _, size in axes], levels.sizes):
        if len(found) == PLACEMENT_EFFORT.matrices:
            raise UserError(f"more than {len(found)} placements", hint="join axes that go together")
        found.append((matrix, rank_order(matrix, levels.gpus)))
    default = tuple(range(topology.ranks))
    orders = dict.fromkeys((default, *(order for _, order in found)))
    times = {order: placed_us(topology, workload, order) for order in orders}
    scored = [AxisPlacement(*one, *times[one[1]]) for one in found]
    return _ranking(axes, levels, scored, times[default][0], notes=differing)


def _ranking(
    axes: Axes,
    levels: MachineLevels,
    scored: Sequence[AxisPlacement],
    default_us: Fraction | None,
    *,
    whole: bool = True,
    notes: tuple[str, ...] = (),
) -> PlacementRanking:
    """Return placements with their times in order; ``whole``: these are all."""
    working = [one.us for one in scored if one.us is not None]
    if not working:
        raise UserError("in no placement all groups reach their ranks", hint=RELAYS_HINT)
    ranked = sorted(scored, key=lambda one: (one.us is None, one.us or Fraction(0), one.matrix))
    worst = max(working) if whole else None
    return PlacementRanking(
        tuple(axes), levels, tuple(ranked), min(working), worst, default_us, notes
    )


# --- all orders of one host -----------------------------------------------------------------------


def _ranked_orders(
    topology: Topology,
    workload: Workload,
    axes: Axes,
    levels: MachineLevels,
    effort: PlacementEffort,
) -> PlacementRanking:
    """Return the orders of the GPUs of one host that were solved, the best of all among them.

    Orders that give each kind of collective the same sets of GPUs are one placement, and so are
    those that a symmetry of the machine maps to each other. The largest time of one kind alone is
    a lower bound on that of all; placements are solved from the lowest on, until it ends them.
    """
    alike: dict[object, list[WorkloadOperation]] = {}  # those that differ in their ranks only
    for one in (x for x in workload.operations if x.needs_machine):
        key = (one.kind, one.bytes, one.matrix, one.shards, one.relays, len(one.group))
        alike.setdefault(key, []).append(one)
    kinds = list(alike.values())
    every = np.array(list(permutations(range(topology.ranks))), np.int64)
    keys, first, place = np.unique(
        np.hstack([_codes(one, every) for one in kinds]),
        axis=0,
        return_index=True,
        return_inverse=True,
    )
    orders, number = every[first], {key.tobytes(): i for i, key in enumerate(keys)}
    least = np.arange(len(orders))
    for image in orbits_of(topology).images[:, : topology.ranks].astype(np.int64):
        moved = np.hstack([_codes(one, image[orders]) for one in kinds])
        least = np.minimum(least, [number[key.tobytes()] for key in moved])
    alone = np.array([_alone_us(topology, workload, one, orders, effort) for one in kinds])
    bounds = dict(zip(range(len(orders)), alone.max(axis=0).tolist(), strict=True))
    default = int(least[place.ravel()[0]])
    orders[default] = every[0]
    different = sorted(set(least.tolist()), key=lambda at: (at != default, bounds[at], at))
    solved: dict[int, AxisPlacement] = {}
    best, left = None, None
    for at in different:
        if at != default and (
            (best is not None and bounds[at] >= best) or len(solved) == effort.solved
        ):
            left = bounds[at]
            break
        order = tuple(orders[at].tolist())
        solved[at] = AxisPlacement(
            tuple((size,) for _, size in axes), order, *placed_us(topology, workload, order)
        )
        us = solved[at].us
        best = us if best is None else best if us is None else min(best, us)
    note = (
        f"the GPUs of the host are not alike: {count(len(orders), 'placement')} of them, "
        f"{len(different)} up to symmetry, {len(solved)} solved"
        + (
            ""
            if left is None
            else ", no other has a path"
            if left == inf
            else f", all others take {float(left):,.1f} µs or more"
        )
    )
    usual = solved[default].us
    rows = tuple(solved.values())
    return _ranking(axes, levels, rows, usual, whole=left is None, notes=(note,))


def _codes(kind: Sequence[WorkloadOperation], orders: Ints) -> Ints:
    """Return numbers of the placements of a kind's operations, shape (orders, operations).

    Equal rows are equal placements: where only its set of ranks matters to a collective that is
    their mask, with the root of a rooted one; else the ranks are digits.
    """
    ranks = orders.shape[1]
    columns = []
    for one in kind:
        if one.kind in (*DEMANDS, Kind.ALLTONEXT):
            digits = orders[:, list(one.group or one.members)]
            columns.append(digits @ ranks ** np.arange(digits.shape[1]))
        else:
            root = one.group[0] if one.root is None else one.root
            rooted = orders[:, root] if one.kind in ROOTED else 0
            columns.append((1 << orders[:, list(one.group)]).sum(axis=1) * ranks + rooted)
    return np.sort(np.stack(columns, axis=1), axis=1)


def _alone_us(
    topology: Topology,
    workload: Workload,
    kind: Sequence[WorkloadOperation],
    orders: Ints,
    effort: PlacementEffort,
) -> list[Fraction | float]:
    """Return the time in µs of one kind alone in each order, infinite without a path.

    Where it has more placements than are solved at most, 0: that is a lower bound, too.
    """
    codes, first, place = np.unique(
        _codes(kind, orders), axis=0, return_index=True, return_inverse=True
    )
    if len(codes) > effort.solved:
        return [Fraction(0)] * len(orders)
    one = replace(
        workload, operations=tuple(replace(x, after=()) for x in kind), size=workload.ranks
    )
    times = [placed_us(topology, one, orders[at].tolist())[0] for at in first]
    return [inf if (us := times[at]) is None else us for at in place.ravel()]


def placed_us(
    topology: Topology, workload: Workload, order: Sequence[int]
) -> tuple[Fraction | None, str]:
    """Return the joint bound in µs with rank i of the workload on GPU ``order[i]``.

    None where ranks of a group do not reach each other, and which.
    """
    demands = demands_of(workload.renumbered(order), topology.ranks)
    try:
        return joint_bound(topology, demands).us, ""
    except Unreached as error:
        return None, error.message


def unlike(topology: Topology, levels: MachineLevels) -> Iterator[str]:
    """Yield differences between parts of a level, which one placement takes to be alike.

    Parts are alike if the machine is the same with any two neighbours changed for each other: of
    the GPUs of a host in all hosts at once.
    """
    grid = np.array(levels.gpus).reshape(levels.sizes)
    for level, (name, size) in enumerate(zip(levels.names, levels.sizes, strict=True)):
        for at in range(size - 1):
            turned = np.arange(size)
            turned[[at, at + 1]] = at + 1, at
            image = np.empty(topology.ranks, np.int64)
            image[grid.ravel()] = grid.take(turned, axis=level).ravel()
            if extend(topology, image) is None:
                one, other = (int(grid.take(i, axis=level).flat[0]) for i in (at, at + 1))
                what = "GPUs of a host" if name == "GPUs" else name
                where = "" if name == "GPUs" else "those of "
                yield (
                    f"the {what} are not alike ({where}GPUs {one} and {other} are joined to the "
                    "others in unlike ways), and a placement takes them to be: another order "
                    "of them may be quicker or slower"
                )
                break
