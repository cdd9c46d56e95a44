"""``weft compile``: a schedule, an algorithm or a program becomes an artefact, checked and run
before it is written."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from weft.dsl.base.errors import CheckFailed, UserError
from weft.dsl.base.progress import Telling
from weft.dsl.base.tables import count

from ...formats.format import Format, format_named
from ...formats.p2p.format import ScriptFile
from ..console import Console
from ..exit_codes import Exit
from ..inputs import add_problem, size_flag, valued, whole
from ..lowering import AUTO, add_lowering, compiled_as, options_of, require_listed, source_of
from ..nouns import Subject
from ..outputs import check_file_output
from ..scripts import compile_to_script
from ..stages import telling
from ..subjects import read_subject

if TYPE_CHECKING:
    from weft.dsl.nouns.collective import Collective
    from weft.dsl.nouns.program import Program

    from ...compile.instances import Timing
    from ...compile.prepare import Artefact
    from ...compile.source import Source

EXAMPLES = """examples:
  weft compile allgather.json --to msccl-xml -o allgather.xml
  weft compile allgather.json --to msccl-xml --in-place --instances 2 --target rccl -o ag.xml
  weft compile ring.py:allreduce{ranks=8} -o ring.xml
  weft compile 'classic:ring{collective=allreduce,ranks=8}' -o ring.xml
  weft compile 'classic:two_step{on=dgx-a100:nodes=2}' -o alltoall.xml
  weft compile from-elsewhere.xml --target rccl -o for-rccl.xml"""


ORDERS = 12
MOST_EXECUTED = 128
"""Ranks beyond which an artefact is proved only: the data of all of them takes minutes."""

USUAL_NODE = 8
"""GPUs of a usual node: more ranks are likely to be on several."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "file",
        metavar="FILE",
        help="a schedule, an algorithm (FILE.py, "
        "FILE.py:NAME{option=…}, classic:NAME{option=…}), MSCCL XML, a program, "
        "or -",
    )
    parser.add_argument(
        "--to",
        metavar="BACKEND",
        default="msccl-xml",
        help="the artefact; `weft list backends` (default: msccl-xml)",
    )
    add_lowering(parser, auto=True)
    add_problem(parser, topology=False, required=False)
    parser.add_argument("--size", **size_flag("--size"))
    parser.add_argument("-o", "--output", metavar="OUT", default="-", help="a file (default: -)")
    parser.add_argument("-f", "--force", action="store_true", help="overwrite OUT")
    parser.add_argument(
        "--no-run", action="store_true", help="do not execute the artefact before writing it"
    )
    parser.add_argument(
        "--interleavings",
        metavar="N",
        type=valued("--interleavings", whole(1, 100_000)),
        help=f"orders of that execution (default: {ORDERS}; none beyond {MOST_EXECUTED} ranks)",
    )
    parser.add_argument(
        "--seed",
        metavar="N",
        type=valued("--seed", whole(0)),
        default=0,
        help="of the orders and the data (default: 0)",
    )


def run(args: argparse.Namespace, console: Console) -> int:
    """Lower, check, emit, execute, write."""
    from weft.dsl.base.files import write_text

    check_file_output(args, console)
    backend = format_named(args.to, "--to")
    subject = read_subject(args.file)
    named = (args.collective, args.root, args.roots)
    asks = subject.noun.asks_collective and compiled_as(subject)
    if not asks and any(name is not None for name in named):
        raise UserError(
            "-c and --root say what an MSCCL XML file is for",
            where=subject.where,
            hint="leave them out: other files say it themselves",
        )
    source = source_of(subject, args)
    if isinstance(backend, ScriptFile):
        return compile_to_script(subject, source, backend, args, console)
    if source.topology is not None:
        backend = backend.on(source.topology)
    _tell_assumed(backend, source, console)
    made = _compiled(subject, source, backend, args, console)
    program, text, timing = made.program, made.text, made.timing
    blocks = max(len(rank.blocks) for rank in program.ranks)
    console.say(
        "Lowered",
        f"{count(program.instructions, 'instruction')}, "
        f"{count(program.channels, 'channel')}, "
        f"at most {count(blocks, 'thread block')} per rank",
    )
    for remark in source.remarks:
        console.say(remark.label, remark.text(program))
    plain = source.collective.message_chunks // source.collective.factor
    if told := backend.sizes_remark(program, plain):
        console.say("Sizes", told)
    if timing:
        _tell_time(timing, args, console)
    checks = [{"name": "program", "ok": True, "detail": "no error found"}]
    console.say("Checked", backend.checked(args.target))
    ranks = source.collective.ranks
    if not args.no_run and args.interleavings is None and ranks > MOST_EXECUTED:
        console.say("Executed", f"not: {ranks} ranks are proved only; --interleavings N insists")
    elif not args.no_run:
        with telling(console, "Executing") as tell:
            detail = _execute(text, source.collective, backend, args, tell)
        checks.append({"name": "execution", "ok": True, "detail": detail})
        console.say("Executed", detail)
    write_text(args.output, text, force=args.force)
    if args.output != "-":
        console.say("Wrote", args.output)
        facts = _facts(program, blocks, args)
        for remark in source.remarks:
            facts |= {**remark.facts, remark.label.lower(): remark.text(program)}
        if timing:
            facts["time"] = timing.to_json()
        console.result("", facts | {"checks": checks})
    return Exit.DONE


def _compiled(
    subject: Subject,
    source: Source,
    backend: Format,
    args: argparse.Namespace,
    console: Console,
) -> Artefact:
    """The program, its artefact, and what it takes where that is known."""
    from ...compile.prepare import artefact_of

    with telling(console, "Compiling") as tell:
        options = options_of(args, subject, tell)
        made = artefact_of(source, backend, options, args.size)
        require_listed(options)
        return made


def _tell_time(timing: Timing, args: argparse.Namespace, console: Console) -> None:
    """What the program takes, and what would be quicker."""
    if args.instances == AUTO:
        console.say("Chosen", f"--instances {timing.fastest} of {timing.trials}")
    console.say("Timed", timing.text)
    if timing.hint:
        console.say("Hint", timing.hint)


def _tell_assumed(backend: Format, source: Source, console: Console) -> None:
    """What was assumed of the machine: a warning where it is likely to be wrong."""
    ranks, machine = source.collective.ranks, source.topology
    if told := backend.assumed(ranks, machine.name if machine else None):
        (console.warn if ranks > USUAL_NODE else console.detail)(told)


def _execute(
    text: str, wanted: Collective, backend: Format, args: argparse.Namespace, tell: Telling
) -> str:
    done = backend.execute(
        text,
        "the artefact",
        wanted,
        interleavings=args.interleavings or ORDERS,
        seed=args.seed,
        tell=tell,
    )
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
