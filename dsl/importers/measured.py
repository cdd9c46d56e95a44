"""Numbers that were measured: what differs by less than a measurement's noise is made equal.

A measured machine has as many bandwidths as links, a real one a few; equal links are what symmetry
is made of, and what makes synthesis fast.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from statistics import median

NOISE = 0.06
"""Relative differences that one run of such a test has."""


def alike(values: Iterable[float], noise: float = NOISE) -> dict[float, Fraction]:
    """For each value the common one of its kind: a median, in three significant digits.

    Kinds end where the next larger value is ``noise`` above the least of its kind.
    """
    found: dict[float, Fraction] = {}
    kind: list[float] = []
    for value in [*sorted(values), float("inf")]:
        if kind and value > kind[0] * (1 + noise):
            found |= dict.fromkeys(kind, Fraction(f"{median(kind):.2e}"))
            kind = []
        kind.append(value)
    return found
