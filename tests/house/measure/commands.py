"""The `weft` commands that are walked and timed, run in a given checkout."""

import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from .tree import Tree

Prefix = tuple[str, ...]
Arguments = Callable[[Path], tuple[str, ...]]
TIME_LIMIT = 900.0

SYNTH = ("synth", "-t", "dgx1", "-c", "allgather", "-o")


@dataclass(frozen=True)
class Command:
    """One command: its name in tables, and its arguments in a work folder."""

    name: str
    arguments: Arguments


def schedule(folder: Path) -> str:
    """The schedule that the first `synth` left in the folder."""
    (found, *_) = sorted((folder / "ag").glob("*.json"))
    return str(found)


def _compile(folder: Path, output: str) -> tuple[str, ...]:
    return ("compile", schedule(folder), "--to", "msccl-xml", "-o", output)


def _simulate(folder: Path) -> tuple[str, ...]:
    return ("simulate", str(folder / "ag.xml"), "-t", "dgx1", "--size", "1MiB")


def _tune(folder: Path) -> tuple[str, ...]:
    return ("tune", "-t", "ring:4", "-c", "allgather", "-o", fresh(folder))


def fresh(folder: Path) -> str:
    """A path in a folder at which there is nothing yet."""
    return str(folder / f"fresh{len(list(folder.iterdir()))}")


HELP = Command("--help", lambda _: ("--help",))
LIST = Command("list engines", lambda _: ("list", "engines"))
BOUND = Command("bound", lambda _: ("bound", "-t", "dgx1", "-c", "allgather"))
SEARCH = Command("synth", lambda folder: (*SYNTH, fresh(folder)))
COMPILE = Command("compile", lambda folder: _compile(folder, f"{fresh(folder)}.xml"))
CHECK = Command("check", lambda folder: ("check", str(folder / "ag.xml")))
SIMULATE = Command("simulate", _simulate)
TUNE = Command("tune", _tune)


@dataclass(frozen=True)
class Bench:
    """A checkout with a work folder that holds a schedule and a program to begin with."""

    tree: Tree
    folder: Path

    def environment(self) -> dict[str, str]:
        """The checkout's own package first, its caches in the work folder.

        Python keeps its bytecode, as where the package is installed: without it every run would
        compile all sources, which takes longer than most commands.
        """
        links = str(self.tree.root / "build" / "link")
        caches = {"XDG_CACHE_HOME": str(self.folder.with_name("cache"))}
        found = {**os.environ, **caches, "PYTHONPATH": links}
        found.pop("PYTHONDONTWRITEBYTECODE", None)
        return found

    def entry(self) -> str:
        """`module:function` of the script `weft`."""
        text = (self.tree.root / "pyproject.toml").read_text(encoding="utf-8")
        return str(tomllib.loads(text)["project"]["scripts"]["weft"])

    def run(self, command: Command, prefix: Prefix = ()) -> None:
        """Run a command; with a prefix another program runs it.

        Raises:
            RuntimeError: the command failed; its words are in the message.
        """
        module, _, function = self.entry().partition(":")
        call = f"import sys; sys.argv[0] = 'weft'; from {module} import {function} as f; "
        start = prefix or ("-c", call + "sys.exit(f())")
        done = subprocess.run(
            [sys.executable, *start, *command.arguments(self.folder)],
            cwd=self.folder,
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=TIME_LIMIT,
        )
        if done.returncode:
            raise RuntimeError(f"weft {command.name}: {done.stdout[-500:]}{done.stderr[-1500:]}")


@contextmanager
def bench(tree: Tree) -> Iterator[Bench]:
    """A bench in a temporary folder: `ag/` from synth and `ag.xml` from compile are there."""
    with tempfile.TemporaryDirectory(prefix="house-") as name:
        made = Bench(tree, Path(name) / "work")
        made.folder.mkdir()
        made.run(Command("synth", lambda folder: (*SYNTH, str(folder / "ag"))))
        made.run(Command("compile", lambda folder: _compile(folder, str(folder / "ag.xml"))))
        yield made
