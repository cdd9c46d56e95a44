"""Libraries of kernels: used where they are whole and of these sources, and only there."""

import logging
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from weft.dsl.base import assignment, linked

NAME = assignment.__name__

MAKE = """
import sys
from collections.abc import Iterator
from weft.backends.kernels import LINKED, CannotLink, link_one, runtime
place = [module.__name__ for module in LINKED].index(sys.argv[1])
try:
    with runtime() as objects:
        link_one([place, str(objects), sys.argv[2]])
except CannotLink as error:
    sys.exit(f"cannot link: {error}")
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the library of one module; not to be written to."""
    folder = tmp_path_factory.mktemp("made")
    command = [sys.executable, "-c", MAKE, NAME, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.stderr.startswith("cannot link"):
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The only folder with machine code: a copy of that library."""
    copied = tmp_path / "machine_code"
    shutil.copytree(made, copied)
    monkeypatch.setattr(linked, "_folders", lambda: iter([copied]))
    linked.clear()
    yield copied
    monkeypatch.undo()
    linked.clear()


def library(folder: Path) -> Path:
    (found,) = folder.rglob("*.so")
    return found


def test_a_library_does_what_python_does_and_loads_no_numba(folder: Path) -> None:
    code = (
        "import sys, numpy as np; from pathlib import Path; from weft.dsl.base import linked;"
        f"linked._folders = lambda: iter([Path({str(folder)!r})]);"
        "from weft.dsl.base.assignment import best_assignment;"
        "print(best_assignment(np.array([[1.0, 5], [4, 7], [0, 3]])));"
        "print({'numba', 'llvmlite', 'scipy'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "(array([0, 1]), array([1, 0]))\nset()\n"


def test_wrong_arguments_are_a_type_error(folder: Path) -> None:
    kernels = linked.linked(NAME)
    assert kernels is not None
    assign, cost = kernels["assign"], np.array([[1.0, 5.0], [4.0, 7.0]])
    column_of = np.full(2, -1)
    assign(cost, 2, np.int64(2), column_of)
    assert column_of.tolist() == [0, 1]
    for wrong in (cost.astype(np.float32), cost[0], cost.T, cost.tolist(), cost[::-1], None):
        with pytest.raises(TypeError, match=r"assign: expected \(float64\[2\]"):
            assign(wrong, 2, 2, column_of)
    with pytest.raises(TypeError, match=r"got .*int32"):
        assign(cost, 2, 2, column_of.astype(np.int32))
    with pytest.raises(TypeError):
        assign(cost, 2.0, 2, column_of)
    with pytest.raises(OverflowError):
        assign(cost, 1 << 70, 2, column_of)


def truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:20_000])


def damage(file: Path) -> None:
    code = bytearray(file.read_bytes())
    code[len(code) // 2] ^= 1
    file.write_bytes(code)


SPOILS = {
    "truncated": truncate,
    "damaged": damage,
    "no library": lambda file: file.unlink(),
    "damaged guards": lambda file: file.with_suffix(".json").write_text("{"),
    "guards of another form": lambda file: file.with_suffix(".json").write_text("{}"),
    "guards that are a list": lambda file: file.with_suffix(".json").write_text("[]"),
    "changed guards": lambda file: file.with_suffix(".json").write_text(
        file.with_suffix(".json").read_text().replace("def ", "dex ", 1)
    ),
    "of other sources": lambda file: [
        x.rename(x.with_name("0" * 12 + x.name[12:])) for x in (file, file.with_suffix(".json"))
    ],
    "of another Python": lambda file: [
        x.rename(x.with_name(x.name.replace("cpython-3", "cpython-2")))
        for x in (file, file.with_suffix(".json"))
    ],
    "writable by others": lambda file: file.chmod(0o666),
    "guards writable by others": lambda file: file.with_suffix(".json").chmod(0o666),
}


@pytest.mark.parametrize("how", SPOILS)
def test_another_library_is_not_used_and_that_is_reported_once(
    folder: Path, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    SPOILS[how](library(folder))
    with caplog.at_level(logging.INFO, "weft.kernels"):
        for _ in range(2):
            assert linked.linked(NAME) is None
            linked.linked.cache_clear()
    assert caplog.messages == [linked.STALE]


def test_a_changed_constant_is_another_module_and_no_library_at_all_is_silent(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from weft.synth.time import program_kernel

    before = linked.digest(NAME), linked.digest(program_kernel.__name__)
    monkeypatch.setattr(assignment, "LARGE", 3, raising=False)
    linked.digest.cache_clear()
    after = linked.digest(NAME), linked.digest(program_kernel.__name__)
    assert before[0] != after[0]
    assert before[1] == after[1]
    assert linked.linked(NAME) is None
    shutil.rmtree(folder)
    linked.clear()
    caplog.clear()
    assert linked.linked(NAME) is None
    assert caplog.messages == []
