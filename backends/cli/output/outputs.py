"""Checks of outputs before the work begins: conflicts over stdout, files in the way."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Protocol

from weft.dsl.base.errors import UserError
from weft.dsl.base.files import check_replaceable

from .console import Console

if TYPE_CHECKING:
    from ..flags.search import SynthFlags
    from ..flags.shared import Flags


def require_inputs_kept(flags: Flags) -> None:
    """Check that no file which a verb writes is one that any of its flags reads.

    Raises:
        UserError: it is, with ``-f`` too.
    """
    for name, output in flags.texts(written=True):
        if not os.path.isfile(output):
            continue
        for _, text in flags.texts(written=False):
            for path in _files_in(text):
                if os.path.samefile(path, output):
                    raise UserError(
                        "the output is the input",
                        where=output,
                        hint=f"name another file with {name}",
                    )


def _files_in(text: str) -> Iterator[str]:
    """Yield the files that a text names, before or without options.

    Such texts are ``a.txt:nodes=2``, ``a.txt*3+b.txt*2`` and ``ring.py:ring{ranks=4}``.
    """
    for term in dict.fromkeys((text, *text.split("+"))):
        ends = (at for at, character in enumerate(term) if character in ":*{[")
        yield from filter(os.path.isfile, (term[:end] for end in (len(term), *ends)))


class OutputFlags(Protocol):
    """Flags of a verb that writes a file or a folder."""

    @property
    def output(self) -> str | None:
        """Path of ``-o``."""

    @property
    def force(self) -> bool:
        """True if existing files are replaced."""


def check_file_output(args: OutputFlags, console: Console) -> None:
    """Check ``args.output`` of a verb that writes one file.

    Raises:
        UserError: it exists without ``-f``, is a folder, has none, or is stdout with ``--json``.
    """
    if args.output is None:
        return
    if args.output == "-":
        if console.json:
            raise UserError("--json and -o - both write to stdout", hint="name a file with -o")
        return
    check_file(args.output, force=args.force)


def check_prefix_output(args: OutputFlags, console: Console) -> None:
    """Check ``args.output`` of a verb that writes several files with one prefix.

    Raises:
        UserError: its folder is none or read-only, or it is stdout with ``--json``.
    """
    if args.output in (None, "-"):
        check_file_output(args, console)
        return
    assert args.output is not None
    require_writable(Path(args.output + ".0.et"), args.output)


def check_file(output: str, *, force: bool, what: str = "output") -> Path:
    """Return the path of a file that will be written.

    Raises:
        UserError: it exists without ``force``, is a folder, or has none.
    """
    path = Path(output)
    require_writable(path, output)
    if path.is_dir():
        raise UserError(f"the {what} is a directory", where=output, hint="name a file in it")
    if path.is_file() and not force:
        raise UserError("the file exists", where=output, hint="-f overwrites it")
    return path


def check_log(args: SynthFlags) -> None:
    """Check ``args.log`` of a verb that writes a log.

    Raises:
        UserError: it is stdout, exists without ``-f``, is a folder or in none that exists.
    """
    if not args.log or args.log == "-":
        raise UserError("the log cannot go to stdout, which has the answer", hint="--log FILE")
    path = Path(args.log)
    if args.output not in (None, "-") and os.path.realpath(path) == os.path.realpath(args.output):
        raise UserError(
            "the log and the output are the same file",
            where=args.log,
            hint="name another file for --log",
        )
    check_file(args.log, force=args.force, what="log")


def check_folder_output(args: OutputFlags) -> None:
    """Check ``args.output`` of a verb that writes a folder.

    Raises:
        UserError: it is stdout, a file, named as one, holds something without ``-f``, or files of
            others even with it.
    """
    if args.output is None:
        return
    if args.output == "-":
        raise UserError(
            "a frontier is several files, stdout takes only one",
            hint="use -o FOLDER, or --objective latency|bandwidth|time",
        )
    path = Path(args.output)
    if path.suffix in (".json", ".xml") and not path.is_dir():
        raise UserError(
            "expected a folder for the frontier, got the name of a file",
            where=args.output,
            hint="name a folder, or use --objective latency|bandwidth|time",
        )
    check_folder(
        args.output,
        "the frontier",
        "name a folder, or use --objective latency|bandwidth|time",
        force=args.force,
    )


def check_folder(output: str, what: str, hint: str, *, force: bool) -> None:
    """Check a path at which a folder of ``what`` will be written.

    Raises:
        UserError: it is a file, holds something without ``force``, or files of others even with it.
    """
    path = Path(output)
    require_writable(path, output)
    if not path.exists():
        return
    if not path.is_dir():
        raise UserError(f"expected a folder for {what}, got a file", where=output, hint=hint)
    check_replaceable(path, output, force=force)


def require_writable(path: Path, text: str) -> None:
    """Check before a long search that a file or folder can be written at a path.

    Raises:
        UserError: its folder is none or read-only, or it is a mount point or the current folder.
    """
    try:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            path.stat()  # tells a loop of links, which `exists` takes for absent
        there, parent = path.exists(), path.absolute().parent
        if not there and not parent.is_dir():
            if parent.exists():
                raise UserError(
                    f"{path.parent} is a file, not a folder", where=text, hint="name another folder"
                )
            raise UserError(
                f"the folder {path.parent} does not exist", where=text, hint="create it first"
            )
        real = Path(os.path.realpath(path))
        if real.is_dir() and (real.is_mount() or real == Path.cwd()):
            what = "a mount point" if real.is_mount() else "the current folder"
            raise UserError(f"cannot replace {what}", where=repr(text), hint="name a folder in it")
        if not there or path.is_file() or path.is_dir():
            TemporaryFile(dir=Path(os.path.realpath(path)).parent).close()
    except OSError as error:
        raise UserError(f"cannot be written: {error.strerror}", where=text) from None
    except ValueError as error:  # a NUL in the path
        raise UserError(f"cannot be written: {error}", where=repr(text)) from None
