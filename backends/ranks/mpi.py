"""Ranks that are processes of MPI.

As a program: one rank of a job that :mod:`.launcher` started.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from weft.dsl.base.processes import end_with_owner

from .job import LIMITS
from .rank import ConnectedMember, World, serve, supervise


def meet(comm: Any, timeout: float, late: str) -> None:
    """Wait until all ranks of a communicator of MPI are here: in naps until they are, then awake,
    so that all go on at the same moment, as what comes next may be timed.

    Raises:
        TimeoutError: after ``timeout`` seconds, with the text ``late``.
    """
    for rest in (LIMITS.nap_seconds, 0.0):
        wait_until(comm.Ibarrier().Test, timeout, late, rest=rest)


def wait_until(
    done: Callable[[], bool], timeout: float, late: str, *, rest: float = LIMITS.nap_seconds
) -> None:
    """Wait until something is done; the longer it takes, the longer the naps, up to ``rest``
    seconds.

    Raises:
        TimeoutError: after ``timeout`` seconds, with the text ``late``.
    """
    began = time.monotonic()
    while not done():
        waited = time.monotonic() - began
        if waited > timeout:
            raise TimeoutError(late)
        time.sleep(min(rest, waited / 10))


class MpiMember(ConnectedMember):
    """A rank of a communicator."""

    def __init__(self, comm: Any, timeout: float) -> None:
        self.comm, self.timeout = comm, timeout
        self.rank, self.ranks = comm.Get_rank(), comm.Get_size()

    def keywords(self, *, first: bool) -> dict[str, Any]:
        """The communicator, and the time-out of every call."""
        return {"comm": self.comm, "timeout": self.timeout}

    def barrier(self) -> None:
        """Wait, with an end."""
        late = f"rank {self.rank}: after {self.timeout:g} s still waiting at the barrier"
        meet(self.comm, self.timeout, late)


class MpiWorld(World):
    """All ranks of the job; ``comm``: their communicator, where it is not MPI's own of all."""

    def __init__(self, timeout: float, comm: Any = None) -> None:
        if comm is None:
            from mpi4py import MPI

            comm = MPI.COMM_WORLD
        self.comm, self.timeout = comm, timeout
        self.rank, self.ranks = comm.Get_rank(), comm.Get_size()
        self._groups: dict[int, Any] = {self.ranks: comm}

    def last(self, count: int) -> ConnectedMember | None:
        """As :meth:`.World.last`."""
        from mpi4py import MPI

        if count not in self._groups:
            inside = self.rank >= self.ranks - count
            self._groups[count] = self.comm.Split(0 if inside else MPI.UNDEFINED, self.rank)
        comm = self._groups[count]
        return None if comm == MPI.COMM_NULL else MpiMember(comm, self.timeout)

    def gather(self, thing: Any) -> list[Any] | None:
        """As :meth:`.World.gather`."""
        meet(self.comm, math.inf, "")  # in naps: inside its own calls an MPI takes all of a core
        result: list[Any] | None = self.comm.gather(thing)
        return result

    def spread(self, thing: Any) -> Any:
        """As :meth:`.World.spread`."""
        meet(self.comm, math.inf, "")
        return self.comm.bcast(thing)

    def abort(self) -> None:
        """End all ranks at once."""
        self.comm.Abort(1)

    def close(self) -> None:
        """Leave it to mpi4py, which ends MPI with the process."""


def fork_rank(place: str) -> None:
    """Run a rank in a child of this process, and write down how it ends: mpiexec does not report
    it, or names another rank."""
    names = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK")
    rank = next(int(os.environ[name]) for name in names if name in os.environ)
    pid = os.fork()
    if pid:
        end_with_owner(Path(place))
        supervise(Path(place), {pid: rank})
    else:
        serve(place, MpiWorld, rank)


if __name__ == "__main__":
    fork_rank(sys.argv[2])
