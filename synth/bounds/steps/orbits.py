"""Orbits of demands and of resources under a verified symmetry."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from weft.dsl.base.arrays import Ints
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.topology import Topology
from weft.dsl.symmetry import symmetry

from .demands import CopyDemand


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
