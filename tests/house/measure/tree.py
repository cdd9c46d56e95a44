"""A checkout as its Python files: the working tree, a revision of git, or a formatted copy."""

import ast
import io
import re
import subprocess
import sys
import tarfile
import tempfile
import tokenize
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from sources import CODE_FOLDERS, ROOT, Source, inner, sources

PRAGMA = re.compile(r"\s*#\s*fmt:\s*(?:skip|off|on)\b.*$")


@dataclass(frozen=True)
class Figure:
    """One measured number and the places that were counted."""

    key: str
    label: str
    value: int | float
    places: tuple[str, ...] = ()


@dataclass(frozen=True)
class Tree:
    """The code and the tests of one checkout."""

    root: Path

    @cached_property
    def code(self) -> tuple[Source, ...]:
        """The files of the package, without tests and data."""
        return sources(*CODE_FOLDERS, root=self.root)

    @cached_property
    def tests(self) -> tuple[Source, ...]:
        """The files of the tests."""
        return sources("tests", root=self.root)

    def run(self, *command: str) -> None:
        """Run a command of this interpreter in the checkout."""
        subprocess.run([sys.executable, *command], cwd=self.root, check=True, capture_output=True)


@contextmanager
def at_revision(revision: str) -> Iterator[Tree]:
    """The files of a git revision in a temporary folder, with `build/link` made."""
    archive = subprocess.run(
        ["git", "archive", "--format=tar", revision], cwd=ROOT, check=True, capture_output=True
    ).stdout
    with tempfile.TemporaryDirectory(prefix="house-") as folder:
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            tar.extractall(folder, filter="data")
        tree = Tree(Path(folder))
        tree.run("hatch_build.py")
        yield tree


def without_pragmas(source: Source) -> str:
    """The text of a file without `fmt: skip`, `fmt: off` and `fmt: on` comments."""
    lines = source.text.splitlines(keepends=True)
    for line in {number for number, _ in pragmas(source)}:
        text = lines[line - 1]
        lines[line - 1] = PRAGMA.sub("", text.rstrip("\n")) + "\n"
    return "".join(lines)


def pragmas(source: Source) -> Iterator[tuple[int, str]]:
    """(Line, text) of every comment that keeps the formatter away."""
    if "fmt:" in source.text:
        for token in tokenize.generate_tokens(io.StringIO(source.text).readline):
            if token.type == tokenize.COMMENT and PRAGMA.search(token.string):
                yield token.start[0], token.string


def formatted(files: tuple[Source, ...], root: Path) -> tuple[Source, ...]:
    """The files as the formatter writes them once no pragma keeps it away.

    They are copied to a temporary folder and formatted there with the settings of the checkout.
    """
    with tempfile.TemporaryDirectory(prefix="house-") as folder:
        copy = Path(folder)
        (copy / "pyproject.toml").write_text((root / "pyproject.toml").read_text(encoding="utf-8"))
        for source in files:
            path = copy / source.path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(without_pragmas(source), encoding="utf-8")
        Tree(copy).run("-m", "ruff", "format", "--quiet", "--no-cache", ".")
        return tuple(_written(source, copy) for source in files)


def _written(source: Source, copy: Path) -> Source:
    """The file of a formatted copy; the source itself, whose tree is known, if it is the same."""
    text = (copy / source.path).read_text(encoding="utf-8")
    if text == source.text:
        return source
    found = Source(source.path, copy)
    vars(found)["text"] = text
    return found


Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(source: Source) -> tuple[Function, ...]:
    """Every function and method of a file, nested ones as well."""
    held = vars(source)  # kept with the file: many detections go through them
    if "functions" not in held:
        nodes: list[ast.AST] = [source.tree]
        for node in nodes:
            nodes += inner(node)
        held["functions"] = tuple(node for node in nodes if isinstance(node, Function))
    kept: tuple[Function, ...] = held["functions"]
    return kept


def place(source: Source, node: ast.AST, name: str = "") -> str:
    """`path:line: name`, as the verbose table names a counted place."""
    return f"{source}:{getattr(node, 'lineno', 1)}: {name}".removesuffix(": ")
