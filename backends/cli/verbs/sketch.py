"""``weft sketch``: the sketches that come with weft, a look at one, canonical formatting, and the
import of TACCL's and TE-CCL's."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from weft.dsl.base.errors import NothingFound, UserError, an
from weft.dsl.base.files import write_text
from weft.dsl.base.tables import number, table
from weft.dsl.catalogue import file_of
from weft.dsl.language.format import format
from weft.dsl.language.load import load_sketch, promised, sketch_names
from weft.dsl.language.parse import parse
from weft.synth.base.engine import Budget

from ...report.report import problem_json
from ..flags.nested import (
    SketchDeriveFlags,
    SketchFmtFlags,
    SketchImportFlags,
    SketchShowFlags,
)
from ..flags.shared import Flags
from ..inputs.inputs import read_problem
from ..inputs.sketches import import_sketch
from ..nouns.noun import FileKind
from ..nouns.subjects import read_subject
from ..output.console import Console, Exit, columns
from ..output.outputs import check_file_output
from ..output.progress import watching


def run(args: Flags, console: Console) -> int:
    if isinstance(args, SketchImportFlags):
        return import_sketch(args, console)
    if isinstance(args, SketchDeriveFlags):
        return _derive(args, console)
    if not isinstance(args, SketchShowFlags | SketchFmtFlags):
        return _list(console)
    subject = read_subject(args.sketch)
    if subject.kind is not FileKind.SKETCH:
        raise UserError(f"expected a sketch, got {an(subject.kind)}", where=subject.where)
    if isinstance(args, SketchShowFlags):
        console.result(subject.text.rstrip("\n"), {"status": "ok", "text": subject.text})
        return Exit.DONE
    return _format(subject.text, args, console)


def _list(console: Console) -> int:
    rows = list(sketch_names().items())
    data: list[dict[str, Any]] = []
    for name, summary in rows:
        promise = promised(load_sketch(name))
        found = promise and {**asdict(promise), "gap": float(promise.gap)}
        data.append({"name": name, "summary": summary, "promise": found})
    text = table(("name", "what it is"), rows, columns())
    console.result(text, {"status": "ok", "sketches": data})
    return Exit.DONE


def _format(text: str, args: SketchFmtFlags, console: Console) -> int:
    canonical = format(parse(text, "<stdin>" if args.sketch == "-" else args.sketch))
    changed = canonical != text
    data = {"changed": changed, "file": args.sketch}
    if args.check:
        status = "failed" if changed else "ok"
        console.result("not canonical" if changed else "canonical", {"status": status, **data})
        return Exit.NO if changed else Exit.DONE
    if args.sketch == "-":
        console.result(canonical.rstrip("\n"), {"status": "ok", "text": canonical, **data})
        return Exit.DONE
    if changed:
        write_text(args.sketch, canonical, force=True)
    console.say("Wrote" if changed else "Kept", args.sketch)
    console.result("", {"status": "ok", **data})
    return Exit.DONE


def _derive(args: SketchDeriveFlags, console: Console) -> int:
    from weft.synth.planning.derive import derive_sketches, derived_text  # all engines

    check_file_output(args, console)
    topology, collective = read_problem(args)
    machine = "" if args.group else _machine(args.topology)
    budget = Budget(args.effort, seed=args.seed, seconds=args.time)
    with watching(console, None) as progress:
        found = derive_sketches(topology, collective, args.size, budget, progress, machine)
    if not found.sketches:
        raise NothingFound(
            f"no idea for a sketch fits {topology.name} and led to a schedule",
            hint="a larger --effort; or write one: weft sketch list has examples",
        )
    text = derived_text(found)
    if args.output:
        write_text(args.output, text, force=args.force)
        console.say("Wrote", args.output)
    console.result(
        "" if args.output else text.rstrip("\n"),
        {
            "status": "ok",
            **problem_json(topology, collective),
            "bytes": found.bytes,
            "bound_us": number(found.bound_us),
            "us": number(found.plain_us),
            "text": text,
            "file": args.output,
            "sketches": [
                {
                    "name": one.draft.name,
                    "idea": one.draft.idea,
                    "us": number(one.us),
                    "text": one.text,
                }
                for one in found.sketches
            ],
        },
    )
    return Exit.DONE


def _machine(text: str) -> str:
    """Return the text of a machine as a sketch names it; empty for files, and where it cannot."""
    try:
        parse(f"sketch named\nmachine {text}\n", "named")
    except UserError:
        return ""
    return "" if file_of(text) else text
