"""Nouns: the kinds of files, and the answer of each to every verb.

A noun is a class with a method for each question: check, show, simulate, draw, page, sheets. What a
noun does not override is refused in words. Artefacts are :class:`FormatNoun`, which asks the format
(:mod:`..formats.format`); no verb and no noun knows a format by name.

Simulators, pages and judges are imported inside the methods: a verb asks one question of one noun,
and the others' tools (numba, jinja2, SciPy) would take longer to load than most answers do.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.dsl.base.errors import BadFile, UserError
from weft.dsl.base.tables import count
from weft.dsl.base.units import SizeRange, format_bytes, parse_size_range

from ..check.checks import Check, of_report
from ..formats.format import GOOD, Asked, Format, Held
from .flags.values import split_arguments
from .machines import facts_of, machine_line, on_machine, read_topology
from .noun import (
    Drawn,
    Kind,
    Noun,
    Subject,
    Timed,
    asked_of,
    timed_facts,
)
from .sketches import lint_sketch, read_sketch

if TYPE_CHECKING:
    from weft.dsl.nouns.schedule import Schedule
    from weft.dsl.nouns.topology import Topology
    from weft.synth.time.program_record import ProgramTimeline
    from weft.synth.time.timeline import Timeline

    from ..formats.listings import Sheets
    from ..report.html.page import Make
    from ..report.html.schedule_page import Shown
    from ..report.trace import Trace
    from .console import Console

USUAL_SIZES = "1KiB:1GiB"
SIZE = 1 << 20
"""Default message size in bytes."""

COARSE = 4
"""Stride over the usual sizes of those that ``diff`` simulates."""

MOST_SERVED = 1_000_000
"""Largest transfers times segments of a schedule that ``diff`` simulates."""

MOST_RANKS = 512
"""Largest number of ranks of a schedule on a page; more would be illegible."""


# --- schedules ------------------------------------------------------------------------------------


class ScheduleNoun(Noun):
    """Schedules: verified, simulated by the α–β model, drawn on their machine."""

    kind = Kind.SCHEDULE

    def check(self, subject: Subject, args: argparse.Namespace, console: Console) -> list[Check]:
        """Verify the schedule, also against the sketch of ``-s``."""
        from weft.synth.judge.verify import verify

        schedule = subject.schedule()
        sketch = None
        if args.sketch:
            sketch = read_sketch(args.sketch, schedule.topology, schedule.collective, console)
        verdict = verify(schedule, sketch)
        size = f"{count(len(schedule), 'transfer')} in {count(schedule.steps, 'step')}"
        facts = f"{size}, {schedule.collective}"
        checks = [Check("form", True, f"{facts} on {schedule.topology.name}")]
        if verdict.ok:
            obeys = f", and the sketch {sketch.name}" if sketch else ""
            return [*checks, Check("schedule", True, f"achieves its collective{obeys}")]
        return checks + [Check("schedule", False, str(problem)) for problem in verdict.problems]

    def show(self, subject: Subject) -> tuple[str, dict[str, Any]]:
        """Return facts, steps, and a chart of small schedules."""
        from ..report.text import schedule_text

        schedule = subject.schedule()
        collective = schedule.collective
        return schedule_text(schedule), {
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

    def page(self, subject: Subject, args: argparse.Namespace) -> Make:
        """Return the page of a schedule, with the convergence of its search from ``--log``."""
        from ..report.html.schedule_page import schedule_page

        shown = shown_schedule(subject, args)
        convergence = convergence_of(args, shown)
        return lambda most: schedule_page(shown, convergence, most)

    def timed(self, subject: Subject, args: argparse.Namespace) -> Timed:
        """Return the simulation by the α–β model, under the rule that flags choose."""
        from weft.synth.judge.verify import require_valid
        from weft.synth.time.schedule_tables import CostModel
        from weft.synth.time.schedule_time import Timing, simulate

        _refuse(args, RUNTIME_FLAGS, "is for programs; a schedule has none of its own", subject)
        schedule: Schedule = subject.schedule()
        if args.topology:
            schedule = on_machine(schedule, args.topology)
        require_valid(schedule)
        model = CostModel(args.alpha_occupies, args.store_and_forward, args.overhead, args.barrier)

        def evaluate(message_bytes: int, least: float) -> Timing:
            return simulate(schedule, message_bytes, model, bound_us=least)

        sizes = parse_size_range(USUAL_SIZES)
        return Timed(schedule.topology, schedule.collective, evaluate, {}, sizes)

    def run_text(self, subject: Subject, args: argparse.Namespace) -> str:
        """Return the times of transfers and the busiest resources as text."""
        from ..report.timed_text import run_text

        return run_text(_timeline(subject, args))

    def trace(
        self, trace: Trace, subject: Subject, args: argparse.Namespace, group: str
    ) -> tuple[str, float, int]:
        """Add a slice for each transfer on each link."""
        from ..report.trace_runs import add_schedule

        run = _timeline(subject, args)
        add_schedule(trace, run, group)
        return f"{len(run)} slices of transfers", run.time_us, run.message_bytes

    def dot(self, subject: Subject, args: argparse.Namespace) -> Drawn:
        """Draw the machine; links are coloured by the share of time in which they are busy."""
        from ..report.dot import machine_dot

        schedule = _schedule(subject, args)
        use, us, size = _use(schedule, args)
        told, facts = timed_facts(str(schedule.collective), size, us)
        return machine_dot(schedule.topology, use, told), facts

    def svg(self, subject: Subject, args: argparse.Namespace) -> Drawn:
        """Draw the machine with its busy links, and a chart of the transfers."""
        from ..report.svg import drawing, machine_piece, schedule_chart

        run = _timeline(subject, args)
        use = _use(run.schedule, args)[0]
        told, facts = timed_facts(str(run.schedule.collective), run.message_bytes, run.time_us)
        pieces = [machine_piece(run.schedule.topology, use), schedule_chart(run)]
        return drawing(told, pieces), facts

    def sheets(self, subject: Subject, args: argparse.Namespace, console: Console) -> Sheets:
        """Return facts, times, loads and transfers; no times for a wrong or too large schedule."""
        from weft.synth.judge.verify import verify
        from weft.synth.time.schedule_time import simulate

        from ..report.difference import schedule_sheets, times

        schedule = subject.schedule()
        timed = on_machine(schedule, args.topology) if args.topology else schedule
        sheets = schedule_sheets(schedule)
        wrong = not verify(schedule).ok
        large = len(schedule) * schedule.segments > MOST_SERVED
        if wrong or large:
            why = "it is wrong; `weft check` says why" if wrong else "it has too many transfers"
            console.warn(f"{subject.where}: not simulated: {why}")
            return sheets
        time = {**times(_diff_sizes(args), lambda size: simulate(timed, size).time_us)}
        return {"facts": sheets.pop("facts"), **time, **sheets}


RULE_FLAGS = ("alpha_occupies", "store_and_forward", "barrier")
RUNTIME_FLAGS = ("protocol", "target", "local_bandwidth", "group", "collective", "root", "roots")


def _refuse(args: argparse.Namespace, names: tuple[str, ...], why: str, subject: Subject) -> None:
    given = [n for n in names if getattr(args, n) not in (None, False)]
    if given:
        raise UserError(f"--{given[0].replace('_', '-')} {why}", where=subject.where)


def _diff_sizes(args: argparse.Namespace) -> tuple[int, ...]:
    size: SizeRange | None = args.size
    return size.powers() if size else parse_size_range(USUAL_SIZES).powers()[::COARSE]


def _schedule(subject: Subject, args: argparse.Namespace) -> Schedule:
    """Return the verified schedule of a file, with another machine's costs if one is named."""
    from weft.synth.judge.verify import require_valid

    schedule: Schedule = subject.schedule()
    if args.topology:
        schedule = on_machine(schedule, args.topology)
    require_valid(schedule)
    return schedule


def _timeline(subject: Subject, args: argparse.Namespace) -> Timeline:
    """Return the start and end of every transfer of the schedule in a file."""
    from weft.synth.time.timeline import timeline

    schedule = _schedule(subject, args)
    return timeline(schedule, args.size or schedule.bytes or SIZE)


def _use(schedule: Schedule, args: argparse.Namespace) -> tuple[Any, float, int]:
    """Return the share of time in which each resource is busy, the µs, and the bytes."""
    from weft.synth.time.schedule_time import simulate

    size = args.size or schedule.bytes or SIZE
    run = simulate(schedule, size)
    return run.busy_us / (run.time_us or 1.0), run.time_us, size


def shown_schedule(subject: Subject, args: argparse.Namespace, bound: Any = None) -> Shown:
    """Return a schedule for a page, at the requested size; ``bound``: its lower bound, if known.

    Raises:
        CheckFailed: it is wrong.
        UserError: it is not a schedule, moves nothing, or is too large.
    """
    from weft.synth.judge.verify import require_valid

    from ..report.html.schedule_page import Shown

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
    return Shown.of(Path(subject.where).name, schedule, args.size or None, bound)


def convergence_of(args: argparse.Namespace, shown: Shown) -> Any:
    """Return the section of the search that ``--log`` recorded; None without one."""
    if args.log is None:
        return None
    from weft.dsl.base.files import read_text

    from ..report.html.convergence import convergence_section

    return convergence_section(read_text(args.log), args.log, shown.schedule)


# --- what becomes a program -----------------------------------------------------------------------


class CodeNoun(Noun):
    """Base of nouns that hold or become a program, timed by the runtime's model."""

    def held(self, subject: Subject, asked: Asked, done: str) -> Held:
        """Return the verified program; ``done``: the word for the verb's action in a refusal."""
        raise NotImplementedError

    def page(self, subject: Subject, args: argparse.Namespace) -> Make:
        """Return the page of a program."""
        from ..report.html.page import byte_words
        from ..report.html.program_page import ShownProgram, program_page

        held = self.held(subject, Asked(may_hang=True), "shown")
        machine = _machine_of(args, len(held.program.ranks)) or self.machine(subject)
        if args.log is not None:
            raise UserError("--log draws a search, and a program comes from none", where=args.log)
        valid = ""
        if held.low is not None or held.high is not None:
            valid = (
                f"{byte_words(held.low or 0)} to {byte_words(held.high) if held.high else 'any'}"
            )
        facts = (
            ("valid for sizes", valid),
            ("remarks", "; ".join(held.remarks[:8])),
            *held.facts,
        )
        size = args.size or max(1, min(max(SIZE, held.low or 0), held.high or SIZE))
        shown = ShownProgram(self.title(subject), held.program, machine, size, facts, self.kind)
        return lambda most: program_page(shown, most)

    def title(self, subject: Subject) -> str:
        """Return the name on a page."""
        return Path(subject.where).name

    def machine(self, subject: Subject) -> Topology | None:
        """Return the machine that the file itself names; None if it names none."""
        return None

    def timed(self, subject: Subject, args: argparse.Namespace) -> Timed:
        """Return the simulation by the runtime's model, on the machine of ``-t``."""
        from weft.dsl.nouns.program import Protocol
        from weft.synth.time.program_time import simulate_program

        self.require(subject, "simulated")
        _refuse(args, RULE_FLAGS, "is for schedules; programs have one rule", subject)
        if not args.topology:
            raise _no_machine(subject)
        topology = read_topology(args.topology)
        if args.group:
            topology = topology.restricted_to(args.group)
        held = self.held(subject, asked_of(args, may_hang=True), "simulated")
        program = held.program
        if topology.ranks != len(program.ranks):
            ranks = len(program.ranks)
            raise UserError(
                f"the program is for {ranks} ranks, {topology.name} has {topology.ranks}",
                where=subject.where,
                hint=f"--group 0..{ranks - 1} names those to use" if topology.ranks > ranks else "",
            )
        model = _model(args)
        protocol = Protocol(args.protocol) if args.protocol else program.protocol

        def evaluate(message_bytes: int, least: float) -> Any:
            return simulate_program(
                program, topology, message_bytes, model, protocol=protocol, bound_us=least
            )

        facts = {"protocol": str(protocol), "target": model.name}
        explain = partial(_explain, topology)
        return Timed(topology, program.collective, evaluate, facts, _sizes_of(held), explain)

    def require(self, subject: Subject, done: str) -> None:
        """Refuse a file without a program."""

    def run_text(self, subject: Subject, args: argparse.Namespace) -> str:
        """Return the times of thread blocks and the causes of their waits as text."""
        from ..report.timed_text import program_run_text

        return program_run_text(self._timeline(subject, args, "simulated"))

    def trace(
        self, trace: Trace, subject: Subject, args: argparse.Namespace, group: str
    ) -> tuple[str, float, int]:
        """Add a slice for each operation of each thread block."""
        from ..report.trace_runs import add_program

        ran = self._timeline(subject, args, "drawn as a trace")
        add_program(trace, ran, group)
        about = f"{len(ran)} operations"
        about += f", and {ran.skipped} that repeat them left out" if ran.skipped else ""
        return about, ran.time_us, ran.message_bytes

    def svg(self, subject: Subject, args: argparse.Namespace) -> Drawn:
        """Draw a chart of the thread blocks."""
        from ..report.svg import drawing, program_chart

        ran = self._timeline(subject, args, "drawn")
        what = f"{ran.program.name}: {ran.program.collective}"
        told, facts = timed_facts(what, ran.message_bytes, ran.time_us)
        return drawing(told, [program_chart(ran)]), facts

    def _timeline(self, subject: Subject, args: argparse.Namespace, done: str) -> ProgramTimeline:
        """Return the start and end of every operation, on the machine that is named.

        Raises:
            UserError: none is, or there is no program.
        """
        from weft.synth.time.program_record import record_program

        self.require(subject, done)
        machine = read_topology(args.topology) if args.topology else self.machine(subject)
        if machine is None:
            raise _no_machine(subject)
        held = self.held(subject, Asked(may_hang=True), done)
        usual = _sizes_of(held)
        size = args.size or min(max(SIZE, usual.low), usual.high)
        return record_program(held.program, machine, size)

    def times(self, subject: Subject, args: argparse.Namespace) -> Sheets:
        """Return the sheet of times, where a machine is known."""
        machine = read_topology(args.topology) if args.topology else self.machine(subject)
        if machine is None:
            return {}
        from weft.synth.time.program_time import simulate_program

        from ..report.difference import times

        program = self.held(subject, Asked(may_hang=True), "simulated").program
        return times(
            _diff_sizes(args), lambda size: simulate_program(program, machine, size).time_us
        )


def _no_machine(subject: Subject) -> UserError:
    return UserError(
        "a program does not say what machine it is for",
        where=subject.where,
        hint="-t TOPO names it",
    )


def _machine_of(args: argparse.Namespace, ranks: int) -> Topology | None:
    """Return the machine of ``-t``, with the given number of ranks; None without ``-t``."""
    if not args.topology:
        return None
    topology = read_topology(args.topology)
    if topology.ranks != ranks:
        raise UserError(
            f"the program is for {ranks} ranks, {topology.name} has {topology.ranks}",
            where=args.topology,
        )
    return topology


def _sizes_of(held: Held) -> SizeRange:
    """Return the usual message sizes for which a program is valid."""
    usual = parse_size_range(USUAL_SIZES)
    low, high = max(usual.low, held.low or 0), min(usual.high, held.high or usual.high)
    return SizeRange(low, high) if low <= high else usual


def _model(args: argparse.Namespace) -> Any:
    from weft.synth.time.runtime_model import model_of

    model = replace(model_of(args.target), name=args.target or "msccl")
    local = math.inf if args.local_bandwidth is None else args.local_bandwidth
    return replace(model, overhead_us=args.overhead, local_GBps=local)


def _explain(topology: Topology, run: Any) -> str:
    """Return a line on the use of time: activities of thread blocks, and the busiest resource."""
    from weft.synth.fabric.occupancy import row_name
    from weft.synth.time.program_machine import Activity

    total = float(run.spent_us.sum()) or 1.0
    shares = [(float(run.spent_us[:, a].sum()) / total, a) for a in Activity if a != Activity.DONE]
    doing = ", ".join(
        f"{a.words} {share:.0%}" for share, a in sorted(shares, reverse=True) if share
    )
    told = (
        f"{format_bytes(run.message_bytes)}: {count(run.cut.iterations, 'iteration')}, at most "
        f"{count(run.cut.merge, 'chunk')} per operation; thread blocks: {doing}"
    )
    if run.time_us and len(run.busy_us):
        row = int(run.busy_us.argmax())
        told += f"; {row_name(topology, row)} busy {run.busy_us[row] / run.time_us:.0%}"
    return told


class AlgorithmNoun(CodeNoun):
    """Algorithms in Python, and the classic ones; compiled by default options to be timed."""

    kind = Kind.ALGORITHM

    def held(self, subject: Subject, asked: Asked, done: str) -> Held:
        """Return the program compiled by default options; ``compile`` has the options."""
        from weft.dsl.nouns.program import Protocol
        from weft.dsl.nouns.runtime import target

        from ..check.checker import check_program
        from ..check.findings import require_good
        from ..compile.compile import CompileOptions, compile_algorithm

        algorithm = subject.algorithm()
        protocol = Protocol(asked.protocol) if asked.protocol else None
        options = CompileOptions(target=target(asked.target or "msccl"), protocol=protocol)
        program = compile_algorithm(algorithm, options)
        require_good(check_program(program), subject.where)
        facts = (("algorithm", algorithm.name), ("moves", len(algorithm.moves)))
        return Held(program, facts=facts)

    def check(self, subject: Subject, args: argparse.Namespace, console: Console) -> list[Check]:
        """Check the algorithm's operations, then the program compiled from it."""
        from weft.dsl.nouns.runtime import target

        from ..check.checker import report_program
        from ..compile.compile import CompileOptions, compile_algorithm

        algorithm = subject.algorithm()
        size = f"{count(len(algorithm.moves), 'move')}, {algorithm.collective}"
        checks = [Check("form", True, size), Check("algorithm", True, "achieves its collective")]
        chosen = CompileOptions(target(args.target)) if args.target else CompileOptions()
        found = report_program(compile_algorithm(algorithm, chosen), args.target)
        return [*checks, *of_report(found, GOOD)]

    def show(self, subject: Subject) -> tuple[str, dict[str, Any]]:
        """Return the moves in order."""
        from ..formats.listings import algorithm_text

        algorithm = subject.algorithm()
        collective = algorithm.collective
        return algorithm_text(algorithm), {
            "name": algorithm.name,
            "moves": len(algorithm.moves),
            "collective": collective.name or str(collective.kind),
            "ranks": collective.ranks,
        }

    def title(self, subject: Subject) -> str:
        """Return the name given on the command line."""
        return subject.named

    def machine(self, subject: Subject) -> Topology | None:
        """Return the machine for which a classic algorithm was named."""
        machine: Topology | None = subject.machine()
        return machine

    def sheets(self, subject: Subject, args: argparse.Namespace, console: Console) -> Sheets:
        """Return times, where a machine is known, facts and moves."""
        from ..report.difference import algorithm_sheets

        return {**self.times(subject, args), **algorithm_sheets(subject.algorithm())}


class FormatNoun(CodeNoun):
    """Artefacts of a format, which implements every question."""

    format: Format

    def __init__(self, format: Format) -> None:
        self.format = format
        self.kind: str = format.kind  # type: ignore[misc]
        self.asks_collective = format.asks_collective

    def require(self, subject: Subject, done: str) -> None:
        """Refuse a file without a program, with the message of the format."""
        if not self.format.compiled:
            raise self.format.lacks(done, subject.where)

    def held(self, subject: Subject, asked: Asked, done: str) -> Held:
        """Return the program in the artefact."""
        self.require(subject, done)
        return self.format.held(subject.text, subject.where, asked)

    def check(self, subject: Subject, args: argparse.Namespace, console: Console) -> list[Check]:
        """Return the checks of the format."""
        return self.format.check(subject.text, subject.where, asked_of(args))

    def show(self, subject: Subject) -> tuple[str, dict[str, Any]]:
        """Return the listing of the format."""
        return self.format.show(subject.text, subject.where)

    def page(self, subject: Subject, args: argparse.Namespace) -> Make:
        """Return the page of the program, or of the listing where there is no program."""
        if self.format.compiled:
            return super().page(subject, args)
        return Noun.page(self, subject, args)

    def sheets(self, subject: Subject, args: argparse.Namespace, console: Console) -> Sheets:
        """Return the sheets of the format, after the times of its program."""
        found = self.format.sheets(subject.text, subject.where)
        if found is None:
            return Noun.sheets(self, subject, args, console)
        return {**self.times(subject, args), **found} if self.format.compiled else found


# --- the rest -------------------------------------------------------------------------------------


class TopologyNoun(Noun):
    """Machines, in any of the formats that are imported."""

    kind = Kind.TOPOLOGY

    def check(self, subject: Subject, args: argparse.Namespace, console: Console) -> list[Check]:
        """Check that every rank reaches every other; add the assumptions made."""
        from weft.dsl.nouns.hops import hop_distances

        topology = subject.topology()
        checks = [Check("form", True, machine_line(topology))]
        distance = hop_distances(topology)
        lost = [(a, b) for a, b in zip(*(distance < 0).nonzero(), strict=True)]
        if lost:
            a, b = lost[0]
            detail = f"rank {a} cannot reach rank {b}"
            detail += f" (and {len(lost) - 1} more such pairs)" if len(lost) > 1 else ""
            checks.append(Check("connected", False, detail))
        else:
            far = count(int(distance.max()), "hop")
            checks.append(Check("connected", True, f"every rank within {far}"))
        return checks + [Check("note", True, note) for note in topology.notes]

    def show(self, subject: Subject) -> tuple[str, dict[str, Any]]:
        """Return facts, kinds of links, and bandwidths between ranks."""
        from ..report.text import topology_text

        topology = subject.topology()
        return topology_text(topology), facts_of(topology)

    def page(self, subject: Subject, args: argparse.Namespace) -> Make:
        """Return the page with the machine's map and text."""
        from ..report.html.text_page import topology_page
        from ..report.text import topology_text

        topology = subject.topology()
        page = topology_page(topology, topology_text(topology), subject.named)
        return lambda _: page

    def dot(self, subject: Subject, args: argparse.Namespace) -> Drawn:
        """Draw the machine as a graph."""
        from ..report.dot import machine_dot

        machine = subject.topology()
        return machine_dot(machine), {"about": machine.name}

    def svg(self, subject: Subject, args: argparse.Namespace) -> Drawn:
        """Draw the map."""
        from ..report.svg import drawing, machine_piece

        machine = subject.topology()
        return drawing(machine.name, [machine_piece(machine)]), {"about": machine.name}

    def sheets(self, subject: Subject, args: argparse.Namespace, console: Console) -> Sheets:
        """Return facts, nodes and capacities."""
        from ..report.difference import topology_sheets

        return topology_sheets(subject.topology())


class CollectiveNoun(Noun):
    """Collectives defined by the user, as JSON or in Python."""

    kind = Kind.COLLECTIVE

    def check(self, subject: Subject, args: argparse.Namespace, console: Console) -> list[Check]:
        """Check the form of the collective."""
        return [Check("form", True, str(subject.collective()))]

    def show(self, subject: Subject) -> tuple[str, dict[str, Any]]:
        """Return the chunks, with their places before and after."""
        from ..report.text import collective_text

        collective = subject.collective()
        return collective_text(collective), {
            "collective": collective.name or str(collective.kind),
            "ranks": collective.ranks,
            "chunks": collective.chunks,
        }


class SketchNoun(Noun):
    """Sketches in weft's language."""

    kind = Kind.SKETCH

    def check(self, subject: Subject, args: argparse.Namespace, console: Console) -> list[Check]:
        """Return errors and warnings of a sketch on its own machine or that of ``-t``."""
        from weft.dsl.language.parse import parse

        arguments = split_arguments(args.file)[1]
        return lint_sketch(parse(subject.text, subject.where), arguments, args.topology)

    def sheets(self, subject: Subject, args: argparse.Namespace, console: Console) -> Sheets:
        """Return the lines as ``weft sketch fmt`` writes them, so that layout does not matter."""
        from weft.dsl.language.format import format
        from weft.dsl.language.parse import parse

        from ..report.difference import text_sheets

        return text_sheets(format(parse(subject.text, subject.where)))


class LibraryNoun(Noun):
    """Libraries of tuned plans, by their manifest."""

    kind = Kind.LIBRARY

    def check(self, subject: Subject, args: argparse.Namespace, console: Console) -> list[Check]:
        """Check every file that the library names, and its claims."""
        from ..tune.judge import judge

        return judge(subject.library(), Path(subject.where).parent, args.target)

    def show(self, subject: Subject) -> tuple[str, dict[str, Any]]:
        """Return the plans by size."""
        from .libraries import library_facts, library_text

        library = subject.library()
        return library_text(library), library_facts(library)

    def page(self, subject: Subject, args: argparse.Namespace) -> Make:
        """Return the page of times and plans, with the schedules of the folder."""
        from ..report.html.library_page import library_page

        library, folder = subject.library(), Path(subject.where).parent
        find = _finder(folder)
        return lambda most: library_page(library, find, folder.resolve().name, most)

    def timed(self, subject: Subject, args: argparse.Namespace) -> Timed:
        """Raise an error: a library is many files."""
        raise not_whole(subject, "simulated")

    def sheets(self, subject: Subject, args: argparse.Namespace, console: Console) -> Sheets:
        """Return facts, plans and times."""
        from ..report.difference import library_sheets

        return library_sheets(subject.library())


def not_whole(subject: Subject, done: str) -> UserError:
    """Return the error for an operation on single files that was requested for a library."""
    return UserError(
        f"a library is not {done} as a whole",
        where=subject.where,
        hint="name one of the files in its folder; `weft show` lists its plans",
    )


def _finder(folder: Path) -> Callable[[str], Any]:
    """Return a function that reads and verifies schedules of a library's folder, each once."""
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


class StreamNoun(Noun):
    """Streams of transfers: folders of the engine ``greedy``, never loaded completely."""

    kind = Kind.STREAM

    def check(self, subject: Subject, args: argparse.Namespace, console: Console) -> list[Check]:
        """Replay the stream."""
        from .streams import check_stream

        return check_stream(subject.where)

    def show(self, subject: Subject) -> tuple[str, dict[str, Any]]:
        """Return the header; the transfers are not read."""
        from .streams import view_stream

        return view_stream(subject.where)

    def run_text(self, subject: Subject, args: argparse.Namespace) -> str:
        """Return an empty text: the header has the time."""
        return ""

    def page(self, subject: Subject, args: argparse.Namespace) -> Make:
        """Raise an error: a stream is too large for a page."""
        raise UserError(
            "a stream of transfers is too large for a page",
            where=subject.where,
            hint="`weft show` prints its header",
        )


class ResultNoun(Noun):
    """Results that ``--json`` of ``bench``, ``run``, ``simulate`` or ``bound`` printed."""

    kind = Kind.RESULT

    def page(self, subject: Subject, args: argparse.Namespace) -> Make:
        """Return the page of curves."""
        from ..report.html.bench_page import results_page

        page = results_page(subject.data, Path(subject.where).name)
        return lambda _: page

    def sheets(self, subject: Subject, args: argparse.Namespace, console: Console) -> Sheets:
        """Return facts and times."""
        from ..report.difference import results_sheets

        try:
            return results_sheets(subject.data)
        except (KeyError, TypeError, ValueError, AttributeError):
            raise BadFile(
                "not what a verb printed with --json: sizes have bytes and us",
                where=subject.where,
            ) from None


NOUNS: dict[Kind, Noun] = {
    Kind(noun.kind): noun
    for noun in (
        ScheduleNoun(),
        TopologyNoun(),
        CollectiveNoun(),
        AlgorithmNoun(),
        SketchNoun(),
        LibraryNoun(),
        StreamNoun(),
        ResultNoun(),
    )
}
"""Nouns of weft's own files, all but those of formats."""
