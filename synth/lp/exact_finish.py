"""From float weights to rational ones that are feasible exactly, and from float prices likewise.

A vertex of the master program solves a square linear system: its support against the rows that
it makes tight. Which rows and columns those are is read off the floats; the system is solved in
rationals, and what comes out is checked in integers: no float is trusted.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from typing import Any

import numpy as np

from weft.dsl.base.arrays import Floats, Ints

from ....fabric.fabric import ResourceOrbits
from ....lp.certified import common_denominator

TIGHT = 1e-7
"""Relative slack below which a row counts as tight; a vertex has none just above it."""

SUPPORT = 1e-9
"""Weights below this are zero."""

LARGEST_SYSTEM = 2000
"""Unknowns of a system that is solved exactly."""

_PRIME = (1 << 61) - 1


@dataclass(frozen=True, eq=False)
class Shape:
    """The exact master program: what one unit of weight loads, what there is room for.

    Attributes:
        rows: the row orbits.
        copies: images of a template, per unit of its weight.
        families: those that are served, once for each chunk.
        joint: both halves of the families carry the same free shares, which sum to 1.
    """

    rows: ResourceOrbits
    copies: int
    families: Ints
    joint: bool

    def room(self) -> list[Fraction]:
        """Uses of each row orbit per unit of weight and of time (chunks per GB/s)."""
        return [
            int(s) * b / self.copies
            for s, b in zip(self.rows.size, self.rows.bandwidth, strict=True)
        ]

    def time(self, loads: Ints, weights: list[Fraction]) -> Fraction:
        """When the busiest row is done: exact."""
        unit = lcm(*(w.denominator for w in weights))
        numerators = np.array([int(w * unit) for w in weights], object)
        total = numerators @ loads.astype(object)
        busy = (Fraction(int(x), unit) / r for x, r in zip(total, self.room(), strict=True) if x)
        return max(busy, default=Fraction(0))

    def served(self, family: Ints, weights: list[Fraction]) -> bool:
        """Whether the weights are none below zero and every family gets its share, exactly."""
        if any(w < 0 for w in weights):
            return False
        got = dict.fromkeys(np.unique(self.families).tolist(), Fraction(0))
        for k, w in zip(family.tolist(), weights, strict=True):
            got[k] += w
        if not self.joint:
            times = np.bincount(self.families)
            return all(got[k] == int(times[k]) for k in got)
        values = list(got.values())
        half = len(values) // 2
        return values[:half] == values[half:] and sum(values[:half]) == 1


def finish(
    shape: Shape, loads: Ints, family: Ints, x: Floats, target: Fraction | None
) -> list[Fraction] | None:
    """Rational weights near ``x`` (all columns), feasible exactly; None: not found.

    They take the time ``target``, or none given the time of the vertex that ``x`` is near.
    """
    support = np.flatnonzero(x > SUPPORT)
    used, mine, values = loads[support], family[support], x[support]
    for attempt in (_multiples, _vertex):
        found = attempt(shape, used, mine, values, target)
        if found is None or not shape.served(mine, found):
            continue
        if target is None or shape.time(used, found) <= target:
            weights = [Fraction(0)] * len(x)
            for j, value in zip(support.tolist(), found, strict=True):
                weights[j] = value
            return weights
    return None


def rounded(shape: Shape, family: Ints, x: Floats, unit: int = 1 << 20) -> list[Fraction]:
    """The weights as multiples of 1/``unit``, every family with its exact sum (or equal shares).

    What is lost to rounding goes to the largest tree of each family.
    """
    times = np.bincount(shape.families)
    order = np.unique(shape.families)
    total = np.array([int(times[k]) * unit for k in order])
    whole = np.floor(np.maximum(x, 0) * unit).astype(np.int64)
    if shape.joint:
        half = len(order) // 2
        share = np.array([whole[family == k].sum() for k in order[:half]])
        share[share.argmax()] += unit - share.sum()
        total = np.concatenate([share, share])
    for k, wanted in zip(order.tolist(), total.tolist(), strict=True):
        mine = np.flatnonzero(family == k)
        if not len(mine):
            continue
        surplus = wanted - int(whole[mine].sum())
        for t in mine[np.argsort(-whole[mine])]:
            step = max(surplus, -int(whole[t]))
            whole[t] += step
            surplus -= step
    return [Fraction(int(n), unit) for n in whole]


def _multiples(
    shape: Shape, loads: Ints, family: Ints, x: Floats, target: Fraction | None
) -> list[Fraction] | None:
    """The floats as multiples of one small fraction, where they are."""
    unit = common_denominator(x)
    return None if unit is None else [Fraction(int(n), unit) for n in np.rint(x * unit)]


def _vertex(
    shape: Shape, loads: Ints, family: Ints, x: Floats, target: Fraction | None
) -> list[Fraction] | None:
    """The vertex that the floats are near."""
    room = shape.room()
    floats = np.array([float(r) for r in room])
    busy = (x @ loads) / floats
    tight = np.flatnonzero(busy > (1 - TIGHT) * (float(target) if target else busy.max()))
    if len(x) > LARGEST_SYSTEM:
        return None
    matrix, right = _system(shape, loads[:, tight], family, [room[o] for o in tight], target)
    solution = _solve(matrix, right)
    return None if solution is None else solution[: len(x)]


def _system(
    shape: Shape, loads: Ints, family: Ints, room: list[Fraction], target: Fraction | None
) -> tuple[Any, list[Fraction]]:
    """Equations of the families, then of the tight rows; columns: trees, shares, the time."""
    order = np.unique(shape.families)
    times = np.bincount(shape.families)
    n, half = len(family), len(order) // 2 if shape.joint else 0
    timed = target is None
    demands = np.zeros((len(order) + shape.joint, n + half + timed), object)
    demands[np.searchsorted(order, family), np.arange(n)] = 1
    right = [Fraction(int(times[k])) for k in order]
    if shape.joint:
        share = np.arange(half)
        demands[share, n + share] = demands[share + half, n + share] = -1
        demands[-1, n : n + half] = 1
        right = [Fraction(0)] * len(order) + [Fraction(1)]
    packed = np.zeros((len(room), n + half + timed), object)
    packed[:, :n] = loads.T
    if target is not None:
        return np.vstack([demands, packed]), right + [r * target for r in room]
    for row, r in zip(packed, room, strict=True):
        row *= r.denominator
        row[-1] = -r.numerator
    return np.vstack([demands, packed]), right + [Fraction(0)] * len(room)


def _solve(matrix: Any, right: list[Fraction]) -> list[Fraction] | None:
    """A solution of the equations, columns that depend on others zero; None: there is none.

    Independent rows and columns are found modulo a prime, which can only err on the safe side.
    """
    import flint

    rows = _pivots(matrix.T)
    columns = _pivots(matrix[rows])
    if len(rows) != len(columns):
        return None
    unit = lcm(*(right[i].denominator for i in rows))
    square: Any = flint.fmpz_mat(matrix[np.ix_(rows, columns)].tolist())
    target: Any = flint.fmpz_mat([[int(right[i] * unit)] for i in rows])
    try:
        found = square.solve(target)
    except ZeroDivisionError:
        return None
    solution = [Fraction(0)] * matrix.shape[1]
    for i, j in enumerate(columns):
        value = found[i, 0]
        solution[j] = Fraction(int(value.p), int(value.q)) / unit
    return solution


def _pivots(matrix: Any) -> list[int]:
    """Indices of independent columns, the first that there are."""
    import flint

    height, width = matrix.shape
    entries = (matrix % _PRIME).ravel().tolist()
    reduced, rank = flint.nmod_mat(height, width, entries, _PRIME).rref()
    pivots: list[int] = []
    column = 0
    for i in range(rank):
        while not int(reduced[i, column]):
            column += 1
        pivots.append(column)
        column += 1
    return pivots
