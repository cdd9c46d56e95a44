"""MPI, through mpi4py."""

from __future__ import annotations

from .arrays import Arrays

# --- in every file for MPI from here on ---
import time  # isort: skip
from collections.abc import Sequence
from typing import Any

import numpy as np

Ends = Sequence[tuple[Any, int]]


class Mpi(Arrays):
    """MPI. A message's tag is its round, its bytes are counted, and waiting may have an end."""

    def __init__(self, comm: Any = None, timeout: float | None = None) -> None:
        from mpi4py import MPI  # here, so that the file can be read where there is no MPI

        self.mpi: Any = MPI
        comm = comm or MPI.COMM_WORLD
        self.rank, self.ranks = comm.Get_rank(), comm.Get_size()
        self.timeout = timeout
        self.comm, request = comm.Idup()  # nobody else's messages are on this one
        self._wait([request], [MPI.Status()], ["to connect"], f"rank {self.rank}")

    def exchange(self, number: int, sends: Ends, recvs: Ends) -> None:
        """Post all receives and sends of a round, then wait for them."""
        byte, comm = self.mpi.BYTE, self.comm
        begun = [comm.Irecv([x.view(np.uint8), byte], peer, number) for x, peer in recvs]
        begun += [comm.Isend([x.view(np.uint8), byte], peer, number) for x, peer in sends]
        states = [self.mpi.Status() for _ in begun]
        ways = [f"from rank {peer}" for _, peer in recvs] + [f"to rank {peer}" for _, peer in sends]
        here = f"rank {self.rank}, round {number}"
        try:
            self._wait(begun, states, ways, here)
        except self.mpi.Exception as error:
            known = (self.mpi.SUCCESS, self.mpi.ERR_PENDING)
            wrong = [way for way, state in zip(ways, states, strict=True)
                     if state.Get_error() not in known]  # fmt: skip
            text = (f"{here}: a message {', '.join(wrong or ways)} failed: do all ranks call "
                    "with the same sizes?")  # fmt: skip
            raise RuntimeError(text) from error
        for (array, peer), state in zip(recvs, states, strict=False):
            came = state.Get_count(byte)
            if came != array.nbytes:
                raise RuntimeError(f"{here}: {came} bytes came from rank {peer}, {array.nbytes} "
                                   "are due: do all ranks call with the same sizes?")  # fmt: skip

    def _wait(self, begun: list[Any], states: list[Any], ways: list[str], here: str) -> None:
        if self.timeout is None:
            self.mpi.Request.Waitall(begun, states)
            return
        begin = time.monotonic()
        while not self.mpi.Request.Testall(begun, states):
            waited = time.monotonic() - begin
            if waited > self.timeout:
                late = [way for way, one in zip(ways, begun, strict=True) if not one.Test()]
                raise TimeoutError(f"{here}: after {self.timeout:g} s still waiting for messages "
                                   f"{', '.join(late)}")  # fmt: skip
            # Ranks may share a core: let the others go on, and rest when it takes long.
            time.sleep(0 if waited < 1e-3 else 1e-4)

    def barrier(self) -> None:
        """Wait for all ranks."""
        if self.timeout is None:
            self.comm.Barrier()
        else:
            here = f"rank {self.rank}, barrier"
            self._wait([self.comm.Ibarrier()], [self.mpi.Status()], ["of all ranks"], here)

    def clock(self) -> float:
        """Seconds."""
        return float(self.mpi.Wtime())
