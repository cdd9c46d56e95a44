"""A model of PuLP, solved in a process of its own that ends in time, whatever the solver does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft.dsl.base.errors import Missing

GRACE = 2.0
"""Seconds that a solver may take beyond its time, to start and to write its answer."""

_LOOK = 0.05  # seconds between two looks at the process


@dataclass(frozen=True, slots=True)
class Answer:
    """What a solver found: the values that are not 0, or none; a bound on the objective, or none;
    whether it proved that there is no solution. All in the solver's floats."""

    values: Mapping[str, float] | None = None
    bound: float | None = None
    infeasible: bool = False


def solve(
    model: Any, solver: str, seconds: float, threads: int, cancelled: Callable[[], bool]
) -> Answer:
    """The answer of a solver within some seconds: ``highs``, ``cbc`` or a name that PuLP knows.

    A process that is late, or no longer wanted, is killed with all that it started.

    Raises:
        Missing: the solver does not run here.
    """
    with tempfile.TemporaryDirectory(prefix="weft-flow-") as folder:
        model.toJson(str(Path(folder, "model.json")))
        command = [sys.executable, "-m", "weft.synth.lp.solver_child"]
        with Path(folder, "errors").open("wb") as errors:
            child = subprocess.Popen(
                [*command, folder, solver, str(seconds), str(threads)],
                cwd=folder,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                env={**os.environ, "TMPDIR": folder},
                start_new_session=True,
            )
            try:
                _wait(child, time.monotonic() + seconds + GRACE, cancelled)
            finally:
                _kill(child)
        written = Path(folder, "answer.json")
        if child.returncode == 0 and written.exists():
            return Answer(**json.loads(written.read_text()))
        if child.returncode > 0:
            last = Path(folder, "errors").read_text(errors="replace").strip().splitlines()[-1:]
            raise Missing(
                f"flow: the solver {solver!r} failed: {''.join(last)[:200]}",
                hint="solver=highs and solver=cbc come with weft",
            )
        return Answer()


def _wait(child: subprocess.Popen[bytes], deadline: float, cancelled: Callable[[], bool]) -> None:
    while child.poll() is None and time.monotonic() < deadline and not cancelled():
        time.sleep(_LOOK)


def _kill(child: subprocess.Popen[bytes]) -> None:
    """End a process and its own children, if it has not ended."""
    if child.poll() is None:
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    if child.stdin is not None:  # which told it that we live
        child.stdin.close()
