"""The pool of this machine: a thread per worker, each with one process."""

from __future__ import annotations

import queue
import threading
from dataclasses import replace

from weft.dsl.base.answering import Lost
from weft.dsl.base.errors import WeftError
from weft.dsl.base.processes import cores

from .answer import Ending, JobResult, of_error
from .executor import Event, Executor, JobHandle, Told
from .fingerprint import fingerprint
from .job import Job
from .worker import Worker

STARTS = 3
"""Maximum number of starts of a job whose process dies every time."""


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
