"""Where no cut says how good trees can be, the prices of the rows do.

The duals of the master program are rounded to integers; what they prove is evaluated exactly by
:func:`weft.synth.bounds.tree_prices`. If the prices are the rational ones, that is the optimum.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from math import gcd, lcm

import numpy as np

from weft.dsl.base.errors import UserError

from ....bounds import tree_prices
from ....lp.certified import common_denominator
from .search import Found
from .task import Task

GRID = 1 << 24
"""Prices that are no small fractions are rounded to multiples of one over this."""


def proved(task: Task, found: Found) -> Task:
    """The task with the bound that the prices prove, if that is more than it knew."""
    shares = found.weights.prices
    top = float(shares.max())
    for unit in {common_denominator(shares / top): None, GRID: None}:
        if unit is None:
            continue
        whole = [int(n) for n in np.rint(shares / top * unit)]
        try:
            bound, certificate = tree_prices(task.topology, task.collective, _per_row(task, whole))
        except UserError:
            return task
        time = bound / task.us_per_byte(Fraction(1))
        if time > task.bound:
            task = replace(task, bound=time, certificate=certificate)
    return task


def _per_row(task: Task, shares: list[int]) -> list[int]:
    """Integer prices of a use of every row; an orbit has its share of what all rows are worth."""
    rows = task.rows
    prices = [s / (int(n) * b) for s, n, b in zip(shares, rows.size, rows.bandwidth, strict=True)]
    unit = lcm(*(p.denominator for p in prices))
    whole = [int(p * unit) for p in prices]
    common = gcd(*whole) or 1
    return [whole[o] // common for o in task.orbits.row_orbit.tolist()]
