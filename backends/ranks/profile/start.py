"""Start the ranks of a program as processes, and end every one of them, whatever happens."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from weft.dsl.base.errors import CheckFailed, Missing

from ..launch import Start, under_mpiexec
from ..serve import ALIVE

STARTING = 60.0
"""Seconds that ranks may take to start, and to end."""

PLAN, FOUND, SAID = "plan.json", "found.json", "stdout"
"""Files in the folder of the ranks."""


def carry_out(
    program: str,
    on: str,
    ranks: int,
    plan: dict[str, Any],
    seconds: float,
    tell: Callable[[str], None],
) -> Any:
    """What rank 0 of a program leaves: a module that is run with the runtime's name and a folder.

    ``plan`` is what it finds there; ``seconds`` how long it may take, starting not counted.

    Raises:
        Missing: the runtime is not installed. CheckFailed: a rank failed, or it takes too long.
    """
    with tempfile.TemporaryDirectory(prefix="weft-ranks-", ignore_cleanup_errors=True) as place:
        folder = Path(place)
        (folder / PLAN).write_text(json.dumps(plan), "utf-8")
        limit = seconds + 2 * STARTING
        starts = _commands(program, on, ranks, folder, limit)
        with (folder / ALIVE).open("wb") as alive:
            fcntl.flock(alive, fcntl.LOCK_EX)  # ranks end themselves as soon as it is released
            with _started(starts, folder) as processes:
                _wait(processes, limit, folder / SAID, tell)
        if not (folder / FOUND).exists():
            raise CheckFailed(
                f"the ranks did not end well: {_last_words(folder)}",
                hint="does weft run work with the same --on?",
            )
        return json.loads((folder / FOUND).read_text("utf-8"))


def _last_words(folder: Path) -> str:
    """The error that a rank ended with."""
    words = (folder / "stderr").read_text("utf-8", "replace").splitlines()
    errors = [line for line in words if re.match(r"\w+(\.\w+)*(Error|Exception)\b", line)]
    told = [*(line.strip() for line in words if line.strip()), *errors[:1]]
    return told[-1][:300] if told else "nothing was heard of them in time"


def leave(place: Path, found: Any) -> None:
    """Leave what was found; it appears whole or not at all."""
    part = place.with_suffix(".part")
    part.write_text(json.dumps(found), "utf-8")
    part.rename(place)


def _commands(program: str, on: str, ranks: int, folder: Path, seconds: float) -> list[Start]:
    """What starts the ranks."""
    rank = ("-m", program, on, str(folder))
    if on == "torch":
        if find_spec("torch") is None:
            raise Missing("torch is not installed", hint="pip install 'weft[torch]'")
        return [Start((sys.executable, *rank), {"WEFT_RANK": str(r)}) for r in range(ranks)]
    # As a module of mpi4py: an exception in one rank ends the job.
    return [under_mpiexec(("-m", "mpi4py", *rank), ranks, seconds)]


@contextmanager
def _started(starts: Sequence[Start], folder: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes in sessions of their own, that write into files; all are ended."""
    processes: list[subprocess.Popen[bytes]] = []
    with (folder / SAID).open("wb") as out, (folder / "stderr").open("wb") as err:
        try:
            for start in starts:
                processes.append(
                    subprocess.Popen(
                        start.command,
                        stdin=subprocess.DEVNULL,
                        stdout=out,
                        stderr=err,
                        start_new_session=True,
                        env={**os.environ, **start.environment},
                    )
                )
            yield processes
        finally:
            _end(processes)


def _end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        for process in processes:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, number)
        for process in processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(2.0)


def _wait(
    processes: Sequence[subprocess.Popen[bytes]],
    limit: float,
    said: Path,
    tell: Callable[[str], None],
) -> None:
    """Until all have ended, one has failed, or it takes too long; rank 0 tells meanwhile."""
    end = time.monotonic() + limit
    with said.open(encoding="utf-8", errors="replace") as words:
        while time.monotonic() < end:
            codes = [process.poll() for process in processes]
            for line in words.readlines():
                tell(line.strip())
            if any(codes) or all(code == 0 for code in codes):
                return
            time.sleep(0.05)
