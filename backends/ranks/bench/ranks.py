"""Run all contestants in turns on every rank, so that disturbances affect all alike.

As a program: one of the ranks that :mod:`..launcher` started.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from weft.dsl.base.arrays import AnyArray
from weft.dsl.base.errors import Missing
from weft.dsl.base.processes import end_with_owner

from ...formats.p2p.data import Exam
from ...formats.p2p.execute import arguments, loaded
from ..jax import AXIS, Devices
from ..launcher import FOUND, LACKING, PLAN, RANK, leave
from ..profile.gpus import connected
from ..rank import Loan, Spare
from ..waiting import meet
from . import own
from .gpus import NcclRank
from .job import Bench

WARM_UP = 1
"""Turns that are not timed; what the first one leaves is compared, and what the last one does."""


class MpiRank:
    """A rank of MPI, and how functions are called on it."""

    def __init__(self, bench: Bench) -> None:
        from mpi4py import MPI

        self.mpi, self.comm, self.timeout = MPI, MPI.COMM_WORLD, bench.timeout
        self.rank, self.ranks = self.comm.Get_rank(), self.comm.Get_size()

    def calls(self, bench: Bench) -> dict[str, own.Call]:
        """Every contestant by its name; the runtime's own last, if it has one."""
        found: dict[str, own.Call] = {}
        for one in bench.contestants:
            function = getattr(loaded(one.text), one.function)
            found[one.name] = partial(function, comm=self.comm, timeout=self.timeout)
        # mpi4py knows no bfloat16; our functions send bytes.
        native = None if bench.dtype == "bfloat16" else own.mpi(self.comm, bench.units)
        return found | ({"MPI": native} if native else {})

    def meet(self) -> None:
        """Wait for all, with an end."""
        late = f"rank {self.rank}: a rank did not come to the barrier"
        meet(self.comm, self.timeout, late)

    def gather(self, thing: Any) -> Any:
        """Everybody's, on rank 0; None on the others."""
        return self.comm.gather(thing)

    def agree(self, thing: Any) -> Any:
        """Rank 0's."""
        return self.comm.bcast(thing)

    def lend(self, send: AnyArray | None, recv: AnyArray | None) -> Loan:
        """NumPy's arrays as they are."""
        return Spare(send, recv)

    def clock(self) -> float:
        """Seconds."""
        return time.perf_counter()

    def close(self) -> None:
        """MPI ends with the process."""


class TorchRank:
    """A rank of torch.distributed, which :mod:`..launcher` or torchrun started."""

    def __init__(self, bench: Bench, folder: Path | None = None) -> None:
        from ..torch import TorchWorld

        if folder is None:
            self.world = TorchWorld(bench.timeout)
        else:
            number = int(os.environ[RANK])
            self.world = TorchWorld(
                bench.timeout, f"file://{folder}/store", number, bench.units.ranks
            )
        self.rank, self.ranks = self.world.rank, self.world.ranks
        member = self.world.last(self.ranks)
        assert member is not None, "it is of the group of all"
        self.lend, self.meet, self.clock = member.lend, member.barrier, member.clock

    def calls(self, bench: Bench) -> dict[str, own.Call]:
        """Every contestant by its name; the runtime's own last, if it has one."""
        found: dict[str, own.Call] = {
            one.name: getattr(loaded(one.text), one.function) for one in bench.contestants
        }
        native = own.torch(self.world.dist, bench.units)
        return found | ({"torch": native} if native else {})

    def gather(self, thing: Any) -> Any:
        """Everybody's, on rank 0; None on the others."""
        return self.world.gather(thing)

    def agree(self, thing: Any) -> Any:
        """Rank 0's."""
        return self.world.spread(thing)

    def close(self) -> None:
        """Leave when all are done."""
        self.world.close()


Member = MpiRank | TorchRank | NcclRank


def member_of(on: str, bench: Bench, folder: Path | None = None) -> Member:
    """This process's rank.

    Raises:
        Missing: the runtime is not installed, or there is no GPU.
    """
    if on == "nccl":
        connection = connected()
        from mpi4py import MPI

        return NcclRank(bench, connection, MPI.COMM_WORLD)
    return MpiRank(bench) if on == "mpi" else TorchRank(bench, folder)


def attend(
    bench: Bench, member: Member, tell: Callable[[str], None]
) -> list[dict[str, Any]] | None:
    """Return µs of each turn (of the slowest rank) and errors, for each size and contestant.

    On rank 0; None on the others.

    Raises:
        RuntimeError: this job has other ranks than the files.
        TimeoutError: some rank does not reach the barrier.
    """
    if member.ranks != bench.units.ranks:
        raise RuntimeError(
            f"the plans are for {bench.units.ranks} ranks, this job has {member.ranks}"
        )
    calls = member.calls(bench)
    rows: list[dict[str, Any]] = []
    for number, length in enumerate(bench.lengths, 1):
        tell(f"size {number} of {len(bench.lengths)}")
        mine = _size(bench, bench.exam(length), calls, member)
        everybody = member.gather(mine)
        if everybody is not None:
            rows += [
                row_of(bench.bytes(length), name, [one[name] for one in everybody])
                for name in calls
            ]
    return rows if not member.rank else None


Mine = dict[str, tuple[list[float], str | None]]


def _size(bench: Bench, exam: Exam, calls: dict[str, own.Call], member: Member) -> Mine:
    """Seconds of this rank's calls, and what is wrong, by contestant."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    wrong: dict[str, str | None] = dict.fromkeys(calls)
    send, _ = arguments(exam, member.rank, in_place=False)
    recvs: dict[str, AnyArray | None] = {name: exam.empty(member.rank) for name in calls}
    loans = {name: member.lend(send, recv) for name, recv in recvs.items()}
    order, begun = list(calls), time.monotonic()
    turn, last = 0, False
    while not last:
        late = turn > WARM_UP and time.monotonic() - begun > bench.seconds
        last = member.agree(late or turn + 1 >= WARM_UP + bench.repeat)
        for name in turned(order, turn):
            member.meet()
            begin = member.clock()
            calls[name](loans[name].send, loans[name].recv)
            spent = member.clock() - begin
            if turn >= WARM_UP:
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
    """Return what :func:`attend` does, of ranks that are JAX's devices: one process calls all.

    Raises:
        Missing: there are too few devices.
    """
    devices = Devices(bench.units.ranks)
    calls = {
        one.name: devices.mapped(partial(loaded(one.text).collective, axis_name=AXIS))
        for one in bench.contestants
    }
    native = own.jax(AXIS, bench.units)
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


def serve(on: str, place: str) -> None:
    """Run one of the ranks of the job in a folder."""
    folder = Path(place)
    end_with_owner(folder)
    bench = Bench.from_json(json.loads((folder / PLAN).read_text("utf-8")))

    def tell(text: str) -> None:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()

    try:
        if on == "jax":
            leave(folder / FOUND, on_devices(bench, tell))
            return
        member = member_of(on, bench, folder)
    except Missing as error:
        lacking = {"message": error.message, "hint": error.hint}
        leave(folder / LACKING.format(os.getpid()), lacking)
        raise
    rows = attend(bench, member, tell if not member.rank else lambda _: None)
    if rows is not None:
        leave(folder / FOUND, rows)
    member.close()


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2])
