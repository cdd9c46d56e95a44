"""Start the ranks of a job as processes, watch them, and end every one, whatever happens."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from .job import Job, Report
from .launch import Start
from .serve import ALIVE

Launcher = Callable[[Path, int, float], Start]

STARTING = 60.0
"""Seconds in which all ranks must be connected, and in which a rank makes its data."""

GRACE = 1.5
"""Seconds for the other ranks to say what they wait for, once one has given up or is lost."""

PARTING = 5.0
"""Seconds for processes that were killed to be gone."""

POLL = 0.03


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
        start = launcher(folder, job.ranks, STARTING + job.timeout * (calls + 2))
        with (folder / ALIVE).open("wb") as alive:
            fcntl.flock(alive, fcntl.LOCK_EX)  # ranks end themselves as soon as it is released
            with _started(start, folder) as process:
                silent = _watched(job, folder, process)
                code = process.poll()
        return _ending(job, folder, silent=silent, code=code)


@contextmanager
def _started(start: Start, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The process that starts the ranks, in a session of its own; it and they are ended."""
    with (folder / "stdout").open("wb") as out, (folder / "stderr").open("wb") as err:
        process = subprocess.Popen(
            start.command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
            env={**os.environ, **start.environment},
        )
        try:
            yield process
        finally:
            _ended(folder, process)


def _watched(job: Job, folder: Path, process: subprocess.Popen[bytes]) -> bool:
    """Wait until all is said; whether nobody did anything for too long."""
    moved, before = time.monotonic(), 0
    give_up: float | None = None
    while process.poll() is None:
        time.sleep(POLL)
        now = time.monotonic()
        reports = _reports(folder)
        failed = [r.failure for r in reports.values() if r.failure]
        if (failed or _exits(folder)) and give_up is None:
            give_up = now + GRACE
        if give_up is not None and (now > give_up or len(reports) == job.ranks):
            return False
        states = list(folder.glob("state-*"))
        newest = max((path.stat().st_mtime_ns for path in states), default=0) + len(reports)
        if newest != before:
            moved, before = now, newest
        working = len(states) < job.ranks or _working(folder, reports)
        if now - moved > (max(STARTING, job.timeout) if working else job.timeout + GRACE):
            return True
    return False


def _working(folder: Path, reports: dict[int, Report]) -> bool:
    """Whether a rank does something that keeps nobody waiting in vain: makes data, compares …"""
    states = {rank: text for rank, text in _states(folder).items() if rank not in reports}
    return any(not text.startswith(("is in call", "is at the barrier")) for text in states.values())


def _ended(folder: Path, process: subprocess.Popen[bytes]) -> None:
    """End what started the ranks, and every rank: an MPI puts each in a session of its own."""
    if process.poll() is None:
        for number in (signal.SIGTERM, signal.SIGKILL):
            _kill_group(process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(1.0)
                break
    _kill_group(process.pid, signal.SIGKILL)
    process.wait()
    end = time.monotonic() + PARTING
    while (alive := _alive(folder)) and time.monotonic() < end:
        for pid in alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(POLL)


def _kill_group(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


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
    try:
        return f"signal {-status} ({signal.Signals(-status).name})"
    except ValueError:
        return f"signal {-status}"


def _ending(job: Job, folder: Path, *, silent: bool, code: int | None) -> Ending:
    stderr = (folder / "stderr").read_text("utf-8", "replace")
    reports, lost = _reports(folder), _exits(folder)
    gone = {rank: how for rank, how in lost.items() if rank not in reports}
    return Ending(reports, _states(folder), gone, silent, code, stderr)
