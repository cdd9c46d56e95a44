"""A folder as ``weft show`` tells it: what its files are, a line for each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from weft.dsl.base.errors import UserError, WeftError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.tables import count, table
from weft.dsl.base.units import format_binary

from ...sweep.names import MANIFEST as SWEEP
from .subjects import read_subject

MOST_FILES = 200
"""Most files that are listed."""

MOST_BYTES = 4 << 20
"""Largest file that is read for its line."""

SHOWN = 100
"""Most letters of what a file is."""


@dataclass(frozen=True, slots=True)
class FolderFile:
    """A file or folder in a folder: its kind (empty: none of weft's), and what it is."""

    name: str
    kind: str
    about: str


def folder_files(path: Path) -> tuple[list[FolderFile], int]:
    """Return the files of a folder, and how many more there are.

    Raises:
        UserError: it cannot be read.
    """
    try:
        names = sorted(path.iterdir(), key=lambda one: (one.is_dir(), one.name))
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror}", where=str(path)) from None
    shown = [one for one in names if not one.name.startswith(".")]
    return [_line(one) for one in shown[:MOST_FILES]], len(shown) - min(len(shown), MOST_FILES)


def _line(path: Path) -> FolderFile:
    if path.is_dir():
        kind = "library" if (path / "library.json").is_file() else "folder"
        return FolderFile(f"{path.name}/", kind, count(sum(1 for _ in path.iterdir()), "file"))
    try:
        size = path.stat().st_size
        if size > MOST_BYTES:
            return FolderFile(path.name, "", f"{format_binary(size)}: weft show {path} reads it")
        subject = read_subject(str(path))
        text = subject.noun.show(subject)[0]
        about = " ".join(next(iter(text.splitlines()), "").split())
        about = about.removeprefix(subject.kind).strip() or about
        return FolderFile(path.name, subject.kind, about[:SHOWN])
    except (WeftError, OSError):
        return FolderFile(path.name, "", "")


def folder_text(path: Path) -> tuple[str, dict[str, Any]]:
    """Return a folder as text, and its facts for ``--json``."""
    found, more = folder_files(path)
    head = f"{path}: {count(len(found) + more, 'file')}"
    if (path / SWEEP).is_file():
        head += f", of a sweep: weft sweep -o {path} goes on with it"
    rows = [(one.name, one.kind or "-", one.about) for one in found]
    text = f"{head}\n\n{table(('name', 'kind', 'what it is'), rows)}" if rows else f"{head}"
    text += f"\n… and {count(more, 'more file')}" if more else ""
    data = [{"name": one.name, "kind": one.kind or None, "about": one.about} for one in found]
    return text, {"files": data, "more": more}
