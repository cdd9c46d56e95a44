"""Program that runs on ranks of torch.distributed: one process loads torch, then forks them all.

That import takes seconds of a core, and each rank would do it.
"""

from __future__ import annotations

import os
import runpy
import sys
import traceback
from functools import partial
from pathlib import Path

from weft.dsl.base.processes import end_with_owner

from .launcher import RANK
from .torch import fork_ranks


def main(program: str, place: str, ranks: int) -> None:
    """Run a module on that many ranks, and end with exit code 1 when the first of them fails.

    The others are left to :func:`.launcher.run_program`, which ends all processes below this one.
    """
    pids = fork_ranks(ranks, partial(_run, program, place))
    end_with_owner(Path(place))
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
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
