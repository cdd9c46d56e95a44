"""Ranks that are JAX's devices, all driven by one process: those of the host, as a rule.

As a program: run the job in a folder (:mod:`.launcher` started it), and write the reports of all
ranks. The host has as many devices as XLA is set to make before JAX starts.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from weft.dsl.base.arrays import AnyArray
from weft.dsl.base.errors import Missing

from ..formats.p2p.data import Exam
from .job import Case, Done, EmittedFile, RankJob
from .rank import RankGroup, Trial, attend_groups, serve_all

AXIS = "ranks"
"""Name of the mesh axis."""


UNSET = "unset JAX_PLATFORMS: the host has as many devices as are needed"


class Devices(RankGroup):
    """The first devices of JAX, as a mesh of one axis.

    Raises:
        Missing: there are fewer.
    """

    def __init__(self, ranks: int) -> None:
        import jax

        try:
            devices = jax.devices()
        except (AssertionError, RuntimeError) as error:
            wanted = f"JAX_PLATFORMS={os.environ.get('JAX_PLATFORMS')}"
            reason = f": {error}" if str(error) else ""
            raise Missing(f"JAX finds no device with {wanted}{reason}", hint=UNSET) from error
        if len(devices) < ranks:
            raise Missing(
                f"the program is for {ranks} ranks; JAX has {len(devices)} devices "
                f"({devices[0].platform})",
                hint=UNSET,
            )
        self.jax: Any = jax
        self.ranks = ranks
        self.mesh: Any = jax.sharding.Mesh(np.array(devices[:ranks]), (AXIS,))
        self.spec: Any = jax.sharding.PartitionSpec(AXIS)

    def mapped(self, inside: Callable[[Any], Any], *, donated: bool = False) -> Any:
        """Return a function of one rank's array as a compiled one of all ranks' arrays."""
        mapped = self.jax.shard_map(
            inside, mesh=self.mesh, in_specs=self.spec, out_specs=self.spec, check_vma=False
        )
        return self.jax.jit(mapped, donate_argnums=0 if donated else ())

    def put(self, exam: Exam) -> Any:
        """Return the inputs of all ranks, on their devices; ranks that have none get filler."""
        own = [exam.given(rank) for rank in range(self.ranks)]
        filler = exam.filler(exam.units.input_chunks)
        whole = np.concatenate([filler if one is None else one for one in own])
        sharding = self.jax.sharding.NamedSharding(self.mesh, self.spec)
        return self.jax.device_put(whole, sharding)

    def timed(self, function: Any, x: Any) -> tuple[Any, float]:
        """Return the result of a call, and its seconds."""
        begin = time.perf_counter()
        result = self.jax.block_until_ready(function(x))
        return result, time.perf_counter() - begin

    def trial(self, program: Any, piece: EmittedFile, case: Case) -> Trial:
        """As :meth:`.RankGroup.trial`."""
        exam = case.exam(piece.units)
        function = self.mapped(lambda x: program.collective(x, AXIS), donated=case.in_place)
        x = self.put(exam)
        before, result = np.asarray(x).copy(), None

        def call(turn: int) -> float:
            nonlocal x, result
            if turn and case.in_place:  # a donated array is gone
                x = self.put(exam)
            result, spent = self.timed(function, x)
            return spent

        def wrong() -> list[str | None]:
            found = self.wrong(exam, result)
            if not case.in_place and not np.array_equal(
                before.view(np.uint8), np.asarray(x).view(np.uint8)
            ):
                found[0] = found[0] or "an input was overwritten"
            return found

        return call, wrong

    def wrong(self, exam: Exam, result: Any) -> list[str | None]:
        """Return the error of each rank's result, or None."""
        host: AnyArray = np.asarray(result).reshape(self.ranks, -1)
        return [exam.wrong(rank, host[rank]) for rank in range(self.ranks)]


def attend_all(job: RankJob, say: Callable[[str], None]) -> list[tuple[Done | None, ...]]:
    """Do all cases in order; return the results of each rank.

    Raises:
        Missing: there are too few devices. Whatever a file's function raises.
    """
    sizes = {piece.units.ranks for piece in job.pieces} | {job.ranks}
    return attend_groups(job, {count: Devices(count) for count in sizes}, say)


if __name__ == "__main__":
    serve_all(sys.argv[2], attend_all)
