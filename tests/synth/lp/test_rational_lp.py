"""Certified linear programs: bounds that hold whatever the float solver says."""

from fractions import Fraction

import numpy as np
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array, random_array

from weft.dsl.base.errors import Infeasible, UserError
from weft.dsl.base.matrix import SparseMatrix
from weft.synth.lp import certified as rational_lp
from weft.synth.lp.certified import (
    UNBOUNDED,
    LinearProgram,
    certified_minimum,
    common_denominator,
    proved_bound,
)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def recheck(lp: LinearProgram, answer: rational_lp.Certified) -> None:
    """Weak duality once more, in Fractions and loops."""
    y = [Fraction(int(v), answer.denominator) for v in (*answer.dual_ub, *answer.dual_eq)]
    rows = [*lp.a_ub.toarray().tolist(), *lp.a_eq.toarray().tolist()]
    assert all(v <= 0 for v in y[: len(lp.b_ub)])
    bound = sum((v * int(b) for v, b in zip(y, [*lp.b_ub, *lp.b_eq], strict=True)), Fraction(0))
    for j in range(lp.columns):
        paid = sum((v * r[j] for v, r in zip(y, rows, strict=True)), Fraction(0))
        reduced = int(lp.cost[j]) - paid
        if reduced < 0:
            assert lp.upper is not None
            assert lp.upper[j] != UNBOUNDED
            bound += reduced * int(lp.upper[j])
    assert bound == answer.lower


def test_a_vertex_with_an_odd_denominator_is_exact():
    # min x+y, 3x + y >= 2, x + 5y >= 3: the vertex is (1/2, 1/2).
    lp = LinearProgram(ints(1, 1), csr_array([[-3, -1], [-1, -5]]), ints(-2, -3))
    answer = certified_minimum(lp)
    assert answer.lower == 1
    assert answer.exact
    recheck(lp, answer)


def test_equalities_and_bounds():
    # max x subject to x + 7y = 3, y >= 1/7·x, x <= 1: min -x.
    lp = LinearProgram(
        ints(-1, 0), csr_array([[1, -7]]), ints(0), csr_array([[1, 7]]), ints(3), ints(1, UNBOUNDED)
    )
    answer = certified_minimum(lp)
    assert answer.lower == -1
    assert answer.exact
    recheck(lp, answer)


def test_infeasible_is_said():
    lp = LinearProgram(ints(1), csr_array([[1]]), ints(-1))
    with pytest.raises(Infeasible):
        certified_minimum(lp)


def test_bad_numbers_are_refused():
    with pytest.raises(UserError, match="not integers"):
        LinearProgram(np.array([0.5]))
    with pytest.raises(UserError, match="a_ub is"):
        LinearProgram(ints(1), csr_array([[1, 1]]), ints(1))


def test_prices_that_prove_nothing():
    lp = LinearProgram(ints(1), csr_array([[-2]]), ints(-1))
    assert proved_bound(lp, ints(-1), ints(), 2) == Fraction(1, 2)
    assert proved_bound(lp, ints(1), ints(), 2) is None  # wrong sign
    assert proved_bound(lp, ints(-2), ints(), 2) is None  # dearer than its column


def test_huge_coefficients_are_summed_exactly():
    big = (1 << 50) + 1
    matrix = csr_array(np.array([[big, -big], [1, big]], np.int64))
    vector = ints((1 << 55) + 3, (1 << 55) - 5)
    want = [big * int(vector[0]) - big * int(vector[1]), int(vector[0]) + big * int(vector[1])]
    assert rational_lp._exact_product(SparseMatrix.given(matrix), vector).tolist() == want


@given(st.lists(st.fractions(-3, 3, max_denominator=97), min_size=1, max_size=4))
def test_common_denominator_finds_the_fractions(values):
    denominator = common_denominator(np.array([float(v) for v in values]))
    assert denominator is not None
    assert all((v * denominator).denominator == 1 for v in values)


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 7), st.integers(2, 7), st.booleans())
def test_random_programs_are_bounded_truly(seed, rows, columns, bounded):
    """Covering programs: the bound never exceeds the float optimum, and nearly meets it."""
    rng = np.random.default_rng(seed)
    cover = rng.integers(0, 9, (rows, columns))
    cover[:, 0] += 1
    upper = np.full(columns, 1000) if bounded else None
    lp = LinearProgram(
        rng.integers(1, 50, columns), csr_array(-cover), -rng.integers(1, 99, rows), upper=upper
    )
    answer = certified_minimum(lp)
    assert float(answer.lower) == pytest.approx(answer.value, rel=1e-7)
    assert answer.attained is None or answer.lower <= answer.attained
    recheck(lp, answer)


@pytest.mark.parametrize("noise", [1e-3, 1e-6])
def test_a_lying_solver_cannot_break_the_bound(monkeypatch, noise):
    lp = LinearProgram(ints(1, 1), csr_array([[-3, -1], [-1, -5]]), ints(-2, -3))
    honest = rational_lp._solve

    def lying(*args):
        x, prices, value = honest(*args)
        return x, prices * (1 + noise * np.array([1.0, 3.0])), value

    monkeypatch.setattr(rational_lp, "_solve", lying)
    answer = certified_minimum(lp)
    assert 1 - 10 * noise <= answer.lower <= 1
    recheck(lp, answer)


def test_large_programs_stay_quick():
    """40 000 columns: the exact check costs less than the solve."""
    rng = np.random.default_rng(1)
    matrix = random_array((2000, 40_000), density=0.0005, rng=rng).tocsr()
    matrix.data = rng.integers(1, 9, len(matrix.data)).astype(float)
    fill = csr_array((np.ones(2000), (np.arange(2000), np.arange(2000))), shape=(2000, 40_000))
    lp = LinearProgram(rng.integers(1, 9, 40_000), -(matrix + fill), -np.ones(2000, np.int64))
    answer = certified_minimum(lp)
    assert float(answer.lower) == pytest.approx(answer.value, rel=1e-6)
