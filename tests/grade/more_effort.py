"""More effort is never a worse answer: irregular machines, each searched at rising efforts.

``python tests/grade/more_effort.py [--machines 10] [--seed 0] [--efforts 1 3 10 30]``

Each machine is a ring with chords of several widths, or a damaged machine of the catalogue.
Printed: µs over the bound at each effort; exit 1 if one is above that of a smaller effort.
"""

import argparse
import random
import sys
from itertools import pairwise

from damaged import damaged, searched

from weft.dsl.nouns.topology import Topology, both_ways, gpu

KINDS = ("allreduce", "allgather", "alltoall", "broadcast", "reduce_scatter")
SIZES = (1 << 14, 1 << 20, 1 << 26)
WIDTHS = (6, 12, 25, 50)
SAME = 1e-9
"""Part of the value that is rounding."""


def ring_with_chords(chance: random.Random) -> Topology:
    """Return a connected machine of 5 to 12 GPUs without symmetry."""
    ranks = chance.randint(5, 12)
    pairs = [(i, (i + 1) % ranks) for i in range(ranks)]
    pairs += [tuple(chance.sample(range(ranks), 2)) for _ in range(chance.randint(2, 2 * ranks))]
    links = [x for u, v in pairs for x in both_ways(u, v, chance.choice(WIDTHS), "0.7")]
    return Topology("ring with chords", tuple(map(gpu, range(ranks))), tuple(links))


def main() -> int:
    """Print a line for each machine; exit 1 if an answer is worse than one of less effort."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--machines", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--efforts", type=float, nargs="+", default=[1, 3, 10, 30])
    options = parser.parse_args()
    worse = 0
    for number in range(options.seed, options.seed + options.machines):
        chance = random.Random(f"more effort {number}")
        machine = damaged(number) if number % 3 == 2 else ring_with_chords(chance)
        kind, size = KINDS[number % len(KINDS)], chance.choice(SIZES)
        found = [searched(machine, kind, size, effort) for effort in sorted(options.efforts)]
        wrong = any(b.us > a.us * (1 + SAME) for a, b in pairwise(found))
        worse += wrong
        values = " ".join(f"{x.over:.4f}" for x in found)
        spent = " ".join(f"{x.spent:.1f}" for x in found)
        verdict = "  WORSE WITH MORE EFFORT" if wrong else ""
        print(f"{number:3} {machine.name} {kind} {size} B: {values}  CPU {spent}{verdict}")
        sys.stdout.flush()
    print(f"{options.machines} machines, {worse} with a worse answer for more effort")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
