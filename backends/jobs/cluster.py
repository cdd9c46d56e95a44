"""Jobs on many hosts: a cluster of Dask's, whose workers keep processes as the local pool does.

A task of the cluster is a supervisor: it gives its job to a process of its own, monitors it, and
kills it when it is cancelled. Dask itself cannot stop what runs inside a native solver.
Dask does the rest: it sends tasks to workers that have room, and those of a worker that dies to
others. Workers run the same weft as the client, down to the last byte; others are refused.
A scheduler that dies forgets its tasks: once it and a worker are back, open jobs go to it again.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import queue
import re
import socket
import threading
import time
import uuid
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from weft.dsl.base.errors import Missing, UserError, WeftError

from .executor import Event, Executor, JobHandle, Told
from .fingerprint import fingerprint
from .job import LIMITS, Ending, Job, JobResult, of_error

_ADDRESS = re.compile(r"(tcp|tls)://\[?(?P<host>[^/\[\]]+?)\]?:(?P<port>\d{1,5})")
_INSTALL = "install it, and the same weft on all hosts: pip install 'weft[dask]'"
_HOW = (
    "on the head: dask scheduler; on every host: dask worker tcp://HEAD:8786 --nthreads 1 "
    "--nworkers N --memory-limit 0"
)


def cluster(address: str, *, threads: int = 1, code: str | None = None) -> Cluster:
    """Return the workers of a Dask scheduler, ``tcp://host:8786``.

    ``threads``: what numerical libraries may use within each job. ``code``: the fingerprint, where
    it is known already.

    Raises:
        Missing: ``distributed`` is not installed.
        UserError: no scheduler answers, workers are missing, or they run another version.
    """
    try:
        import distributed  # noqa: F401
    except ModuleNotFoundError:
        raise Missing("a cluster needs the Python package 'distributed'", hint=_INSTALL) from None
    expected = code or fingerprint()
    return Cluster(_connected(address, expected), address, threads, expected)


def _connected(address: str, code: str) -> Any:
    """Return a client of a scheduler that has workers with our code, and no others."""
    from distributed import Client

    _require_answer(address)
    connect: Any = Client
    with _quiet(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            client = connect(address, timeout=LIMITS.connect_seconds, set_as_default=False)
        except (OSError, TimeoutError, ValueError) as error:
            raise _no_scheduler(address, error) from None
    try:
        _check_workers(client, address, code)
    except BaseException:
        client.close()
        raise
    return client


def _require_answer(address: str) -> None:
    """Raise if no process listens at an address; Dask itself would retry for long."""
    found = _ADDRESS.fullmatch(address)
    if found is None:
        raise UserError(
            "no address of a scheduler",
            where=f"--cluster {address}",
            hint="write it tcp://host:8786",
        )
    try:
        socket.create_connection(
            (found["host"], int(found["port"])), LIMITS.connect_seconds
        ).close()
    except (OSError, OverflowError) as error:
        raise _no_scheduler(address, error) from None


def _no_scheduler(address: str, error: Exception) -> UserError:
    why = str(getattr(error, "strerror", None) or error).partition("\n")[0][:200]
    return UserError(
        f"no scheduler of Dask answers: {why}", where=f"--cluster {address}", hint=_HOW
    )


def _check_workers(client: Any, address: str, code: str) -> None:
    """Refuse workers that cannot run our jobs, or would run other code."""
    from .supervise import probe

    with contextlib.suppress(TimeoutError):
        client.wait_for_workers(1, timeout=LIMITS.worker_seconds)
    found: dict[str, Any] = client.run(probe, on_error="return")
    if not found:
        raise UserError("expected workers, got none", where=f"--cluster {address}", hint=_HOW)
    for worker, told in found.items():
        if isinstance(told, BaseException):
            raise UserError(
                f"weft on the worker {worker} does not answer: {told}"[:300],
                where=f"--cluster {address}",
                hint=_INSTALL,
            )
    for worker, told in found.items():
        if told["fingerprint"] != code:
            raise UserError(
                f"the worker {worker} runs another version of weft: {told['weft']} on Python "
                f"{told['python']}, or this version with other files or solvers",
                where=f"--cluster {address}",
                hint="install the same weft and packages on all hosts, and start the workers again",
            )


class Cluster(Executor):
    """A client of a Dask scheduler; see :func:`cluster`."""

    def __init__(self, client: Any, address: str, threads: int, code: str) -> None:
        from . import supervise  # which imports ``distributed``

        self._client = client
        self._address = address
        self._threads = threads
        self._code = code
        self._name = f"weft-{uuid.uuid4().hex[:12]}"
        self._numbers = itertools.count()
        self._handles: dict[str, JobHandle] = {}
        self._futures: dict[str | None, Any] = {}
        self._lock = threading.RLock()
        self._unwanted: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._forgotten = threading.Event()
        self._closing = threading.Event()
        self._tasks = supervise
        self._silence = ExitStack()
        self._silence.enter_context(_quiet())
        self._prepare(client)
        self._helpers = [
            threading.Thread(target=work, daemon=True)
            for work in (self._cancel_many, self._resume_many)
        ]
        for thread in self._helpers:
            thread.start()

    def submit(
        self, job: Job, *, deadline: float | None = None, told: Told | None = None
    ) -> JobHandle:
        """As :meth:`Executor.submit`."""
        key = f"{self._name}-{next(self._numbers)}"
        handle = JobHandle(job, deadline, told, on_cancel=lambda: self._unwanted.put(key))
        with self._lock:
            self._handles[key] = handle
            self._send(key, handle)
        return handle

    def close(self) -> None:
        """As :meth:`Executor.close`; the solvers end within a second."""
        with self._lock:
            left = list(self._handles.values())
        for handle in left:
            handle.cancel()
        self._closing.set()
        self._forgotten.set()
        self._unwanted.put(None)
        for thread in self._helpers:
            thread.join(LIMITS.connect_seconds)
        with self._silence:
            with contextlib.suppress(Exception):
                self._client.unregister_worker_plugin(self._name)
            self._client.close()
        for handle in left:
            handle.end(JobResult(Ending.CANCELLED, starts=0))

    def _cancel_many(self) -> None:
        """Run the cancelling thread: cancellations close in time share one message."""
        keys: list[str | None] = []
        while None not in keys:
            keys = [self._unwanted.get()]
            time.sleep(LIMITS.gather_seconds)
            with contextlib.suppress(queue.Empty):
                while True:
                    keys.append(self._unwanted.get_nowait())
            with self._lock:
                futures = [self._futures[key] for key in keys if key in self._futures]
            with contextlib.suppress(Exception):  # a scheduler that is gone has cancelled them
                self._client.cancel(futures)

    def _prepare(self, client: Any) -> None:
        client.register_plugin(self._tasks.Processes(self._name, self._threads, self._code))
        client.subscribe_topic(self._name, self._hear)

    def _send(self, key: str, handle: JobHandle) -> None:
        job = handle.job
        what = (self._name, key, job.function, job.text, handle.deadline)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # large jobs are expected
                future = self._client.submit(self._tasks.perform, *what, key=key, pure=False)
        except Exception:  # Dask raises various ones once the scheduler is gone
            self._forgotten.set()
            return
        self._futures[key] = future
        future.add_done_callback(lambda done: self._ended(key, done))

    def _resume_many(self) -> None:
        """Run the resuming thread: wait for a scheduler that died, and submit all jobs again."""
        for _ in range(LIMITS.resumes):
            self._forgotten.wait()
            if self._closing.is_set():
                return
            client = self._returned()
            if client is None:
                break
            # Not under the lock: events, which need it, come in the thread that answers this.
            self._prepare(client)
            with self._lock:
                self._forgotten.clear()
                self._futures.clear()  # answers of the old client are passed over
                before, self._client = self._client, client
                for key, handle in self._handles.items():
                    self._send(key, handle)
            with contextlib.suppress(Exception):
                before.close()
        fault = {
            "message": f"the scheduler forgot it, and was not back with a worker in "
            f"{LIMITS.return_seconds:g} s",
            "hint": "start the scheduler and its workers, then the same command again",
        }
        while not self._closing.is_set():
            self._forgotten.wait()
            self._drop(lambda _: JobResult(Ending.LOST, fault=fault))
            self._forgotten.clear()

    def _returned(self) -> Any:
        """Return a client of the scheduler once it is back with a worker, or None."""
        until = time.monotonic() + LIMITS.return_seconds
        while time.monotonic() < until and not self._closing.wait(LIMITS.retry_seconds):
            self._drop(
                lambda handle: (
                    JobResult(Ending.CANCELLED, starts=handle.starts)
                    if handle.unwanted.is_set()
                    else None
                )
            )
            with contextlib.suppress(UserError):
                return _connected(self._address, self._code)
        return None

    def _drop(self, answer: Callable[[JobHandle], JobResult | None]) -> None:
        with self._lock:
            ended = [(k, a) for k, h in self._handles.items() if (a := answer(h)) is not None]
            handles = [(self._handles.pop(key), answer) for key, answer in ended]
            for key, _ in ended:
                self._futures.pop(key, None)
        for handle, its in handles:
            handle.end(its)

    def _hear(self, event: Any) -> None:
        _, told = event
        with self._lock:
            handle = self._handles.get(told["key"])
        if handle is not None:
            handle.hear(Event(told["event"]), told["where"])

    def _ended(self, key: str, future: Any) -> None:
        """Called in a thread of the client's when a task is done."""
        with self._lock:
            held: Any = self._futures.get(key)
            if held is not future:
                return
            del self._futures[key]
            handle = self._handles[key]
            # Did the scheduler die, and not the job, nor was it cancelled?
            alone = not handle.unwanted.is_set() and not self._closing.is_set()
            if alone and future.status not in ("finished", "error"):
                self._forgotten.set()
                return
            unprepared = self._tasks.Unprepared
            if alone and future.status == "error" and isinstance(future.exception(), unprepared):
                self._forgotten.set()
                return
            del self._handles[key]
        handle.end(self._answer(handle, future))

    def _answer(self, handle: JobHandle, future: Any) -> JobResult:
        if future.status == "finished":
            return JobResult.from_json(future.result())
        if handle.unwanted.is_set():
            return JobResult(Ending.CANCELLED, starts=handle.starts)
        error = future.exception()
        if type(error).__name__ == "KilledWorker":
            fault = {
                "message": f"the workers that had it died: {error}"[:300],
                "hint": "with dask worker --memory-limit 0 Dask kills none",
            }
            return JobResult(Ending.LOST, fault=fault)
        if isinstance(error, WeftError):
            return JobResult(Ending.LOST, fault={"message": error.message, "hint": error.hint})
        return of_error(error)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence Dask's stderr: weft itself compares versions and reports errors."""
    parts = ("", ".core", ".client", ".comm", ".batched")
    loggers = [logging.getLogger(f"distributed{part}") for part in parts]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)
