"""Child processes: start them in sessions of their own, wait for them, end all that they started.

A child must not outlive its owner, the process that started it, not even where the owner is killed.
So the owner keeps a file locked (:func:`owning`), and the child waits for that lock
(:func:`end_with_owner`): the kernel releases it however the owner ends. A pipe to standard input
serves as well where the child holds one; ``mpiexec`` does not pass it on.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from pathlib import Path
from typing import IO

from .deadline import Deadline
from .import_path import module_folders
from .lazy_dataclass import dataclass

Process = subprocess.Popen[bytes]

OWNED = "alive"
"""File in the folder of some children that their owner keeps locked while it lives."""

STDOUT, STDERR = "stdout", "stderr"
"""Files in that folder: the output of all of its children."""

STARTING = 60.0
"""Seconds in which children that are ranks must have started and be connected."""

POLL = 0.03
"""Seconds between two looks at children that run."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command line, and its additions to the environment of this process."""

    words: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)


def cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def python(*arguments: str, **environment: str) -> Command:
    """Return the command that runs this Python with some arguments, not from the working folder.

    It is the only place that names this Python: see :mod:`.import_path`.
    """
    return Command((sys.executable, "-P", *arguments), environment)


def start(
    command: Command,
    *,
    stdin: int = subprocess.DEVNULL,
    stdout: int | IO[bytes],
    stderr: int | IO[bytes],
    folder: Path | None = None,
) -> Process:
    """Start a process in a session of its own: Ctrl-C does not reach it, its owner ends it.

    Python in it, and in all that it starts, imports from the folders that this process imports
    from, and not from the working folder.
    """
    imports = {"PYTHONPATH": os.pathsep.join(module_folders()), "PYTHONSAFEPATH": "1"}
    return subprocess.Popen(
        command.words,
        cwd=folder,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        start_new_session=True,
        env={**os.environ, **imports, **command.environment},
    )


@contextmanager
def owning(folder: Path) -> Iterator[None]:
    """Hold the lock that children of this folder wait for: they end when it is released."""
    with (folder / OWNED).open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def running(
    commands: Sequence[Command], folder: Path, *, within: bool = False, grace: float = 0.0
) -> Iterator[list[Process]]:
    """Run commands for the length of a block, with their output in files of a folder.

    At the end of the block all are ended (:func:`end`). With ``within`` the folder is their working
    directory too.
    """
    inside = folder if within else None
    processes: list[Process] = []
    with (folder / STDOUT).open("wb") as out, (folder / STDERR).open("wb") as err:
        try:
            for command in commands:
                processes.append(start(command, stdout=out, stderr=err, folder=inside))
            yield processes
        finally:
            end(processes, grace=grace)


def wait(
    processes: Sequence[Process], seconds: float, stopped: Callable[[], bool] = lambda: False
) -> None:
    """Wait until all have ended, one has failed, time is up or ``stopped``, called at each look."""
    deadline = Deadline(seconds)
    while True:
        codes = [process.poll() for process in processes]
        done = stopped() or any(codes) or None not in codes
        if done or deadline.over():
            return
        time.sleep(POLL)


def end(processes: Sequence[Process], *, grace: float = 0.0) -> None:
    """End processes, all that descend from them and all in their sessions' first groups.

    With some seconds of ``grace`` they get SIGTERM first, so that an ``mpiexec`` can end ranks that
    it started elsewhere.
    """
    if grace:
        for process in processes:
            if process.poll() is None:
                _signal_group(process.pid, signal.SIGTERM)
        for process in processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(grace)
    for process in processes:
        if process.poll() is None:
            end_tree(process.pid)
        _signal_group(process.pid, signal.SIGKILL)  # descendants whose parents are gone
    for process in processes:
        process.wait()


def end_with_owner(folder: Path) -> None:
    """In a child: end this process as soon as its owner has gone."""

    def watch() -> None:
        # A folder that is gone already means the same.
        with contextlib.suppress(OSError), (folder / OWNED).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def signal_name(number: int) -> str:
    """Return ``SIGKILL`` for 9, and nothing for a number without a name."""
    return signal.Signals(number).name if number in set(signal.Signals) else ""


def end_tree(root: int) -> None:
    """Kill a process and all that descend from it; those that have already ended are ignored.

    All are stopped before the first is killed: else one could start another, or the children of
    one that died could not be found. If ``root`` is this process, it is killed last.
    """
    ours = os.getpid()
    found = [root]
    _signal(root, signal.SIGSTOP, but=ours)
    while new := [pid for pid in descendants(root) if pid not in found]:
        for pid in new:
            _signal(pid, signal.SIGSTOP, but=ours)
        found += new
    for pid in reversed(found):
        _signal(pid, signal.SIGKILL)


def descendants(root: int) -> list[int]:
    """The processes that a process has started, those that they have started, and so on."""
    children: dict[int, list[int]] = {}
    for pid, parent in _parents():
        children.setdefault(parent, []).append(pid)
    found, queue = [], [root]
    while queue:
        next_ones = children.get(queue.pop(), [])
        found += next_ones
        queue += next_ones
    return found


def _parents() -> list[tuple[int, int]]:
    """Every process here and its parent."""
    if not Path("/proc/self/stat").exists():
        command = ["ps", "-A", "-o", "pid=,ppid="]
        told = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        return [(int(line.split()[0]), int(line.split()[1])) for line in told.splitlines()]
    found = []
    for place in Path("/proc").iterdir():
        if place.name.isdecimal():
            with contextlib.suppress(OSError):
                # The name in parentheses may hold anything, also parentheses.
                state = (place / "stat").read_text(errors="replace").rpartition(")")[2].split()
                found.append((int(place.name), int(state[1])))
    return found


def _signal(pid: int, number: signal.Signals, but: int = 0) -> None:
    if pid != but:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _signal_group(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
