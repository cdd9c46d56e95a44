"""Sparse matrices beside SciPy's."""

import numpy as np
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from weft.dsl.base.matrix import SparseMatrix, hstack, vstack

Seeds = st.integers(0, 10**6)


def entries(rng: np.random.Generator, height: int, width: int) -> sparse.coo_array:
    """Entries in any order, some at the same place, some 0."""
    count = int(rng.integers(0, 30))
    at = (rng.integers(0, height, count), rng.integers(0, width, count))
    return sparse.coo_array((rng.integers(-4, 5, count), at), shape=(height, width))


@settings(max_examples=examples(75, 150))
@given(Seeds, st.integers(1, 7), st.integers(1, 7))
def test_all_is_as_in_scipy(seed: int, height: int, width: int) -> None:
    rng = np.random.default_rng(seed)
    made, beside = entries(rng, height, width), entries(rng, height, 3)
    below = entries(rng, 2, width)
    matrix, theirs = SparseMatrix.given(made), made.tocsr()
    assert np.array_equal(matrix.toarray(), theirs.toarray())
    assert matrix.nnz == theirs.nnz  # a sum that is 0 stays an entry: it counts as work
    assert np.array_equal(matrix.starts, theirs.indptr)
    assert np.array_equal(matrix.column, theirs.indices)
    assert np.array_equal(matrix.T.data, made.tocsc().data)
    assert np.array_equal(matrix.T.column, made.tocsc().indices)
    vector = rng.integers(-9, 9, width)
    assert np.array_equal(matrix @ vector, theirs @ vector)
    floats = rng.random(width)
    assert np.array_equal(matrix.astype(float) @ floats, theirs.astype(float) @ floats)
    rows = rng.integers(0, height, 5)
    assert np.array_equal(matrix[rows].toarray(), theirs[rows].toarray())
    mask = rng.random(height) < 0.5
    assert np.array_equal(matrix[mask].toarray(), theirs[mask].toarray())
    assert np.array_equal(matrix.row_weights(), abs(theirs).sum(axis=1))
    side = hstack(matrix, SparseMatrix.given(beside))
    assert np.array_equal(side.toarray(), sparse.hstack([made, beside]).toarray())
    pile = vstack(matrix, SparseMatrix.given(below))
    assert np.array_equal(pile.toarray(), sparse.vstack([made, below]).toarray())


@given(Seeds)
def test_dense_arrays_lose_their_zeros(seed: int) -> None:
    dense = np.random.default_rng(seed).integers(-1, 2, (4, 5))
    matrix = SparseMatrix.given(dense)
    assert np.array_equal(matrix.toarray(), dense)
    assert matrix.nnz == np.count_nonzero(dense)


def test_products_of_large_integers_are_exact() -> None:
    big = 1 << 61
    matrix = SparseMatrix.of((2, 2), [0, 0, 1], [0, 1, 1], [1, 1, 3])
    assert (matrix @ np.array([big, big - 1])).tolist()[0] == 2 * big - 1
    assert SparseMatrix.empty(3, 2).toarray().shape == (3, 2)
    assert (SparseMatrix.empty(0, 2) @ np.ones(2)).tolist() == []
