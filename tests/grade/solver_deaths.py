"""Many small searches with solvers: cut off or killed at random moments, none loses its answer.

``python tests/grade/solver_deaths.py [--solves 1000] [--seed 0]``

Each search is a random machine and collective for ``exact`` (CP-SAT) or ``flow`` (HiGHS). A third
is cut off after a random number of polls, a third has its solver killed at random polls (SIGABRT,
SIGKILL, SIGSEGV), the rest is left alone. Exit 1 if a search raises, ends without an answer though
it found one, or is left alone and ends without one.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import sys
from collections import Counter
from dataclasses import dataclass, field

from weft.dsl.base.processes import descendants
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.problem import Objective, Problem
from weft.dsl.nouns.topology import Topology, both_ways, gpu
from weft.synth.api import synthesize
from weft.synth.base.cancellable import cpu_seconds
from weft.synth.base.engine import SOLVER_DIED, Budget, Outcome, Point

DEATHS = (signal.SIGABRT, signal.SIGKILL, signal.SIGSEGV)
KINDS = ("allgather", "alltoall", "broadcast", "scatter", "reduce_scatter")


@dataclass
class Fate:
    """Observer of one search that kills its solver, or cuts it off, at random polls."""

    chance: random.Random
    polls_left: int | None = None
    deaths_left: int = 0
    killed: int = 0
    told: int = 0
    found: list[Point] = field(default_factory=list)

    def stage(self, name: str) -> None:
        """Count the lines about solvers that died."""
        self.told += name.startswith(SOLVER_DIED)

    def incumbent(self, point: Point) -> None:
        """Keep what was found."""
        self.found.append(point)

    def cancelled(self) -> bool:
        """Count down to the cut-off; now and then kill the solver."""
        if self.deaths_left and self.chance.random() < 0.3:
            for pid in descendants(os.getpid()):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, self.chance.choice(DEATHS))
                    self.killed += 1
            self.deaths_left -= 1
        if self.polls_left is None:
            return False
        self.polls_left -= 1
        return self.polls_left < 0


def machine(chance: random.Random) -> Topology:
    """A ring with chords, of 4 to 7 GPUs."""
    ranks = chance.randint(4, 7)
    pairs = [(i, (i + 1) % ranks) for i in range(ranks)]
    for _ in range(chance.randint(0, ranks)):
        u, v = chance.sample(range(ranks), 2)
        pairs.append((u, v))
    links = [link for u, v in pairs for link in both_ways(u, v, chance.choice([12, 25, 50]), "0.7")]
    return Topology("ring with chords", tuple(map(gpu, range(ranks))), tuple(links))


def wrong(way: str, fate: Fate, outcome: Outcome | None) -> str | None:
    """Say what is wrong with the end of a search, if anything is."""
    points = outcome.points if outcome is not None else ()
    if fate.found and not points:
        return "an incumbent was lost"
    if way == "alone" and not points:
        return "no answer"
    return None


def main() -> int:
    """Run all; print a table of how they ended."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--solves", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    started, ends, faults = cpu_seconds(), Counter[str](), 0
    for number in range(options.solves):
        chance = random.Random(f"{options.seed} {number}")
        way = ("cut off", "killed", "alone")[number % 3]
        fate = Fate(
            chance,
            polls_left=chance.randint(0, 12) if way == "cut off" else None,
            deaths_left=chance.randint(1, 3) if way == "killed" else 0,
        )
        box = machine(chance)
        engine = chance.choice(["exact", "exact", "flow{chunks=1}"])
        aim = Objective.TIME if "flow" in engine else Objective.BANDWIDTH
        kind = chance.choice(KINDS)
        problem = Problem(box, make(kind, box.ranks), objective=aim, bytes=1 << 20)
        outcome: Outcome | None = None
        try:
            outcome = synthesize(problem, engine, Budget(chance.choice([1, 3])), fate)
        except KeyboardInterrupt:  # stopped before anything was found
            pass
        except Exception as error:
            print(f"{number} {engine} {kind} {way}: {type(error).__name__}: {error}")
            faults += 1
        if (what := wrong(way, fate, outcome)) is not None:
            print(f"{number} {engine} {kind} on {box.ranks} ranks, {way}: {what}")
            faults += 1
        ends[f"{way}: {outcome.status if outcome else 'nothing'}"] += 1
        ends["solvers killed"] += fate.killed
        ends["lines that said so"] += fate.told
    for what, count in sorted(ends.items()):
        print(f"{what:24} {count:6}")
    print(f"{options.solves} searches, {faults} faults, {cpu_seconds() - started:.0f} CPU s")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
