"""CP-SAT, called only here: solve a model given as the text of OR-Tools' own format.

Only the extension module is imported: the Python layer above it loads pandas, 0.36 CPU seconds.
"""

from __future__ import annotations

import math
from typing import Any

from ortools.sat.python import cp_model_helper

from weft.dsl.base.answering import Say


def solve(question: Any, found: Say) -> Any:
    """Solve ``model`` with ``parameters``; ``found`` receives each solution of an optimization."""
    model, parameters = cp_model_helper.CpModelProto(), cp_model_helper.SatParameters()
    if not model.parse_text_format(question["model"]):
        raise ValueError("CP-SAT does not understand the model")
    if not parameters.parse_text_format(question["parameters"]):
        raise ValueError(f"CP-SAT does not understand {question['parameters']!r}")
    solver: Any = cp_model_helper.SolveWrapper()
    solver.set_parameters(parameters)
    # The solver holds no reference to it
    incumbents = _SolutionSender(len(model.variables), found, question.get("solutions", 0))
    if model.has_objective():
        solver.add_solution_callback(incumbents)
    response = solver.solve(model)
    bound = response.best_objective_bound
    bounded = model.has_objective() and math.isfinite(bound)
    return {
        "status": response.status.name,
        "values": list(response.solution),
        "time": response.deterministic_time,
        "bound": math.ceil(bound - 1e-6) if bounded else None,
    }


class _SolutionSender(cp_model_helper.SolutionCallback):
    def __init__(self, variables: int, found: Say, most: int) -> None:
        super().__init__()
        self._variables = range(variables)
        self._found = found
        self._left = most

    def OnSolutionCallback(self) -> None:
        self._found([self.SolutionIntegerValue(i) for i in self._variables])
        self._left -= 1
        if not self._left:
            self.StopSearch()
