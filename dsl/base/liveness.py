"""Is a process alive, stopped or asleep: its state and CPU time, as Linux lists them in /proc.

Without /proc every process counts as running. And the end of this process.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from .lazy_dataclass import dataclass

STOPPED, ASLEEP = "Tt", "S"
"""Letters of states in proc(5): stopped by a signal or a debugger; waiting for something."""

_STILL = (*STOPPED, ASLEEP, "Z", "")  # Z: ended and not waited for


@dataclass(frozen=True, slots=True)
class Vitals:
    """State of a process by its letter in proc(5), and the CPU seconds of it and of its ended
    children."""

    state: str
    cpu: float


GONE = Vitals("", 0.0)
"""Vitals of a process that has ended, or of any without /proc."""


def vitals(process: int) -> Vitals:
    """Return the vitals of one process."""
    try:
        text = Path(f"/proc/{process}/stat").read_text(errors="replace")
    except OSError:
        return GONE
    fields = text.rpartition(")")[2].split()  # the name before may hold anything
    ticks = sum(map(int, fields[11:15]))  # utime, stime, and those of its own ended children
    return Vitals(fields[0], ticks / os.sysconf("SC_CLK_TCK"))


def running_below(process: int) -> Iterator[int]:
    """Yield the running processes below one, at any depth."""
    for children in Path(f"/proc/{process}/task").glob("*/children"):
        try:
            found = [int(word) for word in children.read_text().split()]
        except OSError:  # the thread has ended
            continue
        for child in found:
            yield child
            yield from running_below(child)


@dataclass(slots=True)
class Watch:
    """Counts in how many looks in a row a process was stopped, or did nothing at all.

    ``stopped``: looks at a stopped process after which it is given up: more than one, since a
    whole job that is continued after a stop wakes up one process after the other. ``idle``: the
    same for one that sleeps, with all that it started, and uses no CPU; None: it may.
    Looks, not seconds: while the process that looks is stopped itself, nothing is counted.
    """

    stopped: int = 40
    idle: int | None = None
    _stopped: int = 0
    _idle: int = 0
    _cpu: float = -1.0

    def fault(self, process: int) -> str | None:
        """Look once; return the fault of the process, if any."""
        one = vitals(process)
        self._stopped = self._stopped + 1 if one.state and one.state in STOPPED else 0
        if self._stopped >= self.stopped:
            return "it was stopped and not continued"
        if self.idle is None or one.state != ASLEEP:
            self._idle = 0
            return None
        tree = [one, *map(vitals, running_below(process))]
        cpu = sum(x.cpu for x in tree)
        still = cpu == self._cpu and all(x.state in _STILL for x in tree)
        self._cpu, self._idle = cpu, self._idle + 1 if still else 0
        return "it hung: it slept and did nothing" if self._idle >= self.idle else None


def end_this_process(code: int) -> NoReturn:
    """End as the interpreter does, after its threads and exit hooks, without taking
    apart what is loaded."""
    with contextlib.suppress(BaseException):
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            code = 120  # as the interpreter's
    os._exit(code)
