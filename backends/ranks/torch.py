"""Ranks that are processes of torch.distributed, on gloo, or on NCCL where there are GPUs.

As a program: load torch once, then fork all ranks that :mod:`.launcher` started, since that import
takes seconds of a core, and is most of what they would do. They do a job, and how each of them ends
is written down, or they run a module.
"""

from __future__ import annotations

import os
import runpy
import sys
import time
import traceback
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from weft.dsl.base.arrays import AnyArray
from weft.dsl.base.processes import end_with_owner

from .launcher import RANK
from .rank import ConnectedMember, Loan, World, alike, serve, supervise


class TorchLoan(Loan):
    """Tensors on the host that share NumPy's memory, or copies on a device."""

    def __init__(
        self, torch: Any, device: Any, send: AnyArray | None, recv: AnyArray | None
    ) -> None:
        self.torch, self.device = torch, device
        self._host: list[Any] = [None if x is None else self._shared(x) for x in (send, recv)]
        lent = self._host
        if device is not None:
            lent = alike(send, recv, lambda x: self._shared(x).to(device))
        super().__init__(*lent)

    def _shared(self, array: AnyArray) -> Any:
        if array.dtype.name == "bfloat16":  # which NumPy knows by a package only
            return self.torch.from_numpy(array.view("int16")).view(self.torch.bfloat16)
        return self.torch.from_numpy(array)

    def refresh(self) -> None:
        """Copy the arrays from the host."""
        self._copy(self._host, [self.send, self.recv])

    def fetch(self) -> None:
        """Copy them to the host."""
        self._copy([self.send, self.recv], self._host)

    def _copy(self, source: list[Any], target: list[Any]) -> None:
        if self.device is not None:
            for a, b in zip(source, target, strict=True):
                if a is not None:
                    b.copy_(a)


class TorchMember(ConnectedMember):
    """A rank of a process group."""

    def __init__(self, world: TorchWorld, group: Any) -> None:
        self.world, self.group = world, group
        self.rank = world.dist.get_rank(group)
        self.ranks = world.dist.get_world_size(group)

    def lend(self, send: AnyArray | None, recv: AnyArray | None) -> TorchLoan:
        """Return tensors for these."""
        return TorchLoan(self.world.torch, self.world.device, send, recv)

    def keywords(self, *, first: bool) -> dict[str, Any]:
        """The group. The first call checks every message; the others have its own time-out."""
        return {"group": self.group, "timeout": self.world.timeout if first else None}

    def barrier(self) -> None:
        """Wait, with an end."""
        work = self.world.dist.barrier(group=self.group, async_op=True)
        try:
            work.wait(timedelta(seconds=self.world.timeout))
        except RuntimeError as error:
            if "onnection" in str(error):
                text = f"rank {self.rank}: a rank has ended or given up, seen at the barrier"
                raise ConnectionError(text) from error
            if "imed out" not in str(error):
                raise
            raise TimeoutError(
                f"rank {self.rank}: after {self.world.timeout:g} s still waiting at the barrier"
            ) from error

    def clock(self) -> float:
        """Seconds, when the device is done."""
        if self.world.device is not None:
            self.world.torch.cuda.synchronize()
        return time.perf_counter()


def takes_gpus(torch: Any, dist: Any, here: int) -> bool:
    """Return True if this host has a GPU for each of its ranks; NCCL refuses two on one."""
    usable = torch.cuda.is_available() and dist.is_nccl_available()
    return bool(usable and torch.cuda.device_count() >= here)


class TorchWorld(World):
    """All ranks of the job: in a ``folder``, this one with a number, or of torchrun's environment.

    ``gpus``: they are on GPUs where there are enough.
    """

    def __init__(
        self,
        timeout: float,
        folder: Path | None = None,
        rank: int = -1,
        ranks: int = -1,
        *,
        gpus: bool = True,
    ) -> None:
        import torch
        import torch.distributed as dist

        self.torch: Any = torch
        self.dist: Any = dist
        self.timeout = timeout
        torch.set_num_threads(1)  # ranks share the cores
        here = int(os.environ.get("LOCAL_WORLD_SIZE", ranks))  # torchrun says how many
        cuda = gpus and takes_gpus(torch, dist, here)
        dist.init_process_group(
            "nccl" if cuda else "gloo",
            init_method=None if folder is None else f"file://{folder}/store",
            rank=rank,
            world_size=ranks,
            timeout=timedelta(seconds=timeout),
        )
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        self.device: Any = None
        if cuda:
            local = int(os.environ.get("LOCAL_RANK", self.rank))
            self.device = torch.device("cuda", local % torch.cuda.device_count())
            torch.cuda.set_device(self.device)
        self._groups: dict[int, Any] = {self.ranks: None}

    def last(self, count: int) -> ConnectedMember | None:
        """As :meth:`.World.last`."""
        if count not in self._groups:
            inside = list(range(self.ranks - count, self.ranks))
            self._groups[count] = self.dist.new_group(
                inside, timeout=timedelta(seconds=self.timeout)
            )
        inside_it = self.rank >= self.ranks - count
        return TorchMember(self, self._groups[count]) if inside_it else None

    def gather(self, thing: Any) -> list[Any] | None:
        """As :meth:`.World.gather`."""
        found: list[Any] | None = [None] * self.ranks if self.rank == 0 else None
        self.dist.gather_object(thing, found)
        return found

    def spread(self, thing: Any) -> Any:
        """As :meth:`.World.spread`."""
        box = [thing]
        self.dist.broadcast_object_list(box)
        return box[0]

    def abort(self) -> None:
        """End this rank at once; torchrun ends the others."""
        os._exit(1)

    def close(self) -> None:
        """Leave when all are done: gloo takes a closed connection for a crash."""
        self.dist.barrier()
        self._groups.clear()  # a group that is held is not closed
        self.dist.destroy_process_group()


def herd(place: str, ranks: int, program: str = "") -> None:
    """Fork the ranks.

    Those of a job: write down how each of them ends. Those of a program: end with exit code 1 when
    the first of them fails; the others are left to :func:`.launcher.run_program`, which ends all
    processes below this one.
    """
    import torch.distributed  # the costly part, once

    assert torch.distributed.is_available()
    pids = {}
    for rank in range(ranks):
        pid = os.fork()
        if not pid:
            if program:
                _run(program, place, rank)
            else:
                serve(place, partial(TorchWorld, folder=Path(place), rank=rank, ranks=ranks), rank)
            sys.stdout.flush()
            os._exit(0)
        pids[pid] = rank
    end_with_owner(Path(place))
    if not program:
        supervise(Path(place), pids)
    while pids:
        pid, status = os.wait()
        del pids[pid]
        if status:
            sys.exit(1)


def _run(program: str, place: str, rank: int) -> None:
    """Run the module as rank ``rank``, with the arguments that a process of its own would have."""
    os.environ[RANK] = str(rank)
    sys.argv = [program, "torch", place]
    try:
        runpy.run_module(program, run_name="__main__")
    except BaseException:
        traceback.print_exc()
        sys.stdout.flush()
        os._exit(1)


if __name__ == "__main__":
    herd(sys.argv[1], int(sys.argv[2]), *sys.argv[3:])
