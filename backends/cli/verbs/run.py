"""``weft run``: execute on real data, in many orders, and compare with the definition."""

from __future__ import annotations

import time
from dataclasses import replace

from weft.dsl.base.errors import UserError, an
from weft.dsl.base.progress import ProgressCallback
from weft.dsl.nouns.collective import Collective

from ...check.checks import checks_text
from ...formats.format import (
    DEFAULT,
    WITH_CASTS,
    ExecutionReport,
    ExecutionRequest,
    Format,
    format_named,
)
from ..flags.files import LOWERING, RunFlags
from ..nouns.noun import FileKind, Subject, asked_of, refuse_collective
from ..nouns.subjects import read_subject
from ..output.console import Console, Exit
from ..output.stages import telling


def run(args: RunFlags, console: Console) -> int:
    started = time.monotonic()
    subject = read_subject(args.file)
    if args.on != "numpy" or subject.is_script:
        from ..work.running import run_job  # launchers of processes

        return run_job(subject, args.with_defaults(), console)
    for name in args.given(("topology", "repeat", "timeout", "trace")):
        raise UserError(
            f"--{name} is for real ranks, and point-to-point programs",
            where=f"--{name}",
            hint="--on mpi or --on torch",
        )
    with telling(console, "Running") as tell:
        ran = _run(subject, args, tell)
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


def _run(subject: Subject, args: RunFlags, tell: ProgressCallback) -> ExecutionReport:
    """Check and execute an artefact, or the one compiled from the input."""
    dtypes = tuple(t.strip() for t in args.dtype.split(",") if t.strip())
    if not dtypes:
        raise UserError("--dtype: expected a type, got none", hint="int32, float32, float16 …")
    request = ExecutionRequest(
        dtypes=dtypes,
        interleavings=args.interleavings,
        seed=args.seed,
        message_bytes=max(args.size) if args.size is not None else None,
    )
    format = subject.format
    if format is not None and format.interpreted:
        if not format.asks_collective:
            refuse_collective(args, subject)
        text, request = subject.text, replace(request, given=args.given((*LOWERING, "size")))
    else:
        casts = subject.kind is FileKind.SCHEDULE and len(subject.schedule().casts)
        format = format_named(WITH_CASTS if casts else DEFAULT)
        # A file compiled here is judged for the target of its compilation.
        args = args.with_defaults()
        text, wanted = _compiled(subject, format, args, tell)
        request = replace(request, collective=wanted)
    asked = asked_of(args, target=args.target, protocol=args.protocol, in_place=args.in_place)
    return format.run(text, subject.where, asked, request, tell)


def _compiled(
    subject: Subject, format: Format, args: RunFlags, tell: ProgressCallback
) -> tuple[str, Collective]:
    if subject.compiled_form is None:
        raise UserError(
            f"expected a schedule, an algorithm or a program, got {an(subject.kind)}",
            where=subject.where,
        )
    rooted = args.root is not None or args.roots is not None
    if rooted and not args.collective:
        raise UserError(
            f"the {subject.compiled_form} has its own collective and roots",
            where=subject.where,
            hint="leave --root out, or name a collective with -c",
        )
    from ..work.lowering import text_of  # the compiler: an artefact is executed without it

    return text_of(subject, format, args, tell)
