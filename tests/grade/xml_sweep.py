"""``make sweep``: every schedule of the proved frontiers as MSCCL XML, checked and executed.

Each schedule is compiled in and out of place, for 1, 2 and 4 instances; the program and the XML
are checked; the XML is executed on float32 and int32 with 200 random interleavings each.
"""

import argparse
import sys
import time
from collections.abc import Iterator

from rich.console import Console
from rich.table import Table

from weft.backends.check.checker import check_program
from weft.backends.check.findings import errors
from weft.backends.compile.compile import CompileOptions, lower_schedule
from weft.backends.formats.msccl.check import check_xml
from weft.backends.formats.msccl.emit import emit
from weft.backends.formats.msccl.read import read_msccl_xml
from weft.backends.formats.msccl.run import run_xml
from weft.dsl.base.errors import UserError
from weft.dsl.catalogue import topology
from weft.dsl.nouns.collective import Kind, make
from weft.dsl.nouns.problem import Problem
from weft.dsl.nouns.runtime import EXECUTOR, MSCCL
from weft.dsl.nouns.schedule import Schedule
from weft.synth.api import synthesize
from weft.synth.base.engine import Budget

FRONTIERS = {
    "dgx1": "allgather reduce_scatter gather scatter alltoall broadcast reduce allreduce".split(),
    "ring:8": ("allgather", "alltoall"),
    "hub:8": ("allgather",),
    "dgx2": ("allgather", "alltoall", "allreduce"),
    "dgx-a100": ("allreduce",),
    "torus:4x4": ("allgather", "alltoall"),
}


def schedules() -> Iterator[tuple[str, Schedule]]:
    """All points of all frontiers, labelled."""
    for machine, collectives in FRONTIERS.items():
        box = topology(machine)
        for collective in collectives:
            outcome = synthesize(Problem(box, make(collective, box.ranks)), "exact", Budget(120))
            for p in outcome.points:
                yield f"{machine} {collective} {p.steps}/{p.rounds}/{p.factor}", p.schedule


def judge(schedule: Schedule, in_place: bool, instances: int, interleavings: int) -> str:
    """``ok``, ``refused: why`` or ``FAIL: why`` for one form of a schedule."""
    # microsoft/msccl refuses alltoall in place; the executor and RCCL take it.
    alltoall = schedule.collective.kind is Kind.ALLTOALL
    target = EXECUTOR if in_place and alltoall else MSCCL
    try:
        program = lower_schedule(schedule, CompileOptions(target, instances, in_place=in_place))
        text = emit(program, target)
    except UserError as error:
        return f"refused: {error.message}"
    wrong = [*errors(check_program(program, target.name))]
    wrong += errors(check_xml(read_msccl_xml(text), target.name))
    if wrong:
        return f"FAIL: {wrong[0]}"
    run = run_xml(text, "xml", program.collective, interleavings=interleavings)
    return "ok" if run.ok else f"FAIL: {run.detail}"


def main() -> int:
    """Print a line per schedule; exit 1 if a form fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--interleavings", type=int, default=200)
    interleavings = parser.parse_args().interleavings
    console = Console(width=150)
    table = Table("schedule (steps/rounds/chunks)", "out x1", "x2", "x4", "in x1", "x2", "x4", "s")
    failed = False
    for label, schedule in schedules():
        started = time.monotonic()
        cells = [
            judge(schedule, in_place, n, interleavings)
            for in_place in (False, True)
            for n in (1, 2, 4)
        ]
        failed = failed or any(c.startswith("FAIL") for c in cells)
        table.add_row(label, *cells, f"{time.monotonic() - started:.1f}")
        console.print(f"{label}: {', '.join(cells)}", style="dim")
    console.print(table)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
