"""Linear programs by SciPy's HiGHS, called only here, in this process or in that of solvers."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import numpy as np

from weft.dsl.base.answering import Say
from weft.dsl.base.shallow import on_new_stack


def run(program: Mapping[str, Any], method: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer of SciPy's ``linprog`` to its arguments ``program``, as a question's."""
    found = on_new_stack(_linprog)(**program, method=method, options=dict(options))
    solved = found.x is not None
    nothing = np.zeros(0)
    return {
        "status": int(found.status),
        "message": str(found.message),
        "x": found.x,
        "value": float(found.fun) if solved else np.inf,
        "ub_prices": found.ineqlin.marginals if solved else nothing,
        "eq_prices": found.eqlin.marginals if solved else nothing,
        "iterations": int(found.nit),
    }


def _linprog() -> Any:
    """SciPy's function; its stubs know no variable method."""
    from scipy import optimize  # takes 100 ms to load

    return optimize.linprog


def solve(question: Any, found: Say) -> Any:
    """Solve ``program``, whose values are packed."""
    program = {name: unpack(value) for name, value in question["program"].items()}
    answer = run(program, question["method"], question["options"])
    return {name: pack(value) for name, value in answer.items()}


def pack(value: Any) -> Any:
    """Return a value as JSON: arrays and sparse matrices by rows with the bytes of their numbers,
    so that every bit is kept; all else as it is."""
    if isinstance(value, np.ndarray):
        content = base64.b64encode(np.ascontiguousarray(value).tobytes()).decode()
        return {"dtype": value.dtype.str, "shape": value.shape, "bytes": content}
    if hasattr(value, "tocsr"):
        rows = value.tocsr()
        parts = (rows.data, rows.indices, rows.indptr)
        return {"rows": [pack(part) for part in parts], "shape": rows.shape}
    return None if value is None else _finite(value)


def _finite(value: Any) -> Any:
    """Return a number or text; infinity, which JSON lacks, as a text."""
    return "inf" if value == np.inf else value


def unpack(value: Any) -> Any:
    """Return the value that :func:`pack` was given."""
    if value == "inf":
        return np.inf
    if not isinstance(value, dict):
        return value
    shape = tuple(value["shape"])
    if "rows" in value:
        from scipy.sparse import csr_array

        return csr_array(tuple(unpack(part) for part in value["rows"]), shape=shape)
    content = base64.b64decode(value["bytes"])
    return np.frombuffer(content, value["dtype"]).reshape(shape).copy()
