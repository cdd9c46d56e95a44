"""Run as one of the ranks that mpiexec, srun or torchrun started."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from weft.dsl.base.errors import CheckFailed

from .job import LIMITS, RankJob, RankReport
from .launcher import RANK, named
from .rank import World, attend, told

_OF_MPI = (("PMI_RANK",), ("PMIX_RANK",), ("OMPI_COMM_WORLD_RANK",))

_SIGNS = {
    "mpi": _OF_MPI,
    "nccl": _OF_MPI,
    "torch": (("RANK", "WORLD_SIZE", "MASTER_ADDR"),),
}
"""Variables that starters set, by runtime: all of one of the groups."""


def is_joined(on: str) -> bool:
    """Return True if this process was started as a rank."""
    return any(all(name in os.environ for name in group) for group in _SIGNS.get(on, ()))


def as_one_rank(on: str, timeout: float, work: Callable[[World], int]) -> int:
    """Connect, do the work, and end with one exit code for all ranks.

    An error of one rank ends all of them.
    """
    world = world_of(on, timeout)
    try:
        code = work(world)
    except BaseException as error:
        # Ranks that wait for this one report it, and are ended with it.
        sys.stderr.write(f"error: {named(world.rank, told(error))}\n")
        sys.stderr.flush()
        time.sleep(LIMITS.report_seconds)
        world.abort()
        raise
    code = int(world.spread(code))
    world.close()
    return code


def world_of(
    on: str,
    timeout: float,
    folder: Path | None = None,
    ranks: int = -1,
    *,
    gpus: bool = True,
) -> World:
    """Connect this rank: of a starter of ranks, or of :func:`.launcher.run_program`, in a folder.

    ``gpus``: ranks of torch are on GPUs where there are enough.

    Raises:
        Missing: the runtime is not installed, or a GPU is missing.
    """
    if on == "torch":
        from .torch import TorchWorld

        number = -1 if folder is None else int(os.environ[RANK])
        return TorchWorld(timeout, folder, number, ranks, gpus=gpus)
    if on == "nccl":
        from .nccl import NcclWorld

        return NcclWorld(timeout)
    from .mpi import MpiWorld

    return MpiWorld(timeout)


def attend_joined(job: RankJob, world: World) -> dict[int, RankReport] | None:
    """Do the cases; on the first rank, the reports of all.

    Raises:
        CheckFailed: there are more or fewer ranks than the program is for.
    """
    if world.ranks != job.ranks:
        raise CheckFailed(f"the program is for {job.ranks} ranks; this job has {world.ranks}")
    done = attend(job, world, lambda _: None)
    reports = world.gather(RankReport(world.rank, done))
    return None if reports is None else {one.rank: one for one in reports}
