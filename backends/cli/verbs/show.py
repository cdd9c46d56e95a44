"""``weft show``: print any file as text, or draw it as a file for another program."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.dsl.base.errors import BadFile, UserError
from weft.dsl.base.files import parse_json, read_text, write_text
from weft.dsl.base.tables import count, microseconds, number
from weft.dsl.base.units import format_bytes

from ..console import Console
from ..exit_codes import Exit
from ..flags.files import ShowFlags
from ..machines import is_library
from ..noun import Drawn, Kind, Subject
from ..nouns import convergence_of, shown_schedule
from ..outputs import check_file_output
from ..streams import is_stream
from ..subjects import read_subject

if TYPE_CHECKING:
    from ...ranks.recording import Call
    from ...report.html.page import Make
    from ...report.html.schedule_page import Shown


def run(args: ShowFlags, console: Console) -> int:
    """Print it, or write it."""
    for name, flag, formats in _ONLY:
        if getattr(args, name) is not None and args.format not in formats:
            raise UserError(
                f"{flag} says nothing about {args.format}",
                where=args.file,
                hint=f"--format {formats[0]}",
            )
    return FORMATS[args.format](args, console)


def _text(args: ShowFlags, console: Console) -> int:
    subject = read_subject(args.file, also=(Kind.STREAM,))
    timed = ""
    if args.size is not None or args.topology is not None:
        timed = subject.noun.run_text(subject, args)
    text, data = subject.noun.show(subject)
    text = f"{text}\n\n{timed}" if timed else text
    console.result(text, {"status": "ok", "kind": subject.kind, **data})
    return Exit.DONE


# --- drawings -------------------------------------------------------------------------------------


def _draw(args: ShowFlags, console: Console) -> int:
    """Make the file, check it, write it."""
    check_file_output(args, console)
    subject = read_subject(args.file)
    if args.measured is not None and args.format != "perfetto":
        raise UserError(
            "a recording is drawn in traces only", where="--measured", hint="--format perfetto"
        )
    text, facts = _DRAWERS[args.format](subject, args)
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


def _perfetto(subject: Subject, args: ShowFlags) -> Drawn:
    """Return a trace of the simulation, and of a measurement beside it.

    Raises:
        UserError: nothing that takes time.
    """
    from ...report.trace import Trace
    from ...report.trace_check import require_sound
    from ...report.trace_runs import add_measured

    trace = Trace()
    call = _measured(args)
    group = "predicted: " if call else ""
    if call:
        args = replace(args, size=call.bytes)
    about, us, size = subject.noun.trace(trace, subject, args, group)
    if call:
        add_measured(trace, call)
        about += f", and {count(len(call.ranks), 'rank')} measured"
    trace.about = {"times": f"simulated by weft, {format_bytes(size)}", "file": subject.where}
    text = trace.text()
    require_sound(text)
    about = f"{about}, {microseconds(us)} µs at {format_bytes(size)}"
    return text, {"about": about, "bytes": size, "us": number(us)}


_DRAWERS: dict[str, Callable[[Subject, ShowFlags], Drawn]] = {
    "perfetto": _perfetto,
    "dot": lambda subject, args: subject.noun.dot(subject, args),
    "svg": lambda subject, args: subject.noun.svg(subject, args),
}


def _measured(args: ShowFlags) -> Call | None:
    """Return the recorded call of the requested size, or of the largest.

    Raises:
        UserError: none was recorded.
    """
    if args.measured is None:
        return None
    from ...ranks.recording import load

    recording = load(parse_json(read_text(args.measured), args.measured), args.measured)
    return recording.call_of(args.size, args.measured)


# --- pages ----------------------------------------------------------------------------------------


def _html(args: ShowFlags, console: Console) -> int:
    """Make the page and write it: to ``-o``, or to stdout."""
    from ...report.html.page import fitted

    check_file_output(args, console)
    page, text = fitted(_page(args))
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


def _page(args: ShowFlags) -> Make:
    """Return the function that makes the page of the input with a given number of bars."""
    if args.other is not None:
        return _pair(args.other, args)
    if Path(args.file).is_dir() and not is_stream(args.file) and not is_library(args.file):
        return _folder(args)
    subject = read_subject(args.file, also=(Kind.STREAM, Kind.RESULT))
    return subject.noun.page(subject, args)


def _pair(other_file: str, args: ShowFlags) -> Make:
    from ...report.html.schedule_page import pair_page

    if args.log is not None:
        raise UserError("--log is of one search", where=args.log)
    one, other = (shown_schedule(read_subject(file), args) for file in (args.file, other_file))
    return lambda most: pair_page(one, other, most)


def _folder(args: ShowFlags) -> Make:
    """Return the page function of a frontier: all schedules of a folder."""
    from ...report.html.schedule_page import frontier_page

    files = sorted(Path(args.file).glob("*.json"))
    subjects = [read_subject(str(file)) for file in files]
    if not subjects or any(one.kind is not Kind.SCHEDULE for one in subjects):
        raise BadFile(
            "not a folder of schedules",
            where=args.file,
            hint="weft synth --objective frontier -o FOLDER writes one",
        )
    first = shown_schedule(subjects[0], args)
    shown = [first, *(shown_schedule(one, args, _same(first, one)) for one in subjects[1:])]
    if len({(s.schedule.topology.digest(), str(s.schedule.collective.kind)) for s in shown}) > 1:
        raise BadFile("schedules of several problems", where=args.file)
    shown.sort(key=lambda one: (one.schedule.steps, one.name))
    convergence = convergence_of(args, first)
    return lambda most: frontier_page(Path(args.file).name, shown, convergence, most)


def _same(first: Shown, subject: Subject) -> Any:
    """Return the bound of the first, common to all: they differ in their chunks only.

    Bounds name numbers of chunks, so that of another number is computed anew.
    """
    same = subject.schedule().collective == first.schedule.collective
    return first.bound if same else None


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
