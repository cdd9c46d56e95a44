"""``weft show``: look at anything, as text."""

from __future__ import annotations

import argparse
from typing import Any

from .console import Console
from .exit_codes import Exit
from .plans import view_plan
from .scripts import view_script
from .streams import is_stream, view_stream
from .subjects import Kind, Subject, read_subject

EXAMPLES = "examples:\n  weft show allgather.json\n  weft show dgx1\n  weft show algo.xml"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("file", metavar="FILE", help="a file, a catalogue name, "
                        "the folder of a stream, or -")  # fmt: skip
    parser.add_argument("--format", choices=("text",), default="text", help="default: text")


def run(args: argparse.Namespace, console: Console) -> int:
    """Print it."""
    if is_stream(args.file):
        text, data = view_stream(args.file)
        console.result(text, {"status": "ok", "kind": "stream", **data})
        return Exit.DONE
    subject = read_subject(args.file)
    text, data = _view(subject)
    console.result(text, {"status": "ok", "kind": str(subject.kind), **data})
    return Exit.DONE


def _view(subject: Subject) -> tuple[str, dict[str, Any]]:
    from ..report import text as report

    if subject.kind is Kind.SCHEDULE:
        schedule = subject.schedule()
        collective = schedule.collective
        return report.schedule_text(schedule), {
            "topology": schedule.topology.name,
            "collective": collective.name or str(collective.kind), "ranks": collective.ranks,
            "steps": schedule.steps, "rounds": sum(schedule.rounds),
            "chunks": collective.factor, "segments": schedule.segments, "transfers": len(schedule),
            "provenance": dict(schedule.provenance),
        }  # fmt: skip
    if subject.kind is Kind.TOPOLOGY:
        from .verb_topo import facts_of

        topology = subject.topology()
        return report.topology_text(topology), facts_of(topology)
    if subject.kind is Kind.COLLECTIVE:
        collective = subject.collective()
        return report.collective_text(collective), {
            "collective": collective.name or str(collective.kind),
            "ranks": collective.ranks, "chunks": collective.chunks,
        }  # fmt: skip
    if subject.kind in (Kind.ALGORITHM, Kind.PROGRAM):
        return _code(subject)
    if subject.kind is Kind.SKETCH:
        return subject.text.rstrip("\n"), {"text": subject.text}
    if subject.kind is Kind.PLAN:
        return view_plan(subject)
    if subject.kind is Kind.SCRIPT:
        return view_script(subject)
    return _xml(subject)


def _code(subject: Subject) -> tuple[str, dict[str, Any]]:
    from ..report.code import algorithm_text, program_text

    if subject.kind is Kind.ALGORITHM:
        algorithm = subject.algorithm()
        text, collective = algorithm_text(algorithm), algorithm.collective
        facts = {"name": algorithm.name, "moves": len(algorithm.moves)}
    else:
        program = subject.program()
        text, collective = program_text(program), program.collective
        facts = {"name": program.name, "instructions": program.instructions}
    name = collective.name or str(collective.kind)
    return text, {**facts, "collective": name, "ranks": collective.ranks}


def _xml(subject: Subject) -> tuple[str, dict[str, Any]]:
    from ..read import read_msccl_xml
    from ..report.code import xml_text

    algo = read_msccl_xml(subject.text, subject.where)
    return xml_text(algo), {
        "name": algo.name, "collective": algo.coll, "ranks": algo.ngpus,
    }  # fmt: skip
