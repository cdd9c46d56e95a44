"""From the floats of a linear program to rational weights that meet it exactly.

A basic solution is determined by which columns are positive and which rows are full: a square
system, solved in integers. What comes out is checked, so the floats are trusted with nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from weft.dsl.base.arrays import Bools, Floats, Ints

_LARGEST_SYSTEM = 700
_FREE_DENOMINATOR = 60


@dataclass(frozen=True, eq=False)
class Master:
    """Weights of columns: the sum per group is ``count``, and rows hold ``uses @ x <= room``.

    ``uses`` is a sparse matrix (rows, columns) of integers; ``group`` (columns,) says which sum a
    column belongs to. Where ``room`` is None, rows hold ``uses @ x <= width * U`` with U unknown.
    """

    uses: Any
    group: Ints
    count: Ints
    width: Sequence[Fraction]
    room: Sequence[Fraction] | None


def exact_weights(master: Master, x: Floats, slack: Floats) -> list[Fraction] | None:
    """Rational weights near a basic solution ``x`` that meet all rows; with U last, if unknown.

    ``slack`` (rows,) is relative: which rows are full. None where no attempt succeeds.
    """
    for positive, full in ((1e-7, 1e-7), (1e-9, 1e-9), (1e-6, 1e-6), (1e-7, 1e-9), (1e-9, 1e-6)):
        found = _attempt(master, x, x > positive, slack < full)
        if found is not None:
            return found
    return None


def _attempt(master: Master, x: Floats, kept: Bools, full: Bools) -> list[Fraction] | None:
    """Solve for the columns that share their group's sum; all others are the whole sum, or 0."""
    members = np.bincount(master.group[kept], minlength=len(master.count))
    if (members[master.count > 0] == 0).any():
        return None
    alone = kept & (members[master.group] == 1)
    unknown = np.flatnonzero(kept & ~alone)
    weights = [Fraction(0)] * len(x)
    for i in np.flatnonzero(alone).tolist():
        weights[i] = Fraction(int(master.count[master.group[i]]))
    rows = np.flatnonzero(full)
    if len(unknown) + (master.room is None):
        if len(unknown) > _LARGEST_SYSTEM:
            return None
        solved = _solve(_system(master, unknown, alone, rows), [*x[unknown].tolist(), math.nan])
        if solved is None:
            return None
        for i, value in zip(unknown.tolist(), solved, strict=False):
            weights[i] = value
        if master.room is None:
            weights.append(solved[-1])
    return weights if holds(master, weights) else None


def _system(master: Master, unknown: Ints, alone: Bools, rows: Ints) -> list[list[Fraction]]:
    """Equations as rows: coefficients of the unknown columns (and U), then the right-hand side."""
    more = int(master.room is None)
    equations = []
    groups = master.group[unknown]
    for g in np.unique(groups).tolist():
        row = [Fraction(int(k == g)) for k in groups.tolist()] + [Fraction(0)] * more
        equations.append([*row, Fraction(int(master.count[g]))])
    by_row = master.uses.tocsr()
    fixed = by_row @ np.where(alone, master.count[master.group], 0)
    part = by_row[:, unknown]
    for r in rows.tolist():
        begin, end = part.indptr[r], part.indptr[r + 1]
        if begin == end and not more:
            continue
        row = [Fraction(0)] * len(unknown)
        for i, value in zip(
            part.indices[begin:end].tolist(), part.data[begin:end].tolist(), strict=True
        ):
            row[i] = Fraction(int(value))
        if master.room is None:
            equations.append([*row, -master.width[r], Fraction(-int(fixed[r]))])
        else:
            equations.append([*row, master.room[r] - int(fixed[r])])
    return equations


def _solve(equations: list[list[Fraction]], near: list[float]) -> list[Fraction] | None:
    """A solution by reduced echelon form; unknowns left free are rounded from ``near``."""
    import flint

    width = len(equations[0]) - 1
    table = []
    for row in equations:
        scale = math.lcm(*(v.denominator for v in row))
        table.append([int(v * scale) for v in row])
    reduced, denominator, rank = flint.fmpz_mat(table).rref()
    pivots = []
    for i in range(rank):
        at = next(j for j in range(width + 1) if reduced[i, j] != 0)
        if at == width:
            return None  # the full rows contradict each other: one of them is not full
        pivots.append(at)
    free = sorted(set(range(width)) - set(pivots))
    if any(math.isnan(near[j]) for j in free):
        return None
    value = {j: Fraction(near[j]).limit_denominator(_FREE_DENOMINATOR) for j in free}
    for i, at in enumerate(pivots):
        rest = sum((int(reduced[i, j]) * value[j] for j in free), Fraction(0))
        value[at] = (int(reduced[i, width]) - rest) / int(denominator)
    return [value[j] for j in range(width)]


def holds(master: Master, weights: list[Fraction]) -> bool:
    """Whether rational weights meet every row, checked in integers."""
    columns = master.uses.shape[1]
    scale = math.lcm(*(w.denominator for w in weights))
    numbers = np.array([int(w * scale) for w in weights[:columns]], object)
    if (numbers < 0).any():
        return False
    used = np.flatnonzero(numbers)
    total = np.zeros(len(master.count), object)
    np.add.at(total, master.group[used], numbers[used])
    if (total != master.count.astype(object) * scale).any():
        return False
    load = loads(master.uses, numbers)
    if master.room is None:
        room = [w * weights[-1] * scale for w in master.width]
    else:
        room = [r * scale for r in master.room]
    return all(a <= b for a, b in zip(load, room, strict=True))


def loads(uses: Any, numbers: npt.NDArray[np.object_]) -> list[int]:
    """``uses @ numbers`` in unlimited integers."""
    by_column = uses.tocsc()
    load = np.zeros(uses.shape[0], object)
    for i in np.flatnonzero(numbers).tolist():
        begin, end = by_column.indptr[i], by_column.indptr[i + 1]
        np.add.at(
            load,
            by_column.indices[begin:end],
            by_column.data[begin:end].astype(object) * numbers[i],
        )
    return [int(v) for v in load]
