"""Clustering of measured numbers: values that differ by less than the noise become equal.

Measurements have as many bandwidths as links, real machines a few; equal links give symmetry, and
symmetry makes synthesis fast.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from statistics import median

NOISE = 0.06
"""Typical relative noise of one run of a bandwidth test."""


def alike(values: Iterable[float], noise: float = NOISE) -> dict[float, Fraction]:
    """Return for each value the median of its cluster, in three significant digits.

    A cluster ends where the next larger value is ``noise`` above the smallest of the cluster.
    """
    found: dict[float, Fraction] = {}
    kind: list[float] = []
    for value in [*sorted(values), float("inf")]:
        if kind and value > kind[0] * (1 + noise):
            found |= dict.fromkeys(kind, Fraction(f"{median(kind):.2e}"))
            kind = []
        kind.append(value)
    return found
