"""Drawings by ``weft show``: Perfetto traces, Graphviz text and SVG of a simulated run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from weft.dsl.base.errors import UserError, an
from weft.dsl.base.files import parse_json, read_text
from weft.dsl.base.tables import count, microseconds, number
from weft.dsl.base.units import format_bytes
from weft.dsl.nouns.schedule import Schedule
from weft.synth.time.schedule_time import simulate

from ...ranks.job import Call, load
from ...report.plan_chart import add_plan, plan_chart
from ...report.sizes import LIMITS
from ...report.svg import drawing, machine_dot, machine_piece, program_chart, schedule_chart
from ...report.trace import TraceFile
from ...report.trace_check import require_sound
from ...report.trace_runs import add_measured, add_program, add_schedule
from ..flags.files import ShowFlags
from .noun import FileKind, Subject
from .plan_noun import judged_plan
from .program_noun import ProgramNoun
from .schedule_noun import verified_schedule
from .timelines import program_timeline, schedule_timeline

Drawn = tuple[str, dict[str, Any]]
"""Text of a file, and the facts that are printed about it."""

# --- Perfetto -------------------------------------------------------------------------------------


def perfetto(subject: Subject, args: ShowFlags) -> Drawn:
    """Return a trace of the simulation, and of a measurement beside it.

    Raises:
        UserError: a kind of file that is not simulated.
    """
    trace = TraceFile()
    if subject.kind == FileKind.PLAN:
        plan = judged_plan(subject)
        add_plan(trace, plan)
        trace.about = {"times": "planned by weft", "file": subject.where}
        text = trace.text()
        require_sound(text)
        about = f"{count(len(plan.pieces), 'piece')}, {microseconds(plan.us)} µs"
        return text, {"about": about, "us": number(plan.us)}
    call = _measured(args)
    group = "predicted: " if call else ""
    if call:
        args = replace(args, size=call.bytes)
    about, us, size = _add_run(trace, subject, args, group)
    if call:
        add_measured(trace, call)
        about += f", and {count(len(call.ranks), 'rank')} measured"
    trace.about = {"times": f"simulated by weft, {format_bytes(size)}", "file": subject.where}
    text = trace.text()
    require_sound(text)
    about = f"{about}, {microseconds(us)} µs at {format_bytes(size)}"
    return text, {"about": about, "bytes": size, "us": number(us)}


def _measured(args: ShowFlags) -> Call | None:
    """Return the recorded call of the requested size, or of the largest."""
    if args.measured is None:
        return None
    recording = load(parse_json(read_text(args.measured), args.measured), args.measured)
    return recording.call_of(args.size, args.measured)


def _add_run(
    trace: TraceFile, subject: Subject, args: ShowFlags, group: str
) -> tuple[str, float, int]:
    if subject.kind == FileKind.SCHEDULE:
        run = schedule_timeline(subject, args)
        add_schedule(trace, run, group)
        return f"{len(run)} slices of transfers", run.time_us, run.message_bytes
    if isinstance(subject.noun, ProgramNoun):
        ran = program_timeline(subject.noun, subject, args, "drawn as a trace")
        add_program(trace, ran, group)
        about = f"{len(ran)} operations"
        about += f", and {ran.skipped} that repeat them left out" if ran.skipped else ""
        return about, ran.time_us, ran.message_bytes
    raise UserError(
        f"a trace is of a schedule, an algorithm or a program; this is {an(subject.kind)}",
        where=subject.where,
    )


# --- machines and charts --------------------------------------------------------------------------


def dot(subject: Subject, args: ShowFlags) -> Drawn:
    """Draw a machine as a graph; the use of its links by a schedule colours them."""
    if subject.kind == FileKind.TOPOLOGY:
        machine = subject.topology()
        return machine_dot(machine), {"about": machine.name}
    if subject.kind != FileKind.SCHEDULE:
        raise _no_drawing(subject, "a topology or a schedule")
    schedule = verified_schedule(subject, args.topology)
    use, us, size = _use(schedule, args)
    told, facts = _timed_facts(str(schedule.collective), size, us)
    return machine_dot(schedule.topology, use, told), facts


def svg(subject: Subject, args: ShowFlags) -> Drawn:
    """Draw the map of a machine, the chart of a program's thread blocks, or both of a schedule."""
    if subject.kind == FileKind.TOPOLOGY:
        machine = subject.topology()
        return drawing(machine.name, [machine_piece(machine)]), {"about": machine.name}
    if subject.kind == FileKind.PLAN:
        plan = judged_plan(subject)
        about = f"{plan.workload.name}, {microseconds(plan.us)} µs"
        return drawing(plan.workload.name, [plan_chart(plan)]), {"about": about}
    if isinstance(subject.noun, ProgramNoun):
        ran = program_timeline(subject.noun, subject, args, "drawn")
        what = f"{ran.program.name}: {ran.program.collective}"
        told, facts = _timed_facts(what, ran.message_bytes, ran.time_us)
        return drawing(told, [program_chart(ran)]), facts
    if subject.kind != FileKind.SCHEDULE:
        raise _no_drawing(subject, "a topology, a schedule, an algorithm or a program")
    run = schedule_timeline(subject, args)
    use = _use(run.schedule, args)[0]
    told, facts = _timed_facts(str(run.schedule.collective), run.message_bytes, run.time_us)
    pieces = [machine_piece(run.schedule.topology, use), schedule_chart(run)]
    return drawing(told, pieces), facts


def _use(schedule: Schedule, args: ShowFlags) -> tuple[Any, float, int]:
    """Return the share of time in which each resource is busy, the µs, and the bytes."""
    size = args.size or schedule.bytes or LIMITS.message_bytes
    run = simulate(schedule, size)
    return run.busy_us / (run.time_us or 1.0), run.time_us, size


def _no_drawing(subject: Subject, wanted: str) -> UserError:
    return UserError(f"it is of {wanted}; this is {an(subject.kind)}", where=subject.where)


def _timed_facts(what: str, size: int, us: float) -> Drawn:
    """Return a description and facts of a drawing of a run of ``us`` µs at a message size."""
    told = f"{what}, {microseconds(us)} µs at {format_bytes(size)}"
    return told, {"about": told, "bytes": size, "us": number(us)}


DRAWINGS: dict[str, Callable[[Subject, ShowFlags], Drawn]] = {
    "perfetto": perfetto,
    "dot": dot,
    "svg": svg,
}
"""Functions that draw, by ``--format``."""
