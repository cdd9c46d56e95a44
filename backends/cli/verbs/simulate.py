"""``weft simulate``: what a schedule or a program takes in the documented cost model, against
the bound."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from weft.dsl.base.errors import UserError
from weft.dsl.base.tables import count, microseconds, number, table
from weft.dsl.base.units import (
    SizeRange,
    format_bytes,
    parse_bandwidth,
    parse_microseconds,
    parse_size_range,
)

from ..console import Console
from ..exit_codes import Exit
from ..inputs import add_problem, read_topology, size_flag, valued
from ..judging import require_good
from ..machines import on_machine
from ..programs import asked_collective
from ..subjects import Kind, Subject, read_subject

if TYPE_CHECKING:
    from weft.dsl.nouns.collective import Collective
    from weft.dsl.nouns.program import Program
    from weft.dsl.nouns.schedule import Schedule
    from weft.dsl.nouns.topology import Topology
    from weft.synth.time.programs import ProgramSimulation, RuntimeModel
    from weft.synth.time.schedule_time import Timing

EXAMPLES = """examples:
  weft simulate allgather.json --size 1KiB:1GiB
  weft simulate allgather.json -t measured.json --size 1MiB --alpha-occupies
  weft simulate allgather.xml -t dgx1 --size 1KiB:1GiB --protocol LL"""

DEFAULT_SIZES = "1KiB:1GiB"

_RULE = ("alpha_occupies", "store_and_forward", "barrier")
_RUNTIME = ("protocol", "target", "local_bandwidth", "group", "collective", "root", "roots")


@dataclass(frozen=True, slots=True)
class _Timed:
    """What is simulated: where, what it achieves, its time by size and lower bound, and the sizes
    that it is for."""

    topology: Topology
    collective: Collective
    evaluate: Callable[[int, float], Timing]
    facts: dict[str, Any]
    sizes: SizeRange
    explain: Callable[[Any], str] = lambda _: ""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "file", metavar="FILE", help="a schedule, an algorithm, a program or MSCCL XML, or -"
    )
    add_problem(parser, required=False)
    parser.add_argument("--size", **size_flag())
    parser.add_argument(
        "--overhead",
        metavar="TIME",
        default=Fraction(0),
        type=valued("--overhead", parse_microseconds),
        help="of every message: added to its occupancy; of every operation "
        "of a program: added to its block's time (default: 0us)",
    )
    rule = parser.add_argument_group(
        "rule for schedules (default: cut-through, α occupies nothing)"
    )
    rule.add_argument(
        "--alpha-occupies",
        action="store_true",
        help="α holds the links too, as TACCL and TACOS count",
    )
    rule.add_argument(
        "--store-and-forward",
        action="store_true",
        help="switches send on what they have received whole",
    )
    rule.add_argument(
        "--barrier", action="store_true", help="a step waits for all earlier ones, as SCCL counts"
    )
    runtime = parser.add_argument_group("runtime of programs")
    runtime.add_argument(
        "--protocol", choices=("Simple", "LL", "LL128"), help="instead of the program's own"
    )
    runtime.add_argument(
        "--target",
        choices=("msccl", "rccl", "executor"),
        help="whose payloads are reckoned with (default: msccl)",
    )
    runtime.add_argument(
        "--local-bandwidth",
        metavar="BW",
        type=valued("--local-bandwidth", parse_bandwidth),
        help="of copies and sums inside a GPU (default: no time)",
    )


def run(args: argparse.Namespace, console: Console) -> int:
    """Print one line per size."""
    from weft.synth.bounds import bounds, lower_bound_us

    subject = read_subject(args.file)
    if subject.kind is Kind.SCHEDULE:
        timed = _schedule(subject, args)
    elif subject.kind in PROGRAMS:
        timed = _program(subject, args)
    else:
        subject.refuse_plan("simulated")
        subject.refuse_library("simulated")
        raise UserError(
            f"a schedule, an algorithm or a program is needed; this is: {subject.kind}",
            where=subject.where,
        )
    size: SizeRange = args.size or timed.sizes
    bound = bounds(timed.topology, timed.collective)
    found = [timed.evaluate(n, float(lower_bound_us(bound, n))) for n in size.powers()]
    for told in filter(None, map(timed.explain, found)):
        console.detail(told)
    rough = [format_bytes(x.message_bytes) for x in found if not x.exact]
    if rough:
        console.warn(f"extrapolated from shorter runs, as nothing repeats: {', '.join(rough)}")
    sizes = list(map(_entry, found))
    rows = [
        (
            format_bytes(s["bytes"]),
            microseconds(s["us"]),
            s["algbw_GBps"],
            s["busbw_GBps"],
            "-" if s["of_bound"] is None else f"{s['of_bound']:.1%}",
        )
        for s in sizes
    ]
    text = table(("size", "µs", "algbw GB/s", "busbw GB/s", "of bound"), rows)
    console.result(
        text,
        {
            "status": "ok",
            "topology": timed.topology.name,
            "collective": timed.collective.name or str(timed.collective.kind),
            "ranks": timed.collective.ranks,
            **timed.facts,
            "bound": bound.to_json(),
            "sizes": sizes,
        },
    )
    return Exit.DONE


def _entry(found: Timing) -> dict[str, Any]:
    """One entry of ``sizes``."""
    moves = found.time_us > 0
    return {
        "bytes": found.message_bytes,
        "us": number(found.time_us),
        "algbw_GBps": number(found.algbw_GBps) if moves else None,
        "busbw_GBps": number(found.busbw_GBps) if moves else None,
        "of_bound": number(found.of_bound),
    }


def _refuse(args: argparse.Namespace, names: tuple[str, ...], why: str, where: str) -> None:
    given = [n for n in names if getattr(args, n) not in (None, False)]
    if given:
        raise UserError(f"--{given[0].replace('_', '-')} {why}", where=where)


# --- schedules ------------------------------------------------------------------------------------


def _schedule(subject: Subject, args: argparse.Namespace) -> _Timed:
    from weft.synth.judge.verify import require_valid
    from weft.synth.time.schedule_tables import CostModel
    from weft.synth.time.schedule_time import simulate

    _refuse(args, _RUNTIME, "is for programs; a schedule has none of its own", subject.where)
    schedule: Schedule = subject.schedule()
    if args.topology:
        schedule = on_machine(schedule, args.topology)
    require_valid(schedule)
    model = CostModel(args.alpha_occupies, args.store_and_forward, args.overhead, args.barrier)

    def evaluate(message_bytes: int, least: float) -> Timing:
        return simulate(schedule, message_bytes, model, bound_us=least)

    return _Timed(
        schedule.topology, schedule.collective, evaluate, {}, parse_size_range(DEFAULT_SIZES)
    )


# --- programs -------------------------------------------------------------------------------------


def _program(subject: Subject, args: argparse.Namespace) -> _Timed:
    from weft.dsl.nouns.program import Protocol
    from weft.synth.time.programs import simulate_program

    _refuse(args, _RULE, "is for schedules; programs have one rule", subject.where)
    if not args.topology:
        raise UserError(
            "a program does not say what machine it is for",
            where=subject.where,
            hint="-t TOPO names it",
        )
    topology = read_topology(args.topology)
    if args.group:
        topology = topology.restricted_to(args.group)
    program, sizes = PROGRAMS[subject.kind](subject, args)
    if topology.ranks != len(program.ranks):
        ranks = len(program.ranks)
        raise UserError(
            f"the program is for {ranks} ranks, {topology.name} has {topology.ranks}",
            where=subject.where,
            hint=f"--group 0..{ranks - 1} names those to use" if topology.ranks > ranks else "",
        )
    model = _model(args)
    protocol = Protocol(args.protocol) if args.protocol else program.protocol

    def evaluate(message_bytes: int, least: float) -> Timing:
        return simulate_program(
            program, topology, message_bytes, model, protocol=protocol, bound_us=least
        )

    facts = {"protocol": str(protocol), "target": model.name}
    return _Timed(
        topology, program.collective, evaluate, facts, sizes, lambda run: _explain(run, topology)
    )


def _explain(run: ProgramSimulation, topology: Topology) -> str:
    """Where the time goes, in a line: what thread blocks do, and what is busiest."""
    from weft.synth.fabric.occupancy import row_name
    from weft.synth.time.programs import Activity

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


def _of_xml(subject: Subject, args: argparse.Namespace) -> tuple[Program, SizeRange]:
    """The program of an XML file that no check rejects, and the sizes that it is for."""
    from ...check import check_xml
    from ...formats.msccl.read import program_of, read_msccl_xml
    from ...formats.msccl.read.collective import collective_of, fit

    algo = read_msccl_xml(subject.text, subject.where)
    # Whether it hangs depends on the size: the simulation finds that out for those asked for.
    findings = [f for f in check_xml(algo, args.target) if f.check != "deadlock"]
    require_good(findings, subject.where)
    asked = asked_collective(args, algo)
    program = program_of(algo, collective_of(algo) if asked is None else fit(asked, algo))
    usual = parse_size_range(DEFAULT_SIZES)
    low, high = max(usual.low, algo.min_bytes or 0), min(usual.high, algo.max_bytes or usual.high)
    return program, SizeRange(low, high) if low <= high else usual


def _of_file(subject: Subject, _: argparse.Namespace) -> tuple[Program, SizeRange]:
    """The program of weft's own file."""
    from ...check import check_program

    program: Program = subject.program()
    require_good(check_program(program), subject.where)
    return program, parse_size_range(DEFAULT_SIZES)


def _of_algorithm(subject: Subject, args: argparse.Namespace) -> tuple[Program, SizeRange]:
    """The program that an algorithm becomes by default; ``compile`` has the options."""
    from weft.dsl.nouns.program import Protocol

    from ...check import check_program
    from ...compile.compile import CompileOptions, compile_algorithm
    from ...runtime.target import target

    asked = Protocol(args.protocol) if args.protocol else None
    options = CompileOptions(target=target(args.target or "msccl"), protocol=asked)
    program = compile_algorithm(subject.algorithm(), options)
    require_good(check_program(program), subject.where)
    return program, parse_size_range(DEFAULT_SIZES)


PROGRAMS: dict[Kind, Callable[[Subject, argparse.Namespace], tuple[Program, SizeRange]]] = {
    Kind.XML: _of_xml,
    Kind.PROGRAM: _of_file,
    Kind.ALGORITHM: _of_algorithm,
}
"""The program of a file, checked, and the sizes that it is for."""


def _model(args: argparse.Namespace) -> RuntimeModel:
    from weft.synth.time.programs import model_of

    model = replace(model_of(args.target), name=args.target or "msccl")
    local = math.inf if args.local_bandwidth is None else args.local_bandwidth
    return replace(model, overhead_us=args.overhead, local_GBps=local)
