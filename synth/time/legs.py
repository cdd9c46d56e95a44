"""Rates of links and shared resources, and the resources that a leg of a route holds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from weft.dsl.base.arrays import Ints
from weft.dsl.base.kept import kept
from weft.dsl.nouns.topology import Topology

from ..fabric.fabric import fabric_of


@dataclass(frozen=True, eq=False)
class Rates:
    """Rates of a topology, each distinct number once: exact arithmetic is done for few of them.

    Attributes:
        capacity: distinct bandwidths in GB/s; ``of_row``: the one of each row (links, then shared
            resources).
        latency: distinct latencies in µs; ``of_link``: the one of each link.
    """

    capacity: tuple[Fraction, ...]
    of_row: Ints
    latency: tuple[Fraction, ...]
    of_link: Ints


@kept()
def rates_of(topology: Topology) -> Rates:
    """The rates of a topology."""
    return Rates(*_distinct(topology.capacities()), *_distinct(x.latency for x in topology.links))


def _distinct(values: Iterable[Fraction]) -> tuple[tuple[Fraction, ...], Ints]:
    index: dict[Fraction, int] = {}
    which = np.array([index.setdefault(x, len(index)) for x in values], np.int64)
    return tuple(index), which


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
