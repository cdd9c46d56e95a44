"""Finding sketches: the catalogue in ``sketches/``, a path, or standard input."""

from __future__ import annotations

import os
from functools import cache
from importlib import resources

from ..base.errors import BadFile, UnknownName
from ..base.files import read_text
from ..base.spans import Source
from .ast import SketchText
from .parse import parse

SUFFIX = ".sketch"


def load_sketch(name_or_path: str) -> SketchText:
    """The sketch of that name in the catalogue, or in a file; ``-`` is standard input.

    Raises:
        UnknownName: neither a name of the catalogue nor a file. BadFile: an unreadable file.
        SyntaxProblem, SeveralErrors: a text that does not parse.
    """
    source = find_sketch(name_or_path)
    return parse(source.text, source.name)


def find_sketch(name_or_path: str) -> Source:
    """As :func:`load_sketch`, but the text only, as it stands in its file."""
    name = name_or_path.strip()
    if name in _names():
        return Source(f"sketches/{name}{SUFFIX}", _catalogue_text(name))
    if name == "-":
        return Source("<stdin>", read_text(name))
    if os.path.exists(name):
        return Source(name, read_text(name))
    if os.sep in name or name.endswith(SUFFIX):
        raise BadFile("no such file", where=name)
    raise UnknownName("sketch", name, _names())


def sketch_names() -> dict[str, str]:
    """The sketches of the catalogue, and what the comment at the head of each says."""
    return {name: about(load_sketch(name)) for name in _names()}


def about(tree: SketchText) -> str:
    """The comment above the ``sketch`` line as running text: what machine, idea and source."""
    return " ".join(line.lstrip("#").strip() for line in tree.trivia.above if line)


@cache
def _names() -> tuple[str, ...]:
    folder = resources.files("weft") / "sketches"
    files = (file.name for file in folder.iterdir())
    return tuple(sorted(f.removesuffix(SUFFIX) for f in files if f.endswith(SUFFIX)))


def _catalogue_text(name: str) -> str:
    file = resources.files("weft") / "sketches" / f"{name}{SUFFIX}"
    return file.read_text(encoding="utf-8")
