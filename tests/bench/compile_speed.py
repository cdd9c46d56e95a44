"""``make bench``: how long the compiler takes for large programs, stage by stage.

Every line is compiled in a process of its own for microsoft/msccl: lowered, all passes, every
result proved by the whole checker (races, deadlock, result), and written as XML. CPU seconds;
memory is the process's peak. *Lower* is all before the passes, tries of more channels included.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import large
from rich.console import Console
from rich.table import Table

from weft.backends.check.checker import check_program
from weft.backends.check.findings import errors
from weft.backends.compile.compile import CompileOptions, lower_schedule
from weft.backends.compile.pipeline import DEFAULT_PASSES, Pass, of_form
from weft.backends.formats.msccl.emit import emit
from weft.dsl.nouns.program import Program
from weft.dsl.nouns.runtime import MSCCL, Target
from weft.dsl.nouns.schedule import Schedule

LINES = (
    *(("all-pairs allreduce", (n,)) for n in (16, 32, 64)),
    *(("hierarchical allreduce", (nodes, 8)) for nodes in (8, 16, 32)),
    *(("ring allgather", (n,)) for n in (256, 512, 1024)),
)


def build(name: str, sizes: tuple[int, ...]) -> Schedule:
    """The schedule of a line."""
    if name == "ring allgather":
        return large.ring_allgather(*sizes)
    if name == "all-pairs allreduce":
        return large.all_pairs_allreduce(*sizes)
    return large.hierarchical_allreduce(*sizes)


@dataclass
class Clock:
    """CPU seconds by stage."""

    seconds: dict[str, float] = field(default_factory=dict)

    def add(self, stage: str, since: float) -> None:
        """Count the time from ``since`` to now."""
        self.seconds[stage] = self.seconds.get(stage, 0.0) + time.process_time() - since


@dataclass(frozen=True)
class Timed:
    """A pass that is measured."""

    inner: Pass
    clock: Clock

    @property
    def name(self) -> str:
        """That of the pass."""
        return self.inner.name

    def apply(self, program: Program, target: Target) -> Program:
        """What the pass does."""
        since = time.process_time()
        done: Program = self.inner.apply(program, target)
        self.clock.add(self.name, since)
        return done


def measure(name: str, sizes: tuple[int, ...]) -> dict[str, float]:
    """One line: instructions, seconds by stage, MiB."""
    schedule = build(name, sizes)
    clock = Clock()

    def verify(program: Program) -> None:
        since = time.process_time()
        found = errors(check_program(program))
        if found:
            raise SystemExit(f"{name} {sizes}: {found[0]}")
        clock.add("check", since)

    started = time.process_time()
    last = of_form(DEFAULT_PASSES, "program", "program")
    passes = tuple(Timed(one, clock) if one in last else one for one in DEFAULT_PASSES)
    program = lower_schedule(schedule, CompileOptions(passes=passes, verify=verify))
    total = time.process_time() - started
    clock.seconds["lower"] = total - sum(clock.seconds.values())
    since = time.process_time()
    emit(program, MSCCL)
    clock.add("emit", since)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 10)
    return {**clock.seconds, "instructions": program.instructions, "peak": peak}


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--line", help=argparse.SUPPRESS)
    line = parser.parse_args().line
    if line:
        name, sizes = json.loads(line)
        sys.stdout.write(json.dumps(measure(name, tuple(sizes))))
        return 0
    last = (one.name for one in of_form(DEFAULT_PASSES, "program", "program"))
    stages = ("lower", *last, "check", "emit")
    table = Table("compile speed", "ranks", "instructions", *stages, "all s", "s per 10⁶", "MiB")
    for name, sizes in LINES:
        own = [sys.executable, __file__, "--line", json.dumps([name, sizes])]
        run = subprocess.run(own, check=True, stdout=subprocess.PIPE, text=True)
        found = json.loads(run.stdout)
        seconds = [found.get(stage, 0.0) for stage in stages]
        table.add_row(
            name,
            "x".join(map(str, sizes)),
            f"{found['instructions']:,}",
            *(f"{s:.1f}" for s in seconds),
            f"{sum(seconds):.1f}",
            f"{1e6 * sum(seconds) / found['instructions']:.0f}",
            f"{found['peak']:.0f}",
        )
    Console(width=150).print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
