"""``weft topo``: the catalogue, a look at one machine, and importing machines from other tools."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from weft.dsl.base.tables import table

from ..console import Console, columns
from ..exit_codes import Exit
from ..inputs import ranks, read_topology, valued
from ..machines import facts_of, machine_line
from ..outputs import check_file_output
from ..parser import Parser, common

if TYPE_CHECKING:
    from weft.dsl.nouns.topology import Topology

EXAMPLES = """examples:
  weft topo list
  weft topo show dgx-a100:nodes=2
  nvidia-smi topo -m | weft topo import - -o my-box.json"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the three sub-verbs."""
    what = parser.add_subparsers(
        dest="what", metavar="list|show|import", required=True, parser_class=Parser
    )
    what.add_parser("list", help="all names of the catalogue", parents=[common()])
    show = what.add_parser("show", help="one topology in words and numbers", parents=[common()])
    show.add_argument("topology", metavar="TOPO", help="a catalogue name, a file, or -")
    show.add_argument(
        "--group", metavar="R,R", type=valued("--group", ranks), help="only these ranks"
    )
    bring = what.add_parser(
        "import",
        parents=[common()],
        help="turn nvidia-smi topo -m text, NCCL or RCCL XML, GraphML, GML, TACCL, TE-CCL or "
        "edge-list JSON into ours",
        description="Options of the importer follow the path: topo.xml:nodes=4",
    )
    bring.add_argument("topology", metavar="FILE", help="the file, or - (format by content)")
    bring.add_argument("-o", "--output", metavar="OUT", default="-", help="a file (default: -)")
    bring.add_argument("-f", "--force", action="store_true", help="overwrite OUT")


def run(args: argparse.Namespace, console: Console) -> int:
    """List, show or import."""
    if args.what == "list":
        return _list(console)
    if args.what == "import":
        check_file_output(args, console)
    topology = read_topology(args.topology)
    if args.what == "show":
        return _show(topology.restricted_to(args.group) if args.group else topology, console)
    return _import(topology, args, console)


def _list(console: Console) -> int:
    from weft.dsl.catalogue import names

    entries = names()
    text = table(
        ("name", "options", "what it is"),
        [(e.name, e.synopsis, e.summary) for e in entries],
        columns(),
    )
    data = [{"name": e.name, "synopsis": e.synopsis, "summary": e.summary} for e in entries]
    console.result(text, {"status": "ok", "topologies": data})
    return Exit.DONE


def _show(topology: Topology, console: Console) -> int:
    from ...report.text import topology_text

    console.result(topology_text(topology), {"status": "ok", **facts_of(topology)})
    return Exit.DONE


def _import(topology: Topology, args: argparse.Namespace, console: Console) -> int:
    from weft.dsl.base.files import write_text

    write_text(args.output, json.dumps(topology.to_json(), indent=1) + "\n", force=args.force)
    console.say("Read", machine_line(topology))
    for note in topology.notes:
        console.say("Assumed", note)
    if args.output != "-":
        console.say("Wrote", args.output)
        console.result("", {"status": "ok", **facts_of(topology), "file": args.output})
    return Exit.DONE
