"""Orbits of ranks, nodes, links and resources under a machine's symmetries, for engines.

>>> from weft.dsl.catalogue import topology
>>> found = orbits_of(topology("torus:4x4"))
>>> found.order, found.representatives.tolist(), int(found.row_orbit.max()) + 1
(16, [0], 4)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..base.arrays import Ints, Ints32
from ..base.lazy_dataclass import Frozen
from ..nouns.topology import Topology
from .detect import LIMIT, search
from .groups import Group, spread, trivial
from .structure import structure_of
from .symmetry import extended


class Orbits(Frozen, eq=False):
    """A verified group of symmetries that acts semiregularly on the ranks, and its orbits.

    Rows are those of ``Topology.usage``: links, then shared resources. Parallel equal links are
    mapped in order, so images of rows compose as those of nodes. Element 0 is the identity.
    """

    links: int
    images: Ints32  # (order, nodes): the image of each node under each element
    row_images: Ints32  # (order, rows): likewise of each row
    row_orbit: Ints  # (rows,): orbits are numbered by their first member
    rank_orbit: Ints  # (ranks,): likewise
    representatives: Ints  # (orbits of ranks,): the lowest rank of each
    element_of: Ints  # (ranks,): the only element that maps the rank's representative to it

    @property
    def order(self) -> int:
        """Return the order of the group; every orbit of ranks has as many members."""
        return len(self.images)

    @property
    def link_images(self) -> Ints32:
        """Return the images of the links, shape (order, links)."""
        return self.row_images[:, : self.links]

    def inverses(self) -> Ints:
        """Return the inverse of every element, shape (order,)."""
        first = self.representatives[0]
        # Element e maps one x of the orbit to ``first``; its inverse maps ``first`` to x.
        found: Ints = self.element_of[np.argmax(self.images == first, axis=1)]
        return found


def orbits_of(topology: Topology, *, limit: int = LIMIT) -> Orbits:
    """Return the verified symmetries of a machine that a cheap search finds, else the identity.

    At most ``limit`` elements. The result is not cached.
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
    """Return the orbits under these images of the ranks.

    None if one of them is not a symmetry of the machine, or if they generate an element other than
    the identity that fixes a rank.
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
    """Return the orbits of the identity: every rank and every row is its own orbit."""
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
