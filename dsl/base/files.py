"""Atomic writing of files and folders, and strict reading of versioned JSON objects.

Every noun is saved as one object with ``"weft": kind`` and ``"schema": 1``. Reading is strict:
an unknown key is an error that suggests the right one, numbers are finite, nesting is bounded.
"""

from __future__ import annotations

import codecs
import contextlib
import errno
import io
import json
import math
import os
import re
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, AnyStr

from .errors import BadFile, UserError, an, suggest
from .spans import one_line, printable
from .units import format_bytes, parse_bytes

SCHEMA = 1
LARGEST_NUMBER = 1 << 40
READ_LIMIT = "WEFT_READ_LIMIT"
"""Environment variable with the largest input accepted, e.g. ``4GiB``."""

DEFAULT_READ_LIMIT = 1 << 30
_PIECE = 1 << 20

_BOM = "\ufeff"
_MARKS = (  # longest first: the mark of UTF-32-LE begins with that of UTF-16-LE
    (codecs.BOM_UTF32_LE, "UTF-32"),
    (codecs.BOM_UTF32_BE, "UTF-32"),
    (codecs.BOM_UTF16_LE, "UTF-16"),
    (codecs.BOM_UTF16_BE, "UTF-16"),
)
_START = 512
"""First bytes of a file by which it is known."""

_PICTURE = "weft reads the text itself, not a picture of it"
_CALLS = "weft reads the calls of every rank, as PyTorch's profiler writes them (docs/traces.md)"
_UNPACK = "unpack it, and name the file or folder to weft"

_NOT_TEXT = (
    (rb"\0(\x89PNG|\xff\xd8\xff|GIF8)", "a picture", _PICTURE),
    (rb"\0%PDF", "a PDF", "weft reads the text itself: copy it out, with its columns"),
    (
        rb"(?s)\0(BZh|\xfd7zXZ|\x28\xb5\x2f\xfd|.{257}ustar)",
        "an archive",
        _UNPACK,
    ),
    (rb"\0PK\x03\x04", "an archive (zip), or an office document", _UNPACK),
    (rb"\0\x7fELF", "a program", "weft reads the text that it prints"),
    (rb"\0\x80[\x02-\x05]", "a pickle, which can run code, so weft loads none", _CALLS),
    (rb"\0SQLite format 3", "a database, as nsys exports", _CALLS),
    (rb"\.(nsys-rep|qdrep)\0", "a report of Nsight Systems", _CALLS),
    (rb"\.xplane\.pb\0", "a profile of XLA", _CALLS),
)
"""Files other than text: a pattern in their name, a zero and their first bytes; their kind; a
hint."""

_SURROGATE = re.compile(r"[\ud800-\udfff]|\\u[dD][89a-fA-F]")
_ESCAPE = re.compile(
    r"\\u[dD][89abAB]\w\w\\u[dD][c-fC-F]|(?P<lone>\\u[dD][89a-fA-F]|[\ud800-\udfff])|\\."
)


def read_text(path: str | Path) -> str:
    """Read a text file, or standard input for ``-``.

    The byte-order mark of UTF-8 is dropped, except before XML: the runtimes reject it there, and
    the reader of their files reports it.

    Raises:
        BadFile: absent, a directory, a device or pipe, unreadable, larger than the limit of
            :func:`read_limit`, or not UTF-8.
    """
    where = "<stdin>" if str(path) == "-" else str(path)
    try:
        if where == "<stdin>":
            # With the C locale, invalid bytes of standard input arrive as surrogates; detect them.
            text = _read_limited(sys.stdin.read, where, "")
            return _unmarked(text.encode(errors="surrogateescape").decode())
        raw = read_bytes(path)
        for pattern, what, hint in _NOT_TEXT:
            if re.search(pattern, where.encode(errors="replace") + b"\0" + raw[:_START]):
                raise BadFile(f"this is {what}", where=where, hint=hint)
        return _unmarked(raw.decode().replace("\r\n", "\n").replace("\r", "\n"))
    except UnicodeDecodeError as error:
        raise _not_text(error.object, where) from None


def read_bytes(path: str | Path) -> bytes:
    """Read a file; one that gzip compressed is unpacked, up to the limit of :func:`read_limit`.

    Raises:
        BadFile: as :func:`read_text`, but for its contents; or the compressed file is damaged.
    """
    where = str(path)
    try:
        _require_regular(os.stat(path).st_mode, where)
        # Some files of /proc count as regular and wait for more: not waiting shows them.
        with open(
            path, "rb", opener=lambda at, flags: os.open(at, flags | os.O_NONBLOCK)
        ) as stream:
            return _unpacked(_read_limited(stream.read, where, b""), where)
    except FileNotFoundError:
        raise BadFile("no such file", where=where) from None
    except OSError as error:
        raise BadFile(f"cannot be read: {error.strerror}", where=where) from None
    except ValueError as error:  # NUL character in the path
        raise BadFile(f"cannot be read: {error}", where=repr(path)) from None


def _unpacked(raw: bytes, where: str) -> bytes:
    if not raw.startswith(b"\x1f\x8b"):
        return raw
    import gzip  # few files are compressed
    import zlib

    try:
        with gzip.open(io.BytesIO(raw)) as stream:
            return _read_limited(stream.read, f"{where}, unpacked", b"")
    except (OSError, EOFError, zlib.error) as error:
        raise BadFile(f"not a whole file of gzip: {error}", where=where) from None


def read_limit() -> int:
    """Return the largest input accepted, in bytes: ``$WEFT_READ_LIMIT``, else 1 GiB.

    Raises:
        UserError: the variable is not a size such as ``4GiB``.
    """
    text = os.environ.get(READ_LIMIT, "")
    try:
        return parse_bytes(text) if text else DEFAULT_READ_LIMIT
    except UserError as error:
        raise UserError(error.message, where=f"${READ_LIMIT}", hint=error.hint) from None


def _require_regular(mode: int, where: str) -> None:
    """Refuse files without an end, or that block: directories, devices, pipes and sockets."""
    if stat.S_ISDIR(mode):
        raise BadFile("expected a file, got a directory", where=where, hint="name a file in it")
    if not stat.S_ISREG(mode):
        kind = "a named pipe" if stat.S_ISFIFO(mode) else "a device or socket"
        raise BadFile(f"expected a file, got {kind}", where=where, hint="`-` reads standard input")


def _read_limited(read: Callable[[int], AnyStr], where: str, empty: AnyStr) -> AnyStr:
    """Read to the end in pieces, so that signals are handled between them."""
    limit, pieces, length = read_limit(), [], 0
    while (piece := read(_PIECE)) or piece is None:
        if piece is None:
            raise BadFile("expected a file with an end, got one that waits for more", where=where)
        pieces.append(piece)
        length += len(piece)
        if length > limit:
            raise BadFile(
                f"the input is larger than {format_bytes(limit)}",
                where=where,
                hint=f"{READ_LIMIT}=SIZE in the environment raises the limit",
            )
    return empty.join(pieces)


def _unmarked(text: str) -> str:
    if text.startswith(_BOM) and not text[1:].lstrip().startswith("<"):
        return text[1:]
    return text


def _not_text(raw: bytes, where: str) -> BadFile:
    for mark, name in _MARKS:
        if raw.startswith(mark):
            message = f"not a text file in UTF-8: it starts with the byte-order mark of {name}"
            return BadFile(message, where=where, hint="save it as UTF-8")
    return BadFile("not a text file (UTF-8)", where=where)


def write_text(path: str | Path, text: str, *, force: bool = False) -> None:
    """Write a file atomically; ``-`` is standard output.

    A link is followed; a device or pipe (``/dev/stdout``) is written to, never replaced. Control
    characters, which terminals obey and XML has none of, are written as :func:`.printable` has
    them.

    Raises:
        UserError: it exists and ``force`` is not given, or cannot be written (a missing folder,
            no permission, a full disk). Nothing is left behind then.
    """
    text = printable(text)
    if str(path) == "-":
        _write_stdout([text])
    else:
        _write_pieces(path, [text.encode("utf-8")], force)


def write_ascii(path: str | Path, pieces: Iterable[bytes], *, force: bool = False) -> None:
    """Write a file of ASCII text as :func:`write_text`, without holding all of it."""
    if str(path) == "-":
        _write_stdout(piece.decode("ascii") for piece in pieces)
    else:
        _write_pieces(path, pieces, force)


def _open_for_reader(path: str, flags: int) -> int:
    """Open a device or pipe to write; fails with ENXIO, instead of waiting, without a reader."""
    handle = os.open(path, flags | os.O_NONBLOCK)
    os.set_blocking(handle, True)
    return handle


def _write_pieces(path: str | Path, pieces: Iterable[bytes], force: bool) -> None:
    file = _target(path)
    if file.is_dir():
        raise UserError("the output is a directory", where=str(path), hint="name a file in it")
    regular = file.is_file() or not file.exists()
    if file.exists() and regular and not force:
        raise UserError("the file exists", where=str(path), hint="-f overwrites it")
    if regular:
        _replace_all({file: pieces}, str(path))
        return
    try:
        with open(file, "wb", opener=_open_for_reader) as stream:
            stream.writelines(pieces)
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        if error.errno == errno.ENXIO:
            raise UserError(
                "expected a pipe with a reader, got one without",
                where=str(path),
                hint="start the reader first, or name a file",
            ) from None
        raise UserError(f"cannot be written: {error.strerror}", where=str(path)) from None


def write_files(prefix: str | Path, files: Mapping[str, bytes], *, force: bool = False) -> None:
    """Write several files, named by the text after a prefix; none of them if one cannot be written.

    Raises:
        UserError: one exists and ``force`` is not given, or cannot be written.
    """
    targets = {_target(f"{prefix}{name}"): [data] for name, data in files.items()}
    for file in targets:
        if file.is_dir():
            raise UserError("the output is a directory", where=str(file), hint="name another file")
        if file.exists() and not force:
            raise UserError("the file exists", where=str(file), hint="-f overwrites it")
    _replace_all(targets, str(prefix))


def _replace_all(targets: Mapping[Path, Iterable[bytes]], where: str) -> None:
    """Write files under temporary names, then rename all of them."""
    temporary: dict[str, Path] = {}
    try:
        for file, pieces in targets.items():
            handle, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name[:100]}.")
            temporary[name] = file
            with os.fdopen(handle, "wb") as stream:
                stream.writelines(pieces)
                stream.flush()
                os.fsync(stream.fileno())
            os.chmod(name, 0o666 & ~_umask())
        for name, file in temporary.items():
            os.replace(name, file)
    except BaseException as error:
        # Also when interrupted: remove the temporary files.
        for name in temporary:
            with contextlib.suppress(OSError):
                os.unlink(name)
        if isinstance(error, OSError) and not isinstance(error, BrokenPipeError):
            raise UserError(f"cannot be written: {error.strerror}", where=where) from None
        raise


def _write_stdout(pieces: Iterable[str]) -> None:
    if sys.stdout.isatty():
        pieces = map(printable, pieces)
    try:
        sys.stdout.writelines(pieces)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise UserError(f"cannot be written: {error.strerror}", where="<stdout>") from None


def write_folder(
    path: str | Path,
    texts: Mapping[str, str],
    *,
    force: bool = False,
    replaces: Collection[str] = (),
) -> None:
    """Write a folder of files atomically: made under a temporary name, then renamed.

    The keys of ``texts`` are paths in it, with ``/`` between folders; a text that begins with
    ``#!`` is a script, which may be run. With ``force`` a folder that
    holds only weft's JSON files and the names in ``replaces`` is replaced, so that no file of an
    earlier run remains among the new ones.

    Raises:
        UserError: it exists (not empty, without ``force``), is a file, holds other files, or cannot
            be written. Nothing is left behind then.
    """
    folder = _target(path)
    if folder.exists() and not folder.is_dir():
        raise UserError("expected a folder for the output, got a file", where=str(path))
    check_replaceable(folder, path, force=force, replaces=replaces)
    temporary: Path | None = None
    try:
        temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name[:100]}."))
        for name, text in texts.items():
            if Path(name).is_absolute() or ".." in Path(name).parts:
                raise UserError(f"the file {name!r} is outside the folder", where=str(path))
            _require_language(name, text)
            (temporary / name).parent.mkdir(parents=True, exist_ok=True)
            write_text(temporary / name, text)
            if text.startswith("#!"):
                (temporary / name).chmod(0o777 & ~_umask())
        temporary.chmod(0o777 & ~_umask())
        _swap(temporary, folder)
    except BaseException as error:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)
        if isinstance(error, OSError):
            raise UserError(f"cannot be written: {error.strerror}", where=str(path)) from None
        if isinstance(error, UserError):
            error.where = str(path)
        raise


def _require_language(name: str, text: str) -> None:
    """Parse a text by the language that its suffix names; JSON comes from a serializer.

    Raises:
        SyntaxError, ValueError: it is not of that language, which is a fault of weft's.
    """
    suffix = Path(name).suffix
    if suffix == ".py":
        compile(text, name, "exec", dont_inherit=True)
    elif suffix in (".xml", ".svg"):
        from xml.etree.ElementTree import fromstring

        fromstring(text)


def _swap(new: Path, folder: Path) -> None:
    """Rename ``new`` to ``folder``; the old folder is removed, or restored on failure."""
    if not folder.exists():
        new.rename(folder)
        return
    aside = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name[:100]}.old."))
    old = aside / "old"
    try:
        folder.rename(old)
        try:
            new.rename(folder)
        except BaseException:
            old.rename(folder)
            raise
    finally:
        if folder.exists():
            shutil.rmtree(aside, ignore_errors=True)


def check_replaceable(
    folder: Path, path: str | Path, *, force: bool, replaces: Collection[str] = ()
) -> None:
    """Check that :func:`write_folder` may replace the contents of a folder.

    Raises:
        UserError: it is not empty (without ``force``), or holds files that are not weft's.
    """
    try:
        held = _files_in(folder)
        if held and not force:
            raise UserError(
                "the folder exists and is not empty",
                where=str(path),
                hint="-f replaces what weft wrote there",
            )
        for file in held:
            name = file.relative_to(folder).as_posix()
            if name not in replaces and not (file.parent == folder and _is_ours(file)):
                raise UserError(
                    f"the folder holds {name!r}, which weft did not write",
                    where=str(path),
                    hint="name a folder of its own",
                )
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror}", where=str(path)) from None


def _files_in(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    held = sorted(folder.rglob("*"))
    return [x for x in held if x.is_symlink() or not x.is_dir() or not any(x.iterdir())]


def _is_ours(file: Path) -> bool:
    if not file.is_file():
        return False
    with file.open("rb") as stream:
        return file.suffix == ".json" and stream.read(64).replace(b" ", b"").startswith(b'{"weft":')


def _target(path: str | Path) -> Path:
    """Return the path with links resolved; its parent folder must exist."""
    try:
        file = Path(os.path.realpath(path))
        if not file.parent.is_dir():
            raise UserError(
                f"the folder {Path(path).parent} does not exist",
                where=str(path),
                hint="make it first",
            )
        file.lstat()
    except FileNotFoundError:
        pass
    except OSError as error:
        raise UserError(f"cannot be written: {error.strerror}", where=str(path)) from None
    except ValueError as error:
        raise UserError(f"cannot be written: {error}", where=repr(path)) from None
    return file


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def looks_like_json(text: str) -> bool:
    """Return True if a text begins as a JSON object or list.

    Outputs of tools begin with ``[`` too: ``[user@host ~]$``, ``[0] #``, ``[1,0]<stdout>:``,
    ``[P2P (Peer-to-Peer)``, ``[2026-11-28 06:45:00]``, ``[4m`` of a colour without its first byte.
    """
    label = r"\d+(?:,\d+)?\]\s*\S|\d+-\d|\d[\d;]*m"
    return re.match(rf"\ufeff?\s*(?:\{{|\[(?!{label})\s*[\[{{\"\]\d-])", text) is not None


def parse_json(text: str, where: str) -> Any:
    """Parse JSON, refusing NaN, infinities, duplicate keys, lone surrogates and deep nesting.

    Raises:
        BadFile: invalid JSON or one of these, with line and column.
    """

    def no_constant(name: str) -> Any:
        raise BadFile(f"{name} is not a valid JSON number", where=where)

    def no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(pairs)
        if len(result) != len(pairs):
            keys = [k for k, _ in pairs]
            twice = next(k for k in keys if keys.count(k) > 1)
            raise BadFile(f"the key {twice!r} occurs twice in one object", where=where)
        return result

    def finite(digits: str) -> float:
        value = float(digits)
        if math.isinf(value):
            raise BadFile(f"the number {digits[:40]} is too large", where=where)
        return value

    try:
        data = json.loads(
            text, parse_constant=no_constant, parse_float=finite, object_pairs_hook=no_duplicates
        )
    except json.JSONDecodeError as error:
        place = f"{where}:{error.lineno}:{error.colno}"
        raise BadFile(f"not JSON: {error.msg}", where=place) from None
    except RecursionError:
        raise BadFile("nested too deeply", where=where) from None
    except ValueError:  # the remaining case: an integer with more digits than Python converts
        limit = sys.get_int_max_str_digits()
        raise BadFile(f"an integer of more than {limit} digits", where=where) from None
    _check_characters(text, where)
    return data


def _check_characters(text: str, where: str) -> None:
    """Raise BadFile at a lone surrogate in valid JSON; text that holds one cannot be encoded."""
    if text.isascii() and "\\u" not in text:  # fast path
        return
    if not _SURROGATE.search(text):
        return
    for match in _ESCAPE.finditer(text):
        if match["lone"]:
            line = text.count("\n", 0, match.start()) + 1
            column = match.start() - text.rfind("\n", 0, match.start())
            raise BadFile(
                "a lone surrogate is not a valid character",
                where=f"{where}:{line}:{column}",
                hint="characters beyond \\uffff are pairs: \\ud83d\\ude00",
            )


def parse_toml(text: str, where: str, *, exact: bool = False) -> dict[str, Any]:
    """Parse TOML; with ``exact`` decimals stay the texts that they are.

    Raises:
        BadFile: invalid TOML, an integer beyond 64 bits, or nested too deeply.
    """
    import tomllib  # a tenth of the time of `weft --help`, and few verbs read such a file

    text = text.removeprefix(_BOM).replace("\r\n", "\n")
    try:
        data = tomllib.loads(text, parse_float=str if exact else float)
    except RecursionError:
        raise BadFile("nested too deeply", where=where) from None
    except tomllib.TOMLDecodeError as error:
        raise BadFile(f"not TOML: {error}", where=where) from None
    except ValueError:  # an integer with more digits than Python converts
        raise BadFile("an integer beyond 64 bits", where=where) from None
    rest: list[Any] = [data]
    while rest:
        value = rest.pop()
        if isinstance(value, dict | list):
            rest += value.values() if isinstance(value, dict) else value
        elif isinstance(value, int) and value.bit_length() > 64:  # of hexadecimal digits
            raise BadFile("an integer beyond 64 bits", where=where)
    return data


def kind_of(data: Any, where: str) -> str:
    """Return the noun of a JSON object, the value of its ``"weft"`` key; check its schema."""
    if not isinstance(data, dict) or not isinstance(data.get("weft"), str):
        raise BadFile('not a weft file: no "weft" key', where=where)
    if data.get("schema") != SCHEMA:
        raise BadFile(
            f"schema {data.get('schema')!r} is not known",
            where=where,
            hint=f"this version reads schema {SCHEMA}",
        )
    return str(data["weft"])


def require_kind(data: Any, noun: str, where: str) -> None:
    """Check that a JSON object holds the given noun.

    Raises:
        BadFile: it holds another noun, or is not a file of weft.
    """
    found = kind_of(data, where)
    if found != noun:
        raise BadFile(f"{an(noun)} is expected, not {an(found)}", where=where)


class Fields:
    """Strict access to the keys of one JSON object: typed values, no unknown keys."""

    def __init__(self, data: Any, where: str) -> None:
        if not isinstance(data, dict):
            raise BadFile(f"an object is expected, not {_name(data)}", where=where)
        self._data: Mapping[str, Any] = data
        self._where = where
        self._known: list[str] = []

    def get(self, key: str, kind: type | tuple[type, ...], *default: Any) -> Any:
        """Return the value of a key, checked to be of a type; required if no default is given."""
        self._known.append(key)
        if key not in self._data:
            if default:
                return default[0]
            raise BadFile(f"the key {key!r} is missing", where=self._where, hint=self._slip(key))
        value = self._data[key]
        kinds = kind if isinstance(kind, tuple) else (kind,)
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            wanted = " or ".join("null" if k is type(None) else k.__name__ for k in kinds)
            raise BadFile(f"{key!r} must be {wanted}, not {_name(value)}", where=self._where)
        return one_line(value) if key == "name" and isinstance(value, str) else value

    def _slip(self, key: str) -> str:
        """Return a hint naming an unread key that is similar to the missing one."""
        import difflib  # 3 ms: only where a name is wrong

        others = [k for k in self._data if k not in self._known]
        near = difflib.get_close_matches(key, others, n=1, cutoff=0.75)
        return f"{near[0]!r} is there instead" if near else ""

    def integers(self, key: str, *default: Any) -> list[int]:
        """Return a list of integers."""
        values = self.get(key, list, *default)
        if not only(values, int):
            raise BadFile(f"{key!r} must hold integers only", where=self._where)
        if values and not -LARGEST_NUMBER <= min(values) <= max(values) <= LARGEST_NUMBER:
            raise BadFile(f"{key!r} holds a number that is too large", where=self._where)
        return list(values)

    def finish(self, ignore: Iterable[str] = ("weft", "schema")) -> None:
        """Raise BadFile if the object has keys that were never read."""
        for key in self._data:
            if key not in self._known and key not in ignore:
                raise BadFile(
                    f"unknown key {key!r}", where=self._where, hint=suggest(key, self._known)
                )


def only(values: Iterable[Any], *kinds: type) -> bool:
    """Return True if all values have exactly one of some types; a bool does not count as an int.

    Columns are long, so the types are collected in C and not by a Python loop.
    """
    return set(map(type, values)) <= set(kinds)


def _name(value: Any) -> str:
    return {dict: "an object", list: "a list", str: "a string", type(None): "null"}.get(
        type(value), f"the {type(value).__name__} {value!r}"[:60]
    )
