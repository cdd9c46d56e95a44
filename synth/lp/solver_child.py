"""A process that solves one model and can be killed: ``python -m weft.synth.lp.solver_child``.

It reads the folder, the solver, seconds and threads from its arguments, and ``model.json`` (PuLP's
own form) from the folder; it leaves ``answer.json`` there. It ends with the process that started
it, and with it all solvers that it has started. HiGHS is the one inside SciPy: the separate package
cannot live in one environment with OR-Tools' copy.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from weft.dsl.base.processes import end_with_owner


def main(folder: str, solver: str, seconds: float, threads: int) -> None:
    """Solve the model of a folder."""
    import pulp

    # Solvers run without Python's lock, so the thread that waits for this is not held up by them.
    end_with_owner(Path(folder), tree=True)
    _, problem = pulp.LpProblem.fromJson(str(Path(folder, "model.json")))
    answer = (
        _highs(problem, seconds)
        if solver == "highs"
        else _by_name(problem, pulp, solver, seconds, threads)
    )
    Path(folder, "answer.json").write_text(json.dumps(answer))


def _highs(problem: Any, seconds: float) -> dict[str, Any]:
    """Solve with SciPy's HiGHS, which reports its bound."""
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import coo_array

    variables = problem.variables()
    place = {v.name: i for i, v in enumerate(variables)}
    cost = np.zeros(len(variables))
    for variable, value in problem.objective.items():
        cost[place[variable.name]] = value
    entries, low, high = [], [], []
    for row, constraint in enumerate(problem.constraints.values()):
        entries += [(row, place[v.name], x) for v, x in constraint.items()]
        side = -constraint.constant
        low.append(-np.inf if constraint.sense < 0 else side)
        high.append(np.inf if constraint.sense > 0 else side)
    at, column, value = (np.array(x) for x in zip(*entries, strict=True))
    matrix = coo_array((value, (at, column)), shape=(len(low), len(variables))).tocsr()
    low_of = np.array([-np.inf if v.lowBound is None else v.lowBound for v in variables])
    high_of = np.array([np.inf if v.upBound is None else v.upBound for v in variables])
    limits: Any = Bounds
    solve: Any = milp
    found = solve(
        cost,
        integrality=[int(v.cat == "Integer") for v in variables],
        bounds=limits(low_of, high_of),
        constraints=LinearConstraint(matrix, low, high),
        options={"time_limit": seconds},
    )
    bound = found.mip_dual_bound
    return {
        "infeasible": found.status == 2,
        "bound": None if bound is None or not np.isfinite(bound) else float(bound),
        "values": None
        if found.x is None
        else {v.name: float(x) for v, x in zip(variables, found.x, strict=True) if x > 1e-6},
    }


def _by_name(problem: Any, pulp: Any, solver: str, seconds: float, threads: int) -> dict[str, Any]:
    """Solve with a solver that PuLP drives; a bound only where it proves its answer optimal."""
    name = "PULP_CBC_CMD" if solver == "cbc" else solver
    problem.solve(pulp.getSolver(name, msg=False, timeLimit=seconds, threads=threads))
    has = problem.sol_status in (pulp.LpSolutionOptimal, pulp.LpSolutionIntegerFeasible)
    best = problem.sol_status == pulp.LpSolutionOptimal
    return {
        "infeasible": problem.sol_status == pulp.LpSolutionInfeasible,
        "bound": float(pulp.value(problem.objective)) if best else None,
        "values": {v.name: v.value() for v in problem.variables() if (v.value() or 0) > 1e-6}
        if has
        else None,
    }


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4]))
