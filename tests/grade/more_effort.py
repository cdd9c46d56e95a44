"""More effort against less, and the race against its members, on irregular machines.

``python tests/grade/more_effort.py [--machines 10] [--seed 0] [--efforts 1 3 10 30]``
``python tests/grade/more_effort.py --members --machines 60 --efforts 3``

With ``--members`` the race is held against each of its members alone, at the same effort.

Each machine is a ring with chords of several widths, or a damaged machine of the catalogue.
Printed: µs over the bound at each effort; exit 1 if one is above that of a smaller effort, or of a
member, by more than what counts as the same where messages have a cost: of schedules within that,
the one with fewer messages, or the steadiest, is the answer.
"""

import argparse
import random
import sys
from itertools import combinations

from damaged import damaged, searched

import weft
from weft.dsl.base.errors import UserError
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.problem import Objective, Problem
from weft.dsl.nouns.topology import Topology, both_ways, gpu
from weft.synth.base.engine import Budget
from weft.synth.time.schedule_time import simulate
from weft.synth.time.slices import SLICE_EFFORT

KINDS = ("allreduce", "allgather", "alltoall", "broadcast", "reduce_scatter")
SIZES = (1 << 14, 1 << 20, 1 << 26)
WIDTHS = (6, 12, 25, 50)
MEMBERS = ("packing", "classic", "greedy", "exact", "flow", "sketched")


def ring_with_chords(chance: random.Random) -> Topology:
    """Return a connected machine of 5 to 12 GPUs without symmetry."""
    ranks = chance.randint(5, 12)
    pairs = [(i, (i + 1) % ranks) for i in range(ranks)]
    pairs += [tuple(chance.sample(range(ranks), 2)) for _ in range(chance.randint(2, 2 * ranks))]
    links = [x for u, v in pairs for x in both_ways(u, v, chance.choice(WIDTHS), "0.7")]
    return Topology("ring with chords", tuple(map(gpu, range(ranks))), tuple(links))


def question(number: int) -> tuple[Topology, str, int]:
    """Return a machine, a collective and a size in bytes."""
    chance = random.Random(f"more effort {number}")
    machine = damaged(number) if number % 3 == 2 else ring_with_chords(chance)
    return machine, KINDS[number % len(KINDS)], chance.choice(SIZES)


def alone(machine: Topology, kind: str, size: int, effort: float) -> dict[str, float]:
    """Return the µs of the race and of each engine that takes the question."""
    problem = Problem(machine, make(kind, machine.ranks), None, Objective.TIME, size)
    found = {}
    for engine in ("portfolio", *MEMBERS):
        try:
            points = weft.synthesize(problem, engine, Budget(effort)).points
        except UserError:
            continue
        if points:
            found[engine] = min(simulate(p.schedule, size).time_us for p in points)
    return found


def worse(us: float, than_us: float) -> bool:
    """Return True if a time is longer than another by more than the choice may give up."""
    return us > SLICE_EFFORT.kept(than_us)


def behind(machine: Topology, kind: str, size: int, effort: float) -> bool:
    """Print a line; return True if a member alone is quicker than the race."""
    found = alone(machine, kind, size, effort)
    race = found.pop("portfolio")
    best = min(found, key=found.__getitem__)
    what = f"{machine.name} of {machine.ranks} {kind} {size} B"
    wrong = worse(race, found[best])
    verdict = "  WORSE THAN A MEMBER" if wrong else ""
    print(f"{what}: race {race:.3f} µs, {race / found[best]:.4f} of {best}{verdict}")
    sys.stdout.flush()
    return wrong


def main() -> int:
    """Print a line for each machine; exit 1 if an answer is worse than one of less effort."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--machines", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--members", action="store_true")
    parser.add_argument("--efforts", type=float, nargs="+", default=[1, 3, 10, 30])
    options = parser.parse_args()
    failed = 0
    for number in range(options.seed, options.seed + options.machines):
        machine, kind, size = question(number)
        if options.members:
            failed += sum(behind(machine, kind, size, one) for one in options.efforts)
            continue
        found = [searched(machine, kind, size, effort) for effort in sorted(options.efforts)]
        wrong = any(worse(b.us, a.us) for a, b in combinations(found, 2))
        failed += wrong
        values = " ".join(f"{x.over:.4f}" for x in found)
        spent = " ".join(f"{x.spent:.1f}" for x in found)
        verdict = "  WORSE WITH MORE EFFORT" if wrong else ""
        print(f"{number:3} {machine.name} {kind} {size} B: {values}  CPU {spent}{verdict}")
        sys.stdout.flush()
    than = "in the race than by a member alone" if options.members else "for more effort"
    print(f"{options.machines} machines, {failed} with a worse answer {than}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
