"""Output folder of a sweep: ``sweep.json``, a file per schedule, and a journal.

``sweep.json`` and the schedules contain no times, hosts or processes: they are the same byte
for byte wherever the jobs ran. All that is in ``journal.jsonl``, a line per start and end of a job,
from which a sweep that was interrupted goes on.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import field
from pathlib import Path
from typing import Any

from weft.dsl.base.errors import BadFile, UserError
from weft.dsl.base.files import parse_json, read_bytes, write_text
from weft.dsl.base.lazy_dataclass import dataclass

from ..jobs.job import canonical
from .cache import is_sealed, seal
from .names import JOURNAL, MANIFEST, SCHEDULES
from .question import SweepQuestion

KEYS = (
    "topology",
    "collective",
    "more",
    "ranks",
    "sketch",
    "engine",
    "bytes",
    "objective",
    "seed",
    "effort",
    "status",
    "why",
    "value",
    "bound",
    "gap",
    "statements",
    "points",
    "key",
)
"""Keys of a row."""


@dataclass(slots=True)
class Folder:
    """Open folder of a sweep; ``done`` holds the rows of an earlier run, by the keys of their
    jobs."""

    path: Path
    journal: int
    done: dict[str, dict[str, Any]] = field(default_factory=dict)

    def note(self, event: str, key: str, **more: Any) -> None:
        """Write a line of the journal, at once."""
        line = {"event": event, "key": key, "at": round(time.time(), 3), **more}
        os.write(self.journal, f"{canonical(line)}\n".encode())

    def keep(self, question: SweepQuestion, key: str, result: dict[str, Any], **more: Any) -> Any:
        """Write the schedules of an answer, then its row to the journal; return the row.

        Raises:
            UserError: they cannot be written.
        """
        row, texts = row_of(question, key, result)
        for name, text in texts.items():
            write_text(self.path / name, text, force=True)
        digests = {name: _digest(text.encode()) for name, text in texts.items()}
        self.note("ended", key, row=row, files=digests, seal=seal([key, row, digests]), **more)
        return row

    def finish(self, code: str, rows: Iterable[dict[str, Any]]) -> None:
        """Write ``sweep.json``: rows in the order of the jobs."""
        write_text(self.path / MANIFEST, manifest(code, rows), force=True)


def manifest(code: str, rows: Iterable[dict[str, Any]]) -> str:
    """Return the text of ``sweep.json``, a line per job."""
    texts = (
        {k: json.dumps(row[k], ensure_ascii=False, sort_keys=True) for k in KEYS if k in row}
        for row in rows
    )
    lines = ",\n".join(
        "  {" + ", ".join(f'"{key}": {text}' for key, text in one.items()) + "}" for one in texts
    )
    return f'{{"weft": "sweep", "schema": 1, "code": "{code}", "jobs": [\n{lines}\n]}}\n'


def row_of(
    question: SweepQuestion, key: str, result: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the row of a job in ``sweep.json``, and the texts of its files by name."""
    texts = result["schedules"]
    stem = f"{SCHEDULES}/{question.label.stem()}-{key[:12]}"
    names = [f"{stem}-{i}.json" for i in range(1, len(texts) + 1)]
    if len(names) == 1:
        names = [f"{stem}.json"]
    points = [{**p, "file": name} for p, name in zip(result["points"], names, strict=True)]
    more = {k: result[k] for k in ("status", "why", "value", "bound", "gap", "statements")}
    row = {
        **question.label.to_json(),
        "ranks": question.ranks,
        "effort": question.effort,
        "key": key,
        **more,
        "points": points,
    }
    return row, dict(zip(names, texts, strict=True))


@contextmanager
def opened(path: Path, keys: frozenset[str], *, force: bool) -> Iterator[Folder]:
    """Open the folder of a sweep: a new one, or that of the same sweep, which is continued.

    ``keys`` are those of its jobs; with ``force`` another sweep's files are removed.

    Raises:
        UserError: it holds other things or, without ``force``, another sweep; it cannot be
            written; or another process is at it.
    """
    try:
        _require_ours(path)
        (path / SCHEDULES).mkdir(parents=True, exist_ok=True)
        journal = os.open(path / JOURNAL, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
    except OSError as error:
        raise UserError(f"cannot be written: {error.strerror}", where=str(path)) from None
    try:
        try:
            fcntl.flock(journal, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(
                "another process of `weft sweep` is writing to the folder",
                where=str(path),
                hint="wait for it, or name another folder",
            ) from None
        except OSError:  # a file system without locks
            pass
        lines = list(_lines(path / JOURNAL))
        begun = [line.get("keys") for line in lines if line["event"] == "sweep"]
        if begun and begun[-1] != sorted(keys):
            if not force:
                raise UserError(
                    "the folder holds a sweep of other jobs, or of another version of weft",
                    where=str(path),
                    hint="name another folder; -f replaces what it holds",
                )
            (path / MANIFEST).unlink(missing_ok=True)
            for file in (path / SCHEDULES).glob("*.json"):
                file.unlink()
            os.ftruncate(journal, 0)
            lines, begun = [], []
        folder = Folder(path, journal, dict(_finished(path, lines)))
        if (path / JOURNAL).read_bytes()[-1:] not in (b"", b"\n"):  # an incomplete last line
            os.write(journal, b"\n")
        if not begun:
            folder.note("sweep", "", keys=sorted(keys))
        yield folder
    finally:
        os.close(journal)


def _require_ours(path: Path) -> None:
    """Raise an error if a folder holds anything but a sweep."""
    if path.exists() and not path.is_dir():
        raise UserError("expected a folder for the sweep, got a file", where=str(path))
    if not path.absolute().parent.is_dir():
        raise UserError(
            f"the folder {path.parent} does not exist", where=str(path), hint="make it first"
        )
    held = sorted(file.name for file in path.iterdir()) if path.is_dir() else []
    ours = [name for name in (MANIFEST, JOURNAL, SCHEDULES) if not (path / name).is_symlink()]
    strange = [name for name in held if name not in ours]
    if strange or (held and JOURNAL not in held):
        raise UserError(
            f"the folder holds {(strange or held)[0]!r}, and no sweep",
            where=str(path),
            hint="name a folder of its own",
        )


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines of a journal; an incomplete last line, and any that is none, is skipped."""
    for text in read_bytes(path).splitlines():
        with contextlib.suppress(ValueError, BadFile):
            line = parse_json(text.decode(), str(path))
            if isinstance(line, dict) and "event" in line:
                yield line


def _finished(path: Path, lines: Iterable[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the rows that this user wrote, and whose files are all there and unchanged."""
    for line in lines:
        key, row, files = (line.get(name, {}) for name in ("key", "row", "files"))
        if line["event"] != "ended" or not is_sealed([key, row, files], line.get("seal")):
            continue  # without an answer, or another's words, of any type
        with contextlib.suppress(OSError):
            if all(_digest((path / x).read_bytes()) == digest for x, digest in files.items()):
                yield key, row


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
