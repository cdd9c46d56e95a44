"""From the floats of a master program to rational weights that meet it exactly.

A vertex of the program (:mod:`.congestion`) solves a linear system: the columns with positive
weight against the resources that they fill. Which those are is read off the floats; the system is
solved in integers, and what comes out is checked in integers, so the floats are trusted with
nothing.

There are two forms, of different sizes. A :class:`FamilyProgram` (trees) has few families and dense
loads, and its time or its shares may be free; its vertex is a square system of independent rows,
found modulo a prime. A :class:`SplitProgram` (paths) has thousands of pairs, nearly all of which
use one path; what is left is brought to echelon form, where unknowns may stay free. Where a system
is singular the two differ in the vertex that they pick, so neither replaces the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import isnan, lcm, nan
from typing import Any, TypeVar

import numpy as np

from weft.dsl.base.arrays import AnyArray, Bools, Floats, Ints, distinct_values
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.matrix import SparseMatrix

from .certified import PROGRAM_EFFORT, common_denominator

_Left = TypeVar("_Left")
_Right = TypeVar("_Right")

TIGHT = 1e-7
"""Relative slack below which a row counts as tight; a vertex has none just above it."""

SUPPORT = 1e-9
"""Weights below this are zero."""

_PRIME = (1 << 61) - 1

_GRID = 1 << 16  # weights without a small denominator become multiples of one over this

_FREE_DENOMINATOR = 60


@dataclass(frozen=True, eq=False)
class FamilyProgram:
    """The master program of few families, exactly."""

    # Uses of each resource (orbit) per unit of weight and of time (chunks per GB/s)
    room: tuple[Fraction, ...]
    families: Ints  # those that are served, once for each chunk
    joint: bool  # both halves of the families carry the same free shares, which sum to 1

    def time(self, loads: Ints, weights: list[Fraction]) -> Fraction:
        """Return the exact time of the busiest resource."""
        unit = lcm(*(w.denominator for w in weights))
        numerators = np.array([int(w * unit) for w in weights], object)
        total = numerators @ loads.astype(object)
        busy = (Fraction(int(x), unit) / r for x, r in zip(total, self.room, strict=True) if x)
        return max(busy, default=Fraction(0))

    def served(self, family: Ints, weights: list[Fraction]) -> bool:
        """Return True if no weight is negative and every family has its exact demand."""
        if any(w < 0 for w in weights):
            return False
        got = dict.fromkeys(distinct_values(self.families).tolist(), Fraction(0))
        for k, w in zip(family.tolist(), weights, strict=True):
            got[k] += w
        if not self.joint:
            times = np.bincount(self.families)
            return all(got[k] == int(times[k]) for k in got)
        values = list(got.values())
        half = len(values) // 2
        return values[:half] == values[half:] and sum(values[:half]) == 1


def finish(
    program: FamilyProgram,
    loads: Ints,
    family: Ints,
    x: Floats,
    target: Fraction | None,
) -> list[Fraction] | None:
    """Rational weights near ``x`` (all columns), feasible exactly; None: not found.

    They take the time ``target``, or none given the time of the vertex that ``x`` is near.
    """
    support = np.flatnonzero(x > SUPPORT)
    used, mine, values = loads[support], family[support], x[support]
    for vertex in (False, True):
        if vertex:
            found = _vertex(program, used, mine, values, target)
        else:  # as multiples of one small fraction, where they are
            unit = common_denominator(values)
            multiples = np.rint(values * (unit or 1)).tolist()
            found = None if unit is None else [Fraction(int(n), unit) for n in multiples]
        if not found or not program.served(mine, found):
            continue
        if target is None or program.time(used, found) <= target:
            weights = [Fraction(0)] * len(x)
            for j, value in zip(support.tolist(), found, strict=True):
                weights[j] = value
            return weights
    return None


def rounded(program: FamilyProgram, family: Ints, x: Floats, unit: int = 1 << 20) -> list[Fraction]:
    """The weights as multiples of 1/``unit``, every family with its exact sum (or equal shares).

    What is lost to rounding goes to the largest tree of each family.
    """
    times = np.bincount(program.families)
    order = distinct_values(program.families)
    total = np.array([int(times[k]) * unit for k in order])
    whole = np.floor(np.maximum(x, 0) * unit).astype(np.int64)
    if program.joint:
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


def near(x: Floats, family: Ints, demand: tuple[Fraction, ...] | None) -> list[Fraction]:
    """Rationals near floats that add up exactly; for free shares, to 1 in either direction."""
    unit = common_denominator(x)
    if unit is None or unit > _GRID**2:
        unit = _GRID
    whole = [Fraction(int(n), unit) for n in np.rint(x * unit)]
    wanted = list(demand or ())
    if not demand:  # of each pair the share of the first, scaled so that all add up to 1
        total = [Fraction(0)] * (int(family.max()) + 1)
        for k, w in zip(family.tolist(), whole, strict=True):
            total[k] += w
        everything = sum(total[::2], Fraction(0))
        wanted = [total[k - k % 2] / everything for k in range(len(total))]
    for k in distinct_values(family).tolist():
        mine = np.flatnonzero(family == k).tolist()
        most = max(mine, key=lambda t: whole[t])
        whole[most] += wanted[k] - sum((whole[t] for t in mine), Fraction(0))
        if whole[most] < 0:  # rounding took more than there is: nearly nothing was wanted
            for t in mine:
                whole[t] = Fraction(0)
            whole[most] = wanted[k]
    return whole


def overlay(
    left: Sequence[tuple[_Left, Fraction]], right: Sequence[tuple[_Right, Fraction]]
) -> list[tuple[_Left, _Right, Fraction]]:
    """Two partitions of one interval into labelled pieces, as the pieces of both."""
    pieces = []
    i = j = 0
    a = left[0][1] if left else Fraction(0)
    b = right[0][1] if right else Fraction(0)
    while i < len(left) and j < len(right):
        width = min(a, b)
        if width:
            pieces.append((left[i][0], right[j][0], width))
        a, b = a - width, b - width
        if not a:
            i += 1
            a = left[i][1] if i < len(left) else a
        if not b:
            j += 1
            b = right[j][1] if j < len(right) else b
    return pieces


def _vertex(
    program: FamilyProgram,
    loads: Ints,
    family: Ints,
    x: Floats,
    target: Fraction | None,
) -> list[Fraction] | None:
    """The vertex that the floats are near; None if it has too many unknowns."""
    if len(x) > PROGRAM_EFFORT.family_unknowns:
        return None
    room = program.room
    floats = np.array([float(r) for r in room])
    busy = (x @ loads) / floats
    tight = np.flatnonzero(busy > (1 - TIGHT) * (float(target) if target else busy.max()))
    matrix, right = _family_system(
        program, loads[:, tight], family, [room[o] for o in tight], target
    )
    solution = _square(matrix, right)
    return None if solution is None else solution[: len(x)]


def _family_system(
    program: FamilyProgram, loads: Ints, family: Ints, room: list[Fraction], target: Fraction | None
) -> tuple[Any, list[Fraction]]:
    """Equations of the families, then of the tight rows; columns: trees, shares, the time."""
    order = distinct_values(program.families)
    times = np.bincount(program.families)
    n, half = len(family), len(order) // 2 if program.joint else 0
    timed = target is None
    demands = np.zeros((len(order) + program.joint, n + half + timed), object)
    demands[np.searchsorted(order, family), np.arange(n)] = 1
    right = [Fraction(int(times[k])) for k in order]
    if program.joint:
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


def _square(matrix: Any, right: list[Fraction]) -> list[Fraction] | None:
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


# --- paths: thousands of pairs --------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class SplitProgram:
    """Weights of columns: the sum per group is ``count``, and rows hold ``uses @ x <= room``.

    ``uses`` (rows, columns) is of integers; ``group`` (columns,) says which sum a
    column belongs to. Where ``room`` is None, rows hold ``uses @ x <= width * U`` with U unknown.
    """

    uses: SparseMatrix
    group: Ints
    count: Ints
    width: Sequence[Fraction]
    room: Sequence[Fraction] | None


def exact_weights(program: SplitProgram, x: Floats, slack: Floats) -> list[Fraction] | None:
    """Rational weights near a basic solution ``x`` that meet all rows; with U last, if unknown.

    ``slack`` (rows,) is relative: which rows are full. None where no attempt succeeds.
    """
    for positive, full in ((1e-7, 1e-7), (1e-9, 1e-9), (1e-6, 1e-6), (1e-7, 1e-9), (1e-9, 1e-6)):
        found = _attempt(program, x, x > positive, slack < full, PROGRAM_EFFORT.split_unknowns)
        if found is not None:
            return found
    return None


def _attempt(
    program: SplitProgram, x: Floats, kept: Bools, full: Bools, most: int
) -> list[Fraction] | None:
    """Solve for the columns that share their group's sum; all others are the whole sum, or 0."""
    members = np.bincount(program.group[kept], minlength=len(program.count))
    if (members[program.count > 0] == 0).any():
        return None
    alone = kept & (members[program.group] == 1)
    unknown = np.flatnonzero(kept & ~alone)
    weights = [Fraction(0)] * len(x)
    for i in np.flatnonzero(alone).tolist():
        weights[i] = Fraction(int(program.count[program.group[i]]))
    rows = np.flatnonzero(full)
    if len(unknown) + (program.room is None):
        if len(unknown) > most:
            return None
        solved = _echelon(_split_system(program, unknown, alone, rows), [*x[unknown].tolist(), nan])
        if solved is None:
            return None
        for i, value in zip(unknown.tolist(), solved, strict=False):
            weights[i] = value
        if program.room is None:
            weights.append(solved[-1])
    return weights if holds(program, weights) else None


def _split_system(
    program: SplitProgram, unknown: Ints, alone: Bools, rows: Ints
) -> list[list[Fraction]]:
    """Equations as rows: coefficients of the unknown columns (and U), then the right-hand side."""
    more = int(program.room is None)
    equations = []
    groups = program.group[unknown]
    for g in distinct_values(groups).tolist():
        row = [Fraction(int(k == g)) for k in groups.tolist()] + [Fraction(0)] * more
        equations.append([*row, Fraction(int(program.count[g]))])
    uses = program.uses
    fixed = uses @ np.where(alone, program.count[program.group], 0)
    place = np.full(uses.shape[1], -1)
    place[unknown] = np.arange(len(unknown))
    for r in rows.tolist():
        entries = np.arange(uses.starts[r], uses.starts[r + 1])
        entries = entries[place[uses.column[entries]] >= 0]
        if not len(entries) and not more:
            continue
        row = [Fraction(0)] * len(unknown)
        for i, value in zip(place[uses.column[entries]], uses.data[entries].tolist(), strict=True):
            row[i] = Fraction(int(value))
        if program.room is None:
            equations.append([*row, -program.width[r], Fraction(-int(fixed[r]))])
        else:
            equations.append([*row, program.room[r] - int(fixed[r])])
    return equations


def _echelon(equations: list[list[Fraction]], near: list[float]) -> list[Fraction] | None:
    """A solution by reduced echelon form; unknowns left free are rounded from ``near``."""
    import flint

    width = len(equations[0]) - 1
    table = []
    for row in equations:
        scale = lcm(*(v.denominator for v in row))
        table.append([int(v * scale) for v in row])
    reduced, denominator, rank = flint.fmpz_mat(table).rref()
    pivots = []
    for i in range(rank):
        at = next(j for j in range(width + 1) if reduced[i, j] != 0)
        if at == width:
            return None  # the full rows contradict each other: one of them is not full
        pivots.append(at)
    free = sorted(set(range(width)) - set(pivots))
    if any(isnan(near[j]) for j in free):
        return None
    value = {j: Fraction(near[j]).limit_denominator(_FREE_DENOMINATOR) for j in free}
    for i, at in enumerate(pivots):
        rest = sum((int(reduced[i, j]) * value[j] for j in free), Fraction(0))
        value[at] = (int(reduced[i, width]) - rest) / int(denominator)
    return [value[j] for j in range(width)]


def holds(program: SplitProgram, weights: list[Fraction]) -> bool:
    """Return True if rational weights satisfy every row, checked in integers."""
    columns = program.uses.shape[1]
    scale = lcm(*(w.denominator for w in weights))
    numbers = np.array([int(w * scale) for w in weights[:columns]], object)
    if (numbers < 0).any():
        return False
    used = np.flatnonzero(numbers)
    total = np.zeros(len(program.count), object)
    np.add.at(total, program.group[used], numbers[used])
    if (total != program.count.astype(object) * scale).any():
        return False
    load = loads(program.uses, numbers)
    if program.room is None:
        room = [w * weights[-1] * scale for w in program.width]
    else:
        room = [r * scale for r in program.room]
    return all(a <= b for a, b in zip(load, room, strict=True))


def loads(uses: SparseMatrix, numbers: AnyArray) -> list[int]:
    """``uses @ numbers`` in unlimited integers."""
    load = np.zeros(uses.shape[0], object)
    used = (numbers != 0)[uses.column]
    terms = uses.data[used].astype(object) * numbers[uses.column[used]]
    np.add.at(load, uses.row[used], terms)
    return [int(v) for v in load]
