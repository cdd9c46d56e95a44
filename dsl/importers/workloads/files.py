"""Files of a set of traces, one a rank: ``NAME.RANK.et`` or ``NAME.RANK.json``, or ``….gz``."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ...base.errors import BadFile
from ...base.files import parse_json, read_bytes, read_limit
from ...base.units import format_bytes

MEMBER = re.compile(
    r"(?P<name>.*?)[._-]?(?:rank[._-]?)?(?P<rank>\d{1,7})\.(?P<form>et|json)(?:\.gz)?"
)

GZIP = b"\x1f\x8b"


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


def trace_bytes(path: str | Path) -> bytes:
    """Return what a file holds, unpacked if it is compressed by gzip.

    Raises:
        BadFile: as :func:`read_bytes`, or the compressed file is damaged or too large.
    """
    raw = read_bytes(path)
    if not raw.startswith(GZIP):
        return raw
    limit, parts, length = read_limit(), [], 0
    try:
        while raw.startswith(GZIP):
            packed = zlib.decompressobj(wbits=31)
            parts.append(packed.decompress(raw, limit + 1 - length))
            length += len(parts[-1])
            if length > limit:
                told = f"the file holds more than {format_bytes(limit)} when it is unpacked"
                raise BadFile(told, where=str(path))
            if not packed.eof:
                raise BadFile("the compressed file is cut off", where=str(path))
            raw = packed.unused_data
    except zlib.error as error:
        raise BadFile(f"not a file of gzip: {error}", where=str(path)) from None
    return b"".join(parts)


def trace_json(path: str | Path) -> Any:
    """Return the JSON of a file, unpacked if it is compressed by gzip.

    Raises:
        BadFile: as :func:`trace_bytes`, or it is not JSON.
    """
    where = str(path)
    try:
        text = trace_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError:
        hint = "an archive (tar) is unpacked first" if where.endswith((".tar.gz", ".tgz")) else ""
        raise BadFile("not a text in UTF-8", where=where, hint=hint) from None
    return parse_json(text, where)


def traces_in(
    files: Mapping[int, Path], known: Mapping[Path, Any]
) -> Iterator[tuple[int, str, Any]]:
    """Yield rank, place and JSON of each file; ``known``: those that were parsed already."""
    for rank, file in files.items():
        yield rank, str(file), known[file] if file in known else trace_json(file)
