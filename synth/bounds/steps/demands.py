"""Demands of a copying collective, their orbits, and the distances of the ranks on the machine.

A *demand* is a set of plain chunks with the same sources and the same targets. Such chunks are
interchangeable, so the functions below take demands with their chunk counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from weft.dsl.base.arrays import Bools, Ints
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.shortest import distances
from weft.dsl.nouns.collective import Collective
from weft.dsl.nouns.topology import Topology
from weft.dsl.symmetry import symmetry

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


# --- orbits --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DemandOrbits:
    """Orbits of demands and of resources under a group given by generators.

    ``orbits_of_links`` maps each link to an orbit of resources, once per way a link loads something
    (-1: not in this one); ``capacities`` are units per round summed over the resources of an orbit,
    of which a chunk takes ``per_chunk``;
    ``resource_orbit`` maps the resources of ``Topology.capacities()`` to orbits.
    """

    demand_orbit: Ints
    resource_orbit: Ints
    orbits_of_links: tuple[Ints, ...]
    capacities: Ints
    per_chunk: int = 1

    def representatives(self, count: int) -> list[int]:
        """The first demand of every orbit."""
        assert count == len(self.demand_orbit)
        return [int(i) for i in np.unique(self.demand_orbit, return_index=True)[1]]

    def demand_weight(self, index: int) -> int:
        """Size of the orbit of a demand."""
        return int((self.demand_orbit == self.demand_orbit[index]).sum())


def demand_image(wanted: Sequence[CopyDemand], image: Sequence[int]) -> tuple[int, ...] | None:
    """Return the image of each demand under a permutation of the nodes; None if one has none."""
    place = {(d.sources, d.targets): i for i, d in enumerate(wanted)}
    result = []
    for demand in wanted:
        moved = tuple(tuple(sorted(image[r] for r in x)) for x in (demand.sources, demand.targets))
        index = place.get((moved[0], moved[1]))
        if index is None or len(wanted[index].chunks) != len(demand.chunks):
            return None
        result.append(index)
    return tuple(result)


def find_orbits(
    topology: Topology,
    wanted: Sequence[CopyDemand],
    images: Sequence[tuple[int, ...]],
    link_images: Sequence[tuple[int, ...]],
    units: tuple[Fraction, int] | None = None,
) -> DemandOrbits:
    """Orbits under node permutations that are automorphisms and map demands to demands.

    ``units`` are the round's units (:meth:`Topology.round_units`) where they are not the
    topology's own: a machine with links taken away may have larger ones.
    """
    grain, per_chunk = units or topology.round_units()
    caps = np.array([int(b / grain) for b in topology.capacities()], np.int64)
    links = len(topology.links)
    members = [frozenset(r.links) for r in topology.resources]
    resource_images = []
    for link_image in link_images:
        moved = [
            links + members.index(frozenset(link_image[i] for i in group)) for group in members
        ]
        resource_images.append((*link_image, *moved))
    resource_orbit = classes_under(len(caps), resource_images)
    orbit_caps = np.bincount(resource_orbit, weights=caps).astype(np.int64)
    ways = [resource_orbit[:links]]
    for i, group in enumerate(members):
        way = np.full(links, -1, np.int64)
        way[list(group)] = resource_orbit[links + i]
        ways.append(way)
    demand_images = [m for x in images if (m := demand_image(wanted, x)) is not None]
    assert len(demand_images) == len(images)
    return DemandOrbits(
        classes_under(len(wanted), demand_images),
        resource_orbit,
        tuple(ways),
        orbit_caps,
        per_chunk,
    )


def classes_under(count: int, images: Sequence[Sequence[int]]) -> Ints:
    """Orbits of the generated group, numbered in the order of their smallest members."""
    return np.unique(symmetry.orbits(images, count), return_inverse=True)[1]
