"""Tasks inside a worker of a Dask cluster, which supervise processes."""

from __future__ import annotations

import platform
import threading
from typing import Any

from distributed import Worker as DaskWorker
from distributed import WorkerPlugin, get_worker

from weft import __version__
from weft.dsl.base.errors import WeftError

from .executor import Event, JobHandle
from .fingerprint import fingerprint
from .job import Job
from .local import Worker, attempt


def probe() -> dict[str, str]:
    """Return the versions of a worker."""
    return {"fingerprint": fingerprint(), "weft": __version__, "python": platform.python_version()}


class Unprepared(WeftError):
    """A worker lacks the plugin of a client: its scheduler is another than the client prepared."""


class Processes(WorkerPlugin):
    """The processes that a worker keeps for one client; they end with it.

    Dask notifies plugins how tasks change: a running one that is released was cancelled, or its
    client is gone.
    """

    def __init__(self, name: str, threads: int, code: str) -> None:
        self.name = name
        self.threads = threads
        self.code = code

    def setup(self, worker: DaskWorker) -> None:
        """Prepare the plugin on a worker; called once."""
        self.closed = threading.Event()
        self.running: dict[str, JobHandle] = {}
        self.idle: list[Worker] = []
        self.lock = threading.Lock()

    def teardown(self, worker: DaskWorker) -> None:
        """Kill all processes when the client is gone or the worker ends."""
        with self.lock:
            self.closed.set()
            idle, self.idle = self.idle, []
        for process in idle:
            process.kill()

    def transition(self, key: Any, start: Any, finish: Any, **_: Any) -> None:
        """Handle a change of a task's state."""
        if finish in ("released", "cancelled", "forgotten", "error"):
            handle = self.running.get(str(key))
            if handle is not None:
                handle.unwanted.set()

    def take(self) -> Worker:
        """Return a process for one job."""
        with self.lock:
            return self.idle.pop() if self.idle else Worker(self.threads, self.code)

    def give_back(self, process: Worker) -> None:
        """Keep a process for the next job."""
        with self.lock:
            if not self.closed.is_set():
                self.idle.append(process)
                return
        process.kill()


def perform(name: str, key: str, function: str, text: str, deadline: float | None) -> Any:
    """Run one job in a process of its own, as a task of the cluster; return its answer as JSON."""
    worker = get_worker()
    plugin = worker.plugins.get(name)
    if not isinstance(plugin, Processes):
        raise Unprepared("the worker is not prepared", hint="start the command again")

    def told(event: Event, where: str) -> None:
        worker.log_event(name, {"key": key, "event": str(event), "where": where})

    handle = JobHandle(Job(function, text), deadline, told)
    plugin.running[key] = handle
    process = plugin.take()
    try:
        answer = attempt(handle, process, plugin.closed)
    finally:
        plugin.running.pop(key, None)
        plugin.give_back(process)
    return answer.to_json()
