"""Schedules from weighted ways to carry each unit of a collective: trees, or paths.

A unit is a chunk of a standard collective, or a shard of a demand. It is cut into pieces by the
weights of its carriers, and each piece takes the hops of one carrier.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np

from weft.dsl.base.arrays import Ints
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.collective import ROOTED, Collective, make
from weft.dsl.nouns.deliveries import shard_collective
from weft.dsl.nouns.schedule import Schedule
from weft.dsl.nouns.topology import Topology
from weft.dsl.nouns.workload import DEMANDS, WorkloadOperation

from .merge import MergePiece

Hop = tuple[int, int, int, bool, tuple[int, ...]]
"""Source, destination, step, whether it adds up, and the links of the route."""


@dataclass(frozen=True, slots=True)
class Carrier:
    """One way to carry a unit, and the part of the unit that takes it."""

    weight: float
    hops: tuple[Hop, ...]


def carried_piece(
    topology: Topology, operation: WorkloadOperation, carriers: Sequence[Sequence[Carrier]]
) -> MergePiece:
    """Return the schedule of an operation, on the whole machine.

    ``carriers`` of each unit, in their order: the chunks of a standard collective, or the shards of
    a demand. A unit without any does not move.
    """
    sizes, columns = carried_columns(carriers)
    collective, size = cut_collective(topology.ranks, operation, sizes)
    return whole_piece(
        topology, operation, Schedule.from_columns(topology, collective, *columns), size
    )


def carried_columns(
    carriers: Sequence[Sequence[Carrier]],
) -> tuple[list[list[int]], tuple[Ints, ...]]:
    """Return the shares of the pieces of each unit, and the columns of all transfers.

    All units have as many shares. Columns: chunk, src, dst, step, reduce, route lengths, links.
    """
    cuts = _cuts([[one.weight for one in some] for some in carriers])
    kept = [
        [one for one, x in zip(some, cut, strict=False) if x]
        for some, cut in zip(carriers, cuts, strict=True)
    ]
    sizes = [[x for x in cut if x] for cut in cuts]
    first = np.cumsum([0, *(len(cut) for cut in sizes)]).tolist()
    columns = _columns(
        (first[unit] + at, hop)
        for unit, some in enumerate(kept)
        for at, one in enumerate(some)
        for hop in one.hops
    )
    return sizes, columns


def whole_piece(
    topology: Topology, operation: WorkloadOperation, schedule: Schedule, size: int
) -> MergePiece:
    """Return a schedule on the whole machine as a piece of a merged one."""
    every = tuple(range(topology.ranks))
    return MergePiece(operation, schedule, every, tuple(range(len(topology.links))), size)


def _columns(hops: Iterator[tuple[int, Hop]]) -> tuple[Ints, ...]:
    rows = [(chunk, *hop[:4], len(hop[4]), hop[4]) for chunk, hop in hops]
    if not rows:
        return tuple(np.zeros(0, np.int64) for _ in range(7))
    return (
        *(np.array(x) for x in zip(*(row[:6] for row in rows), strict=True)),
        np.array([i for row in rows for i in row[6]]),
    )


def cut_at_gpus(
    topology: Topology, route: Sequence[int]
) -> Iterator[tuple[int, int, tuple[int, ...]]]:
    """Yield the pieces of a route between GPUs, in the order of the data."""
    begin = 0
    for i, link in enumerate(route):
        if topology.nodes[topology.links[link].dst].stores:
            piece = tuple(route[begin : i + 1])
            yield topology.links[piece[0]].src, topology.links[link].dst, piece
            begin = i + 1


# --- how units are cut ----------------------------------------------------------------------------


def _cuts(weights: Sequence[Sequence[float]], shares: int = 360) -> list[list[int]]:
    """Return the pieces of each unit in shares of one size, as many in every unit.

    ``shares``: as many where nothing simpler fits all units.
    """
    cuts = [quantized(some) if some else [1] for some in weights]
    unit = math.lcm(*{sum(cut) for cut in cuts})
    if unit > max(shares, max(sum(cut) for cut in cuts)):
        unit = shares
        cuts = [_rounded(np.array(some) / sum(some), unit) if some else [1] for some in weights]
    return [[x * (unit // sum(cut)) for x in cut] for cut in cuts]


def quantized(weights: Sequence[float], most: int = 512, tolerance: float = 2e-3) -> list[int]:
    """Return the weights as integers: over the least denominator that is near, else over ``most``.

    Few grains matter more than the last digits: runtimes cut messages into them.
    """
    values = np.array(weights)
    values = values / values.sum()
    for denominator in range(len(values), most):
        found = np.rint(values * denominator).astype(int)
        near = np.abs(values * denominator - found).max() < tolerance
        if near and found.sum() == denominator and found.min() > 0:
            return [int(x) for x in found]
    return _rounded(values, most)


def _rounded(values: np.ndarray[tuple[int], np.dtype[np.float64]], total: int) -> list[int]:
    """Return integers near ``values`` × ``total`` that add up to it (largest remainders)."""
    whole = np.floor(values * total).astype(int)
    rest = np.argsort(-(values * total - whole), kind="stable")[: total - int(whole.sum())]
    whole[rest] += 1
    return [int(x) for x in whole]


# --- collectives ----------------------------------------------------------------------------------


def collective_of(one: WorkloadOperation) -> Collective:
    """Return the standard collective of an operation, on the ranks of its group."""
    roots: tuple[int, ...] = ()
    if one.kind in ROOTED:
        roots = (0 if one.root is None else one.group.index(one.root),)
    return make(one.kind, len(one.group), roots=roots)


def cut_collective(
    ranks: int, operation: WorkloadOperation, sizes: Sequence[Sequence[int]]
) -> tuple[Collective, int]:
    """Return the collective of an operation on a machine's ranks, and its message size M in bytes.

    Unit u is cut into pieces of ``sizes[u]`` shares; all units have as many shares.

    Raises:
        NothingFound: a buffer has more grains than can be counted.
    """
    if operation.kind not in DEMANDS:
        cut = collective_of(operation).cut(sizes)
        return cut.within(operation.group, ranks), operation.bytes
    shards = operation.deliveries
    common = math.gcd(*(one.bytes for one in shards))
    grains = [
        [x * (one.bytes // common) for x in cut] for one, cut in zip(shards, sizes, strict=True)
    ]
    collective = shard_collective(ranks, shards, grains)
    grain = Fraction(common, sum(sizes[0]))
    return collective, int(grain * collective.message_chunks)
