"""Rank orbits: one rank of each orbit under the machine's symmetries represents all of them."""

from __future__ import annotations

import numpy as np

from weft.dsl.base.arrays import Ints, distinct_values
from weft.dsl.nouns.topology import Topology
from weft.dsl.symmetry.symmetry import orbits, verified


def alike(topology: Topology, few: int) -> Ints:
    """Return for every rank the smallest one that a symmetry maps it to, shape (ranks,).

    Declared symmetries count as far as they hold; a broken link breaks them. Machines with fewer
    than ``few`` ranks are not compared: there each rank is an orbit.
    """
    if topology.ranks < few or not topology.symmetries:
        return np.arange(topology.ranks)
    return orbits(verified(topology), topology.ranks)


def representatives(topology: Topology, few: int) -> Ints:
    """The smallest rank of every orbit (:func:`alike`), ascending."""
    return distinct_values(alike(topology, few))
