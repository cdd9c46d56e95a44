"""Parent's handle of one process in which jobs run: start it, send jobs, kill it."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any, BinaryIO

from weft.dsl.base.errors import WeftError
from weft.dsl.base.processes import Process, end, last_line, python, signal_name, start

from . import frames
from .answer import Ending, JobResult
from .child import CODE
from .executor import LOOK
from .job import Job

SERVES = 200
"""Jobs after which a process is replaced, so that what libraries leave behind does not pile up."""

STARTING = 120.0
"""Seconds in which a new process must say its first word; a loaded machine takes a few."""

_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


class Lost(Exception):
    """Error: the process died, or did not start; the text gives the cause."""


class Worker:
    """One process, started when the first job comes and again whenever it is gone.

    Not for several threads at once. ``threads``: that libraries may use within it. ``code``: the
    fingerprint that it must have.
    """

    def __init__(self, threads: int, code: str) -> None:
        self._threads = threads
        self._code = code
        self._process: Process | None = None
        self._reader = frames.FrameReader()
        self._errors: BinaryIO | None = None
        self._served = 0

    def run(
        self,
        job: Job,
        deadline: float | None,
        stopped: Callable[[], bool],
        started: Callable[[str], None],
    ) -> JobResult:
        """Run a job; ``started`` is called with its place, ``stopped`` is polled.

        Raises:
            Lost: the process died.
        """
        if stopped():
            return JobResult(Ending.CANCELLED, starts=0)
        process = self._ready(stopped)
        if process is None:
            return JobResult(Ending.CANCELLED, starts=0)
        started(f"{socket.gethostname()}:{process.pid}")
        start = time.monotonic()
        try:
            with contextlib.suppress(BrokenPipeError):  # the process died: reading raises Lost
                self._send(process, job)
            value = self._answer(process, None if deadline is None else start + deadline, stopped)
        except BaseException:
            self.kill()
            raise
        if value is not None:
            self._served += 1
            return JobResult(
                Ending(value["ending"]),
                value["value"],
                value["fault"],
                seconds=value["seconds"],
                remarks=tuple((text, trace) for text, trace in value["remarks"]),
            )
        self.kill()
        spent = time.monotonic() - start
        if stopped():
            return JobResult(Ending.CANCELLED, seconds=spent)
        fault = {"message": f"killed at its deadline, after {spent:.1f}s"}
        return JobResult(Ending.LATE, fault=fault, seconds=spent)

    def kill(self) -> None:
        """End the process and all that it started, at once."""
        process, self._process = self._process, None
        if process is None:
            return
        end([process])
        for pipe in (process.stdin, process.stdout, self._errors):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    # --- one process ------------------------------------------------------------------------------

    def _ready(self, stopped: Callable[[], bool]) -> Process | None:
        """The process, made if there is none; None if it was not wanted any more meanwhile."""
        if self._process is not None and (
            self._served >= SERVES or self._process.poll() is not None
        ):
            self.kill()
        if self._process is not None:
            return self._process
        process = self._start()
        try:
            hello = self._answer(process, time.monotonic() + STARTING, stopped)
        except BaseException:
            self.kill()
            raise
        if hello is None:
            self.kill()
            if stopped():
                return None
            raise Lost(f"it did not start within {STARTING:.0f}s")
        if hello["fingerprint"] != self._code:
            self.kill()
            raise WeftError(
                f"weft's own files on {socket.gethostname()} are not those that the command was "
                "started with",
                hint="start it again, and the workers of the cluster",
            )
        return process

    def _start(self) -> Process:
        limits = dict.fromkeys(_THREADS, str(self._threads))
        # As seen from here, also where a program has set its own path to modules.
        path = os.pathsep.join(sys.path)
        self._errors = tempfile.TemporaryFile(prefix="weft-job-")
        self._reader, self._served = frames.FrameReader(), 0
        # A fixed seed of hashes: no answer may hang on the order of a set.
        command = python("-c", CODE, **limits, PYTHONPATH=path, PYTHONHASHSEED="0")
        pipe = subprocess.PIPE
        self._process = start(command, stdin=pipe, stdout=pipe, stderr=self._errors)
        return self._process

    def _send(self, process: Process, job: Job) -> None:
        assert process.stdin is not None
        frames.write(process.stdin.fileno(), {"function": job.function, "text": job.text})

    def _answer(self, process: Process, until: float | None, stopped: Callable[[], bool]) -> Any:
        """Return the next value of the process; None at the deadline or when cancelled."""
        assert process.stdout is not None
        pipe = process.stdout.fileno()
        while not stopped() and (until is None or time.monotonic() < until):
            if (value := self._reader.value()) is not None:
                return value[0]
            if select.select([pipe], [], [], LOOK)[0]:
                part = os.read(pipe, 1 << 16)
                if not part:
                    raise Lost(self._how(process))
                self._reader.feed(part)
        return None

    def _how(self, process: Process) -> str:
        """Return a text on how a process ended by itself, and the end of its output."""
        try:
            code = process.wait(5.0)
        except subprocess.TimeoutExpired:  # it closed its pipe and lives on
            return "it fell silent"
        if code < 0:
            how = f"killed by signal {-code} {signal_name(-code)}".rstrip()
        else:
            how = f"exit code {code}"
        return f"{how}: {last}" if (last := self._last_words()) else how

    def _last_words(self) -> str:
        if self._errors is None:
            return ""
        size = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, size - 2000))
        return last_line(self._errors.read().decode(errors="replace"))
