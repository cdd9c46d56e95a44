"""``weft compile``: a schedule, an algorithm or a program becomes an artefact, checked and run
before it is written."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.dsl.base.errors import CheckFailed
from weft.dsl.importers.generations import NO_PEER_ACCESS
from weft.synth.bounds import BOUND_EFFORT, RuntimeBound, runtime_bound
from weft.synth.time.calibrated import DATASHEET

from ...compile.prepare import artefact_of
from ...compile.request import Request
from ...formats.format import ExecutionRequest, Format, format_named
from ..flags.files import CompileFlags
from ..flags.values import DEFAULTS, LIMITS
from ..inputs.models import chosen_model
from ..nouns.noun import MODEL_FLAGS, Subject, refuse_collective, refuse_flags
from ..nouns.subjects import read_subject
from ..output.console import Console, Exit
from ..output.outputs import check_file_output, check_prefix_output
from ..output.stages import telling
from ..work.lowering import on_machine, options_of, provenance_of, require_listed, source_of

if TYPE_CHECKING:
    from weft.dsl.nouns.collective import Collective

    from ...compile.prepare import CompileResult
    from ...compile.source import CompileSource
    from ...compile.timing import ProgramTiming, Recompiled

USUAL_NODE = 8
"""GPUs of a usual node: more ranks are likely to be on several."""


def run(args: CompileFlags, console: Console) -> int:
    backend = format_named(args.to, "--to")
    if backend.several:
        check_prefix_output(args, console)
    else:
        check_file_output(args, console)
    subject = read_subject(args.file)
    if not (subject.noun.asks_collective and subject.compiled_form):
        refuse_collective(args, subject)
    source = on_machine(source_of(subject, args), subject, args.topology)
    if source.topology is not None:
        backend = backend.on(source.topology)
    _tell_assumed(backend, source, console)
    artefact = _compiled(subject, source, backend, args, console)
    made = artefact.made
    console.say("Lowered", made.lowered)
    source = artefact.source
    for remark in source.remarks:
        console.say(remark.label, remark.text(made.code))
    plain = source.collective.message_chunks // source.collective.factor
    if told := backend.sizes_remark(made.code, plain):
        console.say("Sizes", told)
    for label, told in made.told:
        console.say(label, told)
    if artefact.choice:
        console.say("Chosen", artefact.choice.text)
    if artefact.timing:
        console.say("Timed", artefact.timing.text)
        if least := _least(source, backend, args, artefact.timing):
            console.say("Bound", least.verdict(artefact.timing.program_us))
    if artefact.recompiled:
        _tell_recompiled(artefact.recompiled, args, console)
    checks = [made.check.to_json()]
    console.say("Checked", made.checked)
    if not args.no_run:
        checks += _executed(made.text, source.collective, backend, args, console)
    files = artefact.write(args.output, force=args.force)
    if args.output != "-":
        console.say("Wrote", _written(args.output, files))
        facts: dict[str, Any] = {"status": "ok", **made.facts, "file": args.output}
        if files:
            facts["files"] = [f"{args.output}{name}" for name in files]
        for remark in source.remarks:
            facts |= {**remark.facts, remark.label.lower(): remark.text(made.code)}
        if artefact.timing:
            facts["time"] = artefact.timing.to_json()
            facts["time"] |= artefact.choice.to_json() if artefact.choice else {}
            facts["time"] |= least.beside(artefact.timing.program_us) if least else {}
        if artefact.recompiled:
            facts["recompiled"] = artefact.recompiled.to_json()
        console.result("", facts | {"checks": checks})
    return Exit.DONE


def _least(
    source: CompileSource, backend: Format, args: CompileFlags, timing: ProgramTiming
) -> RuntimeBound | None:
    """Return the least time of any program of the runtime; None on a large machine, and by data
    sheets, by which it is the bound of schedules."""
    runtime, machine = backend.timed_runtime(args.target), source.topology
    size, choice = timing.message_bytes, chosen_model(args)
    if runtime is None or machine is None or machine.ranks > BOUND_EFFORT.program_ranks:
        return None
    if choice.name == DATASHEET:
        return None
    return runtime_bound(machine, source.collective, size, runtime, choice)


def _written(output: str, files: Mapping[str, bytes]) -> str:
    """Return the names of the written files: of several the first of each kind."""
    if not files:
        return output
    kinds: dict[str, list[str]] = {}
    for name in files:
        kinds.setdefault(re.sub(r"\.\d+\.et$", ".RANK.et", name), []).append(name)
    several = (f" ({len(own)})" if len(own) > 1 else "" for own in kinds.values())
    return ", ".join(f"{output}{kind}{number}" for kind, number in zip(kinds, several, strict=True))


def _compiled(
    subject: Subject,
    source: CompileSource,
    backend: Format,
    args: CompileFlags,
    console: Console,
) -> CompileResult:
    """Return the artefact, with its simulated time where that is known."""
    backend.refuse_flags(args.lowering_given(), f"--to {backend.name}")
    about = Request(
        to=args.to,
        where=subject.where,
        module="" if args.output == "-" else Path(args.output).stem,
        output="" if args.output == "-" else args.output,
        provenance=provenance_of(subject, source),
    )
    with telling(console, "Compiling") as tell:
        options = options_of(args, subject, tell)
        found = artefact_of(source, backend, options, args.size, about, chosen_model(args))
        require_listed(options)
    if found.timing is None:
        why = "is of the time of a program on a machine; here none is simulated"
        refuse_flags(args, MODEL_FLAGS, why, subject)
    return found


def _tell_recompiled(found: Recompiled, args: CompileFlags, console: Console) -> None:
    """Print the changes by compiling a program anew, and both times; warn where it is slower."""
    named = "" if args.size else " (--size names the messages)"
    untimed = f"not: {found.why}; it may be slower than what came in"
    console.say("Compared", f"{found.times}{named}" if found.us else untimed)
    if found.kept:
        console.say("Kept", "the program as it came, which is quicker than compiled anew")
        return
    changed = [f"{key} {one} → {other}" for key, (one, other) in found.changed.items()]
    told = ", ".join(changed).replace("_", " ")
    console.say("Changed", told or "waits and the order of thread blocks at most")
    if found.us and found.why:
        slower = max(made / came for _, came, made in found.us)
        told = "times as slow as what came in, which is not written as it is"
        console.warn(f"{slower:.2f} {told}: {found.why}")


def _tell_assumed(backend: Format, source: CompileSource, console: Console) -> None:
    """Print the assumptions about the machine; a warning where they are likely to be wrong."""
    ranks, machine = source.collective.ranks, source.topology
    if told := backend.assumed(ranks, machine.name if machine else None):
        (console.warn if ranks > USUAL_NODE else console.detail)(told)
    for note in machine.notes if machine and backend.peer_access else ():
        if NO_PEER_ACCESS in note:
            console.warn(f"{note} (the machine's note)")


def _executed(
    text: str, wanted: Collective, backend: Format, args: CompileFlags, console: Console
) -> list[dict[str, Any]]:
    """Execute the artefact, unless it is for too many ranks; returns the entry of ``checks``."""
    insists = "" if backend.most_executed else "; --interleavings N insists"
    most = backend.most_executed or (
        LIMITS.executed_ranks if args.interleavings is None else wanted.ranks
    )
    if wanted.ranks > most:
        console.say("Executed", f"not: {wanted.ranks} ranks are proved only{insists}")
        return []
    with telling(console, "Executing") as tell:
        request = ExecutionRequest(
            interleavings=args.interleavings or DEFAULTS.orders, seed=args.seed, collective=wanted
        )
        done = backend.execute(text, "the artefact", request, tell)
    if not done.ok:
        raise CheckFailed(
            f"the artefact computes something else: {done.detail}",
            hint="nothing was written; this is a bug in weft, please report it",
        )
    console.say("Executed", done.detail)
    return [{"name": "execution", "ok": True, "detail": done.detail}]
