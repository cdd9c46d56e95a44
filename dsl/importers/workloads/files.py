"""Files of a set of traces, one a rank: ``NAME.RANK.et`` or ``NAME.RANK.json``, or ``….gz``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ...base.errors import BadFile
from ...base.files import parse_json, read_text

MEMBER = re.compile(
    r"(?P<name>.*?)[._-]?(?:rank[._-]?)?(?P<rank>\d{1,7})\.(?P<form>et|json)(?:\.gz)?"
)


def trace_files(path: str) -> tuple[str, str, dict[int, Path]]:
    """Return name, suffix and files by rank of the traces in a folder, or beside one of them.

    A path may also be the files' common prefix.

    Raises:
        BadFile: there are none, or several sets of them.
    """
    place = Path(path)
    folder, wanted = (place, None) if place.is_dir() else (place.parent, place.name)
    sets: dict[tuple[str, str], dict[int, Path]] = {}
    if not folder.is_dir():
        raise BadFile("no such file", where=path)
    for file in sorted(folder.iterdir()):
        match = MEMBER.fullmatch(file.name)
        if match and file.is_file() and not file.name.startswith("."):
            sets.setdefault((match["name"], match["form"]), {})[int(match["rank"])] = file
    if wanted is not None:
        sets = {
            key: files
            for key, files in sets.items()
            if key[0] == wanted.rstrip(".") or any(x.name == wanted for x in files.values())
        }
    if not sets:
        raise BadFile(
            "no traces there", where=path, hint="they are called NAME.RANK.et or NAME.RANK.json"
        )
    if len(sets) > 1:
        shown = ", ".join(f"{name}.*.{form}" for name, form in sorted(sets))
        raise BadFile(f"several sets of traces: {shown}", where=path, hint="name one file of one")
    ((name, form), files) = next(iter(sets.items()))
    return name or place.stem, form, dict(sorted(files.items()))


def traces_in(
    files: Mapping[int, Path], known: Mapping[Path, Any]
) -> Iterator[tuple[int, str, Any]]:
    """Yield rank, place and JSON of each file; ``known``: those that were parsed already."""
    for rank, file in files.items():
        yield (
            rank,
            str(file),
            known[file] if file in known else parse_json(read_text(file), str(file)),
        )
