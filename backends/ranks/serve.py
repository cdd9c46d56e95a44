"""Run one rank in a process of its own: connect, run the job, report; end with the parent."""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from weft.dsl.base.errors import WeftError
from weft.dsl.base.processes import end_with_owner

from .job import Done, Failure, RankJob, RankReport
from .rank import attend

AttendAll = Callable[[RankJob, Callable[[str], None]], list[tuple[Done | None, ...]]]
"""Function that does a job on all ranks, reporting the state of the first."""

WIDTH = 240
"""Bytes of a line of state; one write replaces the line before."""

PATIENCE = 30.0
"""Seconds in which a rank that failed waits to be ended with the others."""


def serve(place: str, connect: Callable[[float], Any], number: int) -> None:
    """Run a rank of the job in a folder; ends the process if the rank fails."""
    folder = Path(place)
    end_with_owner(folder)
    job = RankJob.read(folder)
    with _reporting(folder, number):
        world = connect(job.timeout)
        done = attend(job, world, _state(folder / f"state-{number}"))
    _report(folder, RankReport(number, done))
    world.close()


def serve_all(place: str, attend_all: AttendAll) -> None:
    """Run all ranks of the job in a folder, in this process; ends it if one fails."""
    folder = Path(place)
    end_with_owner(folder)
    job = RankJob.read(folder)
    with _reporting(folder, 0):
        every = attend_all(job, _state(folder / "state-0"))
    for rank, done in enumerate(every):
        _report(folder, RankReport(rank, done))


@contextmanager
def _reporting(folder: Path, number: int) -> Iterator[None]:
    """Leave this process's id; an error is reported, and ends it."""
    try:
        (folder / f"pid-{number}").write_text(str(os.getpid()))
        yield
    except BaseException as error:
        traceback.print_exc()
        sys.stderr.flush()
        _report(folder, RankReport(number, failure=failure_of(error)))
        # Ranks that wait for this one report next; then the parent ends all ranks.
        time.sleep(PATIENCE)
        os._exit(1)


def supervise(folder: Path, pids: dict[int, int]) -> None:
    """Wait for the ranks that this process forked, by their process ids, and write down how they
    end. Where one ends badly, stay: an MPI ends all at once when a process that it started does."""
    bad = False
    while pids:
        pid, status = os.wait()
        code = os.waitstatus_to_exitcode(status)
        bad |= code != 0
        part = folder / f"ended-{pid}"
        part.write_text(str(code))
        part.rename(folder / f"exit-{pids.pop(pid)}")
    if bad:
        time.sleep(PATIENCE)
        os._exit(1)


def failure_of(error: BaseException) -> Failure:
    """Return an exception as the failure of a rank."""
    hint = error.hint if isinstance(error, WeftError) else ""
    return Failure(type(error).__name__, told(error), hint or "")


def told(error: BaseException) -> str:
    """Return the text of an exception, with its type where the text alone is not a message."""
    kind, text = type(error).__name__, str(getattr(error, "message", error)).strip()
    if not text:
        return kind
    spoken = isinstance(error, OSError | RuntimeError | WeftError)
    return text if spoken else f"{kind}: {text}"


def _state(path: Path) -> Callable[[str], None]:
    file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)

    def say(text: str) -> None:
        os.pwrite(file, text.encode()[:WIDTH].ljust(WIDTH), 0)

    say("is connected")
    return say


def _report(folder: Path, report: RankReport) -> None:
    """Appears whole or not at all."""
    part = folder / f"part-{os.getpid()}"
    part.write_text(report.to_json(), "utf-8")
    part.rename(folder / f"report-{report.rank}-{os.getpid()}")
