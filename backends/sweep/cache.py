"""Cache of answers by key, in a folder that processes and hosts may share.

A file per answer, named for everything the answer depends on, weft's own code included. Files
appear whole, by renaming; concurrent writers write equal files, so locks are not needed. Files are
not trusted: one that this user did not write (:func:`seal`), or whose schedules the verifier
rejects, is as good as none: a bound, or "infeasible", would cost the search again to verify.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import secrets
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from weft.dsl.base.errors import UserError, WeftError
from weft.dsl.base.files import parse_json, read_text, require_kind, write_text
from weft.dsl.base.lazy_dataclass import dataclass

from ..jobs.job import canonical
from .body import PROVED
from .question import SweepQuestion

_SECRET = 32
"""Bytes of the key of a user's seals."""

Judge = Callable[[dict[str, Any], dict[str, Any]], bool]


def default_folder() -> Path:
    """``$WEFT_CACHE``, else ``weft`` in ``$XDG_CACHE_HOME``, else in ``~/.cache``."""
    if named := os.environ.get("WEFT_CACHE"):
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "weft"


def seal(value: Any) -> str:
    """Return the seal of a JSON value: its digest under a key that this user alone can read.

    Raises:
        TypeError, ValueError: it is not JSON.
    """
    return hmac.new(_secret(), canonical(value).encode(), hashlib.sha256).hexdigest()


def is_sealed(value: Any, by: object) -> bool:
    """Return True if ``by`` is the seal of a value, so that this user wrote it."""
    with contextlib.suppress(TypeError, ValueError, RecursionError):
        return isinstance(by, str) and hmac.compare_digest(by.encode(), seal(value).encode())
    return False


def _secret() -> bytes:
    """Return the user's key, made when it is needed first: ``weft/key`` in ``$XDG_STATE_HOME``,
    else in ``~/.local/state``. Where it cannot be kept, what this process writes is not read later.
    """
    base = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    if not os.path.isabs(base):
        return _unkept()
    path = Path(base, "weft", "key")
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            handle, made = tempfile.mkstemp(dir=path.parent)  # for the user alone
            with os.fdopen(handle, "wb") as file:
                file.write(secrets.token_bytes(_SECRET))
            with contextlib.suppress(FileExistsError):
                os.link(made, path)  # the first of several processes
            os.unlink(made)
        with path.open("rb") as file:
            found = os.fstat(file.fileno())
            if found.st_uid == os.geteuid() and not found.st_mode & 0o077:
                return file.read(_SECRET)
    return _unkept()


@cache
def _unkept() -> bytes:
    return secrets.token_bytes(_SECRET)


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """Entry of the cache, by its name and header: its size in bytes, and the code's fingerprint."""

    path: Path
    bytes: int
    code: str


@dataclass(frozen=True, slots=True)
class Cache:
    """The answers in a folder, of one fingerprint of the code.

    An answer that is proved holds for any budget; every other one only for its own.
    """

    folder: Path
    code: str

    def get(self, question: SweepQuestion, judge: Judge) -> dict[str, Any] | None:
        """Return the stored answer to a question if ``judge`` accepts it, else None."""
        for path, key in (self._proved(question), self._within(question)):
            with contextlib.suppress(WeftError, KeyError, TypeError, ValueError, AttributeError):
                found = _read(path, key)
                if judge(question.argument(), found):
                    return found
        return None

    def put(self, question: SweepQuestion, result: dict[str, Any]) -> None:
        """Store the answer to a question.

        Raises:
            UserError: it cannot be written.
        """
        place = self._proved if result["status"] in PROVED else self._within
        path, key = place(question)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"cannot be written: {error.strerror}", where=str(path)) from None
        head = {"weft": "result", "schema": 1, "key": key, "code": self.code}
        text = canonical({**head, "seal": seal([head, result]), "result": result})
        write_text(path, f"{text}\n", force=True)

    def _proved(self, question: SweepQuestion) -> tuple[Path, str]:
        return self._place(question.core(self.code))

    def _within(self, question: SweepQuestion) -> tuple[Path, str]:
        return self._place(question.key(self.code))

    def _place(self, key: str) -> tuple[Path, str]:
        return self.folder / "results" / key[:2] / f"{key}.json", key


def _read(path: Path, key: str) -> dict[str, Any]:
    """Return the answer in a file.

    Raises:
        BadFile: it is missing or damaged.
        KeyError, TypeError, ValueError: likewise.
    """
    data = parse_json(read_text(path), str(path))
    require_kind(data, "result", str(path))
    head = {name: data[name] for name in ("weft", "schema", "key", "code")}
    if data["key"] != key or not is_sealed([head, data["result"]], data["seal"]):
        raise ValueError("another answer, a damaged one, or another user's")
    result: dict[str, Any] = data["result"]
    return result


def entries(folder: Path) -> Iterator[CacheEntry]:
    """Yield every answer in a cache's folder; damaged ones lack a fingerprint."""
    for path in sorted((folder / "results").glob("??/*.json")):
        try:
            data = parse_json(read_text(path), str(path))
            code = str(data["code"])
        except (WeftError, KeyError, TypeError):
            code = ""
        with contextlib.suppress(OSError):
            yield CacheEntry(path, path.stat().st_size, code)


def remove(entry: CacheEntry) -> None:
    """Remove one answer; another process may have removed it already."""
    with contextlib.suppress(FileNotFoundError):
        entry.path.unlink()
