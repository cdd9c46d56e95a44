"""Rank orbits: one rank of each orbit under the machine's symmetries represents all of them."""

from __future__ import annotations

import numpy as np

from weft.dsl.base.arrays import Ints
from weft.dsl.nouns.topology import Topology
from weft.dsl.symmetry.symmetry import orbits, verified

FEW = 8
"""Machines with fewer ranks are not worth the comparison."""


def alike(topology: Topology) -> Ints:
    """Return for every rank the smallest one that a symmetry maps it to, shape (ranks,).

    Declared symmetries count as far as they hold; a broken link breaks them.
    """
    if topology.ranks < FEW or not topology.symmetries:
        return np.arange(topology.ranks)
    return orbits(verified(topology), topology.ranks)


def representatives(topology: Topology) -> Ints:
    """The smallest rank of every orbit, ascending."""
    return np.unique(alike(topology))
