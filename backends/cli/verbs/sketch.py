"""``weft sketch``: the sketches that come with weft, a look at one, canonical formatting, and the
import of TACCL's and TE-CCL's."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from weft.dsl.base.errors import UserError, an
from weft.dsl.base.files import write_text
from weft.dsl.base.tables import table
from weft.dsl.language.format import format
from weft.dsl.language.load import load_sketch, promised, sketch_names
from weft.dsl.language.parse import parse

from ..flags.nested import SketchFmtFlags, SketchImportFlags, SketchShowFlags
from ..flags.shared import Flags
from ..inputs.sketches import import_sketch
from ..nouns.noun import FileKind
from ..nouns.subjects import read_subject
from ..output.console import Console, Exit, columns

if TYPE_CHECKING:
    pass


def run(args: Flags, console: Console) -> int:
    if isinstance(args, SketchImportFlags):
        return import_sketch(args, console)
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
