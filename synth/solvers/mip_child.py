"""Mixed-integer programs by HiGHS, or by a solver that PuLP drives: a model in PuLP's own form.

HiGHS is the one inside SciPy (:mod:`.highs`). Its interface in C++ is called, since SciPy's
own function gets no solution on the way and stops by the clock only. A limit of work is counted in
looks: HiGHS checks after every round of cuts, every few nodes and in every heuristic whether it
should stop, always at the same places. The iterations of the simplex method between two looks are
counted when it has ended: it does not tell them before.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pulp

from weft.dsl.base.answering import Say
from weft.dsl.base.errors import Missing
from weft.dsl.base.matrix import SparseMatrix

from .highs import RowProgram, highs_core

LOOK_STEPS, STEPS_ENTRIES = 1000, 4
"""Steps of work between two looks: 1000, and 1 for this many entries of the matrix."""

ITERATION_STEPS = 150
"""Steps of work of an iteration of the simplex method: measured, alike at 800 to 21,000 entries."""

NODE_STEPS = 20
"""Times that of a look, for a node of CBC."""


def solve(question: Any, found: Say) -> dict[str, Any]:
    """Solve ``model`` by the solver ``by`` within ``steps``."""
    _, problem = pulp.LpProblem.fromDict(question["model"])
    if question["by"] == "highs":
        return _HighsSearch(problem, question["steps"], found).solve()
    with _inside(question["folder"]):
        return _by_name(problem, question["by"], question["steps"], question["folder"])


@contextmanager
def _inside(folder: str) -> Iterator[None]:
    before = os.getcwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


class _HighsSearch:
    """One program, and HiGHS's reports about it."""

    def __init__(self, problem: Any, steps: int, found: Say) -> None:
        self.variables = problem.variables()
        self.found = found
        self.program, entries = _as_arrays(problem, self.variables)
        self.each = LOOK_STEPS + entries // STEPS_ENTRIES
        self.most = max(1, steps // self.each)
        self.looks = 0

    def solve(self) -> dict[str, Any]:
        core = highs_core()
        highs = core._Highs()
        for option, value in (("output_flag", False), ("threads", 1), ("parallel", "off")):
            highs.setOptionValue(option, value)
        highs.passModel(self.program)
        highs.setCallback(self._told, None)
        for kind in ("kCallbackMipImprovingSolution", "kCallbackMipInterrupt"):
            highs.startCallback(getattr(core.cb.HighsCallbackType, kind))
        highs.run()
        status, info = highs.getModelStatus(), highs.getInfo()
        iterations = max(0, info.simplex_iteration_count)  # -1: unknown
        known = np.isfinite(info.objective_function_value)
        solved = status == core.HighsModelStatus.kOptimal
        integer = any(v.cat == "Integer" for v in self.variables)
        bound = info.mip_dual_bound if integer else info.objective_function_value
        return {
            "infeasible": status == core.HighsModelStatus.kInfeasible,
            "bound": float(bound) if np.isfinite(bound) and (integer or solved) else None,
            "values": self._values(highs.getSolution().col_value) if known else None,
            "steps": self.looks * self.each + ITERATION_STEPS * iterations,
        }

    def _told(self, kind: Any, message: str, told: Any, reply: Any, _: Any) -> None:
        if kind == highs_core().cb.HighsCallbackType.kCallbackMipImprovingSolution:
            bound = told.mip_dual_bound
            known = float(bound) if np.isfinite(bound) else None
            self.found({"values": self._values(told.mip_solution), "bound": known})
            return
        self.looks += 1
        if self.looks >= self.most:
            reply.user_interrupt = True

    def _values(self, x: Any) -> dict[str, float]:
        return {v.name: float(y) for v, y in zip(self.variables, x, strict=True) if y > 1e-6}


def _as_arrays(problem: Any, variables: list[Any]) -> tuple[Any, int]:
    """Return the program in HiGHS' form, and how many entries its matrix has."""
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
    limits = [
        (-np.inf if v.lowBound is None else v.lowBound, np.inf if v.upBound is None else v.upBound)
        for v in variables
    ]
    plain = RowProgram.of(
        cost,
        SparseMatrix.of((len(low), len(variables)), at, column, value.astype(float)),
        np.array(low, float),
        np.array(high, float),
        np.array(limits, float),
    )
    core, program = highs_core(), plain.model()
    if problem.sense == pulp.LpMaximize:
        program.sense_ = core.ObjSense.kMaximize
    whole, part = core.HighsVarType.kInteger, core.HighsVarType.kContinuous
    program.integrality_ = [whole if v.cat == "Integer" else part for v in variables]
    return program, len(plain.data)


def _by_name(problem: Any, name: str, steps: int, folder: str) -> dict[str, Any]:
    """Solve with a solver that PuLP drives; a bound only where it proves its answer optimal."""
    entries = sum(map(len, problem.constraints.values()))
    each = NODE_STEPS * (LOOK_STEPS + entries // STEPS_ENTRIES)
    limit: dict[str, Any] = {"timeLimit": max(1.0, steps / 1e6)}
    if name == "cbc":
        limit = {"maxNodes": max(1, steps // each)}
    try:
        solver = pulp.getSolver(
            "PULP_CBC_CMD" if name == "cbc" else name, msg=False, threads=1, **limit
        )
        solver.tmpDir = folder
        problem.solve(solver)
    except (pulp.PulpError, OSError) as error:
        raise Missing(
            f"flow: the solver {name!r} failed: {error}",
            hint="solver=highs and solver=cbc come with weft",
        ) from None
    has = problem.sol_status in (pulp.LpSolutionOptimal, pulp.LpSolutionIntegerFeasible)
    best = problem.sol_status == pulp.LpSolutionOptimal
    values = {v.name: v.value() for v in problem.variables() if (v.value() or 0) > 1e-6}
    return {
        "infeasible": problem.sol_status == pulp.LpSolutionInfeasible,
        "bound": float(pulp.value(problem.objective)) if best else None,
        "values": values if has else None,
        "steps": steps,
    }
