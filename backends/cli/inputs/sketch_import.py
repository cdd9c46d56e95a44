"""Translation of TACCL sketches and TE-CCL inputs; ``weft sketch import``."""

from __future__ import annotations

import json
from dataclasses import replace

from weft.dsl.base.errors import UserError
from weft.dsl.base.files import parse_json, read_text, write_text
from weft.dsl.catalogue import imported
from weft.dsl.importers.sketches.taccl_rules import Imported, translate
from weft.dsl.importers.sketches.teccl_rules import teccl_sketch
from weft.dsl.importers.teccl import looks_like_teccl, read_teccl_input
from weft.dsl.nouns.topology import Topology

from ..flags.nested import SketchImportFlags
from ..output.console import Console
from ..output.exit_codes import Exit
from ..output.outputs import check_file_output
from .foreign import machine_with, name_of, parse_sketch
from .machines import facts_of, machine_line, read_topology


def translated(text: str, where: str, topology: Topology, kind: str = "") -> Imported:
    """Return a TACCL sketch or a TE-CCL input in weft's language, on its machine.

    ``kind``: the collective it is used for, if known.

    Raises:
        BadFile: it is neither, wrong, or for another machine.
    """
    data = parse_json(text, where)
    if looks_like_teccl(data):
        return teccl_sketch(read_teccl_input(data, where), topology, name_of(where))
    return translate(parse_sketch(text, where), topology, kind)


def import_sketch(args: SketchImportFlags, console: Console) -> int:
    """Run ``weft sketch import``: print or write the sketch, and its machine on request."""
    if args.machine and args.machine == args.output:
        raise UserError("--machine and -o name one file", where=args.machine, hint="name two")
    for output in (args.output, args.machine):
        check_file_output(replace(args, output=output), console)
    where = "<stdin>" if args.sketch == "-" else args.sketch
    text = read_text(args.sketch)
    machine = _machine(text, where, args)
    found = translated(text, where, machine)
    console.say("Read", machine_line(machine))
    for note in machine.notes:
        console.say("Assumed", note)
    for remark in found.remarks:
        console.say("Remark", str(remark))
    if args.output:
        write_text(args.output, found.text, force=args.force)
        console.say("Wrote", args.output)
    if args.machine:
        write_text(args.machine, json.dumps(machine.to_json(), indent=1) + "\n", force=args.force)
        console.say("Wrote", args.machine)
    console.result(
        "" if args.output else found.text.rstrip("\n"),
        {
            "status": "ok",
            "text": found.text,
            "file": args.output,
            "machine_file": args.machine,
            "remarks": [{"where": r.where, "text": r.text} for r in found.remarks],
            **facts_of(machine),
        },
    )
    return Exit.DONE


def _machine(text: str, where: str, args: SketchImportFlags) -> Topology:
    """Return the machine of a sketch; an input of TE-CCL has its own."""
    if looks_like_teccl(parse_json(text, where)):
        if args.nic_split:
            raise UserError("--nic-split is for TACCL's sketches", where=where)
        return read_topology(args.topology) if args.topology else imported(text, args.sketch)
    sketch = parse_sketch(text, where)
    if args.topology is None:
        raise UserError(
            "a TACCL sketch is imported for a machine",
            where=where,
            hint="-t topology.json, or a name of the catalogue",
        )
    return machine_with(args.topology, sketch, split=args.nic_split)
