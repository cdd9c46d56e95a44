"""Machine code on the disk: found where it is valid, and only there."""

import hashlib
import json
import os
import pickle
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from weft.dsl.base import linked
from weft.dsl.base.linked import UNSAFE
from weft.dsl.base.machine_code import COMPILING, FileLock, MachineCode

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


FORKS = """
import json, os, runpy, sys, traceback
import numpy
from numba.core import config
from numba.core.registry import cpu_target
import weft.dsl.base.jit

cpu_target.typing_context.refresh()
for line in sys.stdin:
    folder, known = json.loads(line)
    pid = os.fork()
    if not pid:
        os.environ.update(known)
        config.reload_config()
        sys.path.insert(0, folder)
        for name, number in (("out", 1), ("err", 2)):
            os.dup2(os.open(f"{folder}/{name}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        code = 1
        try:
            runpy.run_path(f"{folder}/main.py", run_name="__main__")
            code = 0
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush()
        os._exit(code)
    print(os.waitpid(pid, 0)[1], flush=True)
"""
"""A process that has loaded numba, and forks for every program that it is told to run: to load it
takes as long as all else that a program does."""

Compiles = Callable[..., bool]


@pytest.fixture(scope="module")
def compiles() -> Iterator[Compiles]:
    """Runs a program in a process of its own; did that compile its kernel?"""
    command = [sys.executable, "-c", FORKS]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        asked, answers = parent.stdin, parent.stdout

        def run(program: Path, expected: str | None = None, **places: str) -> bool:
            known = {"NUMBA_CACHE_DIR": str(program / "cache"), **places}
            print(json.dumps([str(program), known]), file=asked, flush=True)
            status = answers.readline()
            out, err = ((program / name).read_text() for name in ("out", "err"))
            assert status == "0\n", err
            assert out == "10\n"
            if expected is not None:
                assert err.startswith(UNSAFE % expected)
                err = err.partition("\n")[2]
            assert err in ("", f"{COMPILING}\n")
            return bool(err)

        yield run
        asked.close()


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A program with one kernel, that logs when it compiles."""
    return write(tmp_path)


def write(folder: Path) -> Path:
    (folder / "loops.py").write_text(LOOPS)
    (folder / "main.py").write_text(MAIN)
    return folder


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory, compiles: Compiles) -> Path:
    """The program after its first run; not to be written to."""
    folder = write(tmp_path_factory.mktemp("compiled"))
    assert compiles(folder)
    return folder


@pytest.fixture
def made(compiled: Path, program: Path) -> Path:
    """The machine code of the kernel's first run, beside the program."""
    shutil.copytree(compiled / "cache", program / "cache")
    (file,) = files(program)
    return file


def started(program: Path, **places: str) -> subprocess.Popen[str]:
    path = os.pathsep.join([str(program), os.environ.get("PYTHONPATH", "")])
    known = {"NUMBA_CACHE_DIR": str(program / "cache"), "PYTHONPATH": path}
    return subprocess.Popen(
        [sys.executable, str(program / "main.py")],
        env={key: text for key, text in {**os.environ, **known, **places}.items() if text},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def files(program: Path) -> list[Path]:
    return sorted((program / "cache").rglob("*.code"))


def test_a_kernel_is_compiled_once(program: Path, made: Path, compiles: Compiles) -> None:
    assert stat.S_IMODE(made.stat().st_mode) == 0o644
    os.utime(program / "loops.py", (1e9, 1e9))
    os.utime(made, (1, 1))
    assert not compiles(program)


def test_a_changed_source_is_compiled_again_and_its_old_file_goes(
    program: Path, made: Path, compiles: Compiles
) -> None:
    before = [made]
    (program / "loops.py").write_text(LOOPS.replace("found = 0", "found = 1 - 1"))
    assert compiles(program)
    (after,) = files(program)
    assert [after] != before


def test_a_damaged_file_is_compiled_again(program: Path, made: Path, compiles: Compiles) -> None:
    for damaged in (made.read_bytes()[:-1], b""):
        made.write_bytes(damaged)
        assert compiles(program)
    assert not compiles(program)


def test_code_for_another_processor_is_not_used_and_generic_code_is(
    program: Path, compiles: Compiles
) -> None:
    assert compiles(program, NUMBA_CPU_NAME="x86-64-v2", NUMBA_CPU_FEATURES="+sse3")
    assert compiles(program, NUMBA_CPU_NAME="generic", NUMBA_CPU_FEATURES="")
    assert len(files(program)) == 2
    assert not compiles(program)  # this machine's own
    assert len(files(program)) == 2


MISSES = """
from weft.dsl.base.jit import dispatcher
print(dispatcher(loops.total).stats.cache_misses)
"""


def test_two_processes_compile_a_kernel_once(program: Path, made: Path) -> None:
    code = made.read_bytes()
    made.unlink()
    with (program / "main.py").open("a") as main:
        main.write(MISSES)
    lock = FileLock(made.with_suffix(".lock"))
    assert lock.take(1)  # as if this process had begun to compile it
    with started(program) as other:
        assert other.stderr is not None
        assert other.stderr.readline() == f"{COMPILING}\n"  # it has found no file
        made.write_bytes(code)
        lock.give()
        assert other.communicate()[0] == "10\nCounter()\n"
    assert sorted(made.parent.iterdir()) == [made]


def test_a_hanging_compiler_does_not_block_other_processes(
    program: Path, made: Path, compiles: Compiles
) -> None:
    made.unlink()
    hasty = MAIN.replace("import loops", "import loops, weft.dsl.base.machine_code as code\n")
    (program / "main.py").write_text(
        hasty.replace("logging.basic", "code.LOOKS = 3\nlogging.basic")
    )
    lock = FileLock(made.with_suffix(".lock"))
    assert lock.take(1)
    assert compiles(program)
    assert files(program) == [made]
    lock.give()


def test_a_compiler_that_dies_does_not_block_other_processes(
    program: Path, made: Path, compiles: Compiles
) -> None:
    made.unlink()
    (program / "main.py").write_text(
        "import os\nfrom pathlib import Path\nfrom weft.dsl.base.machine_code import FileLock\n"
        f"assert FileLock(Path({str(made.with_suffix('.lock'))!r})).take(1)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    with started(program) as dead:
        assert dead.wait() == -9
    assert made.with_suffix(".lock").exists()
    (program / "main.py").write_text(MAIN)
    assert compiles(program)
    assert sorted(made.parent.iterdir()) == [made]


def test_without_a_folder_to_write_a_kernel_is_compiled_in_memory(
    program: Path, compiles: Compiles
) -> None:
    script = MAIN.replace("import loops", "import loops, weft.dsl.base.linked as code\n")
    script = script.replace("logging.basic", "code._folders = lambda: iter(())\nlogging.basic")
    (program / "main.py").write_text(script)
    assert compiles(program)
    assert files(program) == []


class Hostile:
    """Leaves a file where it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def __reduce__(self) -> tuple[object, ...]:
        return open, (str(self._mark), "w")


@pytest.fixture
def elsewhere() -> Iterator[None]:
    """For a test in which machine code goes to the folder of the package."""
    yield
    shutil.rmtree(linked.package_folder() / linked.FOLDER / "loops", ignore_errors=True)


def hostile(made: Path, program: Path) -> Path:
    """Replace machine code by what somebody else could put there; return the file it leaves."""
    mark = program / "executed"
    data = pickle.dumps(Hostile(mark))
    made.write_bytes(hashlib.sha256(data).digest() + data)
    return mark


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("what", ["folder", "above", "module", "file", ""])
def test_what_another_user_could_have_written_is_not_executed(
    program: Path, made: Path, compiles: Compiles, what: str
) -> None:
    """In the folder that ``NUMBA_CACHE_DIR`` names, above it or in it."""
    mark = hostile(made, program)
    (folder,) = (program / "cache").iterdir()
    places = {"folder": folder, "above": folder.parent, "module": made.parent, "file": made}
    if not what:
        with pytest.raises(AssertionError, match="not readable"):
            compiles(program)
        assert mark.exists()
        return
    places[what].chmod(0o666 if what == "file" else 0o777)
    compiles(program, expected=None if what in ("module", "file") else str(folder))
    assert not mark.exists()


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("relative", [False, True])
def test_the_working_folder_names_no_machine_code(
    program: Path, made: Path, compiles: Compiles, relative: bool
) -> None:
    """Neither by a relative ``NUMBA_CACHE_DIR`` nor in the file of settings that numba reads."""
    mark = hostile(made, program)
    text = f"import os\nos.chdir({str(program)!r})\n{MAIN}"
    if not relative:
        text += "import numba.core.config\nassert not numba.core.config.CACHE_DIR"
    (program / "main.py").write_text(text)
    (program / ".numba_config.yaml").write_text(f"cache_dir: {program / 'cache'}\n")
    if relative:
        compiles(program, NUMBA_CACHE_DIR="cache")
    else:
        with started(program, NUMBA_CACHE_DIR="") as ran:
            out, err = ran.communicate()
            assert (out, ran.returncode) == ("10\n", 0), err
    assert not mark.exists()


def test_a_private_group_of_the_user_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = type("Group", (), {"gr_name": "me", "gr_mem": []})
    monkeypatch.setattr("grp.getgrgid", lambda _: group)
    monkeypatch.setattr("pwd.getpwuid", lambda _: type("User", (), {"pw_name": "me"}))
    tmp_path.chmod(0o775)
    assert linked._trusted(tmp_path)
    group.gr_mem.append("other")
    assert not linked._trusted(tmp_path)
    tmp_path.chmod(0o755)
    assert linked._trusted(tmp_path / "not" / "there")


def test_the_first_folder_that_can_be_written_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", "/proc/nobody")
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setattr(linked, "__file__", "/proc/weft/dsl/base/linked.py")
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    linked.clear()
    try:
        home = linked.writable()
        assert home is not None
        assert home.parent == tmp_path
        assert stat.S_IMODE(home.stat().st_mode) == 0o700
        assert list(linked.readable()) == [home]
        assert MachineCode("m", "f", "0").cache_path == str(home / "m")
        home.chmod(0o777)  # others could put their code there
        linked.clear()
        assert linked.writable() is None
        assert list(linked.readable()) == []
    finally:
        linked.clear()
