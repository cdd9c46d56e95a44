"""Run all contestants in turns on every rank, so that disturbances affect all alike.

As a program: one of the ranks that :mod:`..launcher` started.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from weft.dsl.base.arrays import AnyArray
from weft.dsl.nouns.collective import Collective, Kind

from ...formats.p2p.data import Exam
from ...formats.p2p.execute import arguments, loaded
from ..jax import AXIS, Devices
from ..job import LIMITS
from ..joined import world_of
from ..launcher import take_part
from ..mpi import MpiWorld
from ..nccl import NcclWorld
from ..rank import Member, World
from .job import Bench


def attend(bench: Bench, world: World, tell: Callable[[str], None]) -> list[dict[str, Any]] | None:
    """Return µs of each turn (of the slowest rank) and errors, for each size and contestant.

    On rank 0; None on the others.

    Raises:
        RuntimeError: this job has other ranks than the files.
        TimeoutError: some rank does not reach the barrier.
    """
    if world.ranks != bench.units.ranks:
        raise RuntimeError(
            f"the plans are for {bench.units.ranks} ranks, this job has {world.ranks}"
        )
    member = world.last(world.ranks)
    assert member is not None, "it is of the group of all"
    calls: dict[str, Call] = {
        one.name: partial(getattr(loaded(one.text), one.function), **member.keywords(first=False))
        for one in bench.contestants
    }
    if native := native_of(world, bench):
        calls[native[0]] = native[1]
    rows: list[dict[str, Any]] = []
    for number, length in enumerate(bench.lengths, 1):
        tell(f"size {number} of {len(bench.lengths)}")
        mine = _size(bench, bench.exam(length), calls, world, member)
        everybody = world.gather(mine)
        if everybody is not None:
            rows += [
                row_of(bench.bytes(length), name, [one[name] for one in everybody])
                for name in calls
            ]
    return rows if not world.rank else None


Mine = dict[str, tuple[list[float], str | None]]


def _size(bench: Bench, exam: Exam, calls: dict[str, Call], world: World, member: Member) -> Mine:
    """Return seconds of this rank's calls, and the first error, by contestant."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    wrong: dict[str, str | None] = dict.fromkeys(calls)
    send, _ = arguments(exam, member.rank, in_place=False)
    recvs: dict[str, AnyArray | None] = {name: exam.empty(member.rank) for name in calls}
    loans = {name: member.lend(send, recv) for name, recv in recvs.items()}
    order, begun = list(calls), time.monotonic()
    turn, last = 0, False
    while not last:
        late = turn > LIMITS.warm_up_turns and time.monotonic() - begun > bench.seconds
        last = world.spread(late or turn + 1 >= LIMITS.warm_up_turns + bench.repeat)
        for name in turned(order, turn):
            member.barrier()
            begin = member.clock()
            calls[name](loans[name].send, loans[name].recv)
            spent = member.clock() - begin
            if turn >= LIMITS.warm_up_turns:
                seconds[name].append(spent)
            if last or not turn:
                loans[name].fetch()
                wrong[name] = wrong[name] or exam.wrong(member.rank, recvs[name])
        turn += 1
    return {name: (seconds[name], wrong[name]) for name in calls}


def turned(names: list[str], turn: int) -> list[str]:
    """Return names beginning with another one in each turn."""
    return names[turn % len(names) :] + names[: turn % len(names)]


def on_devices(bench: Bench, tell: Callable[[str], None]) -> list[dict[str, Any]]:
    """Return rows as :func:`attend`, of ranks that are JAX's devices: one process calls all.

    Raises:
        Missing: there are too few devices.
    """
    devices = Devices(bench.units.ranks)
    calls = {
        one.name: devices.mapped(partial(loaded(one.text).collective, axis_name=AXIS))
        for one in bench.contestants
    }
    native = of_xla(bench.units)
    if native:
        calls["XLA"] = devices.mapped(native)
    rows = []
    for number, length in enumerate(bench.lengths, 1):
        tell(f"size {number} of {len(bench.lengths)}")
        exam = bench.exam(length)
        x = devices.put(exam)
        first = {name: devices.timed(call, x)[0] for name, call in calls.items()}
        wrong = {
            name: next(filter(None, devices.wrong(exam, result)), None)
            for name, result in first.items()
        }
        seconds: dict[str, list[float]] = {name: [] for name in calls}
        begun = time.monotonic()
        for turn in range(bench.repeat):
            for name in turned(list(calls), turn):
                seconds[name].append(devices.timed(calls[name], x)[1])
            if time.monotonic() - begun > bench.seconds:
                break
        size = bench.bytes(length)
        rows += [row_of(size, name, [(seconds[name], wrong[name])]) for name in calls]
    return rows


def row_of(size: int, name: str, ranks: list[tuple[list[float], str | None]]) -> dict[str, Any]:
    """Return the µs of each turn, of the slowest rank, and the first error."""
    slowest = [1e6 * max(turn) for turn in zip(*(one[0] for one in ranks), strict=True)]
    wrong = next((one[1] for one in ranks if one[1]), None)
    return {"bytes": size, "name": name, "us": slowest, "wrong": wrong}


def serve(on: str, plan: Any, folder: Path, tell: Callable[[str], None]) -> Iterator[Any]:
    """Run one of the ranks of the job in a folder; its times are yielded before the world closes,
    which may fail."""
    bench = Bench.from_json(plan)
    if on == "jax":
        yield on_devices(bench, tell)
        return
    world = world_of(on, bench.timeout, folder, bench.units.ranks)
    yield attend(bench, world, tell if not world.rank else lambda _: None)
    world.close()


# --- the runtimes' own collectives, on the arrays that our functions take -------------------------


Call = Callable[[Any, Any], None]
"""A collective of ``send`` into ``recv``; None where the rank has nothing."""


def _mpi(comm: Any, units: Collective) -> Call | None:
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


def of_xla(units: Collective) -> Callable[[Any], Any] | None:
    """XLA's, of one array over a mesh axis; None if it has none of that kind."""
    from jax import lax

    calls: dict[Kind, Callable[[Any], Any]] = {
        Kind.ALLREDUCE: lambda x: lax.psum(x, AXIS),
        Kind.ALLGATHER: lambda x: lax.all_gather(x, AXIS, tiled=True),
        Kind.REDUCE_SCATTER: lambda x: lax.psum_scatter(x, AXIS, tiled=True),
        Kind.ALLTOALL: lambda x: lax.all_to_all(x, AXIS, 0, 0, tiled=True),
    }
    return calls.get(units.kind)


def _torch(dist: Any, units: Collective) -> Call | None:
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


def _nccl(comm: Any, units: Collective) -> Call | None:
    """NCCL's, on the current stream; None if it has none of that kind."""
    import cupy
    from cupy.cuda import nccl

    root = units.roots[0] if units.roots else 0

    def ends(send: Any, recv: Any) -> tuple[int, int]:
        """Return both addresses; a single array is given twice, and NCCL reads one of them."""
        first, second = (recv if send is None else send), (send if recv is None else recv)
        return first.data.ptr, second.data.ptr

    def kind(array: Any) -> int:
        return int(getattr(nccl, f"NCCL_{str(array.dtype).upper()}"))

    def stream() -> int:
        return int(cupy.cuda.get_current_stream().ptr)

    calls: dict[Kind, Call] = {
        Kind.ALLREDUCE: lambda send, recv: comm.allReduce(
            *ends(send, recv), send.size, kind(send), nccl.NCCL_SUM, stream()
        ),
        Kind.ALLGATHER: lambda send, recv: comm.allGather(
            *ends(send, recv), send.size, kind(send), stream()
        ),
        Kind.REDUCE_SCATTER: lambda send, recv: comm.reduceScatter(
            *ends(send, recv), recv.size, kind(send), nccl.NCCL_SUM, stream()
        ),
        Kind.BROADCAST: lambda send, recv: comm.broadcast(
            *ends(send, recv), recv.size, kind(recv), root, stream()
        ),
        Kind.REDUCE: lambda send, recv: comm.reduce(
            *ends(send, recv), send.size, kind(send), nccl.NCCL_SUM, root, stream()
        ),
    }
    return calls.get(units.kind)


def native_of(world: Any, bench: Bench) -> tuple[str, Call] | None:
    """Return the name of a rank's runtime and its own collective; None if it has none."""
    if isinstance(world, NcclWorld):
        name, call = "NCCL", _nccl(world.connection.link.comm, bench.units)
    elif isinstance(world, MpiWorld):
        # mpi4py lacks bfloat16; our functions send bytes.
        name, call = "MPI", None if bench.dtype == "bfloat16" else _mpi(world.comm, bench.units)
    else:
        name, call = "torch", _torch(world.dist, bench.units)
    return None if call is None else (name, call)


if __name__ == "__main__":
    take_part(serve)
