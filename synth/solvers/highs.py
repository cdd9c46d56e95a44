"""Linear programs by HiGHS, the one inside SciPy, without the package around it.

SciPy's function ``linprog`` passes on a program to this extension module. To load it alone takes 5
ms; with ``scipy.optimize``, which it is a part of, a quarter of a second. Both ways lead to one
module: what registers its types in C++ can be loaded once only. The separate package ``highspy``
cannot live in one process with OR-Tools' copy.
"""

from __future__ import annotations

import base64
import sys
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader
from importlib.util import find_spec, module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any

import numpy as np

from weft.dsl.base.answering import Say
from weft.dsl.base.arrays import Floats, Ints32
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.matrix import SparseMatrix

OPTIMAL, UNFINISHED, INFEASIBLE, UNBOUNDED, FAILED = range(5)
"""SciPy's numbers for the ends of a solver; a model that HiGHS refuses counts as infeasible."""

TOLERANCE = 10 * 1e-9**0.5
"""By how much SciPy lets a solution violate a row or a bound before it says that HiGHS failed."""

METHODS = {"highs": "choose", "highs-ds": "simplex", "highs-ipm": "ipm"}
"""HiGHS' names of SciPy's methods."""

NAME = "scipy.optimize._highspy._core"


@cache
def highs_core() -> Any:
    """Return the extension module."""
    if NAME in sys.modules:
        return sys.modules[NAME]
    path = _file()
    if path is None:  # an installation of another form
        from scipy.optimize._highspy import _core  # type: ignore[import-not-found]

        return _core
    spec = spec_from_loader(NAME, ExtensionFileLoader(NAME, str(path)))
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules[NAME] = module
    return module


def _file() -> Path | None:
    scipy = find_spec("scipy")
    places = scipy.submodule_search_locations if scipy is not None else None
    for place in places or ():
        for suffix in EXTENSION_SUFFIXES:
            path = Path(place, "optimize", "_highspy", f"_core{suffix}")
            if path.exists():
                return path
    return None


@dataclass(frozen=True, eq=False)
class RowSolution:
    """Answer of HiGHS: without a solution ``x`` is None, and prices of rows are missing."""

    end: int
    message: str
    x: Floats | None
    prices: Floats
    value: float
    iterations: int


@dataclass(frozen=True, eq=False)
class RowProgram:
    """Minimise cost·x subject to least <= A x <= most and bounds on x, shape (columns, 2).

    ``starts``, ``index`` and ``data`` are A by columns: where each begins, rows, coefficients.
    """

    cost: Floats
    starts: Ints32
    index: Ints32
    data: Floats
    least: Floats
    most: Floats
    bounds: Floats

    @staticmethod
    def of(
        cost: Floats, matrix: SparseMatrix, least: Floats, most: Floats, bounds: Floats
    ) -> RowProgram:
        """A program with a matrix of any numbers."""
        by_column = matrix.T
        return RowProgram(
            cost.astype(float),
            by_column.starts.astype(np.int32),
            by_column.column.astype(np.int32),
            by_column.data.astype(float),
            least,
            most,
            bounds,
        )

    def solve(self, method: str, iterations: int | None) -> RowSolution:
        """Call HiGHS, with the options that SciPy's ``linprog`` sets; ``method`` is HiGHS' name.

        Raises:
            MemoryError: HiGHS reports that it is out of memory.
        """
        core = highs_core()
        highs = core._Highs()
        for option, value in _options(method, iterations).items():
            highs.setOptionValue(option, value)
        kinds = core.HighsModelStatus
        if highs.passModel(self.model()) == core.HighsStatus.kError:
            status = kinds.kModelError
        else:
            highs.run()
            status = highs.getModelStatus()
        info = highs.getInfo()
        end = {
            kinds.kOptimal: OPTIMAL,
            kinds.kTimeLimit: UNFINISHED,
            kinds.kIterationLimit: UNFINISHED,
            kinds.kInfeasible: INFEASIBLE,
            kinds.kModelError: INFEASIBLE,
            kinds.kUnbounded: UNBOUNDED,
        }.get(status, FAILED)
        message = f"HiGHS: {highs.modelStatusToString(status)}"
        if status == kinds.kMemoryLimit:  # sometimes it says so, sometimes it dies of it
            raise MemoryError(message)
        took = max(0, int(info.simplex_iteration_count or info.ipm_iteration_count))
        if end != OPTIMAL:
            return RowSolution(end, message, None, np.zeros(0), np.inf, took)
        found = highs.getSolution()
        x, prices = np.array(found.col_value), np.array(found.row_dual)
        if not self._holds(x, np.array(found.row_value)):
            end, message = FAILED, f"{message}, but its solution violates a row or a bound"
        return RowSolution(end, message, x, prices, float(info.objective_function_value), took)

    def model(self) -> Any:
        """Return the program in HiGHS' form."""
        core = highs_core()
        model = core.HighsLp()
        held = model.a_matrix_
        model.num_row_ = held.num_row_ = len(self.most)
        model.num_col_ = held.num_col_ = len(self.cost)
        held.format_ = core.MatrixFormat.kColwise
        held.start_, held.index_, held.value_ = self.starts, self.index, self.data
        model.col_cost_ = self.cost
        model.col_lower_, model.col_upper_ = self.bounds.T.copy()
        model.row_lower_, model.row_upper_ = self.least, self.most
        return model

    def _holds(self, x: Floats, rows: Floats) -> bool:
        """True if a solution meets the program within the tolerance; False with NaN in it."""
        low, high = self.bounds.T
        return bool(
            (x >= low - TOLERANCE).all()
            and (x <= high + TOLERANCE).all()
            and (rows >= self.least - TOLERANCE).all()
            and (rows <= self.most + TOLERANCE).all()
        )


def _options(method: str, iterations: int | None) -> dict[str, Any]:
    options: dict[str, Any] = {"output_flag": False, "presolve": "on", "solver": method}
    if iterations is not None:
        most = min(iterations, np.iinfo(np.int32).max)  # HiGHS takes no more
        options |= {"ipm_iteration_limit": most, "simplex_iteration_limit": most}
    return options


# --- in the process of solvers: a program and its answer as JSON, with every bit ------------------


def asked(program: RowProgram, method: str, iterations: int | None) -> dict[str, Any]:
    """Return the question for the answer of :meth:`RowProgram.solve`."""
    return {
        "solver": "lp",
        "program": _packed(program),
        "method": method,
        "iterations": iterations,
    }


def solve(question: Any, found: Say) -> Any:
    """Return the answer to such a question, a packed :class:`RowSolution`."""
    program = RowProgram(**unpacked(question["program"]))
    return _packed(program.solve(question["method"], question["iterations"]))


def _packed(noun: RowProgram | RowSolution) -> dict[str, Any]:
    return {name: _pack(value) for name, value in vars(noun).items()}


def unpacked(values: Any) -> dict[str, Any]:
    """Return the fields of a packed program or answer."""
    return {name: _unpack(value) for name, value in values.items()}


def _pack(value: Any) -> Any:
    """Return an array with the bytes of its numbers; infinity, which JSON lacks, as a text."""
    if isinstance(value, np.ndarray):
        content = base64.b64encode(np.ascontiguousarray(value).tobytes()).decode()
        return {"dtype": value.dtype.str, "shape": value.shape, "bytes": content}
    return "inf" if isinstance(value, float) and value == np.inf else value


def _unpack(value: Any) -> Any:
    if isinstance(value, dict):
        content = base64.b64decode(value["bytes"])
        return np.frombuffer(content, value["dtype"]).reshape(value["shape"]).copy()
    return np.inf if value == "inf" else value
