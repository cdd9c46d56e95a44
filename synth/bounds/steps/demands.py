"""Demands of a copying collective, and the distances of the ranks on the machine.

A *demand* is a set of plain chunks with the same sources and the same targets. Such chunks are
interchangeable, so the functions below take demands with their chunk counts.
"""

from __future__ import annotations

import numpy as np

from weft.dsl.base.arrays import Bools, Ints
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.collective import Collective
from weft.dsl.nouns.topology import Topology

from ...fabric.paths import distances

FAR = 1 << 30
"""Distance of unreachable nodes."""


@dataclass(frozen=True, slots=True)
class CopyDemand:
    """Chunks that start on all ``sources`` and must reach all ``targets``."""

    sources: tuple[int, ...]
    targets: tuple[int, ...]
    chunks: tuple[int, ...]


def demands(collective: Collective) -> tuple[CopyDemand, ...]:
    """The demands of a copying collective, in the order of their first chunk.

    Chunks that no other rank needs are left out. O(entries of the placements).
    """
    sources: list[list[int]] = [[] for _ in range(collective.chunks)]
    targets: list[list[int]] = [[] for _ in range(collective.chunks)]
    for rank, chunk in zip(
        collective.pre.ranks.tolist(), collective.pre.chunks.tolist(), strict=True
    ):
        sources[chunk].append(rank)
    for rank, chunk in zip(
        collective.post.ranks.tolist(), collective.post.chunks.tolist(), strict=True
    ):
        targets[chunk].append(rank)
    grouped: dict[tuple[tuple[int, ...], tuple[int, ...]], list[int]] = {}
    for chunk in range(collective.chunks):
        here = tuple(sorted(sources[chunk]))
        there = tuple(sorted(set(targets[chunk]) - set(here)))
        if there:
            grouped.setdefault((here, there), []).append(chunk)
    return tuple(CopyDemand(s, t, tuple(c)) for (s, t), c in grouped.items())


@dataclass(frozen=True, slots=True)
class HopDistances:
    """Hop distances with switches in between: ``after[a, b]`` is the number of GPUs entered on the
    way from node a to node b; a switch is entered in the step of the hop that crosses it."""

    after: Ints

    def tail_depth(self, sources: tuple[int, ...]) -> Ints:
        """Per node: the least number of steps before data of the sources can leave it."""
        depth: Ints = self.after[list(sources)].min(axis=0)
        return depth

    def head_depth(self, target: int, is_gpu: Bools) -> Ints:
        """Per node: steps still needed after the step in which data enters it."""
        depth = self.after[:, target]
        # From a switch the GPU entered next belongs to the same step.
        return np.where(is_gpu, depth, np.where(depth < FAR, depth - 1, FAR))


def reach(topology: Topology) -> HopDistances:
    """All-pairs distances."""
    n = len(topology.nodes)
    scale = n + 1  # a link into a switch costs 1, into a GPU this much: then divide
    stores = np.array([node.stores for node in topology.nodes])
    tails, heads = topology.link_ends().T
    distance = distances(n, tails, heads, np.where(stores[heads], scale, 1), np.arange(n))
    near = np.isfinite(distance)
    after = np.full((n, n), FAR, np.int64)
    after[near] = (distance[near] // scale).astype(np.int64)
    return HopDistances(after)


def usable_links(topology: Topology, tail: Ints, head: Ints, step: int, steps: int) -> Ints:
    """Links that can carry useful data in a step (from 1): reached from the source in time, and
    early enough for the target."""
    ends = topology.link_ends()
    return np.flatnonzero((tail[ends[:, 0]] <= step - 1) & (head[ends[:, 1]] <= steps - step))
