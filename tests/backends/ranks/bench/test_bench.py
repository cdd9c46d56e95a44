"""``weft bench`` on real processes: right results, medians, bandwidths, and wrong files found."""

import io
import os
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from benches import bench_together
from command import Ran, Weft

from weft.backends.cli import main
from weft.backends.ranks.bench.job import entries
from weft.dsl.nouns.collective import make

MPIEXEC = shutil.which("mpiexec", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
needs_mpi = pytest.mark.skipif(not (find_spec("mpi4py") and MPIEXEC), reason="no MPI")
needs_torch = pytest.mark.skipif(not find_spec("torch"), reason="no torch")
FEW = ("--sizes", "3KiB:6KiB", "--repeat", 2, "--json")


@pytest.fixture
def weft(capsys, monkeypatch) -> Weft:
    def run(*arguments: object, stdin: str = "") -> Ran:
        monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
        code = main([str(a) for a in arguments])
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return run


def rings(data: dict[str, Any], names: list[str], own: str) -> None:
    """Every ring and the runtime's own collective, at every size, right in every turn."""
    assert [(x["bytes"], x["name"]) for x in data["sizes"]] == [
        (size, name) for size in (3072, 6144) for name in (*names, own)
    ]
    assert all(x["wrong"] is None and x["turns"] == 2 for x in data["sizes"])


def synthesized(weft: Weft, folder: Path, machine: str, kind: str, *root: object) -> Path:
    """The file of a schedule."""
    file = folder / f"{kind}.json"
    asked = ("-t", machine, "-c", kind, *root, "--objective", "latency", "--effort", 1, "-o", file)
    assert weft("synth", *asked).code == 0
    return file


@needs_mpi
def test_rings_against_mpi_and_a_wrong_result_is_told(weft, tmp_path):
    """Beside two right ones a file that is right by its rounds, and whose arithmetic is not."""
    ring, wrong = "classic:ring{collective=allreduce,ranks=2}", tmp_path / "wrong.py"
    assert weft("compile", ring, "--to", "mpi", "-o", wrong).code == 0
    right, edited = "COMBINE[op](a, b, out=out)", "COMBINE[op](a, a, out=out)"
    text = wrong.read_text()
    assert text.count(right) == 1
    wrong.write_text(text.replace(right, edited))
    ran = weft("bench", ring, ring, wrong, "--on", "mpi", "-t", "full:2", *FEW).ended(
        1, "warning: wrong, 3KiB: element 0 of rank 0 is "
    )
    sizes = ran.json["sizes"]
    assert [x["name"] for x in sizes if x["wrong"]] == ["wrong"] * 2
    data = {"sizes": [x for x in sizes if not x["wrong"]]}
    rings(data, [f"ring{{collective=allreduce,ranks=2}} ({i})" for i in (1, 2)], "MPI")
    assert all(("predicted_us" in x) == (x["name"] != "MPI") for x in sizes)


@needs_mpi
def test_every_collective_of_mpi_is_called_right(weft, tmp_path):
    kinds = ["broadcast", "reduce", "gather", "scatter", "alltoall"]
    files = [
        synthesized(weft, tmp_path, "full:3", kind, *(("--root", 2) if kind != "alltoall" else ()))
        for kind in kinds
    ]
    classics = [f"ring{{collective={kind},ranks=3}}" for kind in ("allgather", "reduce_scatter")]
    plans = [*files, *(f"classic:{name}" for name in classics)]
    found = bench_together(weft, "mpi", [(plan, "--on", "mpi", *FEW) for plan in plans])
    assert [ran.code for ran in found] == [0] * len(plans), found
    for name, ran in zip(kinds + classics, found, strict=True):
        rings(ran.json, [name], "MPI")


@needs_torch
def test_every_collective_of_torch_is_called_right(weft, tmp_path):
    kinds = ["broadcast", "gather", "scatter"]
    files = [synthesized(weft, tmp_path, "full:2", kind, "--root", 1) for kind in kinds]
    classics = [f"ring{{collective={kind},ranks=2}}" for kind in ("allreduce", "reduce_scatter")]
    plans: list[tuple[object, ...]] = [(file, *FEW) for file in files]
    plans += [(f"classic:{name}", "--dtype", "bfloat16", *FEW) for name in classics]
    found = bench_together(weft, "torch", [(*plan, "--on", "torch") for plan in plans])
    assert [ran.code for ran in found] == [0] * len(plans), found
    for name, ran in zip(kinds + classics, found, strict=True):
        rings(ran.json, [name], "torch")


def test_bandwidths_are_those_of_nccl_tests():
    rows = [{"bytes": 8_000_000, "name": "x", "us": [900.0, 1000.0, 5000.0], "wrong": None}]
    (one,) = entries(rows, make("allreduce", 8), {"x": lambda size: size / 10_000})
    assert (one.us, one.least_us) == (1000.0, 900.0)
    assert one.algbw_GBps == pytest.approx(8.0)
    assert one.busbw_GBps == pytest.approx(8 * 2 * 7 / 8)
    assert one.error == pytest.approx(-0.2)
