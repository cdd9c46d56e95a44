"""Ranks that are processes of MPI.

As a program: one rank of a job that :mod:`.launcher` started.
"""

from __future__ import annotations

import math
import os
import sys
import types
from pathlib import Path
from typing import Any

from weft.dsl.base.arrays import AnyArray
from weft.dsl.base.processes import end_with_owner

from .rank import Loan, Spare
from .serve import serve, supervise
from .waiting import meet


class MpiMember:
    """A rank of a communicator."""

    def __init__(self, mpi: Any, comm: Any, timeout: float) -> None:
        self.mpi, self.comm, self.timeout = mpi, comm, timeout
        self.rank, self.ranks = comm.Get_rank(), comm.Get_size()

    def lend(self, send: AnyArray | None, recv: AnyArray | None) -> Loan:
        """MPI takes NumPy's arrays."""
        return Spare(send, recv)

    def call(self, program: types.ModuleType, function: str, loan: Loan, *, first: bool) -> None:
        """Call it on this communicator, with the time-out."""
        getattr(program, function)(loan.send, loan.recv, comm=self.comm, timeout=self.timeout)

    def barrier(self) -> None:
        """Wait, with an end."""
        late = f"rank {self.rank}: after {self.timeout:g} s still waiting at the barrier"
        meet(self.comm, self.timeout, late)

    def clock(self) -> float:
        """Seconds."""
        return float(self.mpi.Wtime())


class MpiWorld:
    """All ranks of the job."""

    def __init__(self, timeout: float) -> None:
        from mpi4py import MPI

        self.mpi, self.comm, self.timeout = MPI, MPI.COMM_WORLD, timeout
        self.rank, self.ranks = self.comm.Get_rank(), self.comm.Get_size()
        self._groups: dict[int, Any] = {self.ranks: self.comm}

    def last(self, count: int) -> MpiMember | None:
        """Return the group's communicator, made by all ranks at its first use."""
        if count not in self._groups:
            inside = self.rank >= self.ranks - count
            color = 0 if inside else self.mpi.UNDEFINED
            self._groups[count] = self.comm.Split(color, self.rank)
        comm = self._groups[count]
        if comm == self.mpi.COMM_NULL:
            return None
        return MpiMember(self.mpi, comm, self.timeout)

    def gather(self, thing: Any) -> list[Any] | None:
        """Everybody's, on rank 0."""
        self._meet()
        result: list[Any] | None = self.comm.gather(thing)
        return result

    def spread(self, thing: Any) -> Any:
        """Rank 0's, for everybody."""
        self._meet()
        return self.comm.bcast(thing)

    def _meet(self) -> None:
        """Wait for all in naps: inside its own calls an MPI takes all of a core."""
        meet(self.comm, math.inf, "")

    def abort(self) -> None:
        """End all ranks at once."""
        self.comm.Abort(1)

    def close(self) -> None:
        """MPI ends by itself."""


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
    fork_rank(sys.argv[1])
