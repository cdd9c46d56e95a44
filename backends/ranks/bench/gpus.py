"""A rank of NCCL in a benchmark: a process of MPI with a GPU, on which the arrays are already."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

from weft.dsl.base.arrays import AnyArray
from weft.dsl.nouns.collective import Collective, Kind

from ...formats.p2p.embedded.nccl import Connection
from ...formats.p2p.execute import loaded
from ..nccl import on_gpu
from ..waiting import meet
from . import own
from .job import Bench


class GpuLoan:
    """Copies on the GPU."""

    def __init__(self, send: AnyArray | None, recv: AnyArray | None) -> None:
        self.host = recv
        self.send, self.recv = on_gpu(send, recv)

    def refresh(self) -> None:
        """They keep what they hold: calls leave their input as it is."""

    def fetch(self) -> None:
        """Copy the result back."""
        import cupy

        if self.host is not None:
            self.host[...] = cupy.asnumpy(self.recv).view(self.host.dtype)


class NcclRank:
    """A rank of NCCL; ``job`` is the communicator of the processes (of mpi4py)."""

    def __init__(self, bench: Bench, connection: Connection, job: Any) -> None:
        self.connection, self.job, self.timeout = connection, job, bench.timeout
        self.rank, self.ranks = connection.link.rank, connection.link.ranks

    def calls(self, bench: Bench) -> dict[str, own.Call]:
        """Every contestant by its name; NCCL's own last, if it has one."""
        found: dict[str, own.Call] = {}
        for one in bench.contestants:
            function = getattr(loaded(one.text), one.function)
            found[one.name] = partial(function, comm=self.connection.link)
        native = own_of(self.connection.link.comm, bench.units)
        return found | ({"NCCL": native} if native else {})

    def lend(self, send: AnyArray | None, recv: AnyArray | None) -> GpuLoan:
        """Arrays on the GPU."""
        return GpuLoan(send, recv)

    def clock(self) -> float:
        """Seconds, when the current stream is empty."""
        import cupy

        cupy.cuda.get_current_stream().synchronize()
        return time.perf_counter()

    def meet(self) -> None:
        """Wait for all, with an end."""
        self.clock()
        late = f"rank {self.rank}: a rank did not come to the barrier"
        meet(self.job, self.timeout, late)

    def gather(self, thing: Any) -> Any:
        """Everybody's, on rank 0; None on the others."""
        return self.job.gather(thing)

    def agree(self, thing: Any) -> Any:
        """Rank 0's."""
        return self.job.bcast(thing)

    def close(self) -> None:
        """NCCL ends with the process."""


TYPES = {
    "float16": "NCCL_FLOAT16",
    "bfloat16": "NCCL_BFLOAT16",
    "float32": "NCCL_FLOAT32",
    "float64": "NCCL_FLOAT64",
    "int8": "NCCL_INT8",
    "uint8": "NCCL_UINT8",
    "int32": "NCCL_INT32",
    "uint32": "NCCL_UINT32",
    "int64": "NCCL_INT64",
    "uint64": "NCCL_UINT64",
}


def own_of(comm: Any, units: Collective) -> own.Call | None:
    """NCCL's own collective, on the current stream; None if it has none of that kind."""
    import cupy
    from cupy.cuda import nccl

    root = units.roots[0] if units.roots else 0

    def ends(send: Any, recv: Any) -> tuple[int, int]:
        """Return both addresses; a single array is given twice, and NCCL reads one of them."""
        first, second = (recv if send is None else send), (send if recv is None else recv)
        return first.data.ptr, second.data.ptr

    def rest(array: Any) -> tuple[int, int]:
        kind = getattr(nccl, TYPES[str(array.dtype)])
        return kind, cupy.cuda.get_current_stream().ptr

    def allreduce(send: Any, recv: Any) -> None:
        kind, stream = rest(send)
        comm.allReduce(send.data.ptr, recv.data.ptr, send.size, kind, nccl.NCCL_SUM, stream)

    def allgather(send: Any, recv: Any) -> None:
        kind, stream = rest(send)
        comm.allGather(send.data.ptr, recv.data.ptr, send.size, kind, stream)

    def reduce_scatter(send: Any, recv: Any) -> None:
        kind, stream = rest(send)
        comm.reduceScatter(send.data.ptr, recv.data.ptr, recv.size, kind, nccl.NCCL_SUM, stream)

    def broadcast(send: Any, recv: Any) -> None:
        kind, stream = rest(recv)
        first, second = ends(send, recv)
        comm.broadcast(first, second, recv.size, kind, root, stream)

    def reduce(send: Any, recv: Any) -> None:
        kind, stream = rest(send)
        first, second = ends(send, recv)
        comm.reduce(first, second, send.size, kind, nccl.NCCL_SUM, root, stream)

    calls: dict[Kind, own.Call] = {
        Kind.ALLREDUCE: allreduce,
        Kind.ALLGATHER: allgather,
        Kind.REDUCE_SCATTER: reduce_scatter,
        Kind.BROADCAST: broadcast,
        Kind.REDUCE: reduce,
    }
    return calls.get(units.kind)
