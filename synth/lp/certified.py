"""Linear programs whose optimum comes with a rational proof.

HiGHS solves in floats; what is returned as ``lower`` does not depend on it being right. Weak
duality makes a bound out of *any* row prices: for min c·x with A_ub x <= b_ub, A_eq x = b_eq
and 0 <= x <= u, and prices y (y_ub <= 0), every feasible x has

    c·x  >=  y·b + sum_j min(0, c_j - (Aᵀy)_j) · u_j

(Neumaier and Shcherbina, "Safe bounds in linear and mixed-integer linear programming", 2004).
So the float duals are rounded to rationals over one denominator and the right-hand side is
computed in integers. Columns without an upper bound need a reduced cost that is not negative;
where rounding broke that, the prices are moved towards strictly feasible ones.

>>> import numpy as np
>>> lp = LinearProgram(np.array([1, 1]), np.array([[-3, 0], [0, -7]]), np.array([-1, -2]))
>>> answer = certified_minimum(lp)
>>> answer.lower, answer.exact
(Fraction(13, 21), True)

Shrinking symmetric linear programs by colour refinement.

Give rows and columns colours such that all rows of one colour see the same multiset of
(coefficient, column colour), and the other way round. Then some optimal solution is constant on
column colours and some optimal dual on row colours, and the program with one row and one column
per colour has the same optimum (Grohe, Kersting, Mladenov and Selman, "Dimension reduction via
colour refinement", ESA 2014). A flow on a 64-node torus shrinks a hundredfold. No
automorphism is needed or computed, and nothing here is trusted: the code that certifies a bound
checks it on the whole program.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import field, replace
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from weft.dsl.base.arrays import (
    GOLDEN,
    AnyArray,
    Bools,
    Floats,
    Ints,
    Words,
    distinct_values,
    scrambled,
)
from weft.dsl.base.errors import Infeasible, NothingFound, UserError
from weft.dsl.base.integers import FLOAT_EXACT
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.matrix import SparseMatrix, hstack, vstack

from ..base.effort import Effort, setting, share
from ..base.meter import Meter
from ..solvers.pool import listener_of
from .highs import INFEASIBLE, OPTIMAL, iteration_steps, solve_lp


@dataclass(frozen=True, slots=True)
class ProgramEffort(Effort):
    """Limits on the work on a linear program besides solving it in floats."""

    quotient_columns: int = setting(
        200, "columns from which a program is shrunk by colour refinement"
    )
    quotient_rounds: int = setting(64, "rounds of colour refinement, at most")
    quotient_share: float = share(
        0.5, "a quotient with more than this part of the columns is not used"
    )
    family_unknowns: int = setting(
        2000, "unknowns of a vertex of few families that is solved exactly, at most"
    )
    split_unknowns: int = setting(
        700, "unknowns of a vertex of many pairs that is solved exactly, at most"
    )


PROGRAM_EFFORT = ProgramEffort()
"""Default limits."""


ENTRY_STEPS = 2
"""Steps per entry of a matrix, to hand it over and presolve it."""

UNBOUNDED = np.iinfo(np.int64).max
"""An entry of ``LinearProgram.upper`` that is not a bound."""

_EXACT = 1 << 62  # sums of absolute values below this are exact in int64
_STEP_DENOMINATOR = 20_000  # one step of the rational reconstruction
_LARGEST_DENOMINATOR = 1 << 40
_FLOAT_ERROR = 1e-9  # how far a float dual is believed to be from its rational value
_GRID = 1 << 33  # denominator of last resort


@dataclass(frozen=True, eq=False)
class LinearProgram:
    """Minimise cost·x subject to a_ub x <= b_ub, a_eq x = b_eq, 0 <= x <= upper; all integers.

    Scale rational rows to integers row by row, the cost as a whole.

    Raises:
        UserError: entries that are not integers, shapes that do not fit, or numbers so large
            that 64-bit sums could overflow.
    """

    cost: Ints  # shape (columns,)
    # a_ub, b_ub: inequality rows, a SparseMatrix, one of SciPy's or a dense array, kept as the
    # first, and the right-hand sides
    a_ub: Any = None
    b_ub: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    # a_eq, b_eq: equality rows
    a_eq: Any = None
    b_eq: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    # Bounds of the columns, UNBOUNDED where there is none. They make the certificate robust, so
    # state those that are known.
    upper: Ints | None = None

    def __post_init__(self) -> None:
        n = len(self.cost)
        for name in ("cost", "b_ub", "b_eq"):
            object.__setattr__(self, name, _as_integers(getattr(self, name), name))
        for name, b in (("a_ub", self.b_ub), ("a_eq", self.b_eq)):
            given = getattr(self, name)
            matrix = SparseMatrix.empty(0, n) if given is None else SparseMatrix.given(given)
            if matrix.shape != (len(b), n):
                raise UserError(f"linear program: {name} is {matrix.shape}, not {(len(b), n)}")
            entries = _as_integers(matrix.data, name)
            object.__setattr__(self, name, replace(matrix, data=entries))
        if self.upper is not None:
            upper = _as_integers(self.upper, "upper")
            if len(upper) != n or (upper < 0).any():
                raise UserError("linear program: upper bounds are missing or negative")
            object.__setattr__(self, "upper", upper)

    @property
    def columns(self) -> int:
        """Number of variables."""
        return len(self.cost)


@dataclass(frozen=True, eq=False)
class Certified:
    """A proved lower bound, and the float solution it came from.

    Attributes:
        lower: no feasible x costs less; checked in integer arithmetic.
        value: cost of the float primal solution ``x``.
        x: float primal solution.
        dual_ub, dual_eq: the proof: integer prices over ``denominator``, ``dual_ub <= 0``.
        attained: cost of an exactly feasible rational x, where rounding ``x`` gave one.
        exact: ``lower == attained``: the optimum is known exactly.
        x_numerators, x_denominator: that rational x.
    """

    lower: Fraction
    value: float
    x: Floats
    dual_ub: Ints
    dual_eq: Ints
    denominator: int
    attained: Fraction | None = None
    x_numerators: Ints | None = None
    x_denominator: int = 1

    @property
    def exact(self) -> bool:
        """True if an exactly feasible solution attains the lower bound."""
        return self.attained is not None and self.attained == self.lower


def certified_minimum(
    lp: LinearProgram,
    *,
    method: str = "highs",
    meter: Meter | None = None,
    most_columns: int | None = None,
) -> Certified:
    """Solve, round the duals to rationals and prove the bound they give.

    ``method`` is one of SciPy's: ``highs``, ``highs-ds`` (dual simplex), ``highs-ipm``.

    Raises:
        Infeasible: the solver says that no x is feasible (in floats: that is not proved here).
        NothingFound: no answer before the end of ``meter``, or no prices could be made feasible,
            or it has more than ``most_columns`` once its symmetry is used.
    """
    x, prices, value = _solve(lp, method, meter, most_columns, PROGRAM_EFFORT)
    primal = _rational_primal(lp, x)
    best = _best_dual(lp, prices, value, primal[0] if primal else None)
    if best is None:
        raise NothingFound("the dual of a linear program could not be made feasible exactly")
    lower, numerators, denominator = best
    rows = len(lp.b_ub)
    attained, x_numerators, x_denominator = primal or (None, None, 1)
    return Certified(
        lower,
        value,
        x,
        numerators[:rows],
        numerators[rows:],
        denominator,
        attained,
        x_numerators,
        x_denominator,
    )


def proved_bound(
    lp: LinearProgram, dual_ub: Ints, dual_eq: Ints, denominator: int
) -> Fraction | None:
    """The bound that prices prove (module docstring), or None where they prove nothing.

    This is the whole trusted part: no float takes part in it.
    """
    if denominator < 1 or (dual_ub > 0).any():
        return None
    paid = _exact_product(lp.a_ub.T, dual_ub) + _exact_product(lp.a_eq.T, dual_eq)
    reduced = lp.cost.astype(object) * denominator - paid
    negative = np.flatnonzero(reduced < 0)
    value = _exact_dot(lp.b_ub, dual_ub) + _exact_dot(lp.b_eq, dual_eq)
    if len(negative):
        if lp.upper is None or (lp.upper[negative] == UNBOUNDED).any():
            return None
        value += _exact_dot(lp.upper[negative], reduced[negative])
    return Fraction(int(value), denominator)


# --- the float solver -------------------------------------------------------------------------


def _solve(
    lp: LinearProgram,
    method: str,
    meter: Meter | None,
    most_columns: int | None,
    effort: ProgramEffort,
) -> tuple[Floats, Floats, float]:
    """Solution, row prices and value; of the quotient by colour refinement if much smaller."""
    matrix = vstack(lp.a_ub, lp.a_eq)
    right = np.concatenate([lp.b_ub, lp.b_eq])
    rows, n = len(lp.b_ub), lp.columns
    kind = np.arange(len(right)) >= rows
    upper = np.full(n, UNBOUNDED) if lp.upper is None else lp.upper
    small = None
    if n >= effort.quotient_columns:
        small = quotient(
            matrix, np.stack([kind, right], axis=1), np.stack([lp.cost, upper], axis=1), effort
        )
    columns_left = n if small is None else len(small.column_at)
    if most_columns is not None and columns_left > most_columns:
        raise NothingFound(f"a linear program has {columns_left} columns")
    if small is None:
        return _highs(matrix, right, kind, lp.cost, upper, method, meter)
    at, columns = small.row_at, small.column_at
    x, prices, value = _highs(
        small.shrink(matrix),
        right[at],
        kind[at],
        lp.cost[columns] * small.column_size,
        upper[columns],
        method,
        meter,
    )
    # A solution is constant on colours of columns; prices are shared out among the rows.
    return x[small.column_of], (prices / small.row_size)[small.row_of], value


def _highs(
    matrix: SparseMatrix,
    right: Ints,
    equal: Bools,
    cost: Ints,
    upper: Ints,
    method: str,
    meter: Meter | None,
) -> tuple[Floats, Floats, float]:
    high = np.where(upper == UNBOUNDED, np.inf, upper.astype(float))
    floats = matrix.astype(float)
    each = iteration_steps(matrix.nnz)
    result = solve_lp(
        cost.astype(float),
        a_ub=floats[~equal] if not equal.all() else None,
        b_ub=right[~equal].astype(float) if not equal.all() else None,
        a_eq=floats[equal] if equal.any() else None,
        b_eq=right[equal].astype(float) if equal.any() else None,
        bounds=np.stack([np.zeros(len(cost)), high], axis=1),
        method=method,
        iterations=None if meter is None else max(1, meter.left // each),
        listener=listener_of(meter),
    )
    if meter is not None:
        meter.spend(matrix.nnz * ENTRY_STEPS + each * result.iterations)
    if result.status == INFEASIBLE:
        raise Infeasible("a linear program has no solution")
    if result.status != OPTIMAL or result.x is None:
        raise NothingFound(f"a linear program was not solved: {result.message}")
    prices = np.zeros(len(right))
    prices[~equal] = result.ub_prices
    prices[equal] = result.eq_prices
    return np.maximum(result.x, 0.0), prices, result.value


# --- from floats to rationals -----------------------------------------------------------------


def common_denominator(values: Floats, error: float = _FLOAT_ERROR) -> int | None:
    """A small D such that all ``values`` are within ``error`` of a multiple of 1/D, or None.

    Repeatedly multiplies D by the denominator of the first value that is not yet a multiple;
    each turn at least doubles D, so the array is scanned a few dozen times at most.
    """
    denominator = 1
    rest = values
    while denominator <= _LARGEST_DENOMINATOR:
        scaled = rest * denominator
        off = np.abs(scaled - np.rint(scaled)) > max(1e-7, error * denominator)
        rest = rest[off]
        if not len(rest):
            return denominator
        step = Fraction(float(rest[0] * denominator)).limit_denominator(_STEP_DENOMINATOR)
        if step.denominator == 1:
            return None
        denominator *= step.denominator
    return None


def _rational_primal(lp: LinearProgram, x: Floats) -> tuple[Fraction, Ints, int] | None:
    """The rounded primal solution if exactly feasible: its cost, numerators, denominator."""
    denominator = common_denominator(x)
    if denominator is None or float(np.abs(x).max(initial=0)) * denominator > _EXACT:
        return None
    numerators: Ints = np.rint(x * denominator).astype(np.int64)
    slack = lp.b_ub.astype(object) * denominator - _exact_product(lp.a_ub, numerators)
    gap = lp.b_eq.astype(object) * denominator - _exact_product(lp.a_eq, numerators)
    if (slack < 0).any() or (gap != 0).any():
        return None
    if lp.upper is not None:
        bounded = lp.upper != UNBOUNDED
        high = lp.upper[bounded].astype(object) * denominator
        if (numerators[bounded] > high).any():
            return None
    return Fraction(_exact_dot(lp.cost, numerators), denominator), numerators, denominator


def _best_dual(
    lp: LinearProgram, prices: Floats, value: float, attained: Fraction | None
) -> tuple[Fraction, Ints, int] | None:
    """The best bound that a rounding proves; stops at the first that cannot be beaten."""
    best: tuple[Fraction, Ints, int] | None = None
    rows = len(lp.b_ub)
    for numerators, denominator in _roundings(lp, prices):
        bound = proved_bound(lp, numerators[:rows], numerators[rows:], denominator)
        if bound is None:
            continue
        if best is None or bound > best[0]:
            best = bound, numerators, denominator
        if bound == attained or (attained is None and abs(bound - value) <= 1e-9 * abs(value)):
            break
    return best


def _roundings(lp: LinearProgram, prices: Floats) -> Iterator[tuple[Ints, int]]:
    """Candidate rational prices, the simplest first."""
    rows = len(lp.b_ub)
    for error in (_FLOAT_ERROR, 1e-7, 1e-11):
        denominator = common_denominator(prices, error)
        if denominator is not None:
            yield _round(prices, rows, denominator), denominator
    yield _round(prices, rows, _grid(prices)), _grid(prices)
    if lp.upper is None or (lp.upper == UNBOUNDED).any():
        mixed = _towards_interior(lp, prices)
        if mixed is not None:
            yield _round(mixed, rows, _grid(mixed)), _grid(mixed)


def _grid(prices: Floats) -> int:
    """A fine denominator that keeps the numerators far from overflow."""
    largest = float(np.abs(prices).max(initial=0))
    return max(1, min(_GRID, int(2.0**60 / max(1.0, largest))))


def _round(prices: Floats, rows: int, denominator: int) -> Ints:
    scaled = np.clip(prices * float(denominator), -(2.0**61), 2.0**61)
    numerators: Ints = np.rint(scaled).astype(np.int64)
    numerators[:rows] = np.minimum(numerators[:rows], 0)
    return numerators


def _towards_interior(lp: LinearProgram, prices: Floats) -> Floats | None:
    """Prices mixed with strictly feasible ones, just enough to survive rounding.

    The strictly feasible prices z maximise the least reduced cost t (capped at 1) over the
    columns without an upper bound; they exist wherever no ray of feasible points is free.
    """
    free = np.ones(lp.columns, bool) if lp.upper is None else lp.upper == UNBOUNDED
    transposed = vstack(lp.a_ub, lp.a_eq).T.astype(float)[free]
    rows = len(lp.b_ub)
    system = hstack(transposed, SparseMatrix.given(np.ones((transposed.shape[0], 1))))
    limit = 10.0 * (1.0 + float(np.abs(prices).max(initial=0)))
    bounds = [(-limit, 0.0)] * rows + [(-limit, limit)] * len(lp.b_eq) + [(0.0, 1.0)]
    goal = np.zeros(len(prices) + 1)
    goal[-1] = -1.0
    found = solve_lp(goal, a_ub=system, b_ub=lp.cost[free].astype(float), bounds=bounds)
    if found.status != OPTIMAL or found.x is None or found.x[-1] <= 1e-12:
        return None
    interior, depth = found.x[:-1], found.x[-1]
    # Rounding to the grid moves a reduced cost by at most half a unit for each entry.
    weight = float(transposed.row_weights().max(initial=0)) / _grid(prices)
    broken = float(np.maximum(0.0, transposed @ prices - lp.cost[free]).max(initial=0.0))
    share = min(1.0, 2.0 * (broken + weight) / (broken + weight + depth))
    return np.asarray((1.0 - share) * prices + share * interior)


# --- exact arithmetic -------------------------------------------------------------------------


def _as_integers(values: Any, what: str) -> Ints:
    """As int64, within the exact range of floats: the solver must see the same program."""
    array = np.asarray(values)
    if array.dtype.kind not in "if" or not np.array_equal(array, np.rint(array)):
        raise UserError(f"linear program: {what} holds numbers that are not integers")
    if (np.abs(array[array != UNBOUNDED]) > FLOAT_EXACT).any():
        raise UserError(f"linear program: {what} holds numbers beyond 2^53")
    return array.astype(np.int64)


def _exact_product(matrix: SparseMatrix, vector: Ints) -> npt.NDArray[np.object_]:
    """matrix · vector as Python integers of any size.

    One int64 product where no partial sum can overflow, else one per limb of the vector.
    """
    heaviest = math.ceil(float(matrix.row_weights().max(initial=0)) * (1 + 1e-9))
    if heaviest == 0 or not len(vector):
        return np.zeros(matrix.shape[0], dtype=object)
    largest = max(abs(int(vector.max())), abs(int(vector.min())))
    if heaviest * largest < _EXACT:
        return np.asarray(matrix @ vector).astype(object)
    bits = (_EXACT // heaviest).bit_length() - 1
    if bits < 1:
        raise UserError("linear program: coefficients too large for exact arithmetic")
    total = np.zeros(matrix.shape[0], dtype=object)
    sign, rest, shift = np.sign(vector), np.abs(vector), 0
    while rest.any():
        limb = (rest & ((1 << bits) - 1)) * sign
        total = total + np.asarray(matrix @ limb).astype(object) * (1 << shift)
        rest, shift = rest >> bits, shift + bits
    return total


def _exact_dot(a: AnyArray, b: AnyArray) -> int:
    both = np.flatnonzero((a != 0) & (b != 0))
    return sum(x * y for x, y in zip(a[both].tolist(), b[both].tolist(), strict=True))


@dataclass(frozen=True, eq=False)
class ColourQuotient:
    """Colours of rows and columns, one representative and the size of each colour class."""

    row_of: Ints
    column_of: Ints
    row_at: Ints
    column_at: Ints
    row_size: Ints
    column_size: Ints

    def shrink(self, matrix: SparseMatrix) -> SparseMatrix:
        """The matrix with one row and one column per colour."""
        kept = matrix[self.row_at]
        shape = (len(self.row_at), len(self.column_at))
        return SparseMatrix.of(shape, kept.row, self.column_of[kept.column], kept.data)


def quotient(
    matrix: SparseMatrix, row_keys: Any, column_keys: Any, effort: ProgramEffort = PROGRAM_EFFORT
) -> ColourQuotient | None:
    """The coarsest stable colouring of a matrix that respects the given keys.

    ``row_keys`` and ``column_keys`` are integer arrays, shape (rows, k) and (columns, k): only
    equal keys may share a colour. None if the colouring saves too little, or takes
    too long.
    """
    by_column = matrix.T
    rows, columns = _start(row_keys, 1), _start(column_keys, 2)
    counts = (0, 0)
    for _ in range(effort.quotient_rounds):
        rows = _mix(rows ^ _gather(matrix, columns))
        columns = _mix(columns ^ _gather(by_column, rows))
        seen = (len(distinct_values(rows)), len(distinct_values(columns)))
        if seen[1] > effort.quotient_share * len(columns):
            return None
        if seen == counts:
            _, row_at, row_of, row_size = np.unique(rows, True, True, True)
            _, column_at, column_of, column_size = np.unique(columns, True, True, True)
            return ColourQuotient(row_of, column_of, row_at, column_at, row_size, column_size)
        counts = seen
    return None


def _start(keys: Any, salt: int) -> Words:
    table = np.asarray(keys, np.int64).astype(np.uint64)
    total: Words = np.full(len(table), salt, np.uint64)
    for i in range(table.shape[1]):
        total = _mix(total ^ _mix(table[:, i] + np.uint64(i)))
    return total


def _gather(matrix: SparseMatrix, other: Words) -> Words:
    """Per row, a sum over entries of a hash of (coefficient, colour across)."""
    values = matrix.data.astype(np.int64).astype(np.uint64)
    cells = _mix(other[matrix.column] + _mix(values))
    total = np.concatenate([np.zeros(1, np.uint64), np.cumsum(cells, dtype=np.uint64)])
    return np.asarray(_mix(total[matrix.starts[1:]] - total[matrix.starts[:-1]]))


def _mix(x: Words) -> Words:
    return scrambled(x + GOLDEN)
