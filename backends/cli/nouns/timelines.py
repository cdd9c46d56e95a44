"""Simulated runs with the start and end of every transfer or operation, as text or for drawings."""

from __future__ import annotations

from weft.dsl.base.errors import UserError, an
from weft.synth.time.program_record import ProgramTimeline, record_program
from weft.synth.time.timeline import Timeline, timeline

from ...formats.format import Requirements
from ...report.timed_text import program_run_text, run_text
from ..flags.files import ShowFlags
from ..inputs.machines import read_topology
from ..inputs.models import chosen_model
from .noun import DEFAULT_BYTES, FileKind, Subject
from .program_noun import ProgramNoun
from .program_simulation import no_machine, sizes_of
from .schedule_noun import verified_schedule


def timed_text(subject: Subject, args: ShowFlags) -> str:
    """Return a simulation as text, for ``weft show`` with ``--size`` or ``-t``.

    The header of a stream has its time: the text is empty.
    """
    if subject.kind == FileKind.SCHEDULE:
        return run_text(schedule_timeline(subject, args))
    if isinstance(subject.noun, ProgramNoun):
        return program_run_text(program_timeline(subject.noun, subject, args, "simulated"))
    if subject.kind == FileKind.STREAM:
        return ""
    raise UserError(
        f"{an(subject.kind)} takes no time", where=subject.where, hint="leave --size and -t out"
    )


def schedule_timeline(subject: Subject, args: ShowFlags) -> Timeline:
    """Return the start and end of every transfer of the schedule in a file."""
    schedule = verified_schedule(subject, args.topology)
    return timeline(schedule, args.size or schedule.bytes or DEFAULT_BYTES)


def program_timeline(
    noun: ProgramNoun, subject: Subject, args: ShowFlags, done: str
) -> ProgramTimeline:
    """Return the start and end of every operation, on the machine that is named.

    Raises:
        UserError: none is, or there is no program.
    """
    noun.require(subject, done)
    machine = read_topology(args.topology) if args.topology else noun.machine(subject)
    if machine is None:
        raise no_machine(subject)
    held = noun.held(subject, Requirements(may_hang=True), done)
    usual = sizes_of(held)
    size = args.size or min(max(DEFAULT_BYTES, usual.low), usual.high)
    return record_program(held.program, machine, size, chosen_model(args).on(machine))
