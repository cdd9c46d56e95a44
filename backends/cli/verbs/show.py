"""``weft show``: look at anything, as text, or as a file for another program."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from weft.dsl.base.errors import UserError

from ..console import Console
from ..drawing import add_drawing, draw, timed_text
from ..exit_codes import Exit
from ..plans import view_plan
from ..scripts import view_script
from ..streams import is_stream, view_stream
from ..subjects import Kind, Subject, read_subject

EXAMPLES = """examples:
  weft show allgather.json
  weft show dgx1
  weft show algo.xml
  weft show allgather.json --format perfetto --size 1MiB -o trace.json"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "file",
        metavar="FILE",
        help="a file, a catalogue name, "
        "the folder of a library or a stream, of schedules (html), "
        "or -",
    )
    parser.add_argument(
        "other", metavar="FILE2", nargs="?", help="a second schedule, beside the first (html)"
    )
    parser.add_argument("--format", choices=tuple(FORMATS), default="text", help="default: text")
    add_drawing(parser)


def run(args: argparse.Namespace, console: Console) -> int:
    """Print it, or write it."""
    for name, flag, formats in _ONLY:
        if getattr(args, name) is not None and args.format not in formats:
            raise UserError(
                f"{flag} says nothing about {args.format}",
                where=args.file,
                hint=f"--format {formats[0]}",
            )
    return FORMATS[args.format](args, console)


def _html(args: argparse.Namespace, console: Console) -> int:
    from ..show_html import show

    return show(args, console)


def _text(args: argparse.Namespace, console: Console) -> int:
    if is_stream(args.file):
        text, data = view_stream(args.file)
        console.result(text, {"status": "ok", "kind": "stream", **data})
        return Exit.DONE
    subject = read_subject(args.file)
    timed = timed_text(subject, args)
    text, data = as_text(subject)
    text = f"{text}\n\n{timed}" if timed else text
    console.result(text, {"status": "ok", "kind": str(subject.kind), **data})
    return Exit.DONE


def as_text(subject: Subject) -> tuple[str, dict[str, Any]]:
    """As text, and what a program wants to know of it."""
    from ...report import text as report

    if subject.kind is Kind.SCHEDULE:
        schedule = subject.schedule()
        collective = schedule.collective
        return report.schedule_text(schedule), {
            "topology": schedule.topology.name,
            "collective": collective.name or str(collective.kind),
            "ranks": collective.ranks,
            "steps": schedule.steps,
            "rounds": sum(schedule.rounds),
            "chunks": collective.factor,
            "segments": schedule.segments,
            "transfers": len(schedule),
            "provenance": dict(schedule.provenance),
        }
    if subject.kind is Kind.TOPOLOGY:
        from ..machines import facts_of

        topology = subject.topology()
        return report.topology_text(topology), facts_of(topology)
    if subject.kind is Kind.COLLECTIVE:
        collective = subject.collective()
        return report.collective_text(collective), {
            "collective": collective.name or str(collective.kind),
            "ranks": collective.ranks,
            "chunks": collective.chunks,
        }
    if subject.kind in (Kind.ALGORITHM, Kind.PROGRAM):
        return _code(subject)
    if subject.kind is Kind.SKETCH:
        return subject.text.rstrip("\n"), {"text": subject.text}
    if subject.kind is Kind.PLAN:
        return view_plan(subject)
    if subject.kind is Kind.SCRIPT:
        return view_script(subject)
    if subject.kind is Kind.LIBRARY:
        from ..libraries import library_facts, library_text

        library = subject.library()
        return library_text(library), library_facts(library)
    return _xml(subject)


def _code(subject: Subject) -> tuple[str, dict[str, Any]]:
    from ...report.code import algorithm_text, program_text

    if subject.kind is Kind.ALGORITHM:
        algorithm = subject.algorithm()
        text, collective = algorithm_text(algorithm), algorithm.collective
        facts = {"name": algorithm.name, "moves": len(algorithm.moves)}
    else:
        program = subject.program()
        text, collective = program_text(program), program.collective
        facts = {"name": program.name, "instructions": program.instructions}
    name = collective.name or str(collective.kind)
    return text, {**facts, "collective": name, "ranks": collective.ranks}


def _xml(subject: Subject) -> tuple[str, dict[str, Any]]:
    from ...formats.msccl.read import read_msccl_xml
    from ...report.code import xml_text

    algo = read_msccl_xml(subject.text, subject.where)
    return xml_text(algo), {
        "name": algo.name,
        "collective": algo.coll,
        "ranks": algo.ngpus,
    }


_ONLY = (
    ("other", "a second file", ("html",)),
    ("log", "--log", ("html",)),
    ("measured", "--measured", ("perfetto",)),
)
"""What only some formats have a use for."""

FORMATS: dict[str, Callable[[argparse.Namespace, Console], int]] = {
    "text": _text,
    "perfetto": draw,
    "dot": draw,
    "svg": draw,
    "html": _html,
}
"""What can be made of a file; each loads what it needs when it is asked for."""
