"""HTML pages of every kind of file, which ``weft show --format html`` writes."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from weft.dsl.base.errors import BadFile, UserError
from weft.dsl.base.files import read_text
from weft.dsl.nouns.schedule import Schedule, read
from weft.synth.judge.verify import require_valid

from ...formats.format import Requirements
from ...report.html.bench_page import results_page, search_sections
from ...report.html.library_page import library_page, plan_views
from ...report.html.page import Make, byte_words
from ...report.html.program_page import ShownProgram, program_page
from ...report.html.schedule_page import Shown, frontier_page, pair_page, schedule_page
from ...report.html.text_page import plan_page, text_page, topology_page
from ...report.sizes import LIMITS
from ...report.text import topology_text
from ..flags.files import ShowFlags
from ..inputs.machines import is_library, on_machine, read_topology
from ..inputs.models import chosen_model
from .noun import FileKind, Subject
from .plan_noun import judged_plan
from .program_noun import FormatNoun, ProgramNoun
from .streams import is_stream
from .subjects import read_subject


def page_of(args: ShowFlags) -> Make:
    """Return the function that makes the page of the input with a given number of bars."""
    if args.other is not None:
        return _pair(args.other, args)
    if Path(args.file).is_dir() and not is_stream(args.file) and not is_library(args.file):
        return _frontier(args)
    return _single(read_subject(args.file, also=(FileKind.STREAM, FileKind.RESULT)), args)


def _single(subject: Subject, args: ShowFlags) -> Make:
    noun = subject.noun
    if isinstance(noun, ProgramNoun) and not (
        isinstance(noun, FormatNoun) and not noun.format.compiled
    ):
        return _program(noun, subject, args)
    match subject.kind:
        case FileKind.SCHEDULE:
            shown = _shown(subject, args)
            search = _search(args, shown)
            return lambda most: schedule_page(shown, search, most)
        case FileKind.TOPOLOGY:
            topology = subject.topology()
            page = topology_page(topology, topology_text(topology), subject.named)
        case FileKind.LIBRARY:
            return _library(subject)
        case FileKind.PLAN:
            page = plan_page(judged_plan(subject), subject.named)
        case FileKind.STREAM:
            raise UserError(
                "a stream of transfers is too large for a page",
                where=subject.where,
                hint="`weft show` prints its header",
            )
        case FileKind.RESULT:
            page = results_page(subject.data, Path(subject.where).name)
        case _:
            text = noun.show(subject)[0]
            page = text_page(subject.kind, Path(subject.named).name, text, subject.named)
    return lambda _: page


# --- schedules ------------------------------------------------------------------------------------


def _pair(other_file: str, args: ShowFlags) -> Make:
    if args.log is not None:
        raise UserError("--log is of one search", where=args.log)
    one, other = (_shown(read_subject(file), args) for file in (args.file, other_file))
    return lambda most: pair_page(one, other, most)


def _frontier(args: ShowFlags) -> Make:
    files = sorted(Path(args.file).glob("*.json"))
    subjects = [read_subject(str(file)) for file in files]
    if not subjects or any(one.kind is not FileKind.SCHEDULE for one in subjects):
        raise BadFile(
            "not a folder of schedules",
            where=args.file,
            hint="weft synth --objective frontier -o FOLDER writes one",
        )
    first = _shown(subjects[0], args)
    shown = [first]
    for one in subjects[1:]:  # bounds name numbers of chunks: those of another number are others
        same = one.schedule().collective == first.schedule.collective
        shown.append(_shown(one, args, first.bound if same else None))
    if len({(s.schedule.topology.digest(), str(s.schedule.collective.kind)) for s in shown}) > 1:
        raise BadFile("schedules of several problems", where=args.file)
    shown.sort(key=lambda one: (one.schedule.steps, one.name))
    search = _search(args, first)
    return lambda most: frontier_page(Path(args.file).name, shown, search, most)


def _shown(subject: Subject, args: ShowFlags, bound: Any = None) -> Shown:
    """Return a schedule for a page, at the requested size; ``bound``: its lower bound, if known."""
    if subject.kind is not FileKind.SCHEDULE:
        raise UserError(f"expected a schedule, got: {subject.kind}", where=subject.where)
    schedule = subject.schedule()
    if args.topology:
        schedule = on_machine(schedule, args.topology)
    if schedule.topology.ranks > LIMITS.schedule_ranks:
        raise UserError(
            f"a page shows at most {LIMITS.schedule_ranks} ranks; "
            f"this schedule has {schedule.topology.ranks}",
            where=subject.where,
            hint="`weft show` prints a summary",
        )
    require_valid(schedule)
    choice = chosen_model(args)
    return Shown.of(Path(subject.where).name, schedule, args.size or None, bound, choice)


def _search(args: ShowFlags, shown: Shown) -> Any:
    if args.log is None:
        return ()
    return search_sections(read_text(args.log), args.log, shown.schedule)


# --- programs -------------------------------------------------------------------------------------


def _program(noun: ProgramNoun, subject: Subject, args: ShowFlags) -> Make:
    held = noun.held(subject, Requirements(may_hang=True), "shown")
    machine = read_topology(args.topology) if args.topology else noun.machine(subject)
    ranks = len(held.program.ranks)
    if args.topology and machine and machine.ranks != ranks:
        raise UserError(
            f"the program is for {ranks} ranks, {machine.name} has {machine.ranks}",
            where=args.topology,
        )
    if args.log is not None:
        raise UserError("--log draws a search, and a program comes from none", where=args.log)
    valid = ""
    if held.low is not None or held.high is not None:
        valid = f"{byte_words(held.low or 0)} to {byte_words(held.high) if held.high else 'any'}"
    facts = (
        ("valid for sizes", valid),
        ("remarks", "; ".join(held.remarks[:8])),
        *held.facts,
    )
    usual = min(max(LIMITS.message_bytes, held.low or 0), held.high or LIMITS.message_bytes)
    size = args.size or max(1, usual)
    choice = chosen_model(args)
    shown = ShownProgram(noun.title(subject), held.program, machine, size, facts, noun.kind, choice)
    return lambda most: program_page(shown, most)


# --- libraries ------------------------------------------------------------------------------------


def _library(subject: Subject) -> Make:
    library, folder = subject.library(), Path(subject.where).parent

    @cache
    def find(file: str) -> Schedule | None:
        if not (folder / file).is_file():
            return None
        schedule = read(folder / file)
        if schedule.topology.ranks > LIMITS.schedule_ranks:
            return None
        require_valid(schedule)
        return schedule

    views = plan_views(library, find)
    return lambda most: library_page(library, views, folder.resolve().name, most)
