"""``weft show --format html``: which page a file gets, and where it goes."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.dsl.base.errors import BadFile, UserError
from weft.dsl.base.files import parse_json, read_text, write_text
from weft.dsl.base.units import format_bytes

from .console import Console
from .exit_codes import Exit
from .judging import require_good
from .machines import on_machine
from .outputs import check_file_output
from .streams import is_stream
from .subjects import Kind, Subject, is_library, read_subject

if TYPE_CHECKING:
    from weft.dsl.nouns.program import Program
    from weft.dsl.nouns.topology import Topology

    from ..report.html import Make
    from ..report.html.of_schedule import Shown
    from ..report.html.sheet import Facts

MOST_RANKS = 512
"""Of larger schedules a page would show nothing that a person can make out."""


def show(args: argparse.Namespace, console: Console) -> int:
    """Make the page and write it: to ``-o``, or to stdout."""
    from ..report.html import fitted

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


def _page(args: argparse.Namespace) -> Make:
    """What is read, and how its page is made with so many bars."""
    if args.other is not None:
        return _pair(args)
    if is_stream(args.file):
        raise UserError(
            "a stream of transfers is too large for a page",
            where=args.file,
            hint="`weft show` prints its header",
        )
    if Path(args.file).is_dir() and not is_library(args.file):
        return _folder(args)
    if (results := _results(args.file)) is not None:
        return lambda _: results
    subject = read_subject(args.file)
    return _PAGES.get(subject.kind, _text)(subject, args)


def _results(file: str) -> Facts | None:
    """The page of what a benchmark or a simulation printed, if the file is that."""
    from ..report.html.of_bench import is_results, results_page

    if not file.endswith(".json") or not Path(file).is_file():
        return None
    data = parse_json(read_text(file), file)
    return results_page(data, Path(file).name) if is_results(data) else None


# --- schedules ------------------------------------------------------------------------------------


def _shown(subject: Subject, args: argparse.Namespace, bound: Any = None) -> Shown:
    """A schedule that is right, at the size asked for.

    Raises:
        CheckFailed: it is wrong.
        UserError: it is not a schedule, moves nothing, or is too large.
    """
    from weft.synth.judge.verify import require_valid

    from ..report.html.of_schedule import Shown

    if subject.kind is not Kind.SCHEDULE:
        raise UserError(f"a schedule is needed here; this is: {subject.kind}", where=subject.where)
    schedule = subject.schedule()
    if args.topology:
        schedule = on_machine(schedule, args.topology)
    if schedule.topology.ranks > MOST_RANKS:
        raise UserError(
            f"{schedule.topology.ranks} ranks are more than the {MOST_RANKS} of which a page is "
            "made",
            where=subject.where,
            hint="`weft show` tells of it in a few lines",
        )
    require_valid(schedule)
    name = Path(subject.where).name
    return Shown.of(name, schedule, args.size or None, bound)


def _schedule(subject: Subject, args: argparse.Namespace) -> Make:
    from ..report.html.of_schedule import schedule_page

    shown = _shown(subject, args)
    convergence = _convergence(args, shown)
    return lambda most: schedule_page(shown, convergence, most)


def _pair(args: argparse.Namespace) -> Make:
    from ..report.html.of_schedule import pair_page

    if args.log is not None:
        raise UserError("--log is of one search", where=args.log)
    one, other = (_shown(read_subject(file), args) for file in (args.file, args.other))
    return lambda most: pair_page(one, other, most)


def _folder(args: argparse.Namespace) -> Make:
    """A frontier: every schedule that ``weft synth`` wrote into a folder."""
    from ..report.html.of_schedule import frontier_page

    files = sorted(Path(args.file).glob("*.json"))
    subjects = [read_subject(str(file)) for file in files]
    if not subjects or any(one.kind is not Kind.SCHEDULE for one in subjects):
        raise BadFile(
            "not a folder of schedules",
            where=args.file,
            hint="weft synth --objective frontier -o FOLDER writes one",
        )
    first = _shown(subjects[0], args)
    shown = [first, *(_shown(one, args, _same(first, one)) for one in subjects[1:])]
    if len({(s.schedule.topology.digest(), str(s.schedule.collective.kind)) for s in shown}) > 1:
        raise BadFile("schedules of several problems", where=args.file)
    shown.sort(key=lambda one: (one.schedule.steps, one.name))
    convergence = _convergence(args, first)
    return lambda most: frontier_page(Path(args.file).name, shown, convergence, most)


def _same(first: Shown, subject: Subject) -> Any:
    """The bound of the first, which is that of all: they have different chunks only.

    Bounds name numbers of chunks, so that of another number is computed anew.
    """
    same = subject.schedule().collective == first.schedule.collective
    return first.bound if same else None


def _convergence(args: argparse.Namespace, shown: Shown) -> Facts | None:
    if args.log is None:
        return None
    from ..report.html.convergence import convergence_section

    return convergence_section(read_text(args.log), args.log, shown.schedule)


# --- libraries ------------------------------------------------------------------------------------


def _library(subject: Subject, _: argparse.Namespace) -> Make:
    from ..report.html.of_library import library_page

    library, folder = subject.library(), Path(subject.where).parent
    return lambda most: library_page(library, _finder(folder), folder.resolve().name, most)


def _finder(folder: Path) -> Callable[[str], Any]:
    """Schedules of a library's folder, right ones, each read once."""
    from functools import cache

    from weft.dsl.nouns.schedule import read
    from weft.synth.judge.verify import require_valid

    @cache
    def find(file: str) -> Any:
        if not (folder / file).is_file():
            return None
        schedule = read(folder / file)
        if schedule.topology.ranks > MOST_RANKS:
            return None
        require_valid(schedule)
        return schedule

    return find


# --- programs -------------------------------------------------------------------------------------


def _machine(args: argparse.Namespace, ranks: int) -> Topology | None:
    from .inputs import read_topology

    if not args.topology:
        return None
    topology = read_topology(args.topology)
    if topology.ranks != ranks:
        raise UserError(
            f"the program is for {ranks} ranks, {topology.name} has {topology.ranks}",
            where=args.topology,
        )
    return topology


def _code(subject: Subject, args: argparse.Namespace) -> Make:
    from ..report.html.of_program import ShownProgram, program_page

    program, facts, size = _PROGRAMS[subject.kind](subject)
    machine = _machine(args, len(program.ranks))
    if machine is None and subject.kind is Kind.ALGORITHM:
        machine = subject.machine()
    if args.log is not None:
        raise UserError("--log is of a search, and nobody searched for a program", where=args.log)
    asked = args.size or size
    name = subject.named if subject.kind is Kind.ALGORITHM else Path(subject.where).name
    shown = ShownProgram(name, program, machine, asked, facts, str(subject.kind))
    return lambda most: program_page(shown, most)


Read = tuple["Program", tuple[tuple[str, object], ...], int]

USUAL = 1 << 20


def _of_file(subject: Subject) -> Read:
    from ..check import check_program

    program = subject.program()
    require_good(check_program(program), subject.where)
    return program, (), USUAL


def _of_xml(subject: Subject) -> Read:
    from ..check import check_xml
    from ..formats.msccl.read import program_of, read_msccl_xml
    from ..formats.msccl.read.collective import collective_of
    from ..report.html.page import byte_words

    algo = read_msccl_xml(subject.text, subject.where)
    require_good([f for f in check_xml(algo, None) if f.check != "deadlock"], subject.where)
    low, high = algo.min_bytes, algo.max_bytes
    valid = ""
    if low is not None or high is not None:
        valid = f"{byte_words(low or 0)} to {byte_words(high) if high else 'any'}"
    size = min(max(USUAL, low or 0), high or USUAL)
    remarks = [str(one) for one in algo.remarks[:8]]
    facts = (("valid for sizes", valid), ("remarks", "; ".join(remarks)))
    return program_of(algo, collective_of(algo)), facts, max(1, size)


def _of_algorithm(subject: Subject) -> Read:
    from ..check import check_program
    from ..compile.compile import compile_algorithm

    algorithm = subject.algorithm()
    program = compile_algorithm(algorithm)
    require_good(check_program(program), subject.where)
    return program, (("algorithm", algorithm.name), ("moves", len(algorithm.moves))), USUAL


_PROGRAMS: dict[Kind, Callable[[Subject], Read]] = {
    Kind.PROGRAM: _of_file,
    Kind.XML: _of_xml,
    Kind.ALGORITHM: _of_algorithm,
}


# --- the rest -------------------------------------------------------------------------------------


def _topology(subject: Subject, _: argparse.Namespace) -> Make:
    from ..report import text as report
    from ..report.html.of_text import topology_page

    topology = subject.topology()
    page = topology_page(topology, report.topology_text(topology), subject.named)
    return lambda _: page


def _text(subject: Subject, _: argparse.Namespace) -> Make:
    from ..report.html.of_text import text_page
    from .verbs.show import as_text

    text = as_text(subject)[0]
    page = text_page(str(subject.kind), Path(subject.named).name, text, subject.named)
    return lambda _: page


_PAGES: dict[Kind, Callable[[Subject, argparse.Namespace], Make]] = {
    Kind.SCHEDULE: _schedule,
    Kind.PROGRAM: _code,
    Kind.XML: _code,
    Kind.ALGORITHM: _code,
    Kind.TOPOLOGY: _topology,
    Kind.LIBRARY: _library,
}
