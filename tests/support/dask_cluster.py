"""A Dask cluster of this machine, in processes of its own, whose workers can be killed."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from until import until

from weft.dsl.base.processes import descendants, end_tree


@dataclass
class DaskCluster:
    """A scheduler and its workers; each worker takes one job at a time."""

    address: str
    folder: Path
    environment: dict[str, str]
    scheduler: subprocess.Popen[bytes]
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def add_worker(self) -> None:
        with (self.folder / f"worker{len(self.workers)}.log").open("wb") as log:
            self.workers.append(
                _start(
                    [
                        "distributed.cli.dask_worker",
                        self.address,
                        "--nthreads",
                        "1",
                        "--no-nanny",  # a process more that takes a second to start
                        "--no-dashboard",
                        "--memory-limit",
                        "0",
                        "--local-directory",
                        str(self.folder),
                    ],
                    self.environment,
                    log,
                )
            )

    def kill_worker(self, place: int) -> None:
        """The worker itself, but not what runs in it."""
        self.workers[place].kill()
        self.workers[place].wait()

    def kill_scheduler(self) -> None:
        """Its workers end by themselves, as they do without a supervisor."""
        self.scheduler.kill()
        for process in (self.scheduler, *self.workers):
            process.wait()

    def start_scheduler(self, workers: int) -> None:
        """At the address where it was."""
        port = int(self.address.rpartition(":")[2])
        self.scheduler = _scheduler(self.folder, port, self.environment)
        _wait_for_port(port)
        for _ in range(workers):
            self.add_worker()

    def solvers(self) -> list[int]:
        """The processes in which jobs run, on all workers."""
        return [p for w in self.workers for p in descendants(w.pid) if _is_solver(p)]


@contextmanager
def dask_cluster(folder: Path, workers: int = 2) -> Iterator[DaskCluster]:
    """All of it is gone afterwards."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    scheduler = _scheduler(folder, port, environment)
    cluster = DaskCluster(f"tcp://127.0.0.1:{port}", folder, environment, scheduler)
    try:
        _wait_for_port(port)
        for _ in range(workers):
            cluster.add_worker()
        yield cluster
    finally:
        for process in [*cluster.workers, cluster.scheduler]:
            end_tree(process.pid)
            process.wait()


def _scheduler(folder: Path, port: int, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    words = ["--host", "127.0.0.1", "--port", str(port), "--no-dashboard"]
    with (folder / "scheduler.log").open("ab") as log:
        return _start(["distributed.cli.dask_scheduler", *words], environment, log)


def _start(
    words: list[str], environment: dict[str, str], log: IO[bytes]
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", *words],
        env=environment,
        stdout=log,
        stderr=log,
        start_new_session=True,
    )


def _wait_for_port(port: int) -> None:
    def there() -> bool:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            return False
        return True

    until(there, f"port {port}")


def _words(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _is_solver(pid: int) -> bool:
    return b"weft.backends.jobs.child" in _words(pid)
