"""Many small searches with solvers: cut off, killed, stopped or starved, none loses its answer.

``python tests/grade/solver_deaths.py [--solves 1000] [--seed 0] [--load 4]``

Each search is a random machine and collective for ``exact`` (CP-SAT) or ``flow`` (HiGHS; linear
programs go to the process of solvers here, however small). A quarter is cut off after 0.5 to 3 s of
CPU, of a quarter the solver is hit at random polls (SIGABRT, SIGKILL, SIGSEGV, SIGSTOP), a quarter
has too little memory for its solvers, the rest is left alone. Busy loops beside them make the
machine slow. All searches are in one process and share its solvers. Exit 1 if a search raises, ends
with an answer worse than what it found, or is left alone and ends without one.
"""

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from weft.dsl.base.environment import SOLVER_MEMORY
from weft.dsl.base.processes import descendants, owning
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.problem import Objective, Problem
from weft.dsl.nouns.topology import Topology, both_ways, gpu
from weft.synth.api import CUT_OFF, synthesize
from weft.synth.base.cancellable import cpu_seconds
from weft.synth.base.engine import GIVEN_UP, SOLVER_DIED, Budget, Outcome, Point
from weft.synth.lp import highs
from weft.synth.time.schedule_time import simulate

DEATHS = (signal.SIGABRT, signal.SIGKILL, signal.SIGSEGV, signal.SIGSTOP)
KINDS = ("allgather", "alltoall", "broadcast", "scatter", "reduce_scatter")
WAYS = ("cut off", "killed", "starved", "alone")
SIZE = 1 << 20
MEMORY = ("30MiB", "90MiB", "110MiB")
"""Too little to start, to load a solver, to solve."""

LOOP = """
import sys
from pathlib import Path
from weft.dsl.base.processes import end_with_owner
end_with_owner(Path(sys.argv[1]))
while True:
    sum(range(10_000))
"""


@dataclass
class Fate:
    """Observer of one search that kills or stops its solver at random polls."""

    chance: random.Random
    hits_left: int = 0
    hits: int = 0
    told: int = 0
    found: list[Point] = field(default_factory=list)

    def stage(self, name: str) -> None:
        """Count the lines about solvers that died."""
        self.told += name.startswith(SOLVER_DIED)

    def incumbent(self, point: Point) -> None:
        """Keep what was found."""
        self.found.append(point)

    def cancelled(self) -> bool:
        """Now and then hit the solver; never ask to stop."""
        if self.hits_left > 0 and self.chance.random() < 0.3:
            self.hits_left -= 1
            for pid in solver_processes():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, self.chance.choice(DEATHS))
                    self.hits += 1
        return False


def solver_processes() -> list[int]:
    """The processes below this one; busy loops are not."""
    return descendants(os.getpid())


def machine(chance: random.Random) -> Topology:
    """A ring with chords, of 4 to 7 GPUs."""
    ranks = chance.randint(4, 7)
    pairs = [(i, (i + 1) % ranks) for i in range(ranks)]
    for _ in range(chance.randint(0, ranks)):
        u, v = chance.sample(range(ranks), 2)
        pairs.append((u, v))
    links = [link for u, v in pairs for link in both_ways(u, v, chance.choice([12, 25, 50]), "0.7")]
    return Topology("ring with chords", tuple(map(gpu, range(ranks))), tuple(links))


def value(point: Point, aim: Objective) -> float:
    """The value of the objective, which is to be small."""
    if aim is Objective.TIME:
        return simulate(point.schedule, SIZE).time_us
    return float(point.rounds_per_chunk)


def wrong(way: str, fate: Fate, outcome: Outcome | None, aim: Objective) -> str | None:
    """Say what is wrong with the end of a search, if anything is."""
    points = outcome.points if outcome is not None else ()
    if fate.found and not points:
        return "an incumbent was lost"
    if way == "alone" and not points:
        return "no answer"
    if fate.found:
        best = min(value(p, aim) for p in fate.found)
        if min(value(p, aim) for p in points) > best * (1 + 1e-9):
            return "the best incumbent was lost"
    if outcome is not None and fate.told and way == "alone":
        return "its solver died by itself"
    return None


@contextmanager
def load(loops: int) -> Iterator[None]:
    """Busy loops beside the block. They are nobody's children: their CPU time is not ours."""
    with tempfile.TemporaryDirectory() as folder, owning(Path(folder)):
        for _ in range(loops):
            words = [sys.executable, "-c", LOOP, folder]
            subprocess.run(["sh", "-c", '"$@" &', "sh", *words], check=True)
        yield


def search(number: int, seed: int, ends: Counter[str]) -> str | None:
    """Run one search, count how it ended, return what is wrong."""
    chance = random.Random(f"{seed} {number}")
    way = WAYS[number % len(WAYS)]
    fate = Fate(chance, hits_left=chance.randint(1, 3) if way == "killed" else 0)
    os.environ[SOLVER_MEMORY] = chance.choice(MEMORY) if way == "starved" else ""
    box, kind = machine(chance), chance.choice(KINDS)
    engine = chance.choice(["exact", "exact", "flow{chunks=1}"])
    aim = Objective.TIME if "flow" in engine else Objective.BANDWIDTH
    problem = Problem(box, make(kind, box.ranks), objective=aim, bytes=SIZE)
    budget = Budget(chance.choice([0.3, 1]))
    if way == "cut off":
        budget = Budget(20, seconds=chance.choice([0.5, 0.5, 0.5, 1, 3]))
    outcome, fault = None, None
    try:
        outcome = synthesize(problem, engine, budget, fate)
    except Exception as error:
        fault = f"{type(error).__name__}: {error}"
    fault = fault or wrong(way, fate, outcome, aim)
    for pid in solver_processes():  # one that was stopped last is none of the next search's
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
    said = outcome.statements if outcome else ()
    ends[f"{way}: {outcome.status if outcome else 'nothing'}"] += 1
    ends["solvers hit"] += fate.hits
    ends["lines that a solver died"] += fate.told
    ends["answers that say a question was given up"] += any(x.endswith(GIVEN_UP) for x in said)
    ends["answers that say --time"] += any(x.startswith(CUT_OFF) for x in said)
    return fault and f"{number} {engine} {kind} on {box.ranks} ranks, {way}: {fault}"


def main() -> int:
    """Run all; print a table of how they ended."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--solves", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--load", type=int, default=4, help="busy loops beside (default: 4)")
    options = parser.parse_args()
    highs.PROCESS_ENTRIES = 0  # small programs, too, go to the process of solvers
    started, ends, faults = cpu_seconds(), Counter[str](), 0
    with load(options.load):
        for number in range(options.solves):
            if (fault := search(number, options.seed, ends)) is not None:
                print(fault, flush=True)
                faults += 1
    for what, count in sorted(ends.items()):
        print(f"{what:42} {count:6}")
    print(f"{options.solves} searches, {faults} faults, {cpu_seconds() - started:.0f} CPU s")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
