"""Machine code on the disk: found where it is valid, and only there."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from weft.dsl.base import machine_code
from weft.dsl.base.machine_code import COMPILING, MachineCode

LOOPS = """
from weft.dsl.base.jit import compiled

@compiled
def total(values):
    found = 0
    for value in values:
        found += value
    return found
"""

MAIN = """
import logging
import numpy as np
import loops
logging.basicConfig(level=logging.INFO, format="%(message)s")
print(loops.total(np.arange(5)))
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A program with one kernel, that logs when it compiles."""
    (tmp_path / "loops.py").write_text(LOOPS)
    (tmp_path / "main.py").write_text(MAIN)
    return tmp_path


def compiles(program: Path, **places: str) -> bool:
    """Run the program in a new process; did it compile its kernel?"""
    path = os.pathsep.join([str(program), os.environ.get("PYTHONPATH", "")])
    known = {"NUMBA_CACHE_DIR": str(program / "cache"), "PYTHONPATH": path}
    ran = subprocess.run(
        [sys.executable, str(program / "main.py")],
        env={**os.environ, **known, **places},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout == "10\n"
    assert ran.stderr in ("", f"{COMPILING}\n")
    return bool(ran.stderr)


def files(program: Path) -> list[Path]:
    return sorted((program / "cache").rglob("*.code"))


def test_a_kernel_is_compiled_once(program: Path) -> None:
    assert compiles(program)
    (made,) = files(program)
    assert stat.S_IMODE(made.stat().st_mode) == 0o644
    os.utime(program / "loops.py", (1e9, 1e9))
    os.utime(made, (1, 1))
    assert not compiles(program)


def test_a_changed_source_is_compiled_again_and_its_old_file_goes(program: Path) -> None:
    compiles(program)
    before = files(program)
    (program / "loops.py").write_text(LOOPS.replace("found = 0", "found = 1 - 1"))
    assert compiles(program)
    (after,) = files(program)
    assert [after] != before


def test_a_damaged_file_is_compiled_again(program: Path) -> None:
    compiles(program)
    (made,) = files(program)
    for damaged in (made.read_bytes()[:-1], b""):
        made.write_bytes(damaged)
        assert compiles(program)
    assert not compiles(program)


def test_code_for_another_processor_is_not_used_and_generic_code_is(program: Path) -> None:
    assert compiles(program, NUMBA_CPU_NAME="x86-64-v2", NUMBA_CPU_FEATURES="+sse3")
    assert compiles(program, NUMBA_CPU_NAME="generic", NUMBA_CPU_FEATURES="")
    assert len(files(program)) == 2
    assert not compiles(program)  # this machine's own
    assert len(files(program)) == 2


def test_without_a_folder_to_write_a_kernel_is_compiled_in_memory(program: Path) -> None:
    script = MAIN.replace("import loops", "import loops, weft.dsl.base.machine_code as code\n")
    script = script.replace("logging.basic", "code._folders = lambda: iter(())\nlogging.basic")
    (program / "main.py").write_text(script)
    assert compiles(program)
    assert files(program) == []


def test_the_first_folder_that_can_be_written_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", "/proc/nobody")
    monkeypatch.setattr(machine_code.config, "CACHE_DIR", "")
    monkeypatch.setattr(machine_code, "__file__", "/proc/weft/dsl/base/machine_code.py")
    monkeypatch.setattr(machine_code.tempfile, "gettempdir", lambda: str(tmp_path))
    machine_code.writable.cache_clear()
    machine_code.readable.cache_clear()
    try:
        home = machine_code.writable()
        assert home is not None
        assert home.parent == tmp_path
        assert stat.S_IMODE(home.stat().st_mode) == 0o700
        assert machine_code.readable() == (home,)
        assert MachineCode("m", "f", "0").cache_path == str(home / "m")
        home.chmod(0o777)  # others could put their code there
        machine_code.writable.cache_clear()
        machine_code.readable.cache_clear()
        assert machine_code.writable() is None
        assert machine_code.readable() == ()
    finally:
        machine_code.writable.cache_clear()
        machine_code.readable.cache_clear()
