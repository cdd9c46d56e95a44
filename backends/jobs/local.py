"""The pool of this machine: a thread per worker, each with one process."""

from __future__ import annotations

import queue
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import replace

from weft.dsl.base.answering import AnsweringProcess, Lost
from weft.dsl.base.deadline import Deadline
from weft.dsl.base.errors import WeftError
from weft.dsl.base.processes import cores

from .executor import Event, Executor, JobHandle, Told
from .fingerprint import fingerprint
from .job import Ending, Job, JobResult, of_error

CODE = "from weft.backends.jobs.child import main; main()"

STARTS = 3
"""Maximum number of starts of a job whose process dies every time."""


SERVES = 200
"""Jobs after which a process is replaced, so that what libraries leave behind does not pile up."""


def local(
    workers: int | None = None, *, threads: int = 1, code: str | None = None
) -> LocalExecutor:
    """Return a pool of processes on this machine, as many as there are cores by default.

    ``threads``: what numerical libraries may use within each job. ``code``: the fingerprint, where
    it is known already.
    """
    return LocalExecutor(workers or cores(), threads, code or fingerprint())


class LocalExecutor(Executor):
    """Processes on this machine; see :func:`local`."""

    def __init__(self, workers: int, threads: int, code: str) -> None:
        self._waiting: queue.SimpleQueue[JobHandle | None] = queue.SimpleQueue()
        self._closed = threading.Event()
        self._threads = [
            threading.Thread(
                target=self._serve,
                args=(Worker(threads, code),),
                daemon=True,
                name=f"weft jobs {i}",
            )
            for i in range(workers)
        ]
        for thread in self._threads:
            thread.start()

    def submit(
        self, job: Job, *, deadline: float | None = None, told: Told | None = None
    ) -> JobHandle:
        """As :meth:`Executor.submit`."""
        handle = JobHandle(job, deadline, told)
        self._waiting.put(handle)
        return handle

    def close(self) -> None:
        """As :meth:`Executor.close`; returns when all processes are gone."""
        self._closed.set()
        for _ in self._threads:
            self._waiting.put(None)
        for thread in self._threads:
            thread.join()

    def _serve(self, worker: Worker) -> None:
        """One thread: job after job, each in the process of its worker."""
        try:
            while (handle := self._waiting.get()) is not None:
                handle.end(attempt(handle, worker, self._closed))
        finally:
            worker.kill()


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
        question = {"function": job.function, "text": job.text}
        until = None if deadline is None else Deadline(deadline)
        value = self._process.ask(question, until, stopped)
        if value is not None:
            self._served += 1
            return JobResult.from_json(value)
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


def attempt(handle: JobHandle, worker: Worker, closed: threading.Event) -> JobResult:
    """Run a job on a worker and return its answer; restart it where its process dies."""
    starts = 0

    def stopped() -> bool:
        return handle.unwanted.is_set() or closed.is_set()

    def begun(where: str) -> None:
        nonlocal starts
        starts += 1
        handle.hear(Event.STARTED, where)

    for _ in range(STARTS):
        try:
            answer = worker.run(handle.job, handle.deadline, stopped, begun)
            return replace(answer, starts=starts)
        except Lost as error:
            how = str(error)
            handle.hear(Event.LOST, how)
        except WeftError as error:  # it cannot be started here
            return JobResult(Ending.LOST, fault={"message": error.message, "hint": error.hint})
        except Exception as error:
            return of_error(error)
    fault = {
        "message": f"its process died {STARTS} times: {how}",
        "hint": "is there memory enough? fewer --jobs at a time take less",
    }
    return JobResult(Ending.LOST, fault=fault, starts=starts)
