"""The working folder is not imported from, however it came into the path of modules."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from weft.dsl.base.import_path import module_folders

LIBRARY = os.path.dirname(os.__file__)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "inner").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    return tmp_path


@pytest.mark.parametrize("entry", ["", ".", "./", "inner/..", "{here}", "{link}"])
@pytest.mark.parametrize("variable", [False, True])
def test_entries_that_mean_the_working_folder_are_left_out(
    here: Path, entry: str, variable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "link").symlink_to(here)
    entry = entry.format(here=here, link=here / "link")
    if variable:
        monkeypatch.setenv("PYTHONPATH", f"{entry}:/elsewhere")
    else:
        monkeypatch.setattr(sys, "path", [entry, "/elsewhere", LIBRARY])
    found = module_folders()
    assert found[0] == "/elsewhere"
    assert str(here) not in map(os.path.realpath, found)


def test_other_entries_are_absolute_and_the_package_stays(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder behind the standard library is one that a package was installed from."""
    monkeypatch.setattr(sys, "path", ["inner", "inner", LIBRARY, str(here)])
    root = module_folders()[-1]
    assert (Path(root) / "weft" / "dsl").is_dir()
    assert module_folders() == [str(here / "inner"), LIBRARY, str(here), root]


HOSTILE = ("random", "queue", "numpy", "ortools", "scipy", "networkx", "socket", "rich", "numba")


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with files named as modules; each leaves a file ``executed`` where it is."""
    folder = tmp_path_factory.mktemp("hostile")
    for name in HOSTILE:
        text = f"open({str(folder / 'executed')!r}, 'a').write('{name} ')\nraise ImportError"
        (folder / f"{name}.py").write_text(text)
    return folder


@pytest.mark.parametrize(
    ("arguments", "safe"),
    [
        (["synth", "-t", "ring:4", "-c", "allgather", "-e", "exact"], True),
        (["synth", "-t", "ring:4", "-c", "allgather", "-e", "exact"], False),
        (["sweep", "-t", "ring:3", "-c", "allgather", "--no-cache", "--jobs", "1"], True),
    ],
)
def test_a_search_executes_no_file_of_the_working_folder(
    hostile: Path, arguments: list[str], safe: bool
) -> None:
    """In the solver's process, and in that of a job; ``python -m`` puts the folder first."""
    words = [sys.executable, *["-P"][: int(safe)], "-m", "weft.backends.cli", *arguments]
    links = [x for x in sys.path if Path(x, "weft").is_dir()]
    path = os.pathsep.join(["", *map(os.path.abspath, links)])
    environment = {**os.environ, "PYTHONPATH": path}
    ran = subprocess.run(
        words, cwd=hostile, env=environment, capture_output=True, text=True, check=False
    )
    assert not (hostile / "executed").exists(), (hostile / "executed").read_text()
    assert ran.returncode == 0, ran.stderr
