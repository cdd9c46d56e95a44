"""``make bench``: the same question to ``portfolio`` without and with a sketch, in one process.

Both searches have the same budget, and their schedules are verified. Seconds are CPU seconds: of
the search without a sketch until one of its engines held the best that any of them did, of the one
with it until it held something at least as quick (nothing where it never did). Putting the best in
the order that suits it follows: it counts in the times in µs, which are those of the answers, and
in the seconds with the sketch only. *Sooner* is the first number of seconds over the second;
*quicker* says by how much the answer with the sketch takes less time.
"""

import argparse
import os
import platform
import sys
import time
from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table

from weft.dsl.base.units import format_bytes
from weft.dsl.catalogue import topology
from weft.dsl.language.elaborate import elaborate
from weft.dsl.language.load import load_sketch
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.problem import Objective, Problem
from weft.synth.api import synthesize
from weft.synth.base.engine import Budget, Point
from weft.synth.bounds import bounds, lower_bound_us
from weft.synth.time.schedule_time import simulate

KIB, GB = 1 << 10, 10**9
CASES = (
    ("ndv2:nodes=4", "alltoall", 64 * KIB, "ndv2_any_to_any"),
    ("ndv2:nodes=4", "alltoall", 256 * KIB, "ndv2_gates"),
    ("ndv2:nodes=8", "alltoall", 64 * KIB, "ndv2_gates"),
    ("ndv2:nodes=4", "allgather", 16 * KIB, "ndv2_gates"),
    ("ndv2:nodes=2", "allgather", 64 * KIB, "ndv2_gates"),
    ("ndv2:nodes=4", "allreduce", GB, "ndv2_ring_of_nodes"),
    ("ndv2:nodes=2", "allgather", 1024 * KIB, "ndv2_gates"),
    ("dgx2:nodes=2", "alltoall", 1024 * KIB, "dgx2_relay"),
    ("mi250:nodes=2", "alltoall", 64 * KIB, "mi250_rails"),
)
"""Machine, collective, bytes, sketch; the last four are some where it helps little or not."""


@dataclass(slots=True)
class Search:
    """Hears what one search finds, and when."""

    started: float = field(default_factory=time.process_time)
    found: list[tuple[float, Point]] = field(default_factory=list)

    def stage(self, name: str) -> None:
        """Nothing to note."""

    def incumbent(self, point: Point) -> None:
        """Note the point and the CPU seconds."""
        self.found.append((time.process_time() - self.started, point))

    def cancelled(self) -> bool:
        """Never."""
        return False


@dataclass(frozen=True, slots=True)
class Run:
    """Time in µs of the answer and CPU seconds to it; the (CPU seconds, time) of all that engines
    held on the way, in order."""

    us: float
    seconds: float
    held: tuple[tuple[float, float], ...]

    def best_held(self) -> tuple[float, float]:
        """When the quickest of these was held, and its time."""
        return min(self.held, key=lambda x: (x[1], x[0]), default=(self.seconds, self.us))

    def seconds_to(self, us: float) -> float | None:
        """CPU seconds until a schedule of at most that time was held."""
        steps = (*self.held, (self.seconds, self.us))
        return next((s for s, took in steps if took <= us * (1 + 1e-9)), None)


def run(problem: Problem, seconds: float) -> Run:
    """One search; what its engines held is simulated after it."""
    assert problem.bytes is not None
    size, search = problem.bytes, Search()
    outcome = synthesize(problem, "portfolio", Budget(seconds), search)
    whole = time.process_time() - search.started
    held = tuple((s, simulate(p.schedule, size).time_us) for s, p in search.found)
    us = min(simulate(p.schedule, size).time_us for p in outcome.points)
    return Run(us, whole, held)


def main() -> int:
    """Print the hardware and the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0, help="for each search")
    seconds = parser.parse_args().seconds
    console = Console(width=150)
    console.print(
        f"{platform.machine()}, {os.cpu_count()} cores, {platform.python_implementation()} "
        f"{platform.python_version()}, {platform.system()}; {seconds:g} s each"
    )
    table = Table(
        "machine",
        "collective",
        "size",
        "sketch",
        "bound µs",
        "without µs",
        "CPU s",
        "with µs",
        "CPU s",
        "sooner",
        "quicker",
    )
    for name, kind, size, rules in CASES:
        machine = topology(name)
        collective = make(kind, machine.ranks)
        plain = Problem(machine, collective, None, Objective.TIME, size)
        ruled = Problem(
            machine, collective, elaborate(load_sketch(rules), machine), Objective.TIME, size
        )
        for one in (plain, ruled):
            run(one, 0.5)  # kernels are loaded before the clock runs
        without, under = run(plain, seconds), run(ruled, seconds)
        first, best = without.best_held()
        second = under.seconds_to(best)
        sooner = f"{first / max(second, 0.01):.1f}x" if second is not None else ""
        table.add_row(
            name,
            kind,
            format_bytes(size),
            rules,
            f"{float(lower_bound_us(bounds(machine, collective), size)):,.3f}",
            f"{without.us:,.3f}",
            f"{first:.2f}",
            f"{under.us:,.3f}",
            "" if second is None else f"{second:.2f}",
            sooner,
            f"{1 - under.us / without.us:.2%}",
        )
    console.print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
