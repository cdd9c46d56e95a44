"""Start the ranks of a job as processes, watch them, and end every one, whatever happens."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from weft.dsl.base.processes import (
    POLL,
    STARTING,
    STDERR,
    Command,
    owning,
    running,
    signal_name,
    wait,
)

from .job import Job, Report

Launcher = Callable[[Path, int, float], Command]

GRACE = 1.5
"""Seconds for the other ranks to say what they wait for, once one has given up or is lost."""

TERMINATING = 1.0
"""Seconds for what started the ranks to end them when it gets SIGTERM."""

PARTING = 5.0
"""Seconds for processes that were killed to be gone."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How a job ended.

    Attributes:
        reports: of the ranks that wrote one.
        states: the last that was heard of each rank.
        lost: how ranks ended that could not report: ``signal 9 (SIGKILL)``.
        silent: nobody did anything for too long.
        code: the exit code of what started them, None if it was ended. ``stderr``: its end.
    """

    reports: dict[int, Report]
    states: dict[int, str]
    lost: dict[int, str]
    silent: bool
    code: int | None
    stderr: str


def carry_out(job: Job, launcher: Launcher) -> Ending:
    """Run a job on processes of its own.

    Raises:
        Missing: the runtime is not installed.
    """
    with tempfile.TemporaryDirectory(prefix="weft-run-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        job.write(folder)
        calls = sum(1 + case.repeat + 2 * case.watch for case in job.cases)
        command = launcher(folder, job.ranks, STARTING + job.timeout * (calls + 2))
        watch = _Watch(job, folder)
        with owning(folder):
            try:
                with running([command], folder, grace=TERMINATING) as (process,):
                    wait([process], math.inf, watch.over)
                    code = process.poll()
            finally:
                _end_ranks(folder)
        return _ending(folder, silent=watch.silent, code=code)


class _Watch:
    """Tells from the files of the ranks when there is nothing left to wait for."""

    def __init__(self, job: Job, folder: Path) -> None:
        self.silent = False
        self._job, self._folder = job, folder
        self._moved, self._newest = time.monotonic(), 0
        self._give_up: float | None = None

    def over(self) -> bool:
        """Return whether a rank gave up and the others had time to report, or none has moved.

        In the second case ``silent`` is set.
        """
        now, job = time.monotonic(), self._job
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


def _working(folder: Path, reports: dict[int, Report]) -> bool:
    """Whether a rank does something that keeps nobody waiting in vain: makes data, compares …"""
    states = {rank: text for rank, text in _states(folder).items() if rank not in reports}
    return any(not text.startswith(("is in call", "is at the barrier")) for text in states.values())


def _end_ranks(folder: Path) -> None:
    """End every rank: an MPI puts each in a session of its own."""
    end = time.monotonic() + PARTING
    while (alive := _alive(folder)) and time.monotonic() < end:
        for pid in alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(POLL)


def _alive(folder: Path) -> list[int]:
    """The ranks that still run."""
    pids = [int(path.read_text() or 0) for path in folder.glob("pid-*")]
    return [pid for pid in pids if pid and _is_rank(pid, folder)]


def _is_rank(pid: int, folder: Path) -> bool:
    """Whether a process is one of ours, and not a later one with its number."""
    try:
        return str(folder).encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _states(folder: Path) -> dict[int, str]:
    """The last that was heard of each rank."""
    return {
        int(path.name.removeprefix("state-")): path.read_text("utf-8", "replace").strip()
        for path in folder.glob("state-*")
    }


def _reports(folder: Path) -> dict[int, Report]:
    found = [Report.from_json(path.read_text("utf-8")) for path in folder.glob("report-*")]
    return {report.rank: report for report in found}


def _exits(folder: Path) -> dict[int, str]:
    """How ranks ended that were waited for, as their files say; not those that ended well."""
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


def _ending(folder: Path, *, silent: bool, code: int | None) -> Ending:
    stderr = (folder / STDERR).read_text("utf-8", "replace")
    reports, lost = _reports(folder), _exits(folder)
    gone = {rank: how for rank, how in lost.items() if rank not in reports}
    return Ending(reports, _states(folder), gone, silent, code, stderr)
