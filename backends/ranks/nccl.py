"""Ranks on GPUs, connected by NCCL: those of this process, or processes of MPI with a GPU each.

If GPUs are few, several ranks are on one.
"""

from __future__ import annotations

import os
import time
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from weft.dsl.base.arrays import AnyArray
from weft.dsl.base.errors import Missing

from .job import LIMITS, Case, EmittedFile, RankJob, RankReport
from .mpi import MpiWorld, meet
from .rank import CaseBuffers, ConnectedMember, Loan, RankGroup, Trial, alike, attend_groups

if TYPE_CHECKING:
    from ..formats.p2p.embedded.nccl import Connection

FEW_CHANNELS = "NCCL_MAX_CTAS"
"""Setting that ranks with a GPU each do without: it would limit their bandwidth."""

SETTINGS = {
    "NCCL_MULTI_RANK_GPU_ENABLE": "1",
    "NCCL_NVLS_ENABLE": "0",
    FEW_CHANNELS: "2",
    # Kernels of ranks wait for each other: none may stand in another's queue.
    "CUDA_DEVICE_MAX_CONNECTIONS": "32",
}
"""The environment in which several ranks can share a GPU; a user's own settings stay."""


def unusable(ranks: int) -> Missing | None:
    """Return the reason why that many ranks cannot run on this machine, or None."""
    try:
        import cupy
        from cupy.cuda import nccl
    except ImportError:
        return Missing("CuPy is not installed", hint="pip install 'weft[cuda]'")
    if not cupy.cuda.is_available():
        return Missing("CuPy sees no GPU", hint="--on numpy runs the same file on threads")
    if not nccl.available:
        return Missing("CuPy finds no NCCL", hint="pip install nvidia-nccl-cu12")
    gpus, version = cupy.cuda.runtime.getDeviceCount(), nccl.get_version()
    if ranks > gpus and version < LIMITS.shared_gpu_nccl:
        return Missing(
            f"{ranks} ranks on {gpus} GPUs need NCCL 2.30; this is {version}",
            hint="a newer NCCL, or LD_PRELOAD=…/libnccl.so.2 of one",
        )
    return None


def run_on_gpus(job: RankJob) -> dict[int, RankReport]:
    """Return the reports of all ranks of a job, whose cases are run one after the other.

    Raises:
        Missing: no GPU, no CuPy, or no NCCL that does.
    """
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    missing = unusable(job.ranks)
    if missing:
        raise missing
    groups = {count: _GpuRanks(count) for count in sorted({p.units.ranks for p in job.pieces})}
    done = attend_groups(job, groups, lambda _: None)
    for group in groups.values():
        group.close()
    return {rank: RankReport(rank, own) for rank, own in enumerate(done)}


class _GpuRanks(RankGroup):
    def __init__(self, count: int) -> None:
        import cupy
        from cupy.cuda import nccl

        self.cupy, self.count = cupy, count
        self.devices = [r % cupy.cuda.runtime.getDeviceCount() for r in range(count)]
        self.comms = nccl.NcclCommunicator.initAll(self.devices)
        self.programs: dict[int, Any] = {}

    def trial(self, program: Any, piece: EmittedFile, case: Case) -> Trial:
        self.programs[id(program)] = program
        every, exam = getattr(program, f"{piece.function}_of_all"), case.exam(piece.units)
        buffers = [CaseBuffers(exam, rank, in_place=case.in_place) for rank in range(self.count)]
        loans: list[GpuLoan] = []

        def call(turn: int) -> float:
            loans.clear()
            for device, own in zip(self.devices, buffers, strict=True):
                if turn:
                    own.restore()
                with self.cupy.cuda.Device(device):
                    loans.append(GpuLoan(own.send, own.recv))
            self._wait()
            begin = time.perf_counter()
            every([x.send for x in loans], [x.recv for x in loans], self.comms)
            self._wait()
            return time.perf_counter() - begin

        def wrong() -> list[str | None]:
            pairs = zip(buffers, loans, strict=True)
            return [own.wrong(self._host(x.send), self._host(x.recv)) for own, x in pairs]

        return call, wrong

    def _host(self, array: Any) -> AnyArray | None:
        host: AnyArray | None = None if array is None else self.cupy.asnumpy(array)
        return host

    def _wait(self) -> None:
        for device in sorted(set(self.devices)):
            with self.cupy.cuda.Device(device):
                self.cupy.cuda.get_current_stream().synchronize()

    def close(self) -> None:
        """Destroy the communicators, also in the caches of programs."""
        for comm in self.comms:
            for program in self.programs.values():
                program.forget(comm)
            comm.destroy()


def on_gpu(send: AnyArray | None, recv: AnyArray | None) -> Any:
    """Return both arrays on the device, sharing memory if they share it on the host."""
    import cupy

    return alike(send, recv, cupy.asarray)


class GpuLoan(Loan):
    """Copies on the GPU. They stay valid: calls leave their input as it is."""

    def __init__(self, send: AnyArray | None, recv: AnyArray | None) -> None:
        self.host = recv
        super().__init__(*on_gpu(send, recv))

    def fetch(self) -> None:
        """Copy the result back."""
        import cupy

        if self.host is not None:
            self.host[...] = cupy.asnumpy(self.recv).view(self.host.dtype)


class NcclMember(ConnectedMember):
    """A rank of NCCL that is a process of MPI."""

    def __init__(self, world: NcclWorld) -> None:
        self.world, self.rank, self.ranks = world, world.rank, world.ranks

    def lend(self, send: AnyArray | None, recv: AnyArray | None) -> GpuLoan:
        """Return copies on the GPU."""
        return GpuLoan(send, recv)

    def keywords(self, *, first: bool) -> dict[str, Any]:
        """The communicator."""
        return {"comm": self.world.connection.link}

    def clock(self) -> float:
        """Seconds, when the current stream is empty."""
        import cupy

        cupy.cuda.get_current_stream().synchronize()
        return time.perf_counter()

    def barrier(self) -> None:
        """Wait for all, with an end."""
        self.clock()
        late = f"rank {self.rank}: after {self.world.timeout:g} s still waiting at the barrier"
        meet(self.world.comm, self.world.timeout, late)


class NcclWorld(MpiWorld):
    """Processes of MPI, each with a GPU, and their connection by NCCL, made unless it is given.

    Raises:
        Missing: as :func:`connected`.
    """

    def __init__(
        self, timeout: float, connection: Connection | None = None, comm: Any = None
    ) -> None:
        self.connection = connection or connected()
        super().__init__(timeout, comm)

    def last(self, count: int) -> ConnectedMember | None:
        """Return this rank in the group of all, the only one."""
        assert count == self.ranks
        return NcclMember(self)


def connected() -> Connection:
    """Return the connection of a rank that MPI started, which takes a GPU of its node first.

    Raises:
        Missing: mpi4py, CuPy, a GPU or NCCL is missing or does not work.
    """
    if find_spec("mpi4py") is None:
        raise Missing(
            "ranks of NCCL are started by MPI: mpi4py is not installed",
            hint="pip install 'weft[mpi]'",
        )
    os.environ.setdefault("NCCL_NO_CACHE", "NCCL_MAX_NCHANNELS")  # else it is read but once
    for name, value in SETTINGS.items():
        if name != FEW_CHANNELS:
            os.environ.setdefault(name, value)
    from mpi4py import MPI

    from ..formats.p2p.embedded.nccl import connect

    world: Any = MPI.COMM_WORLD
    local = world.Split_type(MPI.COMM_TYPE_SHARED)
    missing = unusable(local.Get_size())
    if missing:
        raise missing
    if shares_gpus():
        os.environ.setdefault(FEW_CHANNELS, SETTINGS[FEW_CHANNELS])
    import cupy

    cupy.cuda.Device(local.Get_rank() % cupy.cuda.runtime.getDeviceCount()).use()
    return connect(world)


def shares_gpus() -> bool:
    """Return True if ranks of this node share a GPU: times of calls are not the machine's then."""
    import cupy
    from mpi4py import MPI

    local: Any = MPI.COMM_WORLD.Split_type(MPI.COMM_TYPE_SHARED)
    return bool(local.Get_size() > cupy.cuda.runtime.getDeviceCount())
