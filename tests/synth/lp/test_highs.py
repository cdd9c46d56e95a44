"""HiGHS is asked as SciPy asks it, and loaded without SciPy's package."""

import subprocess
import sys

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.sparse import csr_array

from weft.synth.lp.highs import METHODS, OPTIMAL, solve_lp


def test_any_number_of_iterations_is_a_limit() -> None:
    for most in (1, 1 << 31, 10**15):
        found = solve_lp(np.ones(1), a_ub=-np.ones((1, 1)), b_ub=np.array([-3.0]), iterations=most)
        assert (found.status, found.value) == (OPTIMAL, 3.0)


@pytest.mark.parametrize("method", METHODS)
def test_answers_are_those_of_scipy(method: str) -> None:
    rng = np.random.default_rng(7)
    seen = set()
    for trial in range(60):
        rows, equal, columns = rng.integers(1, 12), rng.integers(1, 4), rng.integers(2, 20)
        a_ub = csr_array(rng.integers(-3, 9, (rows, columns)) * (rng.random((rows, columns)) < 0.4))
        a_eq = csr_array(
            rng.integers(0, 5, (equal, columns)) * (rng.random((equal, columns)) < 0.5)
        )
        cost, b_ub = rng.integers(-3, 9, columns).astype(float), rng.integers(-4, 20, rows)
        b_eq = rng.integers(0, 5, equal).astype(float)
        limits = ((0, None), (0, 5), np.stack([np.zeros(columns), np.full(columns, 3)], axis=1))
        bounds, most = limits[trial % 3], (1000, 3)[trial % 2]
        given = linprog(
            cost, a_ub, b_ub, a_eq, b_eq, bounds, method=method, options={"maxiter": most}
        )
        found = solve_lp(
            cost,
            a_ub=a_ub,
            b_ub=b_ub.astype(float),
            a_eq=a_eq,
            b_eq=b_eq,
            bounds=bounds,
            method=method,
            iterations=most,
        )
        seen.add(found.status)
        assert (found.status, found.iterations) == (given.status, given.nit)
        if given.x is not None:
            assert found.x is not None
            assert np.array_equal(found.x, given.x)
            assert found.value == given.fun
            assert np.array_equal(found.ub_prices, given.ineqlin.marginals)
            assert np.array_equal(found.eq_prices, given.eqlin.marginals)
    assert seen == {0, 2, 3} | ({1} if method != "highs-ipm" else seen & {1})


LOADED = """
import sys
import numpy as np
from weft.synth.lp.highs import solve_lp
found = solve_lp(np.ones(1), a_ub=-np.ones((1, 1)), b_ub=np.array([-3.0]))
assert found.value == 3.0
assert not {"scipy", "scipy.optimize", "scipy.sparse"} & sys.modules.keys()
from scipy.optimize import linprog
assert linprog([1.0], A_ub=[[-1.0]], b_ub=[-3.0]).fun == 3.0
"""


def test_scipy_is_not_loaded_for_a_program_and_works_afterwards() -> None:
    subprocess.run([sys.executable, "-c", LOADED], check=True)
