"""``weft run``: execute on real data, in many orders, and compare with the definition."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Any

from weft.dsl.base.errors import UserError, an
from weft.dsl.base.progress import Telling

from ..console import Console
from ..exit_codes import Exit
from ..inputs import add_problem, several_sizes, valued, whole
from ..judging import Check, checks_text, of_findings
from ..lowering import COMPILED, add_lowering, lower_and_emit, options_of, source_of
from ..plans import run_plan_file
from ..programs import asked_collective
from ..running import ON, add_job, refuse_job_flags, run_job
from ..stages import telling
from ..subjects import Kind, Subject, read_subject

if TYPE_CHECKING:
    from weft.dsl.nouns.collective import Collective

    from ...formats.msccl.read import XmlAlgo

EXAMPLES = """examples:
  weft run allgather.xml --on numpy
  weft run custom.xml --on numpy -c gather --root 2
  weft run allgather.json --on numpy --in-place --interleavings 200
  weft run allreduce.json --on mpi --size 1KiB:1MiB --dtype float32,bfloat16 --repeat 20
  weft run allreduce.py --on torch --size 64MiB --timeout 60s --json"""

LARGEST_BYTES = 1 << 28
"""Bytes of one rank's message beyond which the interpreter is the wrong tool."""

LOWERING: dict[str, Any] = {
    "instances": None,
    "lanes": 0,
    "protocol": None,
    "passes": None,
    "print_after": "",
    "name": "",
    "segments": 1,
    "target": "msccl",
}
"""Flags that say how something becomes a program, and what they are where it is not one yet."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "file",
        metavar="FILE",
        help="MSCCL XML, an MSCCL++ plan, a schedule, "
        "an algorithm (FILE.py), a program, a point-to-point program, "
        "or -",
    )
    parser.add_argument(
        "--on",
        choices=ON,
        default="numpy",
        help="what executes it: numpy in this process, or real processes of mpi "
        "or torch (default: numpy)",
    )
    parser.add_argument(
        "--dtype",
        metavar="TYPE,TYPE",
        default="float32,int32",
        help="data types (default: float32,int32)",
    )
    parser.add_argument(
        "--interleavings",
        metavar="N",
        default=200,
        type=valued("--interleavings", whole(1, 1_000_000)),
        help="orders of execution (default: 200)",
    )
    parser.add_argument(
        "--seed",
        metavar="N",
        type=valued("--seed", whole(0)),
        default=0,
        help="of the orders and the data (default: 0)",
    )
    add_problem(parser, topology=False, required=False)
    add_job(parser)
    add_lowering(parser)
    # None tells a flag that was given from one that was not: an XML program is lowered already.
    parser.set_defaults(**dict.fromkeys(LOWERING))
    parser.add_argument(
        "--size",
        metavar="SIZE,SIZE",
        type=valued("--size", several_sizes),
        help="message sizes or ranges: 1MiB, 1KiB,64KiB, 1KiB:1GiB",
    )


def run(args: argparse.Namespace, console: Console) -> int:
    """Check it, execute it, compare."""
    started = time.monotonic()
    subject = read_subject(args.file)
    if args.on != "numpy" or subject.kind is Kind.SCRIPT:
        with_defaults(args)
        return run_job(subject, args, console)
    refuse_job_flags(args)
    with telling(console, "Running") as tell:
        if subject.kind is Kind.PLAN:
            checks, plan = run_plan_file(subject, args, (*LOWERING, "size"), tell)
            collective, ranks = plan.collective, len(plan.gpus)
        else:
            checks, algo = _run_code(subject, args, tell)
            collective, ranks = algo.coll, algo.ngpus
    return _told(console, checks, collective, ranks, started)


def _run_code(
    subject: Subject, args: argparse.Namespace, tell: Telling
) -> tuple[list[Check], XmlAlgo]:
    """Check and execute an XML file, or the one that something becomes."""
    from ...check import check_xml
    from ...execute import run_algo
    from ...formats.msccl.read import read_msccl_xml

    text, collective = _program(subject, args, tell)
    algo = read_msccl_xml(text, subject.where)
    collective = _asked(args, algo) or collective
    tell("check")
    # The result is judged by executing, not by the proof.
    findings = [f for f in check_xml(algo, args.target, collective) if f.check != "result"]
    checks = of_findings(findings, "no error found")
    if all(c.ok for c in checks):
        types = tuple(t.strip() for t in args.dtype.split(",") if t.strip())
        done = run_algo(
            algo,
            collective,
            dtypes=types,
            interleavings=args.interleavings,
            elements_per_chunk=_elements(args, algo),
            seed=args.seed,
            tell=tell,
        )
        checks.append(Check("execution", done.ok, done.detail))
    return checks, algo


def _told(
    console: Console, checks: list[Check], collective: str, ranks: int, started: float
) -> int:
    good = all(c.ok for c in checks)
    console.result(
        checks_text(checks),
        {
            "status": "ok" if good else "failed",
            "collective": collective,
            "ranks": ranks,
            "seconds": round(time.monotonic() - started, 3),
            "checks": [c.to_json() for c in checks],
        },
    )
    return Exit.DONE if good else Exit.NO


def _program(
    subject: Subject, args: argparse.Namespace, tell: Telling
) -> tuple[str, Collective | None]:
    """The XML to execute, and what it must achieve where that is known.

    Raises:
        UserError: nothing that can be executed, or an option that contradicts it.
    """
    rooted = args.root is not None or args.roots is not None
    if subject.kind is Kind.XML:
        given = [name for name in LOWERING if name != "target" and getattr(args, name) is not None]
        if given:
            flag = given[0].replace("_", "-")
            raise UserError(
                f"--{flag} is for schedules; an XML program is compiled already",
                where=subject.where,
            )
        return subject.text, None
    if subject.kind in COMPILED:
        from ...formats.msccl.format import MscclXml

        noun = COMPILED[subject.kind]
        if rooted and not args.collective:
            raise UserError(
                f"the {noun} has its own collective and roots",
                where=subject.where,
                hint="leave --root out, or name a collective with -c",
            )
        with_defaults(args)
        source = source_of(subject, args)
        options = options_of(args, subject, tell)
        return lower_and_emit(source, MscclXml(), options, None)[1], source.collective
    raise UserError(
        f"a schedule, an algorithm or a program is needed, not {an(subject.kind)}",
        where=subject.where,
    )


def with_defaults(args: argparse.Namespace) -> None:
    """The flags of lowering that were not given, as they are by default."""
    for name, value in LOWERING.items():
        if getattr(args, name) is None:
            setattr(args, name, value)


def _asked(args: argparse.Namespace, algo: XmlAlgo) -> Collective | None:
    """The collective that the options name, if they name one.

    Raises:
        UserError: the options contradict the file.
    """
    if args.in_place and True not in algo.placements:
        raise UserError(
            "the file is for separate buffers (inplace=0)",
            where=algo.where,
            hint="compile it with --in-place",
        )
    return asked_collective(args, algo)


def _elements(args: argparse.Namespace, algo: XmlAlgo) -> int:
    """Four-byte elements per chunk for a message of ``--size`` bytes; few without one."""
    if args.size is None:
        return 5
    size: int = max(args.size)
    if size > LARGEST_BYTES:
        raise UserError("the interpreter takes messages up to 256MiB", where="--size")
    return max(1, size // (4 * max(1, algo.message_chunks)))
