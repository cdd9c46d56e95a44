"""Trees and paths that share the machine: for chunks with few destinations, and for allreduce.

Every chunk gets a tree from its source to its destinations, grown along the cheapest path to the
next rank that wants it: the cost of a hop is its increase of Σ (load / mean load)^8 over all
resources. Then trees are removed and grown again, one by one, as long as the load of the busiest
resource falls. This is steepest descent on a smooth stand-in for the maximum; with many chunks it
comes near the linear program's optimum (Garg & Könemann, SIAM J. Comput. 37, 2007, use the like
weights).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from weft.dsl.base.arrays import Ints
from weft.dsl.base.kept import kept
from weft.dsl.base.lazy_dataclass import dataclass

from ...base.meter import Meter
from ...fabric.fabric import grouped
from ...fabric.hop_table import HopTable
from .effort import GreedyEffort

STEPS_PER_HOP = 0.4
"""Work of looking at a hop once while a tree is grown (measured: 0.4 µs on 256 ranks)."""


@dataclass(frozen=True, eq=False)
class Trees:
    """Hops of the tree of each chunk, those that others depend on first: ``hops[c, :length[c]]``.

    ``busiest``: ticks for which the busiest resource is occupied in all.
    """

    hops: Ints
    length: Ints
    busiest: int


@dataclass(frozen=True, eq=False)
class ChunkEnds:
    """Sources or destinations of chunks: ``ranks[first[c]:first[c+1]]`` belong to chunk c."""

    first: Ints
    ranks: Ints

    @staticmethod
    def of(chunk: Ints, rank: Ints, chunks: int) -> ChunkEnds:
        """Build from columns."""
        first, order = grouped(chunk, chunks)
        return ChunkEnds(first, rank[order])

    @property
    def most(self) -> int:
        """Ranks of the chunk that has most."""
        return int(np.diff(self.first).max(initial=0))


def grow_trees(
    machine: HopTable,
    holders: ChunkEnds,
    wanters: ChunkEnds,
    seed: int,
    *,
    effort: GreedyEffort,
    meter: Meter,
    deep: float | None = None,
) -> Trees | None:
    """Return trees for all chunks, in seeded order; None if a rank cannot be reached.

    Every pass counts on ``meter``, of which one is made in any case.

    ``deep``: the price of a level of a tree as a part of that of a hop; by default the first of
    ``effort.depths``. Hops of ``machine`` may hold resources of both directions
    (:func:`both_ways`); ranks may stand for anything.
    """
    from .kernels import grow_all

    chunks, best, idle = len(holders.first) - 1, None, 0
    rng = np.random.default_rng(seed)
    held = (machine.first, machine.resource, machine.hold)
    out_hops = grouped(machine.src, machine.ranks)
    room = min(machine.ranks, max(8, 4 * wanters.most))
    busy = np.zeros(machine.resources)
    trees, length = np.zeros((chunks, room), np.int64), np.zeros(chunks, np.int64)
    # A lone hop is priced 1 at mean load: the first pass knows no mean yet, and takes one hop each.
    target = max(
        1.0, float(machine.hold.mean()) * max(1, len(wanters.ranks)) / machine.resources * 2
    )
    toll = machine.arrives / max(1, int(machine.arrives.max(initial=1))) * 1e-6
    level = effort.depths[0] if deep is None else deep
    for _ in range(effort.passes):
        # A level costs a fraction of a hop on a resource of mean load.
        of_level = level * ((1 + float(machine.hold.mean()) / target) ** 8 - 1)
        code = grow_all(
            ((machine.src, machine.dst), out_hops, held, busy, target, toll, of_level),
            rng.permutation(chunks),
            (holders.first, holders.ranks),
            (wanters.first, wanters.ranks),
            trees,
            length,
        )
        if code == -1:
            return None
        if code == -2:  # trees are longer than they were thought to be
            room = machine.ranks
            busy[:] = 0
            trees, length = np.zeros((chunks, room), np.int64), np.zeros(chunks, np.int64)
            continue
        meter.spend(int(STEPS_PER_HOP * chunks * machine.hops))
        busiest, idle = int(busy.max(initial=0)), idle + 1
        if best is None or busiest < best.busiest:
            best, idle = Trees(trees.copy(), length.copy(), busiest), 0
        if idle == effort.idle_passes or meter.over():
            break
        target = max(1.0, float(busy[busy > 0].mean())) if (busy > 0).any() else target
    return best


@kept(most=4)
def both_ways(machine: HopTable) -> tuple[HopTable, Ints] | None:
    """The machine whose hops hold the resources of both directions; and every hop's way back.

    None where a hop lacks a way back.
    """
    pairs: dict[tuple[int, int], list[int]] = {}
    for hop, ends in enumerate(zip(machine.src.tolist(), machine.dst.tolist(), strict=True)):
        pairs.setdefault(ends, []).append(hop)
    back = np.zeros(machine.hops, np.int64)
    for (u, v), hops in pairs.items():
        others = pairs.get((v, u), [])
        if len(others) != len(hops):
            return None
        back[hops] = others
    first = [0]
    resource: list[int] = []
    hold: list[int] = []
    for hop in range(machine.hops):
        both: dict[int, int] = {}
        for h in (hop, int(back[hop])):
            for k in range(machine.first[h], machine.first[h + 1]):
                r = int(machine.resource[k])
                both[r] = both.get(r, 0) + int(machine.hold[k])
        resource += both
        hold += both.values()
        first.append(len(resource))
    ints = [np.array(x, np.int64) for x in (first, resource, hold)]
    return replace(machine, first=ints[0], resource=ints[1], hold=ints[2]), back


def with_reversed_copy(machine: HopTable) -> HopTable:
    """The machine beside its reverse, on the same resources: rank N + r is r in the second."""
    n = machine.ranks
    second = machine.first[1:] + machine.first[-1]
    return replace(
        machine,
        ranks=2 * n,
        src=np.concatenate([machine.src, machine.dst + n]),
        dst=np.concatenate([machine.dst, machine.src + n]),
        first=np.concatenate([machine.first, second]),
        resource=np.tile(machine.resource, 2),
        hold=np.tile(machine.hold, 2),
        alpha=np.tile(machine.alpha, 2),
        arrives=np.tile(machine.arrives, 2),
    )
