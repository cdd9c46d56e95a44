"""The file of a ring as its user has it: shown in the docs, imported as a module, called."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from until import HANGS

from weft.backends.formats.p2p.compile import compile_script
from weft.backends.formats.p2p.emit import emit
from weft.synth.engines.classic.text import named_algorithm

PAGE = Path(__file__).parents[4] / "docs" / "running.md"

TRAINING = """
import numpy as np
from mpi4py import MPI
from ring import allreduce

rank, ranks = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size
send = np.arange(1000, dtype=np.float64) + rank
recv = np.zeros_like(send)
allreduce(send, recv)
assert (recv == np.arange(1000) * ranks + sum(range(ranks))).all()
buffer = np.array([rank, -rank, 7], np.int32)
allreduce(buffer, buffer, op="max")
assert buffer.tolist() == [ranks - 1, 0, 7]
part = MPI.COMM_WORLD.Split(0, ranks - rank)  # the other way round
allreduce(send, recv, comm=part, timeout=30)
assert recv[0] == sum(range(ranks))
print("right")
"""


DIFFERENT = """
import numpy as np
from mpi4py import MPI
from ring import allreduce

rank, world = MPI.COMM_WORLD.rank, MPI.COMM_WORLD

def fails(*arguments, **more):
    try:
        allreduce(*arguments, **more)
    except (TimeoutError, RuntimeError) as error:
        return str(error)
    raise AssertionError("it did not fail")

cases = [
    (np.ones(8, np.int32 if rank == 0 else np.float32), "sum"),
    (np.ones(8), "max" if rank == 0 else "sum"),
    (np.ones(7 if rank == 0 else 8), "sum"),
]
for send, op in cases:
    part = world.Dup()
    text = fails(send, np.zeros_like(send), op, comm=part, timeout=1)
    assert "do all ranks call with the same sizes, types and operation?" in text, text
    assert "an earlier call on this communicator failed" in fails(send, send, comm=part, timeout=1)
    world.Barrier()
recv = np.zeros(8)
allreduce(np.ones(8), recv, timeout=30)
assert (recv == 4).all()
print("right")
"""


def ring(ranks: int) -> str:
    name = f"classic:ring{{collective=allreduce,ranks={ranks}}}"
    return emit(compile_script(named_algorithm(name).algorithm), "mpi")


def test_the_page_shows_what_is_written():
    (shown,) = re.findall(r"```python\n(def code\(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert shown in ring(8)


@pytest.mark.mpi
@pytest.mark.parametrize("program", [TRAINING, DIFFERENT])
def test_the_file_is_a_module_of_a_program_under_mpiexec(tmp_path, program):
    mpiexec = shutil.which("mpiexec", path=Path(sys.executable).parent) or shutil.which("mpiexec")
    if mpiexec is None:
        pytest.skip("no MPI here")
    (tmp_path / "ring.py").write_text(ring(4))
    (tmp_path / "training.py").write_text(program)
    done = subprocess.run(
        [mpiexec, "-n", "4", sys.executable, "-m", "mpi4py", "training.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=HANGS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("right") == 4  # lines of ranks may run into each other
