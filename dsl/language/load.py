"""Loading of sketches: from the catalogue in ``sketches/``, a path, or standard input."""

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
    """Return the sketch of a name of the catalogue, or of a file; ``-`` is standard input.

    Raises:
        UnknownName: neither a name of the catalogue nor a file. BadFile: an unreadable file.
        SyntaxProblem, SeveralErrors: a text that does not parse.
    """
    source = find_sketch(name_or_path)
    return parse(source.text, source.name)


def find_sketch(name_or_path: str) -> Source:
    """Return the text that :func:`load_sketch` parses, unchanged."""
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
    """Return the sketches of the catalogue with the comment at the head of each."""
    return {name: about(load_sketch(name)) for name in _names()}


def about(tree: SketchText) -> str:
    """Return the comment above the ``sketch`` line as running text: machine, idea, source."""
    return " ".join(line.lstrip("#").strip() for line in tree.trivia.above if line)


@cache
def _names() -> tuple[str, ...]:
    folder = resources.files("weft") / "sketches"
    files = (file.name for file in folder.iterdir())
    return tuple(sorted(f.removesuffix(SUFFIX) for f in files if f.endswith(SUFFIX)))


def _catalogue_text(name: str) -> str:
    file = resources.files("weft") / "sketches" / f"{name}{SUFFIX}"
    return file.read_text(encoding="utf-8")
