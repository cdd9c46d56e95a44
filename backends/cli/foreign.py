"""Inputs of TACCL and TE-CCL, read unchanged for ``weft synth`` and ``weft sketch import``.

TACCL has a topology and a sketch; TE-CCL has one file for machine and question.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from weft.dsl.base.errors import BadFile, UserError
from weft.dsl.base.files import parse_json, read_text, write_text
from weft.dsl.importers.taccl_sketch import TacclSketch, looks_like_sketch, read_taccl_sketch
from weft.dsl.importers.teccl import looks_like_teccl, read_teccl_input

from .console import Console
from .exit_codes import Exit
from .flags.nested import SketchImportFlags
from .flags.values import split_arguments
from .machines import facts_of, machine_line, read_topology
from .outputs import check_file_output

if TYPE_CHECKING:
    from weft.dsl.importers.sketches.taccl_rules import Imported
    from weft.dsl.nouns.topology import Topology


def sketch_in(path: str | None) -> TacclSketch | None:
    """Return the TACCL sketch in a file, None for anything else (also for ``-``, which is read
    once).

    Raises:
        UserError: other JSON, a wrong sketch, or one with parameters.
    """
    file, arguments = split_arguments(path or "-")
    if file == "-" or not _is_file(file):
        return None
    text = read_text(file)
    if not text.lstrip().startswith("{") or looks_like_teccl(parse_json(text, file)):
        return None
    sketch = parse_sketch(text, file)
    if arguments:
        raise UserError("a TACCL sketch has no parameters", where=path, hint=f"change it in {file}")
    return sketch


def _is_file(path: str) -> bool:
    try:
        return Path(path).is_file()
    except (OSError, ValueError):
        return False


def parse_sketch(text: str, where: str) -> TacclSketch:
    """Parse a TACCL sketch.

    Raises:
        BadFile: it is none, or a wrong one.
    """
    data = parse_json(text, where)
    if isinstance(data, dict) and "gpus_per_node" in data:
        raise BadFile(
            "a TACCL topology, where its sketch is needed", where=where, hint="-t takes it"
        )
    if not looks_like_sketch(data):
        raise BadFile(
            "this JSON is no TACCL sketch",
            where=where,
            hint="one has nnodes, intranode_sketch, symmetry_offsets …",
        )
    return read_taccl_sketch(data, where, _name(where))


def translated(text: str, where: str, topology: Topology, kind: str = "") -> Imported:
    """Return a TACCL sketch or a TE-CCL input in weft's language, on its machine.

    ``kind``: the collective it is used for, if known.

    Raises:
        BadFile: it is neither, wrong, or for another machine.
    """
    from weft.dsl.importers.sketches.taccl_rules import translate
    from weft.dsl.importers.sketches.teccl_rules import teccl_sketch

    data = parse_json(text, where)
    if looks_like_teccl(data):
        return teccl_sketch(read_teccl_input(data, where), topology, _name(where))
    return translate(parse_sketch(text, where), topology, kind)


def _name(where: str) -> str:
    return "stdin" if where == "<stdin>" else Path(where).stem


def machine_with(text: str, sketch: TacclSketch, *, split: bool = False) -> Topology:
    """Return the machine of a sketch: from a TACCL topology, or another one with as many nodes.

    Raises:
        UserError: no such machine; ``split`` where there are no connections to split.
    """
    from weft.dsl.catalogue import file_of, imported, paired
    from weft.dsl.importers.taccl_pair import is_taccl_topology

    path = file_of(text)
    if path is not None:
        content = read_text(path)
        if is_taccl_topology(content):
            return paired(content, text, sketch, split=split)
    if split:
        raise UserError(
            "--nic-split divides the NICs of a TACCL topology, and this is none",
            where=text,
            hint="-t topology.json as TACCL reads it",
        )
    return (
        read_topology(_with_nodes(text, sketch.nodes)) if path is None else imported(content, text)
    )


def _with_nodes(text: str, nodes: int) -> str:
    """Return the name of a machine with the sketch's number of nodes, unless it states one."""
    from weft.dsl.machines.host_file import host_names
    from weft.dsl.machines.spec import parse_spec

    spec = parse_spec(text)
    if nodes == 1 or spec.name not in host_names() or spec.has("nodes"):
        return text
    return f"{text}{',' if ':' in text else ':'}nodes={nodes}"


def import_sketch(args: SketchImportFlags, console: Console) -> int:
    """Run ``weft sketch import``: print or write the sketch, and its machine on request."""
    _check_outputs(args, console)
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
        _write_machine(machine, args.machine, args.force, console)
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
    from weft.dsl.catalogue import imported

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


def _check_outputs(args: SketchImportFlags, console: Console) -> None:
    """Check before writing that neither file exists and that they differ."""
    if args.machine and args.machine == args.output:
        raise UserError("--machine and -o name one file", where=args.machine, hint="name two")
    for output in (args.output, args.machine):
        check_file_output(replace(args, output=output), console)


def _write_machine(machine: Topology, path: str, force: bool, console: Console) -> None:
    write_text(path, json.dumps(machine.to_json(), indent=1) + "\n", force=force)
    console.say("Wrote", path)
