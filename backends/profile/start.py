"""Start the ranks of a program as processes, and end every one of them, whatever happens."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
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

from weft.dsl.errors import CheckFailed, Missing

STARTING = 60.0
"""Seconds that ranks may take to start, and to end."""

PLAN, FOUND, SAID = "plan.json", "found.json", "stdout"
"""Files in the folder of the ranks."""

_JOINED = {
    "mpi": (("PMI_RANK",), ("PMIX_RANK",), ("OMPI_COMM_WORLD_RANK",)),
    "torch": (("RANK", "WORLD_SIZE", "MASTER_ADDR"),),
}
"""Variables that starters set: all of one of the groups."""


def is_joined(on: str) -> bool:
    """Whether this process is a rank that somebody else started."""
    return any(all(name in os.environ for name in group) for group in _JOINED.get(on, ()))


def carry_out(
    program: str, on: str, ranks: int, plan: dict[str, Any], seconds: float,
    tell: Callable[[str], None],
) -> Any:  # fmt: skip
    """What rank 0 of a program leaves: a module that is run with the runtime's name and a folder.

    ``plan`` is what it finds there; ``seconds`` how long it may take, starting not counted.

    Raises:
        Missing: the runtime is not installed. CheckFailed: a rank failed, or it takes too long.
    """
    with tempfile.TemporaryDirectory(prefix="weft-ranks-", ignore_cleanup_errors=True) as place:
        folder = Path(place)
        (folder / PLAN).write_text(json.dumps(plan), "utf-8")
        with _started(_commands(program, on, ranks, folder), folder) as processes:
            _wait(processes, seconds + 2 * STARTING, folder / SAID, tell)
        if not (folder / FOUND).exists():
            raise CheckFailed(f"the ranks did not end well: {_last_words(folder)}",
                              hint="does weft run work with the same --on?")  # fmt: skip
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


def _commands(
    program: str, on: str, ranks: int, folder: Path
) -> list[tuple[Sequence[str], dict[str, str]]]:  # fmt: skip
    """Commands and what they need in their environment."""
    rank = ("-m", program, on, str(folder))
    if on == "torch":
        if find_spec("torch") is None:
            raise Missing("torch is not installed", hint="pip install 'weft[torch]'")
        return [((sys.executable, *rank), {"WEFT_RANK": str(number)}) for number in range(ranks)]
    beside = Path(sys.executable).parent / "mpiexec"
    mpiexec = str(beside) if beside.exists() else shutil.which("mpiexec")
    if find_spec("mpi4py") is None or mpiexec is None:
        raise Missing("MPI needs the Python package mpi4py, and mpiexec",
                      hint="install both: pip install 'weft[mpi]'")  # fmt: skip
    # As a module of mpi4py: an exception in one rank ends the job.
    more = {
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
        "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }  # fmt: skip
    return [((mpiexec, "-n", str(ranks), sys.executable, "-m", "mpi4py", *rank), more)]


@contextmanager
def _started(
    commands: Sequence[tuple[Sequence[str], dict[str, str]]], folder: Path
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes in sessions of their own, that write into files; all are ended."""
    processes: list[subprocess.Popen[bytes]] = []
    with (folder / SAID).open("wb") as out, (folder / "stderr").open("wb") as err:
        try:
            for command, more in commands:
                processes.append(subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                    start_new_session=True, env={**os.environ, **more},
                ))  # fmt: skip
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
    processes: Sequence[subprocess.Popen[bytes]], limit: float, said: Path,
    tell: Callable[[str], None],
) -> None:  # fmt: skip
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
