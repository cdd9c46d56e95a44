"""Capacities as arrays: rationals as 64-bit integers over one unit, and who loads what."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from weft.dsl.base.arrays import Ints
from weft.dsl.nouns.topology import Topology

_SOLVABLE = 1 << 20
_ROOM = 1 << 40  # products with numbers of chunks still fit into 64 bits


def whole(values: Sequence[Fraction], room: int = _ROOM) -> tuple[Ints, Fraction]:
    """Integers and a unit such that ``integer * unit`` is the value, or just above it.

    Exact unless the common denominator is absurd; then values are rounded *up*, which for
    bandwidths keeps every lower bound on time valid. ``room`` is the largest integer wanted.

    >>> whole([Fraction(25), Fraction(25, 2)])
    (array([2, 1]), Fraction(25, 2))
    """
    scale = math.lcm(*(v.denominator for v in values)) if values else 1
    numerators = [int(v * scale) for v in values]
    unit = math.gcd(*numerators) or 1
    largest = max(numerators, default=0)
    if largest <= unit * room:
        return np.array([n // unit for n in numerators], np.int64), Fraction(unit, scale)
    coarse = Fraction(largest, scale * room)
    return np.array([math.ceil(v / coarse) for v in values], np.int64), coarse


def small(values: Sequence[Fraction]) -> tuple[Ints, Fraction, bool]:
    """As :func:`whole` for a float solver: at most a million apart, and whether that is exact."""
    sizes, unit = whole(values, _SOLVABLE)
    return sizes, unit, all(int(s) * unit == v for s, v in zip(sizes, values, strict=True))


def usage_pairs(topology: Topology) -> tuple[Ints, Ints]:
    """Pairs (row, link) of :meth:`Topology.usage`, without the dense matrix."""
    own = np.arange(len(topology.links))
    rows, links = [own], [own]
    for i, resource in enumerate(topology.resources):
        rows.append(np.full(len(resource.links), len(own) + i))
        links.append(np.array(resource.links, np.int64))
    return np.concatenate(rows), np.concatenate(links)
