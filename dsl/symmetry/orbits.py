"""What an engine needs of a machine's symmetry: one rank's part stands for its whole orbit.

>>> from weft.dsl.catalogue import topology
>>> found = orbits_of(topology("torus:4x4"))
>>> found.order, found.representatives.tolist(), int(found.row_orbit.max()) + 1
(16, [0], 4)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..base.arrays import Ints, Ints32
from ..nouns.topology import Topology
from .detect import LIMIT, search
from .groups import Group, spread, trivial
from .structure import structure_of
from .symmetry import extended


@dataclass(frozen=True, slots=True, eq=False)
class Orbits:
    """A verified group of symmetries that acts semiregularly on the ranks, and its orbits.

    ``images`` (order, nodes) and ``row_images`` (order, links + resources) say where every element
    takes nodes and rows of ``Topology.usage``; element 0 is the identity. Of parallel equal links
    the first goes to the first, so rows compose as nodes do. ``row_orbit`` (links + resources,)
    and ``rank_orbit`` (ranks,) number the orbits by their first member. ``representatives``
    (orbits,) are the lowest ranks; element ``element_of[r]`` takes that of r's orbit to r, and no
    other one does.
    """

    links: int
    images: Ints32
    row_images: Ints32
    row_orbit: Ints
    rank_orbit: Ints
    representatives: Ints
    element_of: Ints

    @property
    def order(self) -> int:
        """Elements of the group; every orbit of ranks has as many members."""
        return len(self.images)

    @property
    def link_images(self) -> Ints32:
        """Where every element takes the links, shape (order, links)."""
        return self.row_images[:, : self.links]

    def products(self, left: Ints, right: Ints) -> Ints:
        """The elements that do what ``right`` does, then ``left``; arrays of one shape."""
        first = self.representatives[0]
        found: Ints = self.element_of[self.images[left, self.images[right, first]]]
        return found

    def inverses(self) -> Ints:
        """The inverse of every element, shape (order,)."""
        first = self.representatives[0]
        # Element e takes x to ``first`` for one x of the orbit; its inverse takes ``first`` to x.
        found: Ints = self.element_of[np.argmax(self.images == first, axis=1)]
        return found


def orbits_of(topology: Topology, *, limit: int = LIMIT) -> Orbits:
    """The symmetries of a machine that are found cheaply, verified; without any, the identity.

    Nothing is kept between calls: whoever asks often keeps the answer. At most ``limit`` elements.
    """
    made = structure_of(topology)
    group = search(topology, made, limit=limit)
    actions = [made.act(image.astype(np.int64)) for image in group.generators]
    points = [action for action in actions if action is not None]
    whole = spread(points, made.ranks, group.order) if points else None
    if whole is None:
        whole = trivial(made.ranks, sum(made.sizes))
    return _orbits(whole, *made.sizes[:2])


def orbits_under(topology: Topology, rank_images: Sequence[Sequence[int]]) -> Orbits | None:
    """The orbits under these moves of the ranks; None if one of them is no symmetry of the machine,
    or they generate one that leaves a rank where it is.
    """
    made = structure_of(topology)
    points = []
    for image in rank_images:
        nodes = extended(made, np.asarray(image, np.int64))
        action = None if nodes is None else made.act(nodes)
        if action is None:
            return None
        points.append(action)
    whole = spread(points, made.ranks, made.ranks) if points else None
    if points and whole is None:
        return None
    return _orbits(whole or trivial(made.ranks, sum(made.sizes)), *made.sizes[:2])


def without_symmetry(topology: Topology) -> Orbits:
    """The identity alone: every rank and every row an orbit of its own."""
    return orbits_of(topology, limit=1)


def _orbits(group: Group, nodes: int, links: int) -> Orbits:
    images, rows = group.elements[:, :nodes], group.elements[:, nodes:] - np.int32(nodes)
    row_orbit = np.unique(rows.min(axis=0), return_inverse=True)[1]
    representatives, rank_orbit = np.unique(
        images[:, : group.ranks].min(axis=0), return_inverse=True
    )
    element_of = np.empty(group.ranks, np.int64)
    element_of[images[:, representatives]] = np.arange(group.order)[:, None]
    first = representatives.astype(np.int64)
    return Orbits(links, images, rows, row_orbit, rank_orbit, first, element_of)
