"""Ranks of NCCL that take part in a measurement: processes of MPI, each on a GPU."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

from weft.dsl.base.errors import Missing
from weft.dsl.nouns.program import Protocol

from ...formats.p2p.embedded.nccl import Connection, Nccl, connect, joined
from ..nccl import SETTINGS, unusable
from .model import CallTime, Findings, ProbeLimits
from .probe import Probe, Tell
from .survey import survey

FEW_CHANNELS = "NCCL_MAX_CTAS"
"""Setting that ranks with a GPU each do without: it would limit their bandwidth."""


ON_ONE_GPU = "ranks share a GPU: these are times of their turns on it, and say nothing of links"
"""Remark on a machine that was measured so."""


class TimedNccl(Nccl):
    """NCCL, whose clock stands still until the stream is empty."""

    def clock(self) -> float:
        """Seconds, when all that was begun is done; sums that wait for company are launched."""
        self.flush()
        return super().clock()


def probe_of(connection: Connection, effort: ProbeLimits) -> Probe:
    """The probe of a rank, on its current GPU and stream. NCCL waits on the GPU: one transport
    serves short and long waits."""
    import cupy

    wire = TimedNccl(connection, cupy.cuda.get_current_stream(), "float32")
    return Probe(wire, wire, cupy.asarray, cupy.asnumpy, effort.batches)


class NcclCaller:
    """NCCL's own allreduce over a ring, by protocol.

    A communicator reads protocol and algorithm from the environment when it is made.
    """

    protocols: Sequence[str] = tuple(map(str, Protocol))
    one_channel = True

    def __init__(self, probe: Probe) -> None:
        self.probe = probe
        self.wire: Any = probe.wire

    def ring(self, inside: Sequence[int], asked: CallTime) -> Callable[[], None]:
        """Return the call of a communicator of these ranks."""
        import cupy
        from cupy.cuda import nccl

        name = self.probe.share([int(x) for x in self._name()])
        if self.probe.rank not in inside:
            return lambda: None
        most = {"NCCL_MAX_NCHANNELS": str(asked.channels)} if asked.channels else {}
        with _environment(NCCL_PROTO=asked.protocol, NCCL_ALGO="Ring", **most):
            comm = joined(len(inside), name, inside.index(self.probe.rank))
        count = asked.bytes // 4
        send, recv = (cupy.zeros(count, "float32") for _ in range(2))
        stream, kind = self.wire.stream.ptr, nccl.NCCL_FLOAT32
        ends = send.data.ptr, recv.data.ptr

        def reduce(_: object = (send, recv)) -> None:
            """The default keeps the arrays alive."""
            comm.allReduce(*ends, count, kind, nccl.NCCL_SUM, stream)

        return reduce

    def empty(self) -> Callable[[], None]:
        """Return the launch of a kernel that copies a number."""
        import cupy

        out, number = (cupy.zeros(1, "float32") for _ in range(2))

        def launch() -> None:
            self.wire.copy(out, number)
            self.wire.flush()

        return launch

    def _name(self) -> Sequence[int]:
        """Return the name of a new communicator, on rank 0."""
        from cupy.cuda import nccl

        found: Sequence[int] = () if self.probe.rank else nccl.get_unique_id()
        return found


@contextmanager
def _environment(**values: str) -> Iterator[None]:
    """Variables of the environment for as long."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def connected() -> Connection:
    """Return the connection of a rank that MPI started, which takes a GPU of its node first.

    Raises:
        Missing: there is no mpi4py, CuPy, GPU or NCCL that does.
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

    world: Any = MPI.COMM_WORLD
    local = world.Split_type(MPI.COMM_TYPE_SHARED)
    missing = unusable(local.Get_size())
    if missing:
        raise missing
    if _shares_gpus():
        os.environ.setdefault(FEW_CHANNELS, SETTINGS[FEW_CHANNELS])
    import cupy

    cupy.cuda.Device(local.Get_rank() % cupy.cuda.runtime.getDeviceCount()).use()
    return connect(world)


def measure_nccl(effort: ProbeLimits, seed: int, tell: Tell) -> Findings | None:
    """Run a rank that MPI started; return the findings on rank 0.

    Raises:
        Missing: as :func:`connected`.
    """
    probe = probe_of(connected(), effort)
    if not _shares_gpus():
        return survey(probe, effort, seed, tell, NcclCaller(probe))
    found = survey(probe, effort, seed, tell, None)
    return found and replace(found, remarks=(ON_ONE_GPU, *found.remarks))


def _shares_gpus() -> bool:
    """Return True if ranks of this node share a GPU: times of calls are not the machine's then."""
    import cupy
    from mpi4py import MPI

    local: Any = MPI.COMM_WORLD.Split_type(MPI.COMM_TYPE_SHARED)
    return bool(local.Get_size() > cupy.cuda.runtime.getDeviceCount())
