"""The commands of README and docs run, in order, and print what the page shows.

In a ``console`` block every line that starts with ``$ weft`` is run (the others, ``$ make …``,
are for readers). The lines below it are the expected output, compared as doctest does with
ELLIPSIS (``...`` matches anything) and white space folded; a command followed by no output is
only run. ``$ cat > NAME <<'EOF'`` writes a file. ``$ pip install -e .`` makes the modules of that
folder importable and its entry points known, as pip would. A block that says ``<!-- exit 1 -->`` on
the line before it expects that exit code from its last command. All of a page runs in one folder.

The ``python`` blocks of a page are one doctest; those of a page that is a notebook too run as its
cells, in ``test_notebooks.py``.
"""

import doctest
import re
import shlex
import shutil
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import notebooks
import pytest
from kept_workers import kept_workers

from weft.backends.cli import main
from weft.dsl.base.machine_code import COMPILING

__all__ = ["kept_workers"]
pytestmark = pytest.mark.usefixtures("kept_workers")

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"(?:<!-- exit (\d+) -->\n)?```console\n(.*?)```", re.DOTALL)

UNSTEADY = re.compile(rf"(?m)^ +(?:\d+s  .*|{re.escape(COMPILING)})\n")
"""Lines that depend on the machine: that a long command is alive, that loops are compiled once."""

PYTHON = re.compile(r"```python\n(.*?)```", re.DOTALL)


@dataclass(frozen=True)
class Command:
    """One command of a page, what it should print, how it should end."""

    line: str
    output: str
    code: int


def commands(text: str) -> Iterator[Command]:
    """The commands of all console blocks of a page."""
    for match in BLOCK.finditer(text):
        code = int(match[1] or 0)
        parts = re.split(r"^\$ ", match[2], flags=re.MULTILINE)[1:]
        for i, part in enumerate(parts):
            line, _, output = part.partition("\n")
            while line.endswith("\\"):
                more, _, output = output.partition("\n")
                line = line[:-1] + " " + more.strip()
            yield Command(line, output.strip(), code if i == len(parts) - 1 else 0)


def examples(page: Path) -> doctest.DocTest:
    """The python blocks of a page, which share their names."""
    blocks = "\n".join(match[1] for match in PYTHON.finditer(page.read_text()))
    return doctest.DocTestParser().get_doctest(blocks, {}, page.name, str(page), 0)


def here_document(command: Command) -> tuple[str, str] | None:
    """The name and text of a file that a command writes."""
    match = re.match(r"cat > (\S+) <<'EOF'$", command.line)
    return (match[1], command.output.removesuffix("EOF")) if match else None


def install_editable(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave what ``pip install -e .`` leaves: modules on the path, entry points in metadata."""
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    groups = project.get("entry-points", {})
    lines = [
        line
        for group, points in groups.items()
        for line in (f"[{group}]", *(f"{name} = {target}" for name, target in points.items()))
    ]
    info = folder / f"{project['name']}-{project['version']}.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Name: {project['name']}\nVersion: {project['version']}\n")
    (info / "entry_points.txt").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(folder)


def test_every_page_has_commands() -> None:
    assert sum(1 for page in PAGES for _ in commands(page.read_text())) > 10


def test_lines_that_depend_on_the_machine_are_not_compared() -> None:
    told = f"Read     ring:4\n         {COMPILING}\n     20s  greedy, 3 passes\nSolved   it\n"
    assert UNSTEADY.sub("", told) == "Read     ring:4\nSolved   it\n"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of all pages, so that processes of jobs that are kept serve the next page too."""
    return tmp_path_factory.mktemp("page")


@pytest.fixture
def folder(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in the folder of pages, with nothing in it."""
    for path in place.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    monkeypatch.chdir(place)
    return place


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_page(page, folder, monkeypatch, capsys):
    for command in commands(page.read_text()):
        if (document := here_document(command)) is not None:
            Path(document[0]).write_text(document[1])
            continue
        if command.line == "pip install -e .":
            install_editable(folder, monkeypatch)
        if not command.line.startswith("weft "):
            continue
        code = main(shlex.split(command.line, comments=True)[1:])
        captured = capsys.readouterr()
        shown = captured.out + UNSTEADY.sub("", captured.err)
        assert code == command.code, f"$ {command.line}\n{shown}"
        if command.output:
            flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
            same = doctest.OutputChecker().check_output(command.output, shown, flags)
            assert same, f"$ {command.line}\nexpected:\n{command.output}\ngot:\n{shown}"


DOCTESTS = [p for p in PAGES if p.name not in notebooks.PAGES and examples(p).examples]


@pytest.mark.parametrize("page", DOCTESTS, ids=lambda p: p.name)
def test_python_of_page(page, folder):
    report: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    assert runner.run(examples(page), out=report.append).failed == 0, "".join(report)


def test_the_library_page_has_examples() -> None:
    assert len(examples(ROOT / "docs" / "library.md").examples) > 10
