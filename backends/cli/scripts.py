"""Point-to-point programs in the verbs: compile, check, show."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.dsl.base.errors import CheckFailed, UserError
from weft.dsl.base.tables import count
from weft.dsl.base.version import version

from .console import Console
from .exit_codes import Exit
from .judging import Check, of_findings, require_good
from .stages import telling
from .subjects import Kind, Subject

if TYPE_CHECKING:
    from ..compile.source import Source
    from ..formats.p2p.format import ScriptFile
    from ..formats.p2p.model import Script

GOOD = "no wrong address, unmatched message or buffer in use twice; every output is proved"

MOST_EXECUTED = 128
"""Ranks beyond which a file is proved only: each is a thread."""

FOR_THREAD_BLOCKS = ("instances", "lanes", "protocol", "passes", "print_after")
"""Flags of lowering that say nothing where there are no thread blocks."""


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
    for name in FOR_THREAD_BLOCKS:
        if getattr(args, name):
            raise UserError(
                f"--{name.replace('_', '-')} says nothing about a point-to-point program",
                where=where,
                hint="it has no thread blocks; leave it out",
            )


def script_of_source(subject: Subject, source: Source, args: argparse.Namespace) -> Script:
    """The script of something to compile.

    Raises:
        UserError: a program that was written for separate buffers is asked for in place.
    """
    from ..formats.p2p.compile import compile_script

    script = compile_script(
        source.noun, args.name, in_place=bool(args.in_place), segments=args.segments or 1
    )
    if args.in_place and not script.in_place:
        raise UserError(
            "it is written for separate buffers",
            where=subject.where,
            hint="leave --in-place out: the file's function takes one buffer as well",
        )
    return script


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


def size_of(script: Script) -> str:
    """``14 rounds, 112 messages, at most 3 chunks of scratch memory``."""
    room = max(script.scratch, default=0)
    return ", ".join(
        (
            count(script.rounds, "round"),
            count(script.messages, "message"),
            f"at most {count(room, 'chunk')} of scratch memory per rank",
        )
    )


def facts_of(script: Script) -> dict[str, Any]:
    """A script for ``--json``."""
    c = script.collective
    return {
        "name": script.name,
        "collective": c.name or str(c.kind),
        "ranks": c.ranks,
        "in_place": script.in_place,
        "chunks": c.message_chunks,
        "rounds": script.rounds,
        "messages": script.messages,
        "scratch_chunks": max(script.scratch, default=0),
    }


def read(subject: Subject) -> Script:
    """The script of a file, well formed but not proved."""
    from ..formats.p2p.read import read_script

    assert subject.kind is Kind.SCRIPT
    return read_script(subject.text, subject.where)


def check_script_file(subject: Subject, args: argparse.Namespace, _: object) -> list[Check]:
    """The checks of a point-to-point program."""
    from ..formats.p2p.judge import judge

    if args.target:
        raise UserError("--target is for MSCCL XML", where=subject.where)
    script, found = judge(subject.text, subject.where)
    form = Check("form", True, f"{script.collective}, {size_of(script)}")
    return [form, *of_findings(found, GOOD)]


def view_script(subject: Subject) -> tuple[str, dict[str, Any]]:
    """The rounds of every rank."""
    from ..formats.p2p.text import write

    script = read(subject)
    lines = [f"{script.name}: {script.collective}, {size_of(script)}"]
    for rank, own in enumerate(script.ranks):
        lines += [f"rank {rank}"]
        lines += [f"  {number:>3}  {write(one)}".rstrip() for number, one in enumerate(own, 1)]
    return "\n".join(lines), facts_of(script)
