"""Ranks of NCCL that take part in a measurement: processes of MPI, each on a GPU."""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import Any

from weft.dsl.base.errors import Missing

from ...formats.p2p.embedded.nccl import Connection, Nccl, connect
from ..nccl import SETTINGS, unusable
from .model import Findings, ProbeLimits
from .probe import Probe, Tell
from .survey import survey


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
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    from mpi4py import MPI

    world: Any = MPI.COMM_WORLD
    local = world.Split_type(MPI.COMM_TYPE_SHARED)
    missing = unusable(local.Get_size())
    if missing:
        raise missing
    import cupy

    cupy.cuda.Device(local.Get_rank() % cupy.cuda.runtime.getDeviceCount()).use()
    return connect(world)


def measure_nccl(effort: ProbeLimits, seed: int, tell: Tell) -> Findings | None:
    """Run a rank that MPI started; return the findings on rank 0.

    Raises:
        Missing: as :func:`connected`.
    """
    return survey(probe_of(connected(), effort), effort, seed, tell)
