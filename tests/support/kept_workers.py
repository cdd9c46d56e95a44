"""Processes of jobs that outlive a command: the next one of the same file of tests takes them.

To start one takes longer than most jobs of the tests do, so there is one where a command does not
say how many. A process is taken again only where a new one would see the same: folder, path to
modules, environment. How processes start, end and die is tested in ``tests/backends/jobs``, which
does without this.
"""

import os
import sys
import threading
from collections import defaultdict
from collections.abc import Hashable, Iterator

import pytest

from weft.backends.jobs import local
from weft.backends.jobs.local import Worker

UNSEEN = {"PYTEST_CURRENT_TEST", "WEFT_CACHE"}
"""Names of the environment that a process of jobs does not read: answers are kept by its owner."""


class Shelf:
    """Workers that no pool uses, by what their processes see."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: defaultdict[Hashable, list[Worker]] = defaultdict(list)
        self._seen: dict[int, Hashable] = {}

    def take(self, threads: int, code: str) -> Worker:
        """Return a worker for a pool, as :class:`Worker` makes one."""
        seen = (threads, code, *surroundings())
        with self._lock:
            worker = self._idle[seen].pop() if self._idle[seen] else Worker(threads, code)
            self._seen[id(worker)] = seen
        return worker

    def give_back(self, worker: Worker) -> None:
        """Keep a worker that a pool has done with."""
        with self._lock:
            self._idle[self._seen[id(worker)]].append(worker)

    def clear(self) -> None:
        """End all processes."""
        for workers in self._idle.values():
            for worker in workers:
                worker.kill()


def surroundings() -> tuple[Hashable, ...]:
    """What a process that is started now would see."""
    environment = frozenset((k, v) for k, v in os.environ.items() if k not in UNSEEN)
    return os.getcwd(), tuple(sys.path), environment


@pytest.fixture(scope="module")
def kept_workers() -> Iterator[None]:
    """Keep the processes of local pools until the module's last test is done."""
    shelf = Shelf()

    def serve(self: local.LocalExecutor, worker: Worker) -> None:
        try:
            while (handle := self._waiting.get()) is not None:
                handle.end(local.attempt(handle, worker, self._closed))
        finally:
            shelf.give_back(worker)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local, "cores", lambda: 1)
        patch.setattr(local, "Worker", shelf.take)
        patch.setattr(local.LocalExecutor, "_serve", serve)
        yield
        shelf.clear()
