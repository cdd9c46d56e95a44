"""``make bench``: the exact engine with CP-SAT against z3 on the paper's encoding, per instance.

Both answer the same question (chunks, steps, rounds) in this process, one after the other; CPU
seconds include building the model. z3 gets a limit; where it is reached the ratio is a lower
bound. Answers must agree.
"""

import argparse
import os
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from weft.dsl.catalogue import topology
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.hops import find_hops
from weft.synth.base.cancellable import cpu_seconds
from weft.synth.base.engine import Budget, Silent
from weft.synth.bounds.steps.demands import demands, reach
from weft.synth.engines.exact import paper, realize
from weft.synth.engines.exact.instance import ExactQuestion, ExactRun, build_space

INSTANCES = (
    ("dgx1", "allgather", 1, 2, 2),
    ("dgx1", "allgather", 2, 2, 3),
    ("dgx1", "allgather", 3, 2, 4),
    ("dgx1", "allgather", 3, 3, 4),
    ("dgx1", "allgather", 6, 3, 7),
    ("dgx1", "alltoall", 1, 2, 2),
    ("dgx1", "alltoall", 1, 2, 3),
    ("dgx1", "alltoall", 3, 2, 8),
    ("dgx1", "gather", 6, 2, 7),
    ("dgx1", "broadcast", 6, 3, 3),
    ("dgx1", "broadcast", 12, 4, 4),
    ("ring:8", "allgather", 2, 4, 7),
    ("ring:8", "alltoall", 1, 4, 8),
    ("hub:8", "allgather", 1, 1, 7),
    ("dgx2", "allgather", 1, 1, 15),
    ("torus:4x4", "allgather", 4, 4, 15),
)


@dataclass(frozen=True)
class Run:
    """One solver's answer and its CPU seconds."""

    verdict: str
    seconds: float


def measure(
    solve: Callable[..., realize.Realization], name: str, limit: float
) -> Callable[..., Run]:
    """A function that answers an instance with one solver and measures it."""

    def run(machine: str, collective: str, chunks: int, steps: int, rounds: int) -> Run:
        started = cpu_seconds()  # those of the solver's process too
        box = topology(machine)
        wanted = demands(make(collective, box.ranks))
        space = build_space(box, find_hops(box), wanted, reach(box))
        answer = solve(
            space,
            ExactQuestion(chunks, steps, rounds),
            Budget(limit).meter(),
            ExactRun(0, Silent()),
        )
        return Run(str(answer.verdict), time.process_time() - started)

    return run


def main() -> int:
    """Print the hardware and the table; exit 1 if two solvers contradict each other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--limit", type=float, default=30.0, help="effort per instance")
    limit = parser.parse_args().limit
    console = Console(width=110)
    console.print(
        f"{platform.machine()}, {os.cpu_count()} cores, {platform.python_implementation()} "
        f"{platform.python_version()}, {platform.system()}"
    )
    table = Table(
        "machine", "collective", "C,S,R", "CP-SAT", "CPU s", "z3 (paper)", "CPU s", "ratio"
    )
    ours, theirs = measure(realize.solve, "cp-sat", 60), measure(paper.solve, "z3", limit)
    ours("ring:8", "allgather", 1, 4, 4), theirs("ring:8", "allgather", 1, 4, 4)  # imports
    agree = True
    for machine, collective, chunks, steps, rounds in INSTANCES:
        a = ours(machine, collective, chunks, steps, rounds)
        b = theirs(machine, collective, chunks, steps, rounds)
        agree = agree and (a.verdict == b.verdict or b.verdict == "unknown")
        ratio = b.seconds / max(a.seconds, 1e-3)
        table.add_row(
            machine,
            collective,
            f"{chunks},{steps},{rounds}",
            a.verdict,
            f"{a.seconds:.2f}",
            b.verdict,
            f"{b.seconds:.2f}",
            f"{'>' if b.verdict == 'unknown' else ''}{ratio:.0f}x",
        )
    console.print(table)
    return 0 if agree else 1


if __name__ == "__main__":
    sys.exit(main())
