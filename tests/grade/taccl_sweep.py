"""``make sweep``: TACCL's sketches on the topologies of their machines, from JSON to a run program.

Every pair of files is imported as it is; each collective is synthesized under the sketch, at the
message size that the topology file gives its costs for (a chunk of that size on each GPU); the
schedule, which the verifier has held against every rule, is compiled to MSCCL XML; program and XML
are checked; the XML is executed on float32 and int32 in random interleavings. Where the files are
not there, nothing is done.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table
from xml_sweep import judge

from weft.dsl.base.errors import WeftError
from weft.dsl.base.units import format_bytes, parse_bytes
from weft.dsl.catalogue import paired
from weft.dsl.importers.sketches.taccl_rules import translate
from weft.dsl.importers.taccl_sketch import read_taccl_sketch
from weft.dsl.language.elaborate import elaborate
from weft.dsl.language.parse import parse
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.problem import Objective, Problem
from weft.dsl.nouns.sketch import Sketch
from weft.dsl.nouns.topology import Topology
from weft.synth.api import synthesize
from weft.synth.base.engine import Budget
from weft.synth.bounds import bounds, lower_bound_us
from weft.synth.time.schedule_time import simulate

SAMPLES = Path(__file__).parents[3] / "shared" / "data" / "taccl"
MACHINES = ("dgx2", "ndv2")
COLLECTIVES = ("allgather", "allreduce")


@dataclass(frozen=True)
class Pair:
    """A topology file and a sketch file of the same machine."""

    topology: Path
    sketch: Path

    @property
    def chunk(self) -> int:
        """Bytes that the costs in the topology file are of, as its name says."""
        return parse_bytes(self.topology.stem.rpartition("-")[2].replace("B", "iB"))

    def read(self, kind: str) -> tuple[Topology, Sketch]:
        """The machine that the two draw together, and the rules for a collective."""
        where = str(self.sketch)
        asked = read_taccl_sketch(json.loads(self.sketch.read_text()), where, self.sketch.stem)
        machine = paired(self.topology.read_text(), str(self.topology), asked)
        return machine, elaborate(parse(translate(asked, machine, kind).text), machine)


def pairs() -> Iterator[Pair]:
    """Every sketch with every topology of its machine."""
    for name in MACHINES:
        for sketch in sorted((SAMPLES / "sketch").glob(f"*-{name}-*.json")):
            for topology in sorted((SAMPLES / "topo").glob(f"*-{name}-*.json")):
                yield Pair(topology, sketch)


@dataclass(frozen=True)
class Sweep:
    """How long to search, how often to run."""

    seconds: float
    interleavings: int

    def cells(self, pair: Pair, kind: str) -> list[str]:
        """Size, pieces, time, bound, CPU seconds and the verdict of one collective."""
        started = time.process_time()
        machine, sketch = pair.read(kind)
        collective = make(kind, machine.ranks)
        size = machine.ranks * pair.chunk
        problem = Problem(machine, collective, sketch, Objective.TIME, size)
        point = synthesize(problem, "portfolio", Budget(self.seconds)).points[0]
        spent = time.process_time() - started
        took = simulate(point.schedule, size).time_us
        bound = float(lower_bound_us(bounds(machine, collective), size))
        verdict = judge(point.schedule, False, 1, self.interleavings)
        return [
            format_bytes(size),
            str(point.schedule.provenance["found_by"]),
            str(point.factor),
            f"{took:,.1f}",
            f"{bound:,.1f}",
            f"{spent:.1f}",
            verdict,
        ]

    def line(self, pair: Pair, kind: str) -> list[str]:
        """As :meth:`cells`; what goes wrong is the verdict."""
        try:
            return self.cells(pair, kind)
        except WeftError as error:
            return ["", "", "", "", "", "", f"FAIL: {error}"]


def main() -> int:
    """Print a line for each; exit 1 if one fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=4.0, help="for the search, each")
    parser.add_argument("--interleavings", type=int, default=50)
    parser.add_argument("--only", default="", help="a part of the names of the sketches to take")
    asked = parser.parse_args()
    sweep = Sweep(asked.seconds, asked.interleavings)
    console = Console(width=150)
    table = Table(
        "sketch",
        "topology",
        "collective",
        "size",
        "found by",
        "chunks",
        "µs",
        "bound µs",
        "CPU s",
        "XML",
    )
    failed = False
    for pair in (p for p in pairs() if asked.only in p.sketch.stem):
        for kind in COLLECTIVES:
            cells = [pair.sketch.stem, pair.topology.stem, kind, *sweep.line(pair, kind)]
            failed = failed or cells[-1] != "ok"
            table.add_row(*cells)
            console.print(", ".join(cells), style="dim")
    if not table.rows:
        console.print(f"skipped: TACCL's files are not in {SAMPLES}")
    else:
        console.print(table)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
