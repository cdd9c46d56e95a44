"""``weft show``: print any file as text, or draw it as a file for another program."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from weft.dsl.base.errors import UserError, WeftError
from weft.dsl.base.files import write_text
from weft.dsl.base.tables import count
from weft.dsl.base.units import format_binary, format_bytes

from ...report.html.page import fitted
from ...report.report import shown
from ...report.sizes import TEXT
from ...sweep.names import MANIFEST as SWEEP
from ..flags.files import ShowFlags
from ..nouns.noun import MODEL_FLAGS, FileKind, refuse_flags, refuse_model
from ..nouns.program_noun import ProgramNoun
from ..nouns.subjects import is_plain_folder, read_subject
from ..output.console import Console, Exit
from ..output.outputs import check_file_output


def run(args: ShowFlags, console: Console) -> int:
    for name, flag, formats in _ONLY:
        if args.given((name,)) and args.format not in formats:
            raise UserError(
                f"{flag} says nothing about {args.format}",
                where=args.file,
                hint=f"--format {formats[0]}",
            )
    return FORMATS[args.format](args, console)


def _text(args: ShowFlags, console: Console) -> int:
    _require_text_file(args, console)
    if is_plain_folder(args.file):
        if given := args.given(("size", "topology", *MODEL_FLAGS)):
            raise UserError(f"--{given[0]} is of one file", where=args.file)
        text, data = folder_text(Path(args.file))
        return _told(args, console, text, {"status": "ok", "kind": "folder", **data})
    subject = read_subject(args.file, also=(FileKind.STREAM, FileKind.RESULT))
    timed = ""
    if not isinstance(subject.noun, ProgramNoun):
        refuse_model(args, subject)
    if args.size is None and args.topology is None:
        refuse_flags(args, MODEL_FLAGS, "is of times, which --size or -t asks for", subject)
    else:
        from ..nouns.timelines import timed_text  # simulators

        timed = timed_text(subject, args)
    text, data = subject.noun.show(subject)
    text = f"{text}\n\n{timed}" if timed else text
    if console.verbose and (more := subject.noun.details(subject)):
        console.detail(more)
    return _told(args, console, text, {"status": "ok", "kind": subject.kind, **data})


def _require_text_file(args: ShowFlags, console: Console) -> None:
    """Refuse a file whose name is that of a drawing, and one that cannot be written."""
    name = args.output or "-"
    drawn = name.rpartition(".")[2]
    if drawn in FORMATS and drawn != "text":
        raise UserError(
            f"expected a name for text, got .{drawn}", where=name, hint=f"--format {drawn}"
        )
    if name != "-":
        check_file_output(args, console)


def _told(args: ShowFlags, console: Console, text: str, data: dict[str, Any]) -> int:
    if args.output in (None, "-"):
        console.result(text, data)
    else:
        write_text(args.output, f"{text}\n", force=args.force)
        console.result("", {**data, "file": args.output})
        console.say("Wrote", args.output)
    return Exit.DONE


# --- drawings -------------------------------------------------------------------------------------


def _draw(args: ShowFlags, console: Console) -> int:
    check_file_output(args, console)
    subject = read_subject(args.file)
    if not isinstance(subject.noun, ProgramNoun):
        refuse_model(args, subject)
    if args.measured is not None and args.format != "perfetto":
        raise UserError(
            "a recording is drawn in traces only", where="--measured", hint="--format perfetto"
        )
    from ..nouns.drawings import DRAWINGS  # simulators and charts

    text, facts = DRAWINGS[args.format](subject, args)
    write_text(args.output, text, force=args.force)
    if args.output != "-":
        console.say("Wrote", f"{args.output}: {facts['about']}")
        data = {
            "status": "ok",
            "kind": subject.kind,
            "format": args.format,
            "file": args.output,
            **facts,
        }
        console.result("", data)
    return Exit.DONE


# --- pages ----------------------------------------------------------------------------------------


def _html(args: ShowFlags, console: Console) -> int:
    check_file_output(args, console)
    from ..nouns.pages import page_of  # all pages, and what they time and check

    page, text = fitted(page_of(args))
    size = len(text.encode())
    if args.output in (None, "-") and not console.json:
        write_text("-", text)
        return Exit.DONE
    about = f"{page['kind']}, {page['title']}"
    if args.output not in (None, "-"):
        write_text(args.output, text, force=args.force)
        console.say("Wrote", f"{args.output}: {about}, {format_bytes(size)}")
    console.result(
        "",
        {
            "status": "ok",
            "format": "html",
            "file": args.output,
            "about": about,
            "bytes": size,
        },
    )
    return Exit.DONE


_ONLY = (
    ("other", "a second file", ("html",)),
    ("log", "--log", ("html",)),
    ("measured", "--measured", ("perfetto",)),
)
"""Flags that only some output formats use."""

FORMATS: dict[str, Callable[[ShowFlags, Console], int]] = {
    "text": _text,
    "perfetto": _draw,
    "dot": _draw,
    "svg": _draw,
    "html": _html,
}
"""Output formats of ``show``; each one's modules are loaded when it is requested."""


def folder_files(path: Path) -> tuple[list[dict[str, Any]], int]:
    """Return the files of a folder, and how many more there are.

    Raises:
        UserError: it cannot be read.
    """
    try:
        names = sorted(path.iterdir(), key=lambda one: (one.is_dir(), one.name))
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror}", where=str(path)) from None
    shown = [one for one in names if not one.name.startswith(".")]
    return [_line(one) for one in shown[: TEXT.folder_files]], len(shown) - min(
        len(shown), TEXT.folder_files
    )


def _line(path: Path) -> dict[str, Any]:
    """Return name, kind (None: none of weft's) and description of a file."""
    if path.is_dir():
        kind = "library" if (path / "library.json").is_file() else "folder"
        about = count(sum(1 for _ in path.iterdir()), "file")
        return {"name": f"{path.name}/", "kind": kind, "about": about}
    try:
        size = path.stat().st_size
        if size > TEXT.folder_bytes:
            about = f"{format_binary(size)}: weft show {path} reads it"
            return {"name": path.name, "kind": None, "about": about}
        subject = read_subject(str(path))
        text = subject.noun.show(subject)[0]
        about = " ".join(next(iter(text.splitlines()), "").split())
        about = about.removeprefix(subject.kind).strip() or about
        return {
            "name": path.name,
            "kind": subject.kind or None,
            "about": about[: TEXT.folder_letters],
        }
    except (WeftError, OSError):
        return {"name": path.name, "kind": None, "about": ""}


def folder_text(path: Path) -> tuple[str, dict[str, Any]]:
    """Return a folder as text, and its facts for ``--json``."""
    found, more = folder_files(path)
    head = f"{path}: {count(len(found) + more, 'file')}"
    if (path / SWEEP).is_file():
        head += f", of a sweep: weft sweep -o {path} goes on with it"
    if found:
        head += "\n\n" + shown(found, "name:name", "kind:kind", "what it is:about")
    head += f"\n… and {count(more, 'more file')}" if more else ""
    return head, {"files": found, "more": more}
