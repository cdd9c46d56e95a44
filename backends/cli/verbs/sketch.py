"""``weft sketch``: the sketches that come with weft, a look at one, canonical formatting, and the
import of TACCL's and TE-CCL's."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from weft.dsl.base.errors import UserError, an

from ..console import Console, columns
from ..exit_codes import Exit
from ..noun import Kind
from ..parser import Parser, common
from ..subjects import read_subject

if TYPE_CHECKING:
    from weft.dsl.language.ast import SketchText

EXAMPLES = """examples:
  weft sketch list
  weft sketch show dgx2_relay
  weft sketch fmt my.sketch            formats the file in place; - for a filter
  weft sketch fmt --check my.sketch    exit code 1 if it is not canonical
  weft sketch import sk.json -t topo.json -o sk.sketch --machine machine.json"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the four sub-verbs."""
    what = parser.add_subparsers(
        dest="what", metavar="list|show|fmt|import", required=True, parser_class=Parser
    )
    what.add_parser("list", help="all sketches that come with weft", parents=[common()])
    show = what.add_parser("show", help="the text of a sketch", parents=[common()])
    show.add_argument("sketch", metavar="SKETCH", help="a name, a file, or -")
    fmt = what.add_parser("fmt", help="write a sketch in its canonical form", parents=[common()])
    fmt.add_argument("sketch", metavar="FILE", help="the file, changed in place; - to stdout")
    fmt.add_argument(
        "--check", action="store_true", help="change nothing; exit code 1 if it is not canonical"
    )
    _configure_import(
        what.add_parser(
            "import",
            parents=[common()],
            help="turn a TACCL sketch or a TE-CCL input into ours",
            description="What they mean otherwise is remarked on stderr.",
        )
    )


def _configure_import(bring: argparse.ArgumentParser) -> None:
    bring.add_argument("sketch", metavar="FILE", help="TACCL's sketch or TE-CCL's input, or -")
    bring.add_argument(
        "-t",
        "--topology",
        metavar="TOPO",
        help="TACCL's topology JSON, or any machine that weft knows (TE-CCL: that of its input)",
    )
    bring.add_argument("-o", "--output", metavar="OUT", help="a file (default: to stdout)")
    bring.add_argument("--machine", metavar="OUT", help="write the sketch's machine too, as JSON")
    bring.add_argument(
        "--nic-split",
        action="store_true",
        help="divide each NIC among its connections for good, as TACCL does (in "
        "the machine of --machine)",
    )
    bring.add_argument("-f", "--force", action="store_true", help="overwrite the files")


def run(args: argparse.Namespace, console: Console) -> int:
    """List, show, format or import."""
    if args.what == "list":
        return _list(console)
    if args.what == "import":
        from ..foreign import import_sketch

        return import_sketch(args, console)
    subject = read_subject(args.sketch)
    if subject.kind is not Kind.SKETCH:
        raise UserError(f"a sketch is needed, not {an(subject.kind)}", where=subject.where)
    if args.what == "show":
        console.result(subject.text.rstrip("\n"), {"status": "ok", "text": subject.text})
        return Exit.DONE
    return _format(subject.text, args, console)


def _list(console: Console) -> int:
    from weft.dsl.base.tables import table
    from weft.dsl.language.load import load_sketch, sketch_names

    rows = list(sketch_names().items())
    data = [
        {"name": name, "summary": summary, "promise": _promise(load_sketch(name))}
        for name, summary in rows
    ]
    text = table(("name", "what it is"), rows, columns())
    console.result(text, {"status": "ok", "sketches": data})
    return Exit.DONE


def _promise(tree: SketchText) -> dict[str, Any] | None:
    from weft.dsl.language.promise import promised

    promise = promised(tree)
    return None if promise is None else {**asdict(promise), "gap": float(promise.gap)}


def _format(text: str, args: argparse.Namespace, console: Console) -> int:
    from weft.dsl.base.files import write_text
    from weft.dsl.language.format import format
    from weft.dsl.language.parse import parse

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
