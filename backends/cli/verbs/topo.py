"""``weft topo``: the catalogue, a look at one machine, and importing machines from other tools."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from weft.dsl.base.errors import BadFile, UserError, an
from weft.dsl.base.files import read_text, write_text
from weft.dsl.base.tables import number
from weft.dsl.catalogue import file_of, imported, is_cluster, kept, names, with_options
from weft.synth.time.calibrated import calibrated_model

from ...report.model_numbers import assumed_json, assumed_text
from ...report.report import shown
from ...report.text import topology_text
from ..flags.files import DiffFlags
from ..flags.nested import (
    TopoCalibrateFlags,
    TopoDiffFlags,
    TopoImportFlags,
    TopoSearchFlags,
    TopoShowFlags,
)
from ..flags.shared import Flags
from ..inputs.inputs import restricted
from ..inputs.machines import facts_of, machine_line, read_topology
from ..nouns.noun import FileKind
from ..output.console import Console, Exit, columns
from ..output.outputs import check_file_output
from .diff import compare, read_both

if TYPE_CHECKING:
    from weft.dsl.nouns.topology import Topology


def run(args: Flags, console: Console) -> int:
    match args:
        case TopoShowFlags():
            topology = read_topology(args.topology)
            return _show(restricted(topology, args.group), args.structure, console)
        case TopoDiffFlags():
            return _diff(args, console)
        case TopoImportFlags():
            check_file_output(args, console)
            return _import(args, console)
        case TopoCalibrateFlags():
            from ..work.calibration import calibrate  # the simulator of programs, and SciPy's fit

            return calibrate(args, console)
        case TopoSearchFlags():
            from ..work.shape_search import search  # the joint bound loads SciPy

            return search(args, console)
        case _:
            data = [{"name": e.name, "synopsis": e.synopsis, "summary": e.summary} for e in names()]
            heads = ("name:name", "options:synopsis", "what it is:summary")
            text = shown(data, *heads, width=columns())
            console.result(text, {"status": "ok", "topologies": data})
            return Exit.DONE


def _show(topology: Topology, structured: bool, console: Console) -> int:
    model = calibrated_model(topology)
    console.detail(f"times of programs, --model calibrated:\n{assumed_text(model)}")
    timing = {"family": topology.timing.family, **assumed_json(model)}
    told = {"status": "ok", **facts_of(topology), "timing": timing}
    text = topology_text(topology)
    if structured:
        from ...report.structure import structure, structure_text  # networkx

        found = structure(topology)
        text = f"{text}\n\n{structure_text(found)}"
        like = [{**asdict(one), "scale": number(one.scale)} for one in found.like]
        told["structure"] = {**asdict(found), "like": like}
    console.result(text, told)
    return Exit.DONE


def _diff(args: TopoDiffFlags, console: Console) -> int:
    """Compare two machines by names, unless they are the same under other names."""
    from ...report.structure import changes_words, renaming  # networkx

    flags = DiffFlags(before=args.before, after=args.after)
    subjects = read_both(flags)
    for subject in subjects:
        if subject.kind is not FileKind.TOPOLOGY:
            raise UserError(f"expected a topology, got {an(subject.kind)}", where=subject.where)
    before, after = (subject.topology() for subject in subjects)
    named = renaming(before, after)
    head = changes_words(before, after) if named is None else SAME
    status = compare(flags, subjects, console, head, {"renaming": named})
    return Exit.DONE if named is not None else status


SAME = "the same machine, up to the names and the order of its parts"


def _import(args: TopoImportFlags, console: Console) -> int:
    text = args.topology
    if args.without:
        text = with_options(text, f"without={','.join(args.without)}")
    path = file_of(text)
    if path is None:
        if not is_cluster(text) and text.partition(":")[0] not in {e.name for e in names()}:
            raise BadFile(
                "no such file", where=text, hint="name a file, or a machine of weft topo list"
            )
        topology = read_topology(text)
        data = topology.to_json()
    else:
        content = read_text(path)
        topology = imported(content, text)
        data = kept(topology, content, text)
    write_text(args.output, json.dumps(data, indent=1) + "\n", force=args.force)
    console.say("Read", machine_line(topology))
    for note in topology.notes:
        served = note.startswith("NICs serve")
        console.say("Found" if served else "Left" if "left out" in note else "Assumed", note)
    if args.output != "-":
        console.say("Wrote", args.output)
        console.result("", {"status": "ok", **facts_of(topology), "file": args.output})
    return Exit.DONE
