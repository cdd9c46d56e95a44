"""The pool of this machine: a thread per worker, each with one process."""

from __future__ import annotations

import queue
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import replace

from weft.dsl.base.answering import AnsweringProcess, Lost, never
from weft.dsl.base.deadline import Deadline
from weft.dsl.base.errors import WeftError
from weft.dsl.base.processes import cores

from .executor import Event, Executor, JobHandle, Told
from .fingerprint import fingerprint
from .job import LIMITS, Ending, Job, JobResult, of_error

CODE = "from weft.backends.jobs.child import main; main()"


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


class Worker(AnsweringProcess):
    """A process in which jobs run.

    ``threads``: that libraries may use within it. ``code``: the fingerprint that it must have.
    """

    def __init__(self, threads: int, code: str) -> None:
        super().__init__(CODE, threads)
        self._fingerprint = code
        self.served = 0

    def ready(self, stopped: Callable[[], bool] = never) -> bool:
        """As :meth:`.AnsweringProcess.ready`; a new one after ``served_jobs``.

        Raises:
            Lost: it does not start. WeftError: it has another fingerprint.
        """
        if self.served >= LIMITS.served_jobs:
            self.kill()
        if self.pid is not None:
            return True
        self.served = 0
        if not super().ready(stopped):
            return False
        if self.hello["fingerprint"] != self._fingerprint:
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

    for _ in range(LIMITS.starts):
        try:
            if stopped() or not worker.ready(stopped):
                return JobResult(Ending.CANCELLED, starts=starts)
            starts += 1
            handle.hear(Event.STARTED, f"{socket.gethostname()}:{worker.pid}")
            start = time.monotonic()
            question = {"function": handle.job.function, "text": handle.job.text}
            until = None if handle.deadline is None else Deadline(handle.deadline)
            value = worker.ask(question, until, stopped)
            spent = time.monotonic() - start
            if value is not None:
                worker.served += 1
                return replace(JobResult.from_json(value), starts=starts)
            if stopped():
                return JobResult(Ending.CANCELLED, starts=starts, seconds=spent)
            fault = {"message": f"killed at its deadline, after {spent:.1f}s"}
            return JobResult(Ending.LATE, fault=fault, starts=starts, seconds=spent)
        except Lost as error:
            how = str(error)
            handle.hear(Event.LOST, how)
        except WeftError as error:  # it cannot be started here
            return JobResult(Ending.LOST, fault={"message": error.message, "hint": error.hint})
        except Exception as error:
            return of_error(error)
    fault = {
        "message": f"its process died {LIMITS.starts} times: {how}",
        "hint": "is there memory enough? fewer --jobs at a time take less",
    }
    return JobResult(Ending.LOST, fault=fault, starts=starts)
