"""The runtimes' own collectives, on the arrays that our functions take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.dsl.nouns.collective import Collective, Kind

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


def jax(axis: str, units: Collective) -> Callable[[Any], Any] | None:
    """XLA's, of one array over a mesh axis; None if it has none of that kind."""
    from jax import lax

    calls: dict[Kind, Callable[[Any], Any]] = {
        Kind.ALLREDUCE: lambda x: lax.psum(x, axis),
        Kind.ALLGATHER: lambda x: lax.all_gather(x, axis, tiled=True),
        Kind.REDUCE_SCATTER: lambda x: lax.psum_scatter(x, axis, tiled=True),
        Kind.ALLTOALL: lambda x: lax.all_to_all(x, axis, 0, 0, tiled=True),
    }
    return calls.get(units.kind)


def torch(dist: Any, units: Collective) -> Call | None:
    """torch.distributed's, on the default group; None if it has none of that kind."""
    root = units.roots[0] if units.roots else 0
    ranks, here = units.ranks, dist.get_rank() == root

    def parts(whole: Any) -> list[Any] | None:
        return None if whole is None else list(whole.chunk(ranks))

    def copied(send: Any, recv: Any) -> Any:
        """Return the tensor for a torch collective that works in place, filled with the input."""
        there = send.clone() if recv is None else recv
        if recv is not None and send is not None:
            recv.copy_(send)
        return there

    calls: dict[Kind, Call] = {
        Kind.ALLREDUCE: lambda send, recv: dist.all_reduce(copied(send, recv)),
        Kind.ALLGATHER: lambda send, recv: dist.all_gather_into_tensor(recv, send),
        Kind.REDUCE_SCATTER: lambda send, recv: dist.reduce_scatter_tensor(recv, send),
        Kind.ALLTOALL: lambda send, recv: dist.all_to_all_single(recv, send),
        Kind.REDUCE: lambda send, recv: dist.reduce(copied(send, recv), root),
        Kind.GATHER: lambda send, recv: dist.gather(send, parts(recv), root),
        Kind.SCATTER: lambda send, recv: dist.scatter(recv, parts(send) if here else None, root),
        Kind.BROADCAST: lambda send, recv: dist.broadcast(copied(send, recv), root),
    }
    return calls.get(units.kind)
