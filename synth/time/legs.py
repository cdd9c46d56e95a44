"""The resources that a leg of a route holds."""

from __future__ import annotations

import numpy as np

from weft.dsl.base.arrays import Ints
from weft.dsl.nouns.topology import Topology

from ..fabric.fabric import fabric_of


def rows_held(topology: Topology, start: Ints, links: Ints) -> tuple[Ints, Ints, Ints]:
    """Return the resources of legs, and how often a message holds each: once for each of its links.

    The links of leg i are ``links[start[i]:start[i+1]]``. Returns (begin, rows, times): it loads
    ``rows[begin[i]:begin[i+1]]``, in the order in which its links come to them.
    """
    leg = np.repeat(np.arange(len(start) - 1), np.diff(start))
    fabric = fabric_of(topology)
    position, row = fabric.resources_of(links)
    width = fabric.resources
    key, came, times = np.unique(leg[position] * width + row, return_index=True, return_counts=True)
    order = np.argsort(came)
    legs, rows = key[order] // width, key[order] % width
    return np.searchsorted(legs, np.arange(len(start))), rows, times[order]
