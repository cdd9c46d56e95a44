"""``make bench``: broken machines, and how near to their new bound schedules come in seconds.

The schedule of the whole machine is there already, as in a library; what is timed is how long it
takes to mend it for what is left (``repair``: all ways to do that, and the runs that compare them),
or to synthesize anew (``packing``). Everything is verified; the value is the simulated time over
the bound of the broken machine.
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from rich.console import Console
from rich.table import Table

from weft.dsl.base.units import format_bytes
from weft.dsl.catalogue import topology
from weft.dsl.machines.failures import Degraded, degraded, find
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.problem import Objective, Problem
from weft.dsl.nouns.schedule import Schedule
from weft.dsl.nouns.topology import Topology
from weft.synth.api import synthesize
from weft.synth.base.engine import Budget
from weft.synth.bounds import bounds, lower_bound_us
from weft.synth.judge.verify import require_valid
from weft.synth.repair.mend import REPAIR_EFFORT, repairs
from weft.synth.time.schedule_time import simulate

SECONDS = 30.0
"""The budget of a search."""

SLICES = (1, 16, 256)
"""Slices that a repair is timed in."""

KINDS = ("allgather", "reduce_scatter", "allreduce")


@dataclass(frozen=True, slots=True)
class Case:
    """A machine, what is dead there, and how a schedule is found."""

    machine: str
    dead: tuple[str, ...]
    how: str


CASES = (
    Case("dgx-a100:nodes=4", ("host0.nic0",), "repair"),
    Case("dgx-a100:nodes=8", ("host0.nic0",), "repair"),
    Case("dgx-a100:nodes=16", ("host0.nic0",), "repair"),
    Case("torus:8x8", ("0-1", "10-18", "35-36"), "repair"),
    Case("torus:8x8", ("0-1", "10-18", "35-36"), "packing"),
)


def packed(machine: Topology, kind: str, size: int) -> Schedule:
    """What the engine finds."""
    problem = Problem(machine, make(kind, machine.ranks), None, Objective.TIME, size)
    return synthesize(problem, "packing", Budget(SECONDS)).points[0].schedule


def measured(find_it: Callable[[], Schedule]) -> tuple[Schedule, float]:
    """A schedule, and the seconds until it is there and proved."""
    begun = time.perf_counter()
    found = find_it()
    require_valid(found)
    return found, time.perf_counter() - begun


def mended(schedule: Schedule, left: Degraded, size: int) -> Schedule:
    """The fastest of all repairs, each in few and in many slices."""
    found = (
        replace(one, segments=slices)
        for _, one in repairs(replace(schedule, bytes=size), left, REPAIR_EFFORT)
        for slices in SLICES
    )
    return min(found, key=lambda one: simulate(one, size).time_us)


def row(case: Case, kind: str, size: int) -> tuple[str, ...]:
    """One line of the table."""
    whole = topology(case.machine)
    left = degraded(whole, [find(whole, name) for name in case.dead])
    if case.how == "repair":
        healthy = packed(whole, kind, size)
        found, seconds = measured(lambda: mended(healthy, left, size))
    else:
        found, seconds = measured(lambda: packed(left.topology, kind, size))
    least = float(lower_bound_us(bounds(left.topology, make(kind, whole.ranks)), size))
    value = simulate(found, size).time_us
    return (
        case.machine,
        ", ".join(case.dead),
        kind,
        format_bytes(size),
        case.how,
        f"{seconds:.1f}",
        f"{value / least:.4f}",
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="machines whose names contain this")
    parser.add_argument("--size", type=int, default=1 << 30, help="bytes")
    args = parser.parse_args()
    # Loops are compiled before the clock starts.
    row(Case("dgx-a100:nodes=2", ("host0.nic0",), "repair"), "allreduce", 1 << 20)
    table = Table("machine", "dead", "collective", "size", "how", "s", "value/bound")
    for case in CASES:
        if args.only in case.machine:
            for kind in KINDS:
                table.add_row(*row(case, kind, args.size))
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
