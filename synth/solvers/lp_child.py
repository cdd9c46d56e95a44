"""Linear programs in the process of solvers: a program and its answer as JSON, with every bit."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from weft.dsl.base.answering import Say

from .highs import RowProgram, RowSolution


def asked(program: RowProgram, method: str, iterations: int | None) -> dict[str, Any]:
    """Return the question for the answer of :meth:`.highs.RowProgram.solve`."""
    return {
        "solver": "lp",
        "program": _packed(program),
        "method": method,
        "iterations": iterations,
    }


def solve(question: Any, found: Say) -> Any:
    """Return the answer to such a question, a packed :class:`.highs.RowSolution`."""
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
