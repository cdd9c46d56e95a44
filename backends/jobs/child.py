"""Process in which jobs run, one after the other; it ends with its parent."""

from __future__ import annotations

import os
import queue
import sys
import threading
import time
from dataclasses import replace
from typing import Any

from weft.dsl.base.plugins import PluginWarning, warnings_to
from weft.dsl.base.processes import end_tree

from . import frames
from .answer import Ending, JobResult, of_error
from .fingerprint import fingerprint
from .job import Job

CODE = "from weft.backends.jobs.child import main; main()"

IDLE = 600.0
"""Seconds without a job after which a process ends; it is started again on demand."""


def main() -> None:
    """Run jobs: read requests ``{function, text}`` from stdin, write ``{ending, …}`` to stdout."""
    asked, said = _pipes()
    wanted: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(asked, wanted), daemon=True).start()
    frames.write(said, {"fingerprint": fingerprint(), "pid": os.getpid()})
    while True:
        try:
            request = wanted.get(timeout=IDLE)
        except queue.Empty:
            return
        answer = carry_out(Job(request["function"], request["text"]))
        try:
            frames.write(
                said,
                {
                    "ending": answer.ending,
                    "value": answer.value,
                    "fault": answer.fault,
                    "seconds": answer.seconds,
                    "remarks": answer.remarks,
                },
            )
        except (TypeError, ValueError) as error:  # the value returned is not JSON
            wrong = of_error(error)
            frames.write(
                said,
                {
                    "ending": wrong.ending,
                    "value": None,
                    "fault": wrong.fault,
                    "seconds": answer.seconds,
                    "remarks": answer.remarks,
                },
            )


def carry_out(job: Job) -> JobResult:
    """Run a job here."""
    start = time.monotonic()
    heard: list[PluginWarning] = []
    with warnings_to(heard.append):
        try:
            answer = JobResult(Ending.DONE, job.run())
        except BaseException as error:
            answer = of_error(error)
    spent = time.monotonic() - start
    remarks = tuple(dict.fromkeys((one.text, one.trace) for one in heard))
    return replace(answer, seconds=spent, remarks=remarks)


def _pipes() -> tuple[int, int]:
    """Return private copies of stdin and stdout; all prints, also of a solver's native code, go to
    stderr, and no process that is started from here inherits the copies."""
    asked, said = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return asked, said


def _listen(asked: int, wanted: queue.SimpleQueue[Any]) -> None:
    """Put requests into the queue; when the parent closes the pipe, end this process tree."""
    reader = frames.FrameReader()
    while part := os.read(asked, 1 << 16):
        reader.feed(part)
        while (value := reader.value()) is not None:
            wanted.put(value[0])
    end_tree(os.getpid())
