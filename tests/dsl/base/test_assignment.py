"""Assignments of random tables, against SciPy: the same pairs, ties included."""

import numpy as np
from scipy.optimize import linear_sum_assignment

from weft.dsl.base.assignment import best_assignment


def test_pairs_are_those_of_scipy() -> None:
    rng = np.random.default_rng(0)
    for largest in (1, 2, 4, 1_000_000):
        for _ in range(100):
            shape = rng.integers(1, 12, 2)
            worth = rng.integers(0, largest + 1, shape).astype(float)
            found, expected = best_assignment(worth), linear_sum_assignment(worth, maximize=True)
            assert [x.tolist() for x in found] == [x.tolist() for x in expected]
