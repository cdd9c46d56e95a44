"""``weft check``: judge a file by what it holds, with checkers that know nothing of its maker."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from weft.dsl.base.errors import UserError
from weft.dsl.base.tables import count

from ..console import Console
from ..exit_codes import Exit
from ..inputs import add_problem
from ..judging import Check, checks_text, of_report
from ..library_check import check_library
from ..machines import machine_line
from ..plans import check_plan_file
from ..programs import asked_collective
from ..scripts import check_script_file
from ..sketches import lint_sketch, read_sketch, split_arguments
from ..streams import check_stream, is_stream
from ..subjects import Kind, Subject, read_subject

EXAMPLES = """examples:
  weft check allgather.json
  weft check algo.xml
  weft check custom.xml -c gather --root 2
  weft check my.sketch --json
  weft check ring.py:allreduce{ranks=8}
exit code 1 if a check fails"""


GOOD = "no wrong address, unmatched message, deadlock, race or broken limit"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "file",
        metavar="FILE",
        help="a schedule, algorithm, program, MSCCL XML, "
        "MSCCL++ plan, point-to-point program, sketch, topology or collective "
        "(told by its content), the folder of a library or a stream, "
        "or -",
    )
    parser.add_argument(
        "-s", "--sketch", metavar="SKETCH", help="a schedule must obey this sketch too"
    )
    parser.add_argument(
        "-t",
        "--topology",
        metavar="TOPO",
        help="the machine for a sketch (default: the one it names)",
    )
    parser.add_argument(
        "--target",
        choices=("msccl", "rccl", "executor", "portable"),
        help="the runtime an XML program is for (default: any), or portable: all of them",
    )
    add_problem(parser, topology=False, required=False)


def run(args: argparse.Namespace, console: Console) -> int:
    """Run the checks for what the file holds."""
    if is_stream(args.file):
        return _told("stream", check_stream(args.file), console)
    subject = read_subject(args.file)
    named = (args.collective, args.root, args.roots)
    if subject.kind not in _NAMELESS and any(name is not None for name in named):
        raise UserError(
            "-c and --root say what an MSCCL XML file or an MSCCL++ plan is for",
            where=subject.where,
            hint="leave them out: other files say it themselves",
        )
    return _told(str(subject.kind), _CHECKERS[subject.kind](subject, args, console), console)


def _told(kind: str, checks: list[Check], console: Console) -> int:
    good = all(check.ok for check in checks)
    console.result(
        checks_text(checks),
        {
            "status": "ok" if good else "failed",
            "kind": kind,
            "checks": [c.to_json() for c in checks],
        },
    )
    return Exit.DONE if good else Exit.NO


def _schedule(subject: Subject, args: argparse.Namespace, console: Console) -> list[Check]:
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


def _xml(subject: Subject, args: argparse.Namespace, _: Console) -> list[Check]:
    from ...check import report_xml
    from ...formats.msccl.read import read_msccl_xml

    algo = read_msccl_xml(subject.text, subject.where)
    collective = asked_collective(args, algo)
    size = ", ".join(
        (
            f"{algo.coll} on {count(algo.ngpus, 'rank')}",
            count(algo.channels, "channel"),
            count(algo.steps, "instruction"),
        )
    )
    return [Check("form", True, size), *of_report(report_xml(algo, args.target, collective), GOOD)]


def _algorithm(subject: Subject, args: argparse.Namespace, _: Console) -> list[Check]:
    """Its lines are judged as they run; then the program that it becomes."""
    from ...check import report_program
    from ...compile.compile import CompileOptions, compile_algorithm
    from ...runtime.target import target

    algorithm = subject.algorithm()
    size = f"{count(len(algorithm.moves), 'move')}, {algorithm.collective}"
    checks = [Check("form", True, size), Check("algorithm", True, "achieves its collective")]
    chosen = CompileOptions(target(args.target)) if args.target else CompileOptions()
    found = report_program(compile_algorithm(algorithm, chosen), args.target)
    return [*checks, *of_report(found, GOOD)]


def _program(subject: Subject, args: argparse.Namespace, _: Console) -> list[Check]:
    from ...check import report_program

    program = subject.program()
    size = f"{program.collective}, {count(program.instructions, 'instruction')}"
    return [Check("form", True, size), *of_report(report_program(program, args.target), GOOD)]


def _topology(subject: Subject, *_: object) -> list[Check]:
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


def _collective(subject: Subject, *_: object) -> list[Check]:
    return [Check("form", True, str(subject.collective()))]


def _sketch(subject: Subject, args: argparse.Namespace, _: Console) -> list[Check]:
    from weft.dsl.language.parse import parse

    arguments = split_arguments(args.file)[1]
    return lint_sketch(parse(subject.text, subject.where), arguments, args.topology)


_NAMELESS = frozenset({Kind.XML, Kind.PLAN})
"""Files that need not say what they must achieve."""

_CHECKERS: dict[Kind, Callable[[Subject, argparse.Namespace, Console], list[Check]]] = {
    Kind.SCHEDULE: _schedule,
    Kind.ALGORITHM: _algorithm,
    Kind.PROGRAM: _program,
    Kind.XML: _xml,
    Kind.PLAN: check_plan_file,
    Kind.SCRIPT: check_script_file,
    Kind.TOPOLOGY: _topology,
    Kind.COLLECTIVE: _collective,
    Kind.SKETCH: _sketch,
    Kind.LIBRARY: lambda subject, args, _: check_library(subject, args.target),
}
