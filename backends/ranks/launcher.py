"""Start ranks as processes, watch them, and end every one, whatever happens.

A command starts them (:func:`mpi`, :func:`torch`); :func:`run_job` does the calls of a job on them,
:func:`run_program` runs a module that measures.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import signal
import tempfile
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any

from weft.dsl.base.deadline import Deadline, Stopwatch
from weft.dsl.base.errors import CheckFailed, Missing
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.processes import (
    POLL,
    STARTING,
    STDERR,
    STDOUT,
    Command,
    cores,
    owning,
    python,
    running,
    signal_name,
    wait,
)

from .job import RankJob, RankReport
from .starters import mpiexec

_PACKAGE = __package__


def mpi(folder: Path, ranks: int, seconds: float) -> Command:
    """Return the command that starts the ranks of a job under ``mpiexec``.

    Raises:
        Missing: mpi4py or an MPI is not installed.
    """
    return under_mpiexec(("-m", f"{_PACKAGE}.mpi", str(folder)), ranks, seconds)


def under_mpiexec(arguments: Sequence[str], ranks: int, seconds: float) -> Command:
    """Return the command that runs Python with these arguments on every rank.

    ``mpiexec`` ends them after that many seconds, if they still run.

    Raises:
        Missing: mpi4py or an MPI is not installed.
    """
    if find_spec("mpi4py") is None:
        raise Missing("MPI programs need the Python package mpi4py", hint=_HINTS["mpi"])
    program = mpiexec()
    if program is None:
        raise Missing("no mpiexec beside this Python or in PATH", hint=_HINTS["mpi"])
    more = {"MPIEXEC_TIMEOUT": str(int(seconds) + 1), **_OVERSUBSCRIBED}
    if ranks > cores():
        more |= _SHARED_CORES
    if os.geteuid() == 0:
        more |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return Command((program, "-n", str(ranks), *python(*arguments).words), more)


def torch(folder: Path, ranks: int, seconds: float) -> Command:
    """One process that loads torch once and forks the ranks.

    Raises:
        Missing: torch is not installed.
    """
    if find_spec("torch") is None:
        raise Missing("torch programs need the Python package torch", hint=_HINTS["torch"])
    return python("-m", f"{_PACKAGE}.torch", str(folder), str(ranks))


def jax(folder: Path, ranks: int, seconds: float) -> Command:
    """One process that has all ranks as its devices.

    Raises:
        Missing: JAX is not installed.
    """
    return on_devices(("-m", f"{_PACKAGE}.jax", str(folder)), ranks)


def on_devices(arguments: Sequence[str], ranks: int) -> Command:
    """Return the command that runs Python with that many devices of JAX on the host.

    JAX_PLATFORMS of the environment stays, for those who have so many GPUs or TPUs.

    Raises:
        Missing: JAX is not installed.
    """
    if find_spec("jax") is None:
        raise Missing("JAX programs need the Python package jax", hint=_HINTS["jax"])
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={ranks}"
    return python(
        *arguments,
        XLA_FLAGS=flags.strip(),
        JAX_PLATFORMS=os.environ.get("JAX_PLATFORMS", "cpu"),
        JAX_ENABLE_X64="1",
    )


_HINTS = MappingProxyType(
    {
        "mpi": "install both: pip install 'weft[mpi]' (mpi4py and MPICH)",
        "torch": "install it: pip install 'weft[torch]'",
        "jax": "install it: pip install 'weft[jax]'",
    }
)

# Open MPI's; others ignore them.
_OVERSUBSCRIBED = MappingProxyType(
    {
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
    }
)

# Ranks that share cores: one that waits inside MPI sleeps instead of polling all the time. MPICH's
# is read by MPICH alone, Open MPI's by Open MPI.
_SHARED_CORES = MappingProxyType(
    {
        "MPIR_CVAR_CH4_PROGRESS_THROTTLE": "1",
        "OMPI_MCA_mpi_yield_when_idle": "1",
    }
)


Launcher = Callable[[Path, int, float], Command]

GRACE = 1.5
"""Seconds for the other ranks to say what they wait for, once one has given up or is lost."""

TERMINATING = 2.0
"""Seconds for ranks, and for what started them, to end when they get SIGTERM."""

PARTING = 5.0
"""Seconds for processes that were killed to be gone."""


@dataclass(frozen=True, slots=True)
class LaunchResult:
    """Result of a job.

    Attributes:
        reports: of the ranks that wrote one.
        states: the last state of each rank.
        lost: how ranks ended that could not report: ``signal 9 (SIGKILL)``.
        silent: no rank made progress for too long.
        code: the exit code of what started them, None if it was ended. ``stderr``: its end.
    """

    reports: dict[int, RankReport]
    states: dict[int, str]
    lost: dict[int, str]
    silent: bool
    code: int | None
    stderr: str


def run_job(job: RankJob, launcher: Launcher) -> LaunchResult:
    """Run a job on processes of its own.

    Raises:
        Missing: the runtime is not installed.
    """
    with tempfile.TemporaryDirectory(prefix="weft-run-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        job.write(folder)
        calls = sum(1 + case.repeat + 2 * case.watch for case in job.cases)
        command = launcher(folder, job.ranks, STARTING + job.timeout * (calls + 2))
        watch = _ProgressMonitor(job, folder)
        with owning(folder):
            try:
                with running([command], folder, grace=TERMINATING) as (process,):
                    wait([process], math.inf, watch.over)
                    code = process.poll()
            finally:
                _end_ranks(folder)
        return _ending(folder, silent=watch.silent, code=code)


class _ProgressMonitor:
    """Tells from the files of the ranks when there is nothing left to wait for."""

    def __init__(self, job: RankJob, folder: Path) -> None:
        self.silent = False
        self._job, self._folder = job, folder
        self._watch = Stopwatch()
        self._moved, self._newest = 0.0, 0
        self._give_up: float | None = None

    def over(self) -> bool:
        """Return whether a rank gave up and the others had time to report, or none has moved.

        In the second case ``silent`` is set.
        """
        now, job = self._watch.seconds(), self._job
        reports = _reports(self._folder)
        failed = [r.failure for r in reports.values() if r.failure]
        if (failed or _exits(self._folder)) and self._give_up is None:
            self._give_up = now + GRACE
        if self._give_up is not None and (now > self._give_up or len(reports) == job.ranks):
            return True
        states = list(self._folder.glob("state-*"))
        newest = max((path.stat().st_mtime_ns for path in states), default=0) + len(reports)
        if newest != self._newest:
            self._moved, self._newest = now, newest
        working = len(states) < job.ranks or _working(self._folder, reports)
        most = max(STARTING, job.timeout) if working else job.timeout + GRACE
        self.silent = now - self._moved > most
        return self.silent


def _working(folder: Path, reports: dict[int, RankReport]) -> bool:
    """Return True if a rank works outside calls and barriers: makes data, compares …"""
    states = {rank: text for rank, text in _states(folder).items() if rank not in reports}
    return any(not text.startswith(("is in call", "is at the barrier")) for text in states.values())


def _end_ranks(folder: Path) -> None:
    """End every rank: an MPI puts each in a session of its own."""
    end = Deadline(PARTING)
    while (alive := _alive(folder)) and not end.over():
        for pid in alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(POLL)


def _alive(folder: Path) -> list[int]:
    """Return the ranks that still run."""
    pids = [int(path.read_text() or 0) for path in folder.glob("pid-*")]
    return [pid for pid in pids if pid and _is_rank(pid, folder)]


def _is_rank(pid: int, folder: Path) -> bool:
    """Return True if a process is a rank of this job, not a later process with the same id."""
    try:
        return str(folder).encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _states(folder: Path) -> dict[int, str]:
    """Return the last state of each rank."""
    return {
        int(path.name.removeprefix("state-")): path.read_text("utf-8", "replace").strip()
        for path in folder.glob("state-*")
    }


def _reports(folder: Path) -> dict[int, RankReport]:
    found = [RankReport.from_json(path.read_text("utf-8")) for path in folder.glob("report-*")]
    return {report.rank: report for report in found}


def _exits(folder: Path) -> dict[int, str]:
    """Return how ranks failed, by their exit files; ranks that ended well are left out."""
    found = {}
    for path in folder.glob("exit-*"):
        status = path.read_text()
        if status not in ("", "0"):
            found[int(path.name.removeprefix("exit-"))] = _how(int(status))
    return found


def _how(status: int) -> str:
    """``signal 9 (SIGKILL)`` or ``exit code 3``, of a status that is negative for signals."""
    if status >= 0:
        return f"exit code {status}"
    name = signal_name(-status)
    return f"signal {-status} ({name})" if name else f"signal {-status}"


def _ending(folder: Path, *, silent: bool, code: int | None) -> LaunchResult:
    stderr = (folder / STDERR).read_text("utf-8", "replace")
    reports, lost = _reports(folder), _exits(folder)
    gone = {rank: how for rank, how in lost.items() if rank not in reports}
    return LaunchResult(reports, _states(folder), gone, silent, code, stderr)


PLAN, FOUND = "plan.json", "found.json"
"""Files in the folder of the ranks."""

RANK = "WEFT_RANK"
"""Environment variable with the number of a rank of torch.distributed."""

LACKING = "lacking-{}.json"
"""File in which a process, by its number, says what it lacks, if anything."""


def run_program(
    program: str,
    on: str,
    ranks: int,
    plan: dict[str, Any],
    seconds: float,
    tell: Callable[[str], None],
) -> Any:
    """Run a module on ranks, with the runtime's name and a folder; return what rank 0 leaves there.

    ``plan`` is what it finds there; ``seconds`` how long it may take, starting not counted.

    Raises:
        Missing: the runtime is not installed, or a rank lacks what it needs. CheckFailed: a rank
            failed, or it takes too long.
    """
    with tempfile.TemporaryDirectory(prefix="weft-ranks-", ignore_cleanup_errors=True) as place:
        folder = Path(place)
        (folder / PLAN).write_text(json.dumps(plan), "utf-8")
        limit = seconds + 2 * STARTING
        commands = _commands(program, on, ranks, folder, limit)
        with (
            owning(folder),
            running(commands, folder, grace=TERMINATING) as processes,
            (folder / STDOUT).open(encoding="utf-8", errors="replace") as lines,
        ):

            def heard() -> bool:
                for line in lines.readlines():
                    tell(line.strip())
                return False

            wait(processes, limit, heard)
        for lacking in sorted(folder.glob(LACKING.format("*"))):
            raise Missing(**json.loads(lacking.read_text("utf-8")))
        if not (folder / FOUND).exists():
            raise CheckFailed(
                f"the ranks did not end well: {_last_words(folder)}",
                hint="does weft run work with the same --on?",
            )
        return json.loads((folder / FOUND).read_text("utf-8"))


def _last_words(folder: Path) -> str:
    """Return the error that a rank ended with."""
    words = (folder / STDERR).read_text("utf-8", "replace").splitlines()
    errors = [line for line in words if re.match(r"\w+(\.\w+)*(Error|Exception)\b", line)]
    told = [*(line.strip() for line in words if line.strip()), *errors[:1]]
    return told[-1][:300] if told else "nothing was heard of them in time"


def leave(place: Path, found: Any) -> None:
    """Leave what was found; it appears whole or not at all."""
    part = place.with_suffix(".part")
    part.write_text(json.dumps(found), "utf-8")
    part.rename(place)


def _commands(program: str, on: str, ranks: int, folder: Path, seconds: float) -> list[Command]:
    """Return the commands that start the ranks."""
    rank = ("-m", program, on, str(folder))
    if on == "jax":
        return [on_devices(rank, ranks)]
    if on == "torch":
        if find_spec("torch") is None:
            raise Missing("torch is not installed", hint="pip install 'weft[torch]'")
        return [python("-m", f"{_PACKAGE}.forked", program, str(folder), str(ranks))]
    # As a module of mpi4py: an exception in one rank ends the job.
    return [under_mpiexec(("-m", "mpi4py", *rank), ranks, seconds)]
