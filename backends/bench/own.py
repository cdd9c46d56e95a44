"""The runtimes' own collectives, on the arrays that our functions take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.dsl.collective import Collective, Kind

Call = Callable[[Any, Any], None]
"""A collective of ``send`` into ``recv``; None where the rank has nothing."""


def mpi(comm: Any, units: Collective) -> Call | None:
    """MPI's, None if it has none of that kind."""
    root = units.roots[0] if units.roots else 0
    here = comm.Get_rank() == root

    def broadcast(send: Any, recv: Any) -> None:
        if here:
            recv[...] = send
        comm.Bcast(recv, root)

    calls: dict[Kind, Call] = {
        Kind.ALLREDUCE: comm.Allreduce,
        Kind.ALLGATHER: comm.Allgather,
        Kind.REDUCE_SCATTER: comm.Reduce_scatter_block,
        Kind.ALLTOALL: comm.Alltoall,
        Kind.REDUCE: lambda send, recv: comm.Reduce(send, recv, root=root),
        Kind.GATHER: lambda send, recv: comm.Gather(send, recv, root=root),
        Kind.SCATTER: lambda send, recv: comm.Scatter(send, recv, root=root),
        Kind.BROADCAST: broadcast,
    }
    return calls.get(units.kind)
