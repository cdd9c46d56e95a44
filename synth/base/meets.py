"""Test that a time meets its bound: simulated times are floats, and bounds are exact numbers."""

from __future__ import annotations

from fractions import Fraction

MET = 1e-9
"""Relative distance that counts as none: the error of adding up floats."""


def meets(us: float, bound_us: Fraction | float) -> bool:
    """Return True if a time is that of its bound, but for rounding."""
    return us <= float(bound_us) * (1 + MET)
