"""``weft run --on nccl``, on a machine that stands in for GPUs; and where there are none."""

import pytest
from command import Weft
from standin_nccl import installed

RING = "classic:ring{collective=allreduce,ranks=4}"


def test_programs_run_on_gpus(weft: Weft):
    with installed():
        ran = weft(
            "run", RING, *"--on nccl --size 4KiB --dtype float32,int32 --repeat 2 --json".split()
        )
    assert ran.code == 0, ran.err
    assert [c["ok"] for c in ran.json["checks"]] == [True, True]
    assert [s["dtype"] for s in ran.json["sizes"]] == ["float32", "int32"]
    assert all(s["us"] > 0 for s in ran.json["sizes"])


@pytest.mark.parametrize("kind", ["allgather", "reduce_scatter"])
def test_in_place_as_well(weft: Weft, kind: str):
    ring = f"classic:ring{{collective={kind},ranks=3}}"
    with installed():
        ran = weft("run", ring, "--on", "nccl", "--size", "1KiB", "--in-place", "--json")
    assert ran.code == 0, ran.err


def test_a_wrong_file_is_found_on_gpus_too(weft: Weft, tmp_path):
    file = tmp_path / "ring.py"
    assert weft("compile", RING, "--to", "cupy-nccl", "-o", str(file)).code == 0
    edited = file.read_text().replace("wire.combine(op, at(into)", "wire.combine('max', at(into)")
    assert edited != file.read_text()
    file.write_text(edited)
    checked = weft("check", str(file)).ended(0)
    assert "the code that carries the rounds out was edited" in checked.out
    with installed():
        ran = weft("run", str(file), "--on", "nccl", "--size", "1KiB")
    assert ran.code == 1


def test_files_of_other_runtimes_are_refused(weft: Weft, tmp_path):
    file = tmp_path / "ring.py"
    assert weft("compile", RING, "--to", "mpi", "-o", str(file)).code == 0
    weft("run", str(file), "--on", "nccl").ended(2, "the file is for mpi", "--on mpi")


def test_what_is_missing_is_named(weft: Weft):
    try:
        import cupy  # noqa: F401
    except ImportError:
        weft("run", RING, "--on", "nccl", "--size", "1KiB").ended(
            4, "CuPy is not installed", "weft[cuda]"
        )
