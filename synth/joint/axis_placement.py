"""Placements of axes of parallelism on the levels of a machine, and the time of each.

A placement is a matrix of how much of each axis lies at each level (hosts, GPUs of a host): rows
multiply to the sizes of the axes, columns to those of the levels. There is one matrix for each
orbit of permutations of the hosts, and of the GPUs of a host (Xie et al., P², MLSys 2022). Its
time is the least in which the machine serves all collectives together (:mod:`.bound`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from math import gcd, prod

import numpy as np

from weft.dsl.base.errors import UserError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.tables import count
from weft.dsl.nouns.topology import Topology
from weft.dsl.nouns.workload import Workload
from weft.dsl.symmetry.groups import divisors

from .bound import joint_bound
from .demands import demands_of
from .pricing import Unreached

Matrix = tuple[tuple[int, ...], ...]
"""``matrix[axis][level]``."""

Axes = Sequence[tuple[str, int]]
"""Names and sizes, the first one fastest, as :class:`Workload` numbers its ranks."""


@dataclass(frozen=True, slots=True)
class MachineLevels:
    """Levels of a machine, the outermost first; ``gpus``: its ranks, host by host."""

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    gpus: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AxisPlacement:
    """A placement: rank i of the axes is GPU ``order[i]``.

    ``us``: the joint bound of it; None where ranks of a group do not reach each other.
    """

    matrix: Matrix
    order: tuple[int, ...]
    us: Fraction | None


@dataclass(frozen=True, slots=True)
class PlacementRanking:
    """All placements, the best first.

    ``best_us`` and ``worst_us`` are of those that work, ``default_us`` of ``order[i] = i``, which
    is what jobs do; it may be better than all of them where it is none of them.
    """

    axes: tuple[tuple[str, int], ...]
    levels: MachineLevels
    placements: tuple[AxisPlacement, ...]
    best_us: Fraction
    worst_us: Fraction
    default_us: Fraction | None


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


def ranked_placements(
    topology: Topology, workload: Workload, axes: Axes, most: int = 1 << 10
) -> PlacementRanking:
    """Return all placements of a workload's ranks, ranked by the joint bound.

    The order of the workload's operations is left out: all collectives start together.

    Raises:
        UserError: the axes have another number of ranks than the machine, its hosts are unlike,
            the workload moves nothing, no placement lets all groups communicate, or there are
            more than ``most`` placements.
    """
    levels = machine_levels(topology)
    if prod(size for _, size in axes) != topology.ranks:
        told = " × ".join(f"{name} {size}" for name, size in axes)
        raise UserError(
            f"the axes {told} have {count(prod(size for _, size in axes), 'rank')}, "
            f"{topology.name} has {count(topology.ranks, 'GPU')}",
            hint=f"the sizes of the axes must multiply to {topology.ranks}",
        )
    found: list[tuple[Matrix, tuple[int, ...]]] = []
    for matrix in matrices([size for _, size in axes], levels.sizes):
        if len(found) == most:
            raise UserError(f"more than {most} placements", hint="join axes that go together")
        found.append((matrix, rank_order(matrix, levels.gpus)))
    default = tuple(range(topology.ranks))
    orders = dict.fromkeys((default, *(order for _, order in found)))
    times = {order: placed_us(topology, workload, order) for order in orders}
    scored = [AxisPlacement(*one, times[one[1]]) for one in found]
    working = [one.us for one in scored if one.us is not None]
    if not working:
        raise UserError(
            "in no placement all groups reach their ranks",
            hint='"relays": "all" in the workload lets other ranks forward',
        )
    ranked = tuple(sorted(scored, key=_goodness))
    return PlacementRanking(tuple(axes), levels, ranked, min(working), max(working), times[default])


def _goodness(one: AxisPlacement) -> tuple[bool, Fraction, Matrix]:
    return one.us is None, one.us or Fraction(0), one.matrix


def placed_us(topology: Topology, workload: Workload, order: Sequence[int]) -> Fraction | None:
    """Return the joint bound in µs with rank i of the workload on GPU ``order[i]``.

    None: ranks of a group do not reach each other.
    """
    demands = demands_of(workload.renumbered(order), topology.ranks)
    try:
        return joint_bound(topology, demands).us
    except Unreached:
        return None
