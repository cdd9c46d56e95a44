"""Sketches in the verbs: by name or from a file, with parameters, on a machine."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from weft.dsl.base.errors import UserError
from weft.dsl.base.files import parse_json, read_text, write_text
from weft.dsl.base.foreign import refuse_foreign
from weft.dsl.catalogue import imported
from weft.dsl.catalogue import topology as topology_named
from weft.dsl.importers.sketches.taccl_rules import Imported, teccl_sketch, translate
from weft.dsl.importers.teccl import looks_like_teccl, read_teccl_input
from weft.dsl.language.elaborate import elaborate, machine_of
from weft.dsl.language.lint import lint
from weft.dsl.language.load import find_sketch
from weft.dsl.language.parse import parse
from weft.dsl.nouns.topology import Topology

from ...check.checks import Check
from ..flags.nested import SketchImportFlags
from ..flags.values import split_arguments
from ..output.console import Console, Exit
from ..output.outputs import check_file_output
from .foreign import machine_with, name_of, parse_sketch
from .machines import facts_of, machine_line, read_topology

if TYPE_CHECKING:
    from weft.dsl.language.ast import SketchTree
    from weft.dsl.nouns.collective import Collective
    from weft.dsl.nouns.sketch import Sketch
    from weft.dsl.nouns.topology import Topology

    from ..output.console import Console


def read_sketch(text: str, topology: Topology, collective: Collective, console: Console) -> Sketch:
    """Return the rules of a sketch (a name or file) on a machine, for a collective.

    Warns of suspicious lines in it.

    Raises:
        UserError: it does not parse, does not fit the machine, or is for another collective.
    """
    name, arguments = split_arguments(text)
    tree = _tree(name, topology, str(collective.kind), console)
    sketch = elaborate(tree, topology, arguments)
    if sketch.collective and sketch.collective not in (str(collective.kind), collective.name):
        raise UserError(
            f"the sketch {sketch.name} is for {sketch.collective}, not for "
            f"{collective.name or collective.kind}",
            where=tree.span,
            hint="remove its collective line (and its phases) to use it for any",
        )
    for finding in lint(tree, topology, arguments):
        place = f" ({finding.span})" if finding.span else ""
        console.warn(f"{finding.message}{place}")
    return sketch


def _tree(name: str, topology: Topology, kind: str, console: Console) -> SketchTree:
    """Return a sketch by name or from a file; one of TACCL or TE-CCL is translated."""
    source = find_sketch(name)
    if not source.text.lstrip().startswith("{"):
        try:
            return parse(source.text, source.name)
        except UserError:
            refuse_foreign(source.text, source.name)
            raise

    found = translated(source.text, source.name, topology, kind)
    for remark in found.remarks:
        console.say("Remark", str(remark))
    return parse(found.text, f"{source.name}, translated")


def text_on_machine(name: str, arguments: dict[str, int], topology: Topology) -> str:
    """Return the text of a sketch that is valid on a machine.

    Raises:
        UserError: it does not parse, or does not elaborate there.
    """
    source = find_sketch(name)
    elaborate(parse(source.text, source.name), topology, arguments)
    return source.text


def lint_sketch(
    tree: SketchTree, arguments: dict[str, int], topology_text: str | None
) -> list[Check]:
    """Return the errors and warnings of a sketch on the machine it names, or on another one.

    Raises:
        UserError: it does not elaborate there.
    """
    there = topology_named(topology_text) if topology_text else machine_of(tree, arguments)
    if there is None:
        return [Check("form", True, f"sketch {tree.name}; -t TOPO checks it on a machine")]
    rules = len(elaborate(tree, there, arguments).rules)
    checks = [Check("form", True, f"sketch {tree.name}: {rules} rules on {there.name}")]
    for finding in lint(tree, there, arguments):
        place = f"{finding.span}: " if finding.span else ""
        hint = f" ({finding.hint})" if finding.hint else ""
        checks.append(Check(str(finding.concern), False, f"{place}{finding.message}{hint}"))
    return checks


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
