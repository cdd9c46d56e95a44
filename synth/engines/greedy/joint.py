"""Joint allreduce: every chunk is reduced along one tree and broadcast along another.

Reduction and broadcast go on at the same time, on the same resources: while one chunk comes down,
others go up, in the opposite directions of the same cables or elsewhere. Where every hop has a way
back both use one tree, so an undirected spanning tree is all there is to choose (its two directions
are loaded alike, whatever the root), and the packing of spanning trees is what the loads tend to;
elsewhere each direction has its own.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from weft.dsl.base.arrays import Ints

from ...base.meter import Meter
from ...fabric.hop_table import HopTable
from .effort import GreedyEffort
from .lists import TransferJobs, jobs_of, plans
from .plan import TransferPlan
from .routes import ChunkEnds, Trees, both_ways, grow_trees, with_reversed_copy

Legs = list[tuple[list[int], list[int]]]


def joint_plans(
    machine: HopTable, pieces: int, seed: int, effort: GreedyEffort, meter: Meter
) -> Iterator[TransferPlan]:
    """Plans for an allreduce of ``pieces`` chunks; none if some rank cannot hear another one."""
    for deep in effort.depths:
        legs = _legs(machine, min(pieces, effort.joint_trees), seed, effort, meter, deep)
        if legs is not None:
            yield from plans(machine, _jobs(machine, legs, pieces), seed, effort)


def _legs(
    machine: HopTable, trees: int, seed: int, effort: GreedyEffort, meter: Meter, deep: float
) -> Legs | None:
    """For each tree the hops of the reduction, leaves first, and of the broadcast, root first."""
    roots = _roots(machine, trees, seed)
    chunk = np.arange(trees)
    everybody = np.arange(machine.ranks)
    pair = both_ways(machine)
    if pair is not None:
        wide, back = pair
        holders, wanters = ChunkEnds.of(chunk, roots, trees), _all(trees, everybody)
        grown = grow_trees(wide, holders, wanters, seed, effort=effort, meter=meter, deep=deep)
        return None if grown is None else [(back[h[::-1]].tolist(), h.tolist()) for h in _of(grown)]
    n, h = machine.ranks, machine.hops
    holders = ChunkEnds.of(np.arange(2 * trees), np.concatenate([roots, roots + n]), 2 * trees)
    wanters = ChunkEnds.of(
        np.repeat(np.arange(2 * trees), n),
        np.concatenate([np.tile(everybody, trees), np.tile(everybody + n, trees)]),
        2 * trees,
    )
    grown = grow_trees(
        with_reversed_copy(machine), holders, wanters, seed, effort=effort, meter=meter, deep=deep
    )
    if grown is None:
        return None
    both = _of(grown)
    return [
        ((up[::-1] - h).tolist(), down.tolist())
        for down, up in zip(both[:trees], both[trees:], strict=True)
    ]


def _all(trees: int, everybody: Ints) -> ChunkEnds:
    return ChunkEnds.of(
        np.repeat(np.arange(trees), len(everybody)), np.tile(everybody, trees), trees
    )


def _of(trees: Trees) -> list[Ints]:
    return [trees.hops[c, :n] for c, n in enumerate(trees.length.tolist())]


def _roots(machine: HopTable, trees: int, seed: int) -> Ints:
    """Return the root of each tree: all ranks in turn, in seeded random order."""
    order = np.random.default_rng(seed).permutation(machine.ranks)
    return np.resize(order, trees).astype(np.int64)


def _jobs(machine: HopTable, legs: Legs, pieces: int) -> TransferJobs:
    """The hops of all chunks: into a rank's sum before out of it, the sum before the copies."""
    src, dst = machine.src.tolist(), machine.dst.tolist()
    hop: list[int] = []
    chunk: list[int] = []
    reduce: list[bool] = []
    needs: list[tuple[int, int]] = []
    for c in range(pieces):
        up, down = legs[c % len(legs)]
        came: dict[int, list[int]] = {}
        for adds, tree in ((True, up), (False, down)):
            for h in tree:
                needs += [(before, len(hop)) for before in came.get(src[h], ())]
                came.setdefault(dst[h], []).append(len(hop))
                hop.append(h)
                chunk.append(c)
                reduce.append(adds)
    return jobs_of(machine, hop, chunk, reduce, needs)
