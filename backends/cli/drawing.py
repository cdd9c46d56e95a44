"""``weft show --format perfetto|dot|svg``: files for viewers, made of whatever the subject is."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from weft.dsl.base.errors import UserError, an
from weft.dsl.base.tables import count, microseconds, number
from weft.dsl.base.units import format_bytes

from .console import Console
from .exit_codes import Exit
from .inputs import read_topology, sizes, valued
from .machines import on_machine
from .outputs import check_file_output
from .subjects import Kind, Subject, read_subject

if TYPE_CHECKING:
    from weft.dsl.base.arrays import Floats
    from weft.dsl.nouns.schedule import Schedule
    from weft.synth.time.programs import ProgramTimeline
    from weft.synth.time.timeline import Timeline

    from ..ranks.recording import Call

SIZE = 1 << 20
"""Bytes of a message where nothing says how many."""

UNSET: dict[str, Any] = {
    "target": None,
    "protocol": None,
    "group": None,
    "collective": None,
    "root": None,
    "roots": None,
    "in_place": None,
}
"""Flags of simulating, as they are where nobody asks for anything."""


def add_drawing(parser: argparse.ArgumentParser) -> None:
    """The flags of drawings."""
    group = parser.add_argument_group("what is simulated, and where files go")
    group.add_argument(
        "-t",
        "--topology",
        metavar="TOPO",
        help="the machine of an algorithm or a program; for a schedule, other costs than its own",
    )
    group.add_argument(
        "--size",
        metavar="SIZE",
        type=valued("--size", one_size),
        help="of the message (default: what the schedule was made for, or 1MiB)",
    )
    group.add_argument(
        "--measured",
        metavar="TRACE",
        help="beside it, what `weft run --trace TRACE` recorded (perfetto)",
    )
    group.add_argument(
        "--log", metavar="LOG", help="what `weft synth --log LOG` wrote, beside it (html)"
    )
    group.add_argument("-o", "--output", metavar="OUT", default="-", help="a file (default: -)")
    group.add_argument("-f", "--force", action="store_true", help="overwrite OUT")


def one_size(text: str) -> int:
    """A message size, and no range of them."""
    size = sizes(text)
    if size.low != size.high:
        raise UserError(f"{text[:40]!r} is a range, and one message is drawn")
    return size.low


def draw(args: argparse.Namespace, console: Console) -> int:
    """Make the file, check it, write it."""
    from weft.dsl.base.files import write_text

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
            "kind": str(subject.kind),
            "format": args.format,
            "file": args.output,
            **facts,
        }
        console.result("", data)
    return Exit.DONE


Drawn = tuple[str, dict[str, Any]]
"""The text of a file, and what is said of it."""


def _perfetto(subject: Subject, args: argparse.Namespace) -> Drawn:
    """A trace of the simulation, and of a measurement beside it.

    Raises:
        UserError: nothing that takes time.
    """
    from ..report.trace import Trace
    from ..report.trace_check import require_sound
    from ..report.trace_measured import add_measured
    from ..report.trace_program import add_program
    from ..report.trace_schedule import add_schedule

    trace = Trace()
    call = _measured(args)
    group = "predicted: " if call else ""
    if call:
        args.size = call.bytes
    if subject.kind is Kind.SCHEDULE:
        run = timeline_of(subject, args)
        add_schedule(trace, run, group)
        us, size = run.time_us, run.message_bytes
        about = f"{len(run)} slices of transfers"
    elif subject.kind in PROGRAMS:
        ran = program_timeline_of(subject, args)
        add_program(trace, ran, group)
        us, size = ran.time_us, ran.message_bytes
        about = f"{len(ran)} operations"
        about += f", and {ran.skipped} that repeat them left out" if ran.skipped else ""
    else:
        subject.refuse_plan("drawn as a trace")
        raise UserError(
            f"a trace is of a schedule, an algorithm or a program; this is {an(subject.kind)}",
            where=subject.where,
        )
    if call:
        add_measured(trace, call)
        about += f", and {count(len(call.ranks), 'rank')} measured"
    trace.about = {"times": f"simulated by weft, {format_bytes(size)}", "file": subject.where}
    text = trace.text()
    require_sound(text)
    about = f"{about}, {microseconds(us)} µs at {format_bytes(size)}"
    return text, {"about": about, "bytes": size, "us": number(us)}


def _dot(subject: Subject, args: argparse.Namespace) -> Drawn:
    """Graphviz text of a machine, with the use of its links by a schedule.

    Raises:
        UserError: neither a topology nor a schedule.
    """
    from ..report.dot import machine_dot

    if subject.kind is Kind.TOPOLOGY:
        machine = subject.topology()
        return machine_dot(machine), {"about": machine.name}
    if subject.kind is not Kind.SCHEDULE:
        raise _no_drawing(subject, "a topology or a schedule")
    schedule = schedule_of(subject, args)
    use, us, size = _use(schedule, args)
    told, facts = _told(str(schedule.collective), size, us)
    return machine_dot(schedule.topology, use, told), facts


def _svg(subject: Subject, args: argparse.Namespace) -> Drawn:
    """A machine, and what a schedule or a program does on it.

    Raises:
        UserError: nothing that can be drawn.
    """
    from ..report.svg import drawing, machine_piece
    from ..report.svg_charts import program_chart, schedule_chart

    if subject.kind is Kind.TOPOLOGY:
        machine = subject.topology()
        return drawing(machine.name, [machine_piece(machine)]), {"about": machine.name}
    if subject.kind is Kind.SCHEDULE:
        run = timeline_of(subject, args)
        use = _use(run.schedule, args)[0]
        told, facts = _told(str(run.schedule.collective), run.message_bytes, run.time_us)
        pieces = [machine_piece(run.schedule.topology, use), schedule_chart(run)]
        return drawing(told, pieces), facts
    if subject.kind not in PROGRAMS:
        raise _no_drawing(subject, "a topology, a schedule, an algorithm or a program")
    ran = program_timeline_of(subject, args)
    told, facts = _told(
        f"{ran.program.name}: {ran.program.collective}", ran.message_bytes, ran.time_us
    )
    return drawing(told, [program_chart(ran)]), facts


def timed_text(subject: Subject, args: argparse.Namespace) -> str:
    """What a simulation says of a subject, where ``--size`` or ``-t`` asks for one; else nothing.

    Raises:
        UserError: it takes no time.
    """
    if args.size is None and args.topology is None:
        return ""
    from ..report.timed_text import program_run_text, run_text

    if subject.kind is Kind.SCHEDULE:
        return run_text(timeline_of(subject, args))
    if subject.kind in PROGRAMS:
        return program_run_text(program_timeline_of(subject, args))
    raise UserError(
        f"{an(subject.kind)} takes no time", where=subject.where, hint="leave --size and -t out"
    )


def _use(schedule: Schedule, args: argparse.Namespace) -> tuple[Floats, float, int]:
    """How much of its time a schedule occupies each row; the time, and the size."""
    from weft.synth.time.schedule_time import simulate

    size = args.size or schedule.bytes or SIZE
    run = simulate(schedule, size)
    return run.busy_us / (run.time_us or 1.0), run.time_us, size


def _told(what: str, size: int, us: float) -> Drawn:
    told = f"{what}, {microseconds(us)} µs at {format_bytes(size)}"
    return told, {"about": told, "bytes": size, "us": number(us)}


def _no_drawing(subject: Subject, wanted: str) -> UserError:
    return UserError(f"it is of {wanted}; this is {an(subject.kind)}", where=subject.where)


_DRAWERS: dict[str, Callable[[Subject, argparse.Namespace], Drawn]] = {
    "perfetto": _perfetto,
    "dot": _dot,
    "svg": _svg,
}


def _measured(args: argparse.Namespace) -> Call | None:
    """The recorded call of the size that was asked for, or of the largest.

    Raises:
        UserError: none was recorded.
    """
    if args.measured is None:
        return None
    from weft.dsl.base.files import parse_json, read_text

    from ..ranks.recording import load

    recording = load(parse_json(read_text(args.measured), args.measured), args.measured)
    return recording.call_of(args.size, args.measured)


PROGRAMS = (Kind.ALGORITHM, Kind.PROGRAM, Kind.XML)


def schedule_of(subject: Subject, args: argparse.Namespace) -> Schedule:
    """The schedule in a file, verified, with the costs of another machine if one is named."""
    from weft.synth.judge.verify import require_valid

    schedule: Schedule = subject.schedule()
    if args.topology:
        schedule = on_machine(schedule, args.topology)
    require_valid(schedule)
    return schedule


def timeline_of(subject: Subject, args: argparse.Namespace) -> Timeline:
    """What the schedule in a file does when."""
    from weft.synth.time.timeline import timeline

    schedule = schedule_of(subject, args)
    return timeline(schedule, args.size or schedule.bytes or SIZE)


def program_timeline_of(subject: Subject, args: argparse.Namespace) -> ProgramTimeline:
    """What the program in a file does when, on the machine that is named.

    Raises:
        UserError: none is.
    """
    from weft.synth.time.programs import record_program

    from .verbs.simulate import PROGRAMS as READERS

    machine = read_topology(args.topology) if args.topology else subject.machine()
    if machine is None:
        raise UserError(
            "a program does not say what machine it is for",
            where=subject.where,
            hint="-t TOPO names it",
        )
    asked = argparse.Namespace(**{**UNSET, **vars(args)})
    program, usual = READERS[subject.kind](subject, asked)
    size = args.size or min(max(SIZE, usual.low), usual.high)
    return record_program(program, machine, size)
