"""The sources as files and syntax trees, for the tests that guard the house."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[2]
CODE_FOLDERS = ("dsl", "synth", "backends")  # in import order
DATA_FOLDERS = ("topologies", "sketches")


@dataclass(frozen=True)
class Source:
    """One Python file of the repository, by its path from the root."""

    path: PurePosixPath
    root: Path = ROOT

    def __str__(self) -> str:
        return str(self.path)

    @property
    def folder(self) -> str:
        return self.path.parts[0]

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"

    @property
    def module(self) -> str:
        """The import name: backends/emit/xml.py is weft.backends.formats.msccl.xml."""
        parts = self.path.parent.parts if self.is_package else self.path.with_suffix("").parts
        return ".".join(("weft", *parts))

    @property
    def package(self) -> str:
        """What a relative import of one dot starts from."""
        return self.module if self.is_package else self.module.rpartition(".")[0]

    @cached_property
    def text(self) -> str:
        return (self.root / self.path).read_text(encoding="utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, filename=str(self.path))


@cache
def sources(*folders: str, root: Path = ROOT) -> tuple[Source, ...]:
    """All Python files under the given folders of a checkout, sorted."""
    found = (path for folder in folders for path in (root / folder).rglob("*.py"))
    files = (_source(PurePosixPath(path.relative_to(root)), root) for path in found)
    return tuple(sorted(files, key=str))


@cache
def _source(path: PurePosixPath, root: Path) -> Source:
    """A file, the same for all who ask: its tree is made once."""
    return Source(path, root)


def code() -> tuple[Source, ...]:
    """The files that become the package weft, without the data folders."""
    return sources(*CODE_FOLDERS)


def parse(text: str, path: str) -> Source:
    """A source that is not on disk, to try a rule on."""
    source = Source(PurePosixPath(path))
    vars(source).update(text=text, tree=ast.parse(text, filename=path))
    return source


def walk(root: ast.AST) -> tuple[ast.AST, ...]:
    """Every node of a tree, in the order of :func:`ast.walk`; kept, since many rules ask for it."""
    kept: tuple[ast.AST, ...] | None = vars(root).get("_walked")
    if kept is None:
        kept = tuple(ast.walk(root))
        vars(root)["_walked"] = kept
    return kept


def inner(node: ast.AST) -> Iterator[ast.AST]:
    """The statements directly inside a statement or module, with what holds more of them.

    No expression: those are most of a tree, and neither an import nor a ``def`` is in one.
    """
    for field in ("body", "handlers", "orelse", "finalbody", "cases"):
        yield from getattr(node, field, ())


@dataclass(frozen=True)
class Import:
    """One imported name: `from weft.dsl import Topology` is (weft.dsl, Topology)."""

    module: str  # absolute, relative imports resolved
    name: str  # "" for a plain `import module`
    dots: int
    line: int
    eager: bool  # runs when the module is loaded: not in a function, not for type checkers
    typing: bool = False  # stands under `if TYPE_CHECKING`: never runs


def imports(source: Source) -> tuple[Import, ...]:
    """Every import of a file, whatever it is nested in; kept, since many rules ask for it."""
    kept: tuple[Import, ...] | None = vars(source).get("_imports")
    if kept is None:
        kept = tuple(_walk(source, source.tree, lazy=False, typing=False))
        vars(source)["_imports"] = kept
    return kept


def _walk(source: Source, node: ast.AST, *, lazy: bool, typing: bool) -> Iterator[Import]:
    eager = not lazy and not typing
    match node:
        case ast.Import():
            for alias in node.names:
                yield Import(alias.name, "", 0, node.lineno, eager, typing)
        case ast.ImportFrom():
            target = _absolute(source, node)
            for alias in node.names:
                yield Import(target, alias.name, node.level, node.lineno, eager, typing)
        case ast.If(test=ast.Name(id="TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING")):
            for statement in node.body:
                yield from _walk(source, statement, lazy=lazy, typing=True)
            for statement in node.orelse:
                yield from _walk(source, statement, lazy=lazy, typing=typing)
        case _:
            inside = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            for child in inner(node):
                yield from _walk(source, child, lazy=lazy or inside, typing=typing)


def _absolute(source: Source, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    parts = source.package.split(".")
    parts = parts[: len(parts) - node.level + 1]
    return ".".join([*parts, node.module] if node.module else parts)
