"""How much slower answers get where latencies are a little longer, by patterns that no search saw.

Run: ``python tests/grade/jitter.py [--patterns 12] [--seed 0] [--only WORD] [--json]``. Each row is
one question: its answer's time at its size, its worst time over seeded patterns in which each
link's latency is up to 0.7 ns longer, its messages, its time at 10 ns for each of them, and the
counted effort of the search.
"""

from __future__ import annotations

import argparse
import json
import random
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from weft.dsl.base.tables import table
from weft.dsl.base.units import parse_bytes
from weft.dsl.catalogue import topology
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.problem import Objective, Problem
from weft.dsl.nouns.schedule import Schedule
from weft.synth.api import synthesize
from weft.synth.base.engine import Budget
from weft.synth.base.meter import Meter
from weft.synth.bounds import bounds, lower_bound_us
from weft.synth.time.schedule_tables import CostModel
from weft.synth.time.schedule_time import simulate

LONGEST_PS = 700
"""Picoseconds that a latency is longer, at most."""

MESSAGE_US = Fraction(1, 100)
"""Cost of a message in the column of messages."""


@dataclass(frozen=True)
class Question:
    """A machine, a collective, the bytes, an engine, and how much work it may do."""

    machine: str
    collective: str
    size: str
    engine: str = "portfolio"
    effort: float = 8

    @property
    def name(self) -> str:
        """In a few words."""
        return f"{self.machine} {self.collective} {self.size} {self.engine}"


def _questions(text: str) -> tuple[Question, ...]:
    return tuple(Question(*line.split()) for line in text.strip().splitlines())


QUESTIONS = _questions("""
ring:8 allreduce 64KiB
ring:8 allgather 1MiB
ring:6 alltoall 1MiB
dgx1 allgather 1MiB
dgx1 allreduce 64KiB
dgx1 allreduce 64MiB
dgx1 alltoall 16MiB
dgx1 reduce_scatter 64MiB
dgx-h100 allreduce 64KiB
dgx-h100 allreduce 1MiB
dgx-a100:nodes=2 allreduce 64MiB
dgx-a100:nodes=2 allgather 1MiB
dgx-h100:nodes=2 allreduce 64MiB
ndv2:nodes=2 allgather 16MiB
mi300x allreduce 1MiB
mi250 allgather 16MiB
mesh:4x4 allgather 64MiB
mesh:4x4 alltoall 16MiB
mesh:5x5 allgather 1GiB greedy
mesh:5x5 broadcast 64MiB
mesh:3x3,dead=0-1 reduce_scatter 16MiB
torus:4x4 allreduce 16MiB
torus:5x5 allgather 256MiB greedy
torus:4x4,dead=gpu0-gpu1 allgather 256MiB
torus:3x3 alltoall 64MiB
full:8 alltoall 1MiB
hypercube:4 allgather 1MiB
line:6 allgather 4MiB
dgx2 allreduce 16MiB
dgx-a100 alltoall 4MiB
dgx-h100:nodes=2 broadcast 8MiB
dgx-h100:nodes=2 alltoall 1MiB
dgx-a100:nodes=4 allgather 4MiB
mi250 reduce_scatter 64MiB
mi300x allgather 64KiB
mesh:4x4,dead=0-1 allreduce 16MiB
torus:4x4 broadcast 16MiB
torus:3x3x3 allgather 16MiB
hypercube:3 allreduce 256KiB
ring:5 broadcast 1MiB
""")


def shaken(schedule: Schedule, seed: int) -> Schedule:
    """The schedule on a machine whose latencies are longer by seeded picoseconds."""
    rng, machine = random.Random(seed), schedule.topology
    links = tuple(
        replace(link, latency=link.latency + Fraction(rng.randint(0, LONGEST_PS), 10**6))
        for link in machine.links
    )
    return replace(schedule, topology=replace(machine, links=links))


def row_of(question: Question, patterns: int, seed: int) -> dict[str, Any]:
    """The figures of one question."""
    machine, size = topology(question.machine), parse_bytes(question.size)
    collective = make(question.collective, machine.ranks)
    problem = Problem(machine, collective, None, Objective.TIME, size)
    meter = Meter(1 << 62)
    outcome = synthesize(problem, question.engine, Budget(float(question.effort), outer=meter))
    best = outcome.points[0].schedule
    us = simulate(best, size).time_us
    worst = max(
        (simulate(shaken(best, 1000 * (seed + 1) + i), size).time_us for i in range(patterns)),
        default=us,
    )
    least = float(lower_bound_us(bounds(machine, collective), size))
    return {
        "question": question.name,
        "us": us,
        "over_bound": us / least,
        "worst_over_us": worst / us,
        "segments": best.segments,
        "messages": best.moves * best.segments,
        "us_with_messages": simulate(best, size, CostModel(overhead_us=MESSAGE_US)).time_us,
        "found_by": best.provenance.get("found_by", question.engine),
        "effort": meter.done / 1e6,
        "fragile": any("fragile" in told for told in outcome.statements),
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--patterns", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="questions whose name has this word")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    rows = []
    for question in QUESTIONS:
        if args.only in question.name:
            rows.append(row_of(question, args.patterns, args.seed))
            if args.json:
                print(json.dumps(rows[-1]), flush=True)
    if not args.json:
        columns = [key for key in rows[0] if key != "question"]
        print(table(["question", *columns], [[r["question"], *_cells(r, columns)] for r in rows]))


def _cells(row: dict[str, Any], columns: list[str]) -> list[str]:
    return [f"{row[c]:.5g}" if isinstance(row[c], float) else str(row[c]) for c in columns]


if __name__ == "__main__":
    main()
