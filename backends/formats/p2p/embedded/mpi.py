"""MPI, through mpi4py."""

from __future__ import annotations

from .arrays import Arrays

# --- in every file for MPI from here on ---
import time  # isort: skip
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

Ends = Sequence[tuple[Any, int]]


ALIKE = ": do all ranks call with the same sizes, types and operation?"

ROUNDS = 1 << 14
"""Tags of one kind of call; longer programs begin again."""


class Mpi(Arrays):
    """MPI. A message's tag is its round and the kind of its call, so that others do not match; its
    bytes are counted, and waiting may have an end. After an error messages may be left over: the
    connection is given up."""

    def __init__(self, comm: Any = None, timeout: float | None = None) -> None:
        from mpi4py import MPI  # here, so that the file can be read where there is no MPI

        self.mpi: Any = MPI
        comm = comm or MPI.COMM_WORLD
        self.rank, self.ranks = comm.Get_rank(), comm.Get_size()
        self.timeout = timeout
        self.kind, self.kinds = 0, max(1, comm.Get_attr(MPI.TAG_UB) // ROUNDS)
        self.lost = False
        self.comm, request = comm.Idup()  # nobody else's messages are on this one
        self._wait([request], [MPI.Status()], ["to connect"], f"rank {self.rank}")

    def agree(self, call: str) -> None:
        """Ranks that call with other types or operations use other tags."""
        if self.lost:
            raise RuntimeError(
                f"rank {self.rank}: an earlier call on this communicator failed; "
                "go on with another one (comm.Dup())"
            )
        self.kind = zlib.crc32(call.encode()) % self.kinds

    def exchange(self, number: int, sends: Ends, recvs: Ends) -> None:
        """Post all receives and sends of a round, then wait for them."""
        try:
            self._exchange(f"rank {self.rank}, round {number}", number % ROUNDS, sends, recvs)
        except BaseException:
            self.lost = True
            raise

    def _exchange(self, here: str, number: int, sends: Ends, recvs: Ends) -> None:
        byte, comm, tag = self.mpi.BYTE, self.comm, self.kind * ROUNDS + number
        begun = [comm.Irecv([x.view(np.uint8), byte], peer, tag) for x, peer in recvs]
        begun += [comm.Isend([x.view(np.uint8), byte], peer, tag) for x, peer in sends]
        states = [self.mpi.Status() for _ in begun]
        ways = [f"from rank {peer}" for _, peer in recvs] + [f"to rank {peer}" for _, peer in sends]
        try:
            self._wait(begun, states, ways, here)
        except self.mpi.Exception as error:
            known = (self.mpi.SUCCESS, self.mpi.ERR_PENDING)
            wrong = [
                way
                for way, state in zip(ways, states, strict=True)
                if state.Get_error() not in known
            ]
            text = f"{here}: a message {', '.join(wrong or ways)} failed{ALIKE}"
            raise RuntimeError(text) from error
        for (array, peer), state in zip(recvs, states, strict=False):
            came = state.Get_count(byte)
            if came != array.nbytes:
                raise RuntimeError(
                    f"{here}: {came} bytes came from rank {peer}, {array.nbytes} are due{ALIKE}"
                )

    def _wait(self, begun: list[Any], states: list[Any], ways: list[str], here: str) -> None:
        if self.timeout is None:
            self.mpi.Request.Waitall(begun, states)
            return
        begin = time.monotonic()
        while not self.mpi.Request.Testall(begun, states):
            waited = time.monotonic() - begin
            if waited > self.timeout:
                late = [way for way, one in zip(ways, begun, strict=True) if not one.Test()]
                raise TimeoutError(
                    f"{here}: after {self.timeout:g} s still waiting for messages "
                    f"{', '.join(late)}{ALIKE}"
                )
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
