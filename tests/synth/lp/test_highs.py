"""Limits that are handed to HiGHS."""

from __future__ import annotations

import numpy as np

from weft.synth.lp.highs import OPTIMAL, solve_lp


def test_any_number_of_iterations_is_a_limit() -> None:
    for most in (1, 1 << 31, 10**15):
        found = solve_lp(np.ones(1), a_ub=-np.ones((1, 1)), b_ub=np.array([-3.0]), iterations=most)
        assert (found.status, found.value) == (OPTIMAL, 3.0)
