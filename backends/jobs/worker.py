"""Parent's handle of one process in which jobs run: start it, send jobs, kill it."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import Any

from weft.dsl.base.answering import AnsweringProcess
from weft.dsl.base.deadline import Deadline
from weft.dsl.base.errors import WeftError

from .answer import Ending, JobResult
from .child import CODE
from .job import Job

SERVES = 200
"""Jobs after which a process is replaced, so that what libraries leave behind does not pile up."""


class Worker:
    """One process, started when the first job comes and again whenever it is gone.

    Not for several threads at once. ``threads``: that libraries may use within it. ``code``: the
    fingerprint that it must have.
    """

    def __init__(self, threads: int, code: str) -> None:
        self._code = code
        self._process = AnsweringProcess(CODE, threads)
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
        if stopped() or not self._ready(stopped):
            return JobResult(Ending.CANCELLED, starts=0)
        started(f"{socket.gethostname()}:{self._process.pid}")
        start = time.monotonic()
        value = self._answer(job, None if deadline is None else Deadline(deadline), stopped)
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
        self._process.kill()

    def _ready(self, stopped: Callable[[], bool]) -> bool:
        """Have a process, made if there is none; False if it was not wanted any more meanwhile."""
        if self._served >= SERVES:
            self.kill()
        if self._process.pid is not None:
            return True
        self._served = 0
        if not self._process.ready(stopped):
            return False
        if self._process.hello["fingerprint"] != self._code:
            self.kill()
            raise WeftError(
                f"weft's own files on {socket.gethostname()} are not those that the command was "
                "started with",
                hint="start it again, and the workers of the cluster",
            )
        return True

    def _answer(self, job: Job, until: Deadline | None, stopped: Callable[[], bool]) -> Any:
        try:
            question = {"function": job.function, "text": job.text}
            sent = self._process.ask(question, until, stopped)
            return self._process.listen(until, stopped) if sent else None
        except BaseException:
            self.kill()
            raise
