"""``weft compile``: a schedule becomes an artefact, checked and run before it is written."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from weft.dsl.errors import CheckFailed, UserError
from weft.dsl.registry import BACKENDS, PASSES
from weft.dsl.spec import parse_specs

from ..report.layout import count
from .console import Console
from .exit_codes import Exit
from .inputs import size_flag, valued, whole
from .judging import require_good
from .outputs import check_file_output
from .subjects import Kind, read_subject

if TYPE_CHECKING:
    from weft.dsl.program import Program
    from weft.dsl.schedule import Schedule
    from weft.dsl.units import SizeRange

    from ..msccl import Backend

EXAMPLES = """examples:
  weft compile allgather.json --to msccl-xml -o allgather.xml
  weft compile allgather.json --to msccl-xml --in-place --instances 2 --target rccl -o ag.xml"""

RUNTIMES = ("msccl", "rccl", "executor", "portable")
PROTOCOLS = ("Simple", "LL", "LL128")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("file", metavar="FILE", help="a schedule, or -")
    parser.add_argument("--to", metavar="BACKEND", default="msccl-xml",
                        help="the artefact; `weft list backends` (default: msccl-xml)")  # fmt: skip
    add_lowering(parser)
    parser.add_argument("--size", **size_flag("--size"))
    parser.add_argument("-o", "--output", metavar="OUT", default="-", help="a file (default: -)")
    parser.add_argument("-f", "--force", action="store_true", help="overwrite OUT")
    parser.add_argument("--no-run", action="store_true",
                        help="do not execute the artefact before writing it")  # fmt: skip
    parser.add_argument("--interleavings", metavar="N", default=12,
                        type=valued("--interleavings", whole(1, 100_000)),
                        help="orders of that execution (default: 12)")  # fmt: skip
    parser.add_argument("--seed", metavar="N", type=valued("--seed", whole(0)), default=0,
                        help="of the orders and the data (default: 0)")  # fmt: skip


def add_lowering(parser: argparse.ArgumentParser) -> None:
    """The flags that say how a schedule becomes a program."""
    group = parser.add_argument_group("lowering")
    group.add_argument("--target", choices=RUNTIMES, default="msccl",
                       help="the runtime whose limits hold, or portable: all of them "
                       "(default: msccl)")  # fmt: skip
    group.add_argument("--instances", metavar="N", type=valued("--instances", whole(1, 64)),
                       default=1, help="copies side by side (default: 1)")  # fmt: skip
    group.add_argument("--lanes", metavar="N", type=valued("--lanes", whole(0, 32)), default=0,
                       help="channels per connection (default: 0, as fusing needs)")  # fmt: skip
    group.add_argument("--protocol", choices=PROTOCOLS, default="Simple", help="default: Simple")
    group.add_argument("--in-place", action="store_true", help="input and output are one buffer")
    group.add_argument("-p", "--passes", metavar="PASSES",
                       help="e.g. fuse,elide,sync,prune (default: all)")  # fmt: skip
    group.add_argument("--name", metavar="NAME", default="", help="how the artefact calls itself")


def run(args: argparse.Namespace, console: Console) -> int:
    """Lower, check, emit, execute, write."""
    from weft.dsl.files import write_text

    from ..msccl import ForMachine

    check_file_output(args, console)
    backend: Backend = BACKENDS.make(args.to, "--to")
    subject = read_subject(args.file)
    if subject.kind is not Kind.SCHEDULE:
        raise UserError(f"a schedule is needed, not a {subject.kind}", where=subject.where)
    schedule: Schedule = subject.schedule()
    if isinstance(backend, ForMachine):
        backend = backend.on(schedule.topology)
    program, text = lower_and_emit(schedule, backend, args, args.size)
    blocks = max(len(rank.blocks) for rank in program.ranks)
    console.say("Lowered", f"{count(program.instructions, 'instruction')}, "
                           f"{count(program.channels, 'channel')}, "
                           f"at most {count(blocks, 'thread block')} per rank")  # fmt: skip
    checks = [{"name": "program", "ok": True, "detail": "no error found"}]
    console.say("Checked", f"program and {args.to} for {args.target}")
    if not args.no_run:
        detail = _execute(text, schedule, backend, args)
        checks.append({"name": "execution", "ok": True, "detail": detail})
        console.say("Executed", detail)
    write_text(args.output, text, force=args.force)
    if args.output != "-":
        console.say("Wrote", args.output)
        console.result("", _facts(program, blocks, args) | {"checks": checks})
    return Exit.DONE


def lower_and_emit(
    schedule: Schedule, backend: Backend, args: argparse.Namespace, sizes: SizeRange | None
) -> tuple[Program, str]:
    """The program of a verified schedule and its artefact, both found good by the checkers.

    Raises:
        CheckFailed: a checker rejects the schedule, a program on the way, or the text.
        UserError: the target cannot express it, or an option makes no sense.
    """
    from weft.dsl.program import Protocol
    from weft.synth.verify import require_valid

    from ..check import check_program
    from ..compile import CompileOptions, compile_schedule
    from ..pipeline import DEFAULT_PASSES
    from ..target import target

    def verify(program: Program) -> None:
        require_good(check_program(program), "program")

    require_valid(schedule)
    runtime = target(args.target)
    specs = parse_specs(args.passes, "--passes") if args.passes else None
    program = compile_schedule(schedule, CompileOptions(
        target=runtime, instances=args.instances, in_place=args.in_place,
        protocol=Protocol(args.protocol), lanes=args.lanes, name=args.name,
        passes=DEFAULT_PASSES if specs is None else tuple(map(PASSES.create, specs)), verify=verify,
    ))  # fmt: skip
    text = backend.emit(program, runtime, sizes)
    require_good(backend.findings(text, "the artefact", args.target), "artefact")
    return program, text


def _execute(text: str, schedule: Schedule, backend: Backend, args: argparse.Namespace) -> str:
    done = backend.execute(text, "the artefact", schedule.collective,
                           interleavings=args.interleavings, seed=args.seed)  # fmt: skip
    if not done.ok:
        raise CheckFailed(
            f"the artefact computes something else: {done.detail}",
            hint="nothing was written; this is a bug in weft, please report it",
        )
    return done.detail


def _facts(program: Program, blocks: int, args: argparse.Namespace) -> dict[str, Any]:
    collective = program.collective
    return {
        "status": "ok",
        "collective": collective.name or str(collective.kind),
        "ranks": collective.ranks,
        "to": args.to,
        "target": args.target,
        "protocol": str(program.protocol),
        "in_place": program.in_place,
        "chunks": program.message_chunks,
        "channels": program.channels,
        "thread_blocks": blocks,
        "instructions": program.instructions,
        "file": args.output,
    }
