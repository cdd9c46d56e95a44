"""``weft run``: execute on real data, in many orders, and compare with the definition."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from weft.dsl.base.errors import UserError, an
from weft.dsl.base.progress import Telling
from weft.dsl.nouns.collective import Collective

from ...check.checks import checks_text
from ...formats.format import DEFAULT, Format, Order, Ran, format_named
from ..console import Console
from ..exit_codes import Exit
from ..flags.files import LOWERING, RunFlags
from ..lowering import compiled_as, options_of, require_listed, source_of
from ..noun import Subject, asked_of
from ..running import is_script, refuse_job_flags, run_job
from ..stages import telling
from ..subjects import read_subject


def run(args: RunFlags, console: Console) -> int:
    """Check a file, execute it, compare the result with the definition."""
    started = time.monotonic()
    subject = read_subject(args.file)
    if args.on != "numpy" or is_script(subject):
        return run_job(subject, with_defaults(args), console)
    refuse_job_flags(args)
    with telling(console, "Running") as tell:
        ran = _run(subject, args, tell)
    return _told(console, ran, started)


def _run(subject: Subject, args: RunFlags, tell: Telling) -> Ran:
    """Check and execute an artefact, or the one compiled from the input.

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
        given = tuple(name for name in (*LOWERING, "size") if getattr(args, name) is not None)
        order = replace(order, given=given)
        return format.run(subject.text, subject.where, asked_of(args), order, tell)
    format = format_named(DEFAULT)
    # A file compiled here is judged for the target of its compilation.
    args = with_defaults(args)
    text, wanted = _compiled(subject, format, args, tell)
    order = replace(order, wanted=wanted)
    return format.run(text, subject.where, asked_of(args), order, tell)


def _compiled(
    subject: Subject, format: Format, args: RunFlags, tell: Telling
) -> tuple[str, Collective]:
    """Return the artefact compiled from the input, and the collective it must achieve."""
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


def with_defaults(args: RunFlags) -> RunFlags:
    """Return the flags with defaults for those of lowering that were not given."""
    missing: dict[str, Any] = {
        name: value for name, value in LOWERING.items() if getattr(args, name) is None
    }
    return replace(args, **missing)
