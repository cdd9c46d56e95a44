"""``weft run``: execute on real data, in many orders, and compare with the definition."""

from __future__ import annotations

import argparse
import time
from dataclasses import replace

from weft.dsl.base.errors import UserError, an
from weft.dsl.base.progress import Telling
from weft.dsl.nouns.collective import Collective

from ...check.checks import checks_text
from ...formats.format import DEFAULT, Format, Order, Ran, format_named
from ..console import Console
from ..exit_codes import Exit
from ..inputs import add_problem, several_sizes, valued, whole
from ..lowering import DEFAULTS, add_lowering, compiled_as, options_of, require_listed, source_of
from ..noun import Subject, asked_of
from ..running import ON, add_job, is_script, refuse_job_flags, run_job
from ..stages import telling
from ..subjects import read_subject

EXAMPLES = """examples:
  weft run allgather.xml --on numpy
  weft run custom.xml --on numpy -c gather --root 2
  weft run allgather.json --on numpy --in-place --interleavings 200
  weft run allreduce.json --on mpi --size 1KiB:1MiB --dtype float32,bfloat16 --repeat 20
  weft run allreduce.py --on torch --size 64MiB --timeout 60s --json"""


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
    parser.set_defaults(**dict.fromkeys(DEFAULTS))
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
    if args.on != "numpy" or is_script(subject):
        with_defaults(args)
        return run_job(subject, args, console)
    refuse_job_flags(args)
    with telling(console, "Running") as tell:
        ran = _run(subject, args, tell)
    return _told(console, ran, started)


def _run(subject: Subject, args: argparse.Namespace, tell: Telling) -> Ran:
    """Check and execute an artefact, or the one that something becomes.

    Raises:
        UserError: nothing that can be executed, or an option that contradicts it.
    """
    order = Order(
        dtypes=tuple(t.strip() for t in args.dtype.split(",") if t.strip()),
        interleavings=args.interleavings,
        seed=args.seed,
        message_bytes=max(args.size) if args.size is not None else None,
    )
    format = subject.format
    if format is not None and format.interpreted:
        given = tuple(name for name in (*DEFAULTS, "size") if getattr(args, name) is not None)
        order = replace(order, given=given)
        return format.run(subject.text, subject.where, asked_of(args), order, tell)
    format = format_named(DEFAULT)
    text, wanted = _compiled(subject, format, args, tell)
    order = replace(order, wanted=wanted)
    return format.run(text, subject.where, asked_of(args), order, tell)


def _compiled(
    subject: Subject, format: Format, args: argparse.Namespace, tell: Telling
) -> tuple[str, Collective]:
    """The artefact of something to compile, and what it must achieve."""
    from ...compile.prepare import made_of

    noun = compiled_as(subject)
    if noun is None:
        raise UserError(
            f"a schedule, an algorithm or a program is needed, not {an(subject.kind)}",
            where=subject.where,
        )
    rooted = args.root is not None or args.roots is not None
    if rooted and not args.collective:
        raise UserError(
            f"the {noun} has its own collective and roots",
            where=subject.where,
            hint="leave --root out, or name a collective with -c",
        )
    with_defaults(args)
    source = source_of(subject, args)
    options = options_of(args, subject, tell)
    text = made_of(source, format, options, None).text
    require_listed(options)
    return text, source.collective


def _told(console: Console, ran: Ran, started: float) -> int:
    good = all(c.ok for c in ran.checks)
    console.result(
        checks_text(ran.checks),
        {
            "status": "ok" if good else "failed",
            "collective": ran.collective,
            "ranks": ran.ranks,
            "seconds": round(time.monotonic() - started, 3),
            "checks": [c.to_json() for c in ran.checks],
        },
    )
    return Exit.DONE if good else Exit.NO


def with_defaults(args: argparse.Namespace) -> None:
    """The flags of lowering that were not given, as they are by default."""
    for name, value in DEFAULTS.items():
        if getattr(args, name) is None:
            setattr(args, name, value)
