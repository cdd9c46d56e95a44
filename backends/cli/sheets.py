"""Sheets of every kind of file, which ``weft diff`` compares."""

from __future__ import annotations

from weft.dsl.base.errors import BadFile
from weft.dsl.base.units import parse_size_range
from weft.synth.judge.verify import verify
from weft.synth.time.program_time import simulate_program
from weft.synth.time.schedule_time import simulate

from ..formats.format import Requirements
from ..formats.listings import Sheets
from ..report.difference import (
    algorithm_sheets,
    library_sheets,
    results_sheets,
    schedule_sheets,
    text_sheets,
    times,
    topology_sheets,
)
from .console import Console
from .flags.files import DiffFlags
from .machines import on_machine, read_topology
from .noun import USUAL_SIZES, FileKind, Subject
from .program_noun import FormatNoun, ProgramNoun

SIZE_STRIDE = 4
"""Stride over the usual sizes of those that are simulated."""

MOST_SERVED = 1_000_000
"""Largest transfers times segments of a schedule that is simulated."""


def sheets_of(subject: Subject, args: DiffFlags, console: Console) -> Sheets:
    """Return the sheets of a file; by default the lines of ``weft show``."""
    if isinstance(subject.noun, FormatNoun):
        return _artefact(subject.noun, subject, args)
    match subject.kind:
        case FileKind.SCHEDULE:
            return _schedule(subject, args, console)
        case FileKind.ALGORITHM:
            assert isinstance(subject.noun, ProgramNoun)
            timed = _program_times(subject.noun, subject, args)
            return {**timed, **algorithm_sheets(subject.algorithm())}
        case FileKind.TOPOLOGY:
            return topology_sheets(subject.topology())
        case FileKind.LIBRARY:
            return library_sheets(subject.library())
        case FileKind.RESULT:
            return _results(subject)
    return text_sheets(subject.noun.comparable(subject))


def _schedule(subject: Subject, args: DiffFlags, console: Console) -> Sheets:
    """Return facts, times, loads and transfers; no times for a wrong or too large schedule."""
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


def _artefact(noun: FormatNoun, subject: Subject, args: DiffFlags) -> Sheets:
    """Return the sheets of the format, after the times of its program."""
    found = noun.format.sheets(subject.text, subject.where)
    if found is None:
        return text_sheets(noun.comparable(subject))
    return {**_program_times(noun, subject, args), **found} if noun.format.compiled else found


def _program_times(noun: ProgramNoun, subject: Subject, args: DiffFlags) -> Sheets:
    """Return the sheet of times; none without a machine."""
    machine = read_topology(args.topology) if args.topology else noun.machine(subject)
    if machine is None:
        return {}
    program = noun.held(subject, Requirements(may_hang=True), "simulated").program
    return times(_sizes(args), lambda size: simulate_program(program, machine, size).time_us)


def _results(subject: Subject) -> Sheets:
    """Return facts and times that a verb printed."""
    try:
        return results_sheets(subject.data)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise BadFile(
            "not what a verb printed with --json: sizes have bytes and us",
            where=subject.where,
        ) from None


def _sizes(args: DiffFlags) -> tuple[int, ...]:
    if args.size:
        return args.size.powers()
    return parse_size_range(USUAL_SIZES).powers()[::SIZE_STRIDE]
