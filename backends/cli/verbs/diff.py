"""``weft diff``: what is different between two files of one kind."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.dsl.base.errors import UserError, an
from weft.dsl.base.units import SizeRange, parse_size_range

from ..console import Console
from ..drawing import UNSET
from ..exit_codes import Exit
from ..inputs import read_topology, size_flag
from ..machines import on_machine
from ..subjects import Kind, Subject, is_library, read_subject

if TYPE_CHECKING:
    from weft.dsl.nouns.program import Program
    from weft.dsl.nouns.topology import Topology

    from ...report.difference import Sheet

EXAMPLES = """examples:
  weft diff old.json new.json
  weft diff ring.xml tree.xml -t dgx1 --size 1KiB:64MiB
  weft diff dgx1 measured.json --json
  weft diff monday/ tuesday/"""

SIZES = "1KiB:1GiB"
COARSE = 4
"""Of the usual sizes every so many-th is simulated."""

MOST_SERVED = 1_000_000
"""Transfers times segments of a schedule that is simulated."""

WIDEST = 30
"""Letters of a column's name; longer ones are called A and B."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "before", metavar="A", help="a file, a folder of a library, a catalogue name, or -"
    )
    parser.add_argument("after", metavar="B", help="another one of the same kind")
    parser.add_argument(
        "-t",
        "--topology",
        metavar="TOPO",
        help="simulate both on this machine (programs and algorithms are only timed on one)",
    )
    parser.add_argument("--size", **size_flag())


def run(args: argparse.Namespace, console: Console) -> int:
    """Compare them; the exit code says whether they are equal."""
    from ...report.difference import differences, differences_json, differences_text

    if args.before == args.after == "-":
        raise UserError("one of the two can come from stdin", where="-")
    before, after = (_thing(text) for text in (args.before, args.after))
    if before.kind != after.kind:
        raise UserError(
            f"{an(before.kind)} and {an(after.kind)} cannot be compared",
            where=args.after,
            hint="name two files of one kind",
        )
    found = differences(*(one.sheets(args, console) for one in (before, after)))
    names = _names(args.before, args.after)
    text = differences_text(found, names) or f"equal: {before.kind}"
    console.result(
        text,
        {
            "status": "different" if found else "equal",
            "kind": before.kind,
            "before": args.before,
            "after": args.after,
            "sheets": differences_json(found),
        },
    )
    return Exit.NO if found else Exit.DONE


def _names(*texts: str) -> tuple[str, str]:
    """What the two columns are called: short where that tells them apart."""
    short = [Path(text).name if Path(text).exists() else text for text in texts]
    if short[0] == short[1] or max(map(len, short)) > WIDEST:
        return "A", "B"
    return short[0], short[1]


@dataclass(frozen=True, slots=True)
class _Thing:
    """What one of the two is, and how it is described."""

    kind: str
    sheets: Callable[[argparse.Namespace, Console], dict[str, Sheet]]


def _thing(text: str) -> _Thing:
    """What a name stands for.

    Raises:
        UserError: nothing that can be compared.
    """
    from weft.dsl.nouns.library import MANIFEST

    if is_library(text) or Path(text).name == MANIFEST:
        return _Thing("library", partial(_library, text))
    data = _results(text)
    if data is not None:
        return _Thing("result", lambda *_: _of_results(data, text))
    subject = read_subject(text)
    return _Thing(str(subject.kind), partial(_of_subject, subject))


def _results(text: str) -> dict[str, Any] | None:
    """What ``--json`` of a verb printed, if that is in the file."""
    if text == "-" or not text.endswith(".json") or not Path(text).is_file():
        return None
    from weft.dsl.base.files import parse_json, read_text

    data = parse_json(read_text(text), text)
    told = isinstance(data, dict) and "weft" not in data and isinstance(data.get("sizes"), list)
    return data if told and {"schema", "status"} <= data.keys() else None


def _of_results(data: dict[str, Any], where: str) -> dict[str, Sheet]:
    from weft.dsl.base.errors import BadFile

    from ...report.sheets import results_sheets

    try:
        return results_sheets(data)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise BadFile(
            "not what a verb printed with --json: sizes have bytes and us", where=where
        ) from None


def _library(text: str, *_: object) -> dict[str, Sheet]:
    from weft.dsl.nouns.library import read

    from ...report.sheets import library_sheets

    return library_sheets(read(text))


def _of_subject(subject: Subject, args: argparse.Namespace, console: Console) -> dict[str, Sheet]:
    from ...report import sheets

    match subject.kind:
        case Kind.SCHEDULE:
            return _schedule(subject, args, console)
        case Kind.TOPOLOGY:
            return sheets.topology_sheets(subject.topology())
        case Kind.PROGRAM:
            return {**_timed(subject, args), **sheets.program_sheets(subject.program())}
        case Kind.ALGORITHM:
            return {**_timed(subject, args), **sheets.algorithm_sheets(subject.algorithm())}
        case Kind.XML:
            from ...formats.msccl.read import read_msccl_xml

            algo = read_msccl_xml(subject.text, subject.where)
            return {**_timed(subject, args), **sheets.xml_sheets(algo)}
        case Kind.SKETCH:
            return sheets.text_sheets(_canonical(subject))
        case _:
            from .show import as_text

            return sheets.text_sheets(as_text(subject)[0])


def _canonical(subject: Subject) -> str:
    """A sketch as ``weft sketch fmt`` writes it, so that layout does not matter."""
    from weft.dsl.language.format import format
    from weft.dsl.language.parse import parse

    return format(parse(subject.text, subject.where))


def _sizes(args: argparse.Namespace) -> tuple[int, ...]:
    size: SizeRange | None = args.size
    return size.powers() if size else parse_size_range(SIZES).powers()[::COARSE]


def _schedule(subject: Subject, args: argparse.Namespace, console: Console) -> dict[str, Sheet]:
    from weft.synth.judge.verify import verify
    from weft.synth.time.schedule_time import simulate

    from ...report.sheets import schedule_sheets, times

    schedule = subject.schedule()
    timed = on_machine(schedule, args.topology) if args.topology else schedule
    sheets = schedule_sheets(schedule)
    wrong = not verify(schedule).ok
    large = len(schedule) * schedule.segments > MOST_SERVED
    if wrong or large:
        why = "it is wrong; `weft check` says why" if wrong else "it has too many transfers"
        console.warn(f"{subject.where}: not simulated: {why}")
        return sheets
    time = {**times(_sizes(args), lambda size: simulate(timed, size).time_us)}
    return {"facts": sheets.pop("facts"), **time, **sheets}


def _timed(subject: Subject, args: argparse.Namespace) -> dict[str, Sheet]:
    """The times of a program, where a machine is known."""
    machine = read_topology(args.topology) if args.topology else subject.machine()
    if machine is None:
        return {}
    from weft.synth.time.programs import simulate_program

    from ...report.sheets import times
    from .simulate import PROGRAMS

    program, _ = PROGRAMS[subject.kind](subject, argparse.Namespace(**{**UNSET, **vars(args)}))
    return {**times(_sizes(args), partial(_program_us, program, machine, simulate_program))}


def _program_us(program: Program, machine: Topology, simulate: Any, size: int) -> float:
    us: float = simulate(program, machine, size).time_us
    return us
