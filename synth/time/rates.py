"""What the links and shared resources of a topology take: distinct numbers, and where each is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from weft.dsl.base.arrays import Ints
from weft.dsl.base.kept import kept
from weft.dsl.nouns.topology import Topology


@dataclass(frozen=True, eq=False)
class Rates:
    """Each distinct number once, so that exact arithmetic is done for few of them.

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
