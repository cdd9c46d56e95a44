"""Running command lines in this process."""

import io
import json
from pathlib import Path

import pytest
from command import Ran, Weft

from weft.backends.cli import main
from weft.dsl.catalogue import topology
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.schedule import Schedule, Transfer, dumps


@pytest.fixture
def weft(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Weft:
    """``weft("synth", "-t", "ring:3", …)``, with nothing on standard input."""

    # Reports of bugs are saved where the test looks for them, and go with it.
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def run(*arguments: object, stdin: str = "") -> Ran:
        monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
        capsys.readouterr()
        code = main([str(a) for a in arguments])
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return run


@pytest.fixture
def triangle(tmp_path: Path) -> Path:
    """The file of a hand-made allgather: three GPUs, everybody sends to everybody at once."""
    machine = topology("ring:3")
    link = {(x.src, x.dst): i for i, x in enumerate(machine.links)}
    everything = [Transfer(c, c, d, (link[c, d],)) for c in range(3) for d in range(3) if c != d]
    schedule = Schedule.of(machine, make("allgather", 3), everything, rounds=(1,))
    file = tmp_path / "triangle.json"
    file.write_text(dumps(schedule))
    return file


@pytest.fixture
def exchange(weft: Weft, triangle: Path, tmp_path: Path) -> Path:
    """The XML of an allgather in which three GPUs send to each other at once."""
    file = tmp_path / "exchange.xml"
    weft("compile", triangle, "--form", "fixed", "-o", file, "--size", "1KiB:64MiB").ended(0)
    return file


@pytest.fixture
def packets(weft: Weft, triangle: Path, tmp_path: Path) -> Path:
    """The XML of the triangle under LL."""
    file = tmp_path / "packets.xml"
    assert weft("compile", triangle, "--size", "1KiB", "--protocol", "LL", "-o", file).code == 0
    return file


@pytest.fixture
def experts(tmp_path: Path) -> Path:
    """A workload of two axes, 8 experts × 4 copies."""
    axes = {"ep": 8, "dp": 4}
    path = tmp_path / "experts.json"
    rows = [
        {"name": "tokens", "kind": "alltoall", "group": "ep", "bytes": 100000000},
        {"name": "sum", "kind": "allreduce", "group": "dp", "bytes": 100000000},
    ]
    data = {"weft": "workload", "schema": 1, "name": "experts", "axes": axes, "operations": rows}
    path.write_text(json.dumps(data))
    return path
