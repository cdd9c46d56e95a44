"""Solve a PuLP model in a child process, which is killed when its time is over."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft.dsl.base.errors import Missing
from weft.dsl.base.processes import STDERR, last_line, owning, python, running, wait

GRACE = 2.0
"""Seconds that a solver may take beyond its time, to start and to write its answer."""


@dataclass(frozen=True, slots=True)
class SolverAnswer:
    """Answer of a solver, in its floats: the values that are not 0 or None, a bound on the
    objective or None, and whether it proved that there is no solution."""

    values: Mapping[str, float] | None = None
    bound: float | None = None
    infeasible: bool = False


def solve(
    model: Any, solver: str, seconds: float, threads: int, cancelled: Callable[[], bool]
) -> SolverAnswer:
    """Return the answer of a solver within some seconds: ``highs``, ``cbc`` or a name PuLP knows.

    A process that is late or cancelled is killed, with all processes that it started.

    Raises:
        Missing: the solver does not run here.
    """
    with tempfile.TemporaryDirectory(prefix="weft-flow-") as place:
        folder = Path(place)
        model.toJson(str(folder / "model.json"))
        arguments = (place, solver, str(seconds), str(threads))
        command = python("-m", "weft.synth.lp.solver_child", *arguments, TMPDIR=place)
        with owning(folder), running([command], folder, within=True) as (child,):
            wait([child], seconds + GRACE, cancelled)
        written = folder / "answer.json"
        if child.returncode == 0 and written.exists():
            return SolverAnswer(**json.loads(written.read_text()))
        if child.returncode > 0:
            last = last_line((folder / STDERR).read_text(errors="replace"))
            raise Missing(
                f"flow: the solver {solver!r} failed: {last}",
                hint="solver=highs and solver=cbc come with weft",
            )
        return SolverAnswer()
