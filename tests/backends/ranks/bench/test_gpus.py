"""Programs against NCCL's own collectives, on the stand-in."""

from __future__ import annotations

from typing import Any

import pytest
from standin_nccl import installed

from weft.backends.formats.p2p.compile import compile_script
from weft.backends.formats.p2p.data import units_of
from weft.backends.formats.p2p.embedded.nccl import Connection, Nccl, on_comm
from weft.backends.formats.p2p.emit import emit, function_of
from weft.backends.ranks.bench.job import Bench, Contestant
from weft.backends.ranks.bench.ranks import attend
from weft.backends.ranks.nccl import NcclWorld
from weft.synth.engines.classic.text import named_algorithm


class Job:
    """As much of a communicator of MPI as a benchmark needs, for threads that meet on the GPU."""

    def __init__(self, said: dict[int, list[Any]], connection: Connection) -> None:
        self.said, self.connection = said, connection
        self.rank, self.ranks, self.turns = connection.link.rank, connection.link.ranks, 0

    def _all(self, thing: Any) -> list[Any]:
        self.turns += 1
        said = self.said.setdefault(self.turns, [None] * self.ranks)
        said[self.rank] = thing
        self._meet()
        return said

    def _meet(self) -> None:
        import cupy

        Nccl(self.connection, cupy.cuda.get_current_stream(), "uint8").barrier()

    def Get_rank(self) -> int:
        return self.rank

    def Get_size(self) -> int:
        return self.ranks

    def Ibarrier(self) -> Job:
        self._meet()
        return self

    def Test(self) -> bool:
        return True

    def gather(self, thing: Any) -> Any:
        every = self._all(thing)
        return None if self.rank else every

    def bcast(self, thing: Any) -> Any:
        return self._all(thing)[0]


@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_a_ring_against_nccls_own(dtype):
    algorithm = named_algorithm("classic:ring{collective=allreduce,ranks=3}").algorithm
    script = compile_script(algorithm)
    text, function = emit(script, "cupy-nccl"), function_of(script.collective)
    bench = Bench(
        (Contestant("ring", text, function),),
        units_of(script.collective),
        (7, 64),
        dtype,
        2,
        5.0,
        30.0,
        0,
    )
    rows: list[dict[str, Any]] = []
    said: dict[int, list[Any]] = {}
    with installed() as gpu:
        import cupy

        name = cupy.cuda.nccl.get_unique_id()

        def body(rank: int) -> None:
            with cupy.cuda.Stream(non_blocking=True):
                comm = cupy.cuda.nccl.NcclCommunicator(3, name, rank)
                connection = on_comm(comm)
                world = NcclWorld(bench.timeout, connection, Job(said, connection))
                found = attend(bench, world, lambda _: None)
                rows.extend(found or ())

        gpu.machine.run(3, body)
    assert [(row["name"], row["wrong"]) for row in rows] == [("ring", None), ("NCCL", None)] * 2
    assert all(len(row["us"]) == 2 for row in rows)
