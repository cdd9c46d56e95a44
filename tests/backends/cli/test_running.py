"""``weft run`` of point-to-point programs: on threads, on processes, and as one of the ranks."""

import json
import os
import socket
import subprocess
import sys

import pytest
from jobs import RUNTIMES, faulty, no_mpi, no_torch
from until import HANGS

from weft.backends.ranks import joined, launcher, starters

RING = "classic:ring{collective=allreduce,ranks=4}"


@pytest.fixture
def ring(weft, tmp_path):
    """The file of a ring for a runtime."""

    def make(on: str, ranks: int = 4):
        path, name = tmp_path / f"ring_{on}.py", RING.replace("4", str(ranks))
        assert weft("compile", name, "--to", on, "-o", path).code == 0
        return path

    return make


def test_a_file_runs_on_threads(weft, ring):
    flags = ("--size", "1KiB,3KiB", "--dtype", "int32", "--repeat", 3, "--json")
    ran = weft("run", ring("mpi"), *flags).ended(0)
    assert [s["bytes"] for s in ran.json["sizes"]] == [1024, 3072]
    assert all(s["ok"] and s["us"] >= s["least_us"] > 0 for s in ran.json["sizes"])
    first = ran.json["sizes"][0]
    assert first["algbw_GBps"] == pytest.approx(1024 / first["us"] / 1000)
    assert first["busbw_GBps"] == pytest.approx(first["algbw_GBps"] * 1.5)
    assert first["predicted_us"] is None


@pytest.mark.parametrize("on", RUNTIMES)
def test_a_schedule_runs_on_processes_beside_its_prediction(weft, triangle, on):
    ran = weft("run", triangle, "--on", on, "--size", "3KiB", "--dtype", "int32", "--json").ended(0)
    simulated = weft("simulate", triangle, "--size", "3KiB", "--json").json["sizes"][0]
    (size,) = ran.json["sizes"]
    assert size["predicted_us"] == pytest.approx(simulated["us"])
    assert size["of_predicted"] == pytest.approx(size["us"] / simulated["us"], rel=1e-3)
    assert [c["ok"] for c in ran.json["checks"]] == [True, True]


def test_a_file_for_symmetric_memory_says_what_executed_it(weft, tmp_path):
    """By interpreters on the host; on no GPU, and by no other runtime."""
    path = tmp_path / "symm.py"
    assert weft("compile", RING, "--to", "torch-symm", "-o", path).code == 0
    ran = weft("run", path, "--interleavings", 2, "--json").ended(0)
    program, execution, gpu = ran.json["checks"]
    assert program["ok"]
    assert "by the plan interpreter: out of place, 2 orders" in execution["detail"]
    assert "the kernel's text by the memory model in 1 order" in execution["detail"]
    assert "nothing was run on one; `torchrun --nproc-per-node 4 " in gpu["detail"]
    weft("run", path, "--on", "torch").ended(
        2, "a torch symmetric-memory program has none: nothing was run", "torchrun"
    )


@pytest.mark.mpi
@pytest.mark.skipif(no_mpi, reason="no MPI")
def test_a_failed_run_is_a_no(weft, ring):
    path = ring("mpi", 2)
    path.write_text(faulty("mpi", path.read_text(), 1, "raises"))
    ran = weft("run", path, "--on", "mpi", "--size", "1KiB", "--dtype", "int32", "--json").ended(1)
    assert "rank 1: ArithmeticError: out of luck" in ran.json["error"]["message"]


NO_NUMBERS = ("bool", "complex64", "object", "bfloat16", ">i4", "float128", "int33")


def test_integers_of_a_byte_are_run(weft, ring, triangle):
    for file in (ring("torch-symm", 2), triangle):
        assert weft("run", file, "--dtype", "int8,uint8", "--interleavings", 2).code == 0


def test_questions_that_are_wrong(weft, ring, triangle):
    file, plan = ring("torch"), ring("torch-symm", 2)
    for arguments, words in [
        ((file, "--on", "mpi"), "the file is for torch"),
        ((file, "-t", "ring:4"), "for schedules only"),
        ((triangle, "--repeat", 3), "--repeat is for real ranks"),
        ((file, "--size", "2GiB"), "at most 1GiB"),
        ((file, "--instances", 2), "--instances says nothing"),
        ((file, "--dtype", "complex64"), "not a number type"),
        ((file, "--dtype", ","), "--dtype: expected a type"),
        ((file, "-c", "allreduce"), "-c and --root say what an MSCCL XML file"),
        *(((plan, "--dtype", one), "not a number type") for one in NO_NUMBERS),
        ((plan, "--dtype", " "), "--dtype: expected a type"),
    ]:
        weft("run", *arguments).ended(2, words)


def test_what_is_missing_is_named(weft, triangle, monkeypatch):
    monkeypatch.setattr(launcher, "find_spec", lambda name: None)
    for on, package in (("mpi", "mpi4py"), ("torch", "torch")):
        weft("run", triangle, "--on", on).ended(4, package, f"weft[{on}]")


def start(command: list[str], *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a command as a user would, without weft's launcher."""
    environment = {**os.environ, "MPIEXEC_TIMEOUT": "100", "OMP_NUM_THREADS": "1"}
    words = [*command, *map(str, arguments)]
    return subprocess.run(words, capture_output=True, text=True, timeout=HANGS, env=environment)


def of_mpiexec(ranks: int, *arguments: object) -> subprocess.CompletedProcess[str]:
    python = (sys.executable, "-m", "mpi4py", "-m", "weft.backends.cli", "run")
    return start([starters.mpiexec(), "-n", str(ranks), *python], *arguments, "--on", "mpi")


FEW = ("--size", "1KiB", "--dtype", "int32", "--json")


def right(done: subprocess.CompletedProcess[str]) -> bool:
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("{")]
    return bool(json.loads(line)["sizes"][0]["ok"])


@pytest.mark.mpi
@pytest.mark.skipif(no_mpi, reason="no MPI")
def test_ranks_that_mpiexec_started_are_joined(ring):
    assert right(of_mpiexec(2, ring("mpi", 2), *FEW))


BY_HAND_AND_JOINED = """
import os, runpy, sys
import torch.distributed  # takes seconds, so once for both
from weft.backends.cli import main
port, *arguments = sys.argv[1:]
by_hand = os.fork()
if not by_hand:
    os.environ.pop("TORCHELASTIC_USE_AGENT_STORE")
    os.environ["MASTER_PORT"] = port  # a job of its own
    try:
        runpy.run_path(arguments[0], run_name="__main__")
        sys.stdout.flush()
        os._exit(0)
    finally:
        os._exit(1)
sys.exit(os.waitpid(by_hand, 0)[1] or main(["run", *arguments, "--on", "torch"]))
"""


@pytest.mark.skipif(no_torch, reason="no torch")
def test_ranks_of_torchrun_run_a_file_by_hand_and_are_joined(ring, tmp_path):
    """Both on ranks that are started once: torchrun and each of them take seconds to load torch."""
    script = tmp_path / "both.py"
    script.write_text(BY_HAND_AND_JOINED)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    done = start(torchrun, script, port, ring("torch", 2), *FEW)
    assert right(done)
    assert done.stdout.count("µs   right") == 5


@pytest.mark.mpi
@pytest.mark.skipif(no_mpi, reason="no MPI")
def test_a_joined_job_of_another_size_is_refused(ring):
    done = of_mpiexec(3, ring("mpi"), "--size", "1KiB")
    assert done.returncode == 1
    assert "the program is for 4 ranks; this job has 3" in done.stderr


def test_a_rank_is_known_by_its_environment(monkeypatch):
    for name in ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "RANK"):
        monkeypatch.delenv(name, raising=False)
    assert not joined.is_joined("mpi")
    assert not joined.is_joined("torch")
    monkeypatch.setenv("PMI_RANK", "0")
    assert joined.is_joined("mpi")
