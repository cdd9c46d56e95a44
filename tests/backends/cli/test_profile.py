"""``weft profile`` on real ranks: threads, and processes of MPI where there is one."""

import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from until import HANGS

MPIEXEC = shutil.which("mpiexec", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
needs_mpi = pytest.mark.skipif(not (find_spec("mpi4py") and MPIEXEC), reason="no MPI")


def test_threads(weft, tmp_path):
    out = tmp_path / "m.json"
    ran = weft(
        "profile", "--on", "numpy", "--ranks", 2, "--time", "0.2s", "-o", out, "--json"
    ).ended(0)
    data = json.loads(ran.out)
    assert (data["ranks"], data["links"], data["file"]) == (2, 2, str(out))
    assert sum(len(one["directions"]) for one in data["classes"]) == 2
    assert all(one["alpha"] > 0 and one["beta"] > 0 for one in data["classes"])
    counts = [one["count"] for one in data["calls"] if one["step"] == "ring"]
    assert set(counts) == {2}
    numbers = {one["key"]: one["value"] for one in data["timing"]}
    assert numbers["host.per_gpu"] > 0
    weft("topo", "show", out, "-v").ended(0)
    assert "start.Simple" in " ".join((*numbers, *data["notes"]))
    assert weft("bound", "-t", out, "-c", "allgather").code == 0


@needs_mpi
def test_mpi(weft, tmp_path):
    out = tmp_path / "m.json"
    ran = weft("profile", "--on", "mpi", "--ranks", 2, "--time", "0.2s", "-o", out, "--json").ended(
        0
    )
    data = json.loads(ran.out)
    assert data["topology"] == "2 MPI ranks, measured"
    assert data["links"] == 2
    assert len(data["sweeps"]) == 2
    assert all(1e-6 < 1e-3 / one["beta"] < 1e6 for one in data["classes"])


@needs_mpi
def test_ranks_that_mpiexec_started(tmp_path):
    out = tmp_path / "m.json"
    command = [
        MPIEXEC,
        "-n",
        "2",
        sys.executable,
        *"-m weft.backends.cli profile --on mpi --time 0.3s -o".split(),
        str(out),
        "--json",
        "-q",
    ]
    ran = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=HANGS,
        check=False,
        env={**os.environ, "MPIEXEC_TIMEOUT": "90"},
    )
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["ranks"] == 2  # one rank tells
    assert json.loads(out.read_text())["weft"] == "topology"


def test_an_unknown_family_is_refused_before_anything_is_measured(weft, tmp_path):
    out = tmp_path / "m.json"
    weft("profile", "--on", "numpy", "--ranks", 2, "--family", "h1000", "-o", out).ended(2, "h1000")
    assert not out.exists()


def test_a_file_in_the_way(weft, tmp_path):
    out = tmp_path / "m.json"
    out.write_text("mine")
    weft("profile", "--on", "numpy", "--ranks", 2, "-o", out).ended(2, "exists")
    assert out.read_text() == "mine"
