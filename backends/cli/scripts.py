"""Point-to-point programs in the verbs: compile, check, show."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from weft.dsl.base.errors import CheckFailed
from weft.dsl.base.version import version

from ..check import require_good
from ..formats.format import Job
from ..formats.p2p.format import FOR_THREAD_BLOCKS, GOOD, ScriptFile, facts_of, size_of
from .console import Console
from .exit_codes import Exit
from .nouns import Subject
from .stages import telling

if TYPE_CHECKING:
    from ..compile.source import Source
    from ..formats.p2p.model import Script

MOST_EXECUTED = 128
"""Ranks beyond which a file is proved only: each is a thread."""


def compile_to_script(
    subject: Subject,
    source: Source,
    backend: ScriptFile,
    args: argparse.Namespace,
    console: Console,
) -> int:
    """Make, prove, write and execute the file of a runtime.

    Raises:
        UserError: a flag that says nothing here.
        CheckFailed: what was made is wrong.
    """
    from weft.dsl.base.files import write_text

    refuse_thread_blocks(args, f"--to {backend.name}")
    with telling(console, "Compiling") as tell:
        tell("rounds")
        script = script_of_source(subject, source, args)
        module = "" if args.output == "-" else Path(args.output).stem
        text = backend.write(script, provenance_of(subject, source), module)
        tell("prove")
        require_good(backend.findings(text, "the file"), "the file")
    console.say("Lowered", size_of(script))
    for remark in source.remarks:
        console.say(remark.label, remark.text(script))
    console.say("Checked", GOOD)
    checks = [{"name": "script", "ok": True, "detail": GOOD}]
    ranks = source.collective.ranks
    if not args.no_run and ranks > MOST_EXECUTED:
        console.say("Executed", f"not: {ranks} ranks are proved only")
    elif not args.no_run:
        with telling(console, "Executing") as tell:
            done = backend.execute(text, "the file", source.collective, seed=args.seed, tell=tell)
        if not done.ok:
            raise CheckFailed(
                f"the file computes something else: {done.detail}",
                hint="nothing was written; this is a bug in weft, please report it",
            )
        checks.append({"name": "execution", "ok": True, "detail": done.detail})
        console.say("Executed", done.detail)
    write_text(args.output, text, force=args.force)
    if args.output != "-":
        console.say("Wrote", args.output)
        remarks = {r.label.lower(): r.text(script) for r in source.remarks}
        console.result(
            "",
            {
                "status": "ok",
                **facts_of(script),
                "to": backend.name,
                "file": args.output,
                **remarks,
                "checks": checks,
            },
        )
    return Exit.DONE


def refuse_thread_blocks(args: argparse.Namespace, where: str) -> None:
    """Refuse flags that say nothing about a point-to-point program.

    Raises:
        UserError: one was given.
    """
    given = [name for name in FOR_THREAD_BLOCKS if getattr(args, name)]
    ScriptFile().refuse_flags(given, where)


def script_of_source(subject: Subject, source: Source, args: argparse.Namespace) -> Script:
    """The script of something to compile.

    Raises:
        UserError: a program that was written for separate buffers is asked for in place.
    """
    job = Job(
        source.noun,
        name=args.name,
        in_place=bool(args.in_place),
        segments=args.segments or 1,
        where=subject.where,
    )
    return ScriptFile().script(job)


def provenance_of(subject: Subject, source: Source) -> list[str]:
    """Where a script is from, in lines for people."""
    lines = [f"Made by weft {version()} from {subject.named or subject.where}."]
    if source.topology is not None:
        lines.append(f"Machine: {source.topology.name}, digest {source.topology.digest()[:16]}.")
    if source.schedule is not None:
        known = source.schedule.provenance
        keys = ("engine", "found_by", "seed", "problem", "cites")
        lines += [f"{key}: {known[key]}" for key in keys if known.get(key) is not None]
    return lines
